//! The pairs and idle threads of each peer.

use super::floor;
use super::talk::{Ends, Pipe, Run};
use crate::experiment::Peer;
use anyhow::{Context, Result, bail};
use rustix::io::{read, write};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Starts all threads of the run.
pub(super) fn start(peer: Peer, run: &Arc<Run>) -> Result<()> {
    match peer {
        Peer::Dapple => dapple(run),
        Peer::Tokio => tokio(run),
        Peer::Pthreads => pthreads(run),
        Peer::Epoll => floor::start(run),
        other => bail!("{other:?} is not run here"),
    }
}

/// Makes the pipes of both sides of each pair; `make` gets the pipe to read from and the one to
/// write to.
fn for_each_side(run: &Arc<Run>, mut make: impl FnMut(usize, bool, OwnedFd, OwnedFd) -> Result<()>) -> Result<()> {
    for pair in 0..run.case.pairs {
        let (there, back): (Pipe, Pipe) = (Run::pipe()?, Run::pipe()?);
        make(pair, true, back.0, there.1)?;
        make(pair, false, there.0, back.1)?;
    }
    Ok(())
}

struct Dapple(Option<dapple::pipe::Sender>, dapple::pipe::Receiver);

impl Ends for Dapple {
    async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match &self.0 {
            Some(sender) => sender.write_all(message).await,
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.1.read(buf).await
    }
}

fn dapple(run: &Arc<Run>) -> Result<()> {
    let runtime = dapple::builder().workers(run.case.workers).build().context("cannot start Dapple's workers")?;
    let entered = runtime.enter();
    for _ in 0..run.case.idle {
        let receiver = dapple::pipe::Receiver::from_fd(run.idle_end()?)?;
        drop(dapple::spawn(run.clone().wait_idle(Dapple(None, receiver))));
    }
    for_each_side(run, |pair, asks, from, to| {
        let (sender, receiver) = (dapple::pipe::Sender::from_fd(to)?, dapple::pipe::Receiver::from_fd(from)?);
        let (run, ends) = (run.clone(), Dapple(Some(sender), receiver));
        match asks {
            true => drop(dapple::spawn(run.ask(pair, ends))),
            false => drop(dapple::spawn(run.answer(pair, ends))),
        }
        Ok(())
    })?;
    drop(entered);
    std::mem::forget(runtime);
    Ok(())
}

struct Tokio(Option<tokio::net::unix::pipe::Sender>, tokio::net::unix::pipe::Receiver);

impl Ends for Tokio {
    async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match &mut self.0 {
            Some(sender) => sender.write_all(message).await,
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.1.read(buf).await
    }
}

fn tokio(run: &Arc<Run>) -> Result<()> {
    use tokio::net::unix::pipe::{Receiver, Sender};
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(run.case.workers).enable_all().build()?;
    {
        let _entered = runtime.enter();
        for _ in 0..run.case.idle {
            runtime.spawn(run.clone().wait_idle(Tokio(None, Receiver::from_owned_fd(run.idle_end()?)?)));
        }
        for_each_side(run, |pair, asks, from, to| {
            let (run, ends) = (run.clone(), Tokio(Some(Sender::from_owned_fd(to)?), Receiver::from_owned_fd(from)?));
            match asks {
                true => drop(runtime.spawn(run.ask(pair, ends))),
                false => drop(runtime.spawn(run.answer(pair, ends))),
            }
            Ok(())
        })?;
    }
    std::mem::forget(runtime);
    Ok(())
}

/// Blocking calls, in kernel threads.
struct Blocking(Option<OwnedFd>, OwnedFd);

impl Ends for Blocking {
    async fn send(&mut self, mut message: &[u8]) -> io::Result<()> {
        let Some(to) = &self.0 else { return Err(io::ErrorKind::BrokenPipe.into()) };
        while !message.is_empty() {
            let written = write(to, message)?;
            message = &message[written..];
        }
        Ok(())
    }

    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(read(&self.1, buf)?)
    }
}

fn pthreads(run: &Arc<Run>) -> Result<()> {
    // As in the paper, so that thousands of them fit.
    let thread = || std::thread::Builder::new().stack_size(64 << 10);
    for _ in 0..run.case.idle {
        let waiting = run.clone().wait_idle(Blocking(None, run.idle_end()?));
        thread().spawn(|| smol::block_on(waiting)).context("cannot start one more thread of the kernel")?;
    }
    for_each_side(run, |pair, asks, from, to| {
        let (run, ends) = (run.clone(), Blocking(Some(to), from));
        thread().spawn(move || match asks {
            true => smol::block_on(run.ask(pair, ends)),
            false => smol::block_on(run.answer(pair, ends)),
        })?;
        Ok(())
    })
}
