//! The way of work from outside into each peer.

use super::{Probe, Source, YIELDS};
use crate::experiment::Peer;
use anyhow::{Context, Result, bail};
use std::future::Future;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;

/// The differences between the peers. A static, because threads use it until the process ends.
trait Outside: Sized + Send + Sync + 'static {
    type Reader: Send + 'static;

    fn start(workers: usize) -> Result<Self>;
    /// Starts a thread, also from outside.
    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static);
    fn yield_now() -> impl Future<Output = ()> + Send;
    fn reader(&self, socket: UnixStream) -> Result<Self::Reader>;
    /// Waits for some bytes.
    fn read<'a>(
        reader: &'a mut Self::Reader,
        bytes: &'a mut [u8],
    ) -> impl Future<Output = io::Result<usize>> + Send + 'a;
    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send;
}

/// Starts a peer full of threads that yield, and the thread for the probes.
pub(super) fn start(
    peer: Peer,
    source: Source,
    yielding: usize,
    workers: usize,
) -> Result<(Probe, Receiver<Duration>)> {
    match peer {
        Peer::Dapple => start_on(Dapple::start(workers)?, source, yielding),
        Peer::Tokio => start_on(Tokio::start(workers)?, source, yielding),
        Peer::Smol => start_on(Smol::start(workers)?, source, yielding),
        other => bail!("{other:?} is not run here"),
    }
}

fn start_on<O: Outside>(peer: O, source: Source, yielding: usize) -> Result<(Probe, Receiver<Duration>)> {
    let peer: &'static O = Box::leak(Box::new(peer));
    let (answer, answers) = channel();
    // The waiting thread starts before the others.
    let probe = match source {
        Source::Spawn => spawn_probe(peer, answer),
        Source::Io => io_probe(peer, answer)?,
        Source::Timer => timer_probe(peer, answer)?,
    };
    for _ in 0..yielding {
        peer.spawn(yields::<O>());
    }
    Ok((probe, answers))
}

async fn yields<O: Outside>() {
    loop {
        for _ in 0..YIELDS_COUNTED {
            O::yield_now().await;
        }
        YIELDS.fetch_add(YIELDS_COUNTED, Relaxed);
    }
}

/// The number of yields that a thread counts at once.
const YIELDS_COUNTED: u64 = 4;

fn spawn_probe<O: Outside>(peer: &'static O, answer: Sender<Duration>) -> Probe {
    Box::new(move || {
        let (begin, answer) = (Instant::now(), answer.clone());
        peer.spawn(async move { say(&answer, begin) });
        Ok(())
    })
}

fn io_probe<O: Outside>(peer: &'static O, answer: Sender<Duration>) -> Result<Probe> {
    let (mut here, there) = UnixStream::pair()?;
    there.set_nonblocking(true)?;
    let mut reader = peer.reader(there)?;
    // The written bytes are the time, counted from here on.
    let start = Instant::now();
    peer.spawn(async move {
        let mut sent = [0; size_of::<u64>()];
        while let Ok(count) = O::read(&mut reader, &mut sent).await {
            if count != sent.len() {
                return;
            }
            say(&answer, start + Duration::from_nanos(u64::from_le_bytes(sent)));
        }
    });
    Ok(Box::new(move || {
        let since = start.elapsed().as_nanos() as u64;
        here.write_all(&since.to_le_bytes()).context("cannot write to the thread that waits")
    }))
}

fn timer_probe<O: Outside>(peer: &'static O, answer: Sender<Duration>) -> Result<Probe> {
    let (mut here, there) = UnixStream::pair()?;
    there.set_nonblocking(true)?;
    let mut reader = peer.reader(there)?;
    peer.spawn(async move {
        // It sleeps only on request, so that a probe is one sleep.
        while let Ok(1) = O::read(&mut reader, &mut [0]).await {
            let deadline = Instant::now() + SLEEP;
            O::sleep_until(deadline).await;
            say(&answer, deadline);
        }
    });
    Ok(Box::new(move || here.write_all(&[1]).context("cannot write to the thread that sleeps")))
}

fn say(answer: &Sender<Duration>, begin: Instant) {
    // The receiver is gone if the run has ended.
    let _ = answer.send(begin.elapsed());
}

/// How long a probe of a timer sleeps.
const SLEEP: Duration = Duration::from_millis(3);

struct Dapple(dapple::Runtime);

impl Outside for Dapple {
    type Reader = dapple::net::UnixStream;

    fn start(workers: usize) -> Result<Dapple> {
        Ok(Dapple(dapple::builder().workers(workers).build().context("cannot start Dapple's workers")?))
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.spawn(future));
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        dapple::yield_now()
    }

    fn reader(&self, socket: UnixStream) -> Result<Self::Reader> {
        let _entered = self.0.enter();
        Ok(dapple::net::UnixStream::from_std(socket)?)
    }

    async fn read<'a>(reader: &'a mut Self::Reader, bytes: &'a mut [u8]) -> io::Result<usize> {
        reader.read(bytes).await
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send {
        dapple::time::sleep_until(deadline)
    }
}

struct Tokio(tokio::runtime::Runtime);

impl Outside for Tokio {
    type Reader = tokio::net::UnixStream;

    fn start(workers: usize) -> Result<Tokio> {
        Ok(Tokio(tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?))
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(future);
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }

    fn reader(&self, socket: UnixStream) -> Result<Self::Reader> {
        let _entered = self.0.enter();
        Ok(tokio::net::UnixStream::from_std(socket)?)
    }

    async fn read<'a>(reader: &'a mut Self::Reader, bytes: &'a mut [u8]) -> io::Result<usize> {
        reader.read(bytes).await
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send {
        tokio::time::sleep_until(deadline.into())
    }
}

struct Smol(&'static smol::Executor<'static>);

impl Outside for Smol {
    type Reader = smol::Async<UnixStream>;

    fn start(workers: usize) -> Result<Smol> {
        let executor: &'static smol::Executor<'static> = Box::leak(Box::new(smol::Executor::new()));
        for _ in 0..workers {
            std::thread::Builder::new().spawn(|| smol::block_on(executor.run(smol::future::pending::<()>())))?;
        }
        Ok(Smol(executor))
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(future).detach();
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        smol::future::yield_now()
    }

    fn reader(&self, socket: UnixStream) -> Result<Self::Reader> {
        Ok(smol::Async::new(socket)?)
    }

    async fn read<'a>(reader: &'a mut Self::Reader, bytes: &'a mut [u8]) -> io::Result<usize> {
        smol::io::AsyncReadExt::read(reader, bytes).await
    }

    async fn sleep_until(deadline: Instant) {
        smol::Timer::at(deadline).await;
    }
}
