//! The servers: a task per request, callbacks, and a pool of tasks behind a queue.

use super::outbox::{Inbox, Outbox, Pool};
use super::record::Record;
use super::{Case, WAIT, floor, halves};
use crate::experiment::Peer;
use anyhow::{Context, Result, bail};
use std::any::Any;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Starts the server of a peer on the connection; it runs for as long as the result lives.
pub(super) fn start(peer: Peer, case: Case, socket: TcpStream) -> Result<Box<dyn Any>> {
    match peer {
        Peer::Dapple | Peer::DappleEvents | Peer::DappleHybrid => dapple(peer, case, socket),
        Peer::Tokio => tokio(case, socket),
        Peer::Pthreads => pthreads(case, socket),
        Peer::Epoll => floor::start(socket),
        other => bail!("{other:?} is not run here"),
    }
}

/// The most bytes of one read.
const READ_LEN: usize = 256 * 1024;

fn dapple(peer: Peer, case: Case, socket: TcpStream) -> Result<Box<dyn Any>> {
    let runtime = dapple::builder().workers(case.workers).build().context("cannot start Dapple's workers")?;
    socket.set_nonblocking(true)?;
    let entered = runtime.enter();
    let stream = Arc::new(dapple::net::TcpStream::from_std(socket)?);
    drop(entered);
    let outbox = Arc::new(Outbox::default());
    let (writer, replies) = (stream.clone(), outbox.clone());
    let write = async move {
        let mut buf = Vec::new();
        loop {
            replies.take(&mut buf, dapple::yield_now).await;
            if writer.write_all(&buf).await.is_err() {
                return;
            }
        }
    };
    match peer {
        Peer::DappleEvents => {
            let color = runtime.handle().new_color();
            let own = color.clone();
            // Reader and writer have the color of the callbacks: one event loop, like Gribble's
            // server.
            drop(color.spawn(write));
            drop(color.spawn(dapple_reader(stream, move |record| after_wait(&own, outbox.clone(), record))));
        }
        Peer::DappleHybrid => {
            drop(runtime.spawn(write));
            let pool = Pool::new(case.pool);
            drop(runtime.spawn(dapple_reader(stream, move |record| {
                if pool.admits(&record) {
                    drop(dapple::spawn(pooled(pool.clone(), outbox.clone(), record)));
                }
            })));
        }
        _ => {
            drop(runtime.spawn(write));
            drop(runtime.spawn(dapple_reader(stream, move |record| {
                let outbox = outbox.clone();
                drop(dapple::spawn(async move {
                    dapple::time::sleep(WAIT).await;
                    outbox.reply(record);
                }));
            })));
        }
    }
    Ok(Box::new(runtime))
}

async fn dapple_reader(stream: Arc<dapple::net::TcpStream>, mut task: impl FnMut(Record)) {
    let (mut inbox, mut buf) = (Inbox::default(), vec![0; READ_LEN]);
    while let Ok(count @ 1..) = stream.read(&mut buf).await {
        inbox.for_each(&buf[..count], &mut task);
    }
}

/// The event: the callback replies at the end of the wait.
fn after_wait(color: &dapple::Color, outbox: Arc<Outbox>, record: Record) {
    let alarm = dapple::event::after(WAIT, color.wrap(move |()| outbox.reply(record)));
    // It fails only without a runtime, and this runs on one.
    if let Ok(alarm) = alarm {
        alarm.detach();
    }
}

/// One task of the pool: its own request, and then the waiting ones.
async fn pooled(pool: Arc<Pool>, outbox: Arc<Outbox>, record: Record) {
    let mut next = Some(record);
    while let Some(record) = next {
        dapple::time::sleep(WAIT).await;
        outbox.reply(record);
        next = pool.next();
    }
}

fn tokio(case: Case, socket: TcpStream) -> Result<Box<dyn Any>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(case.workers).enable_all().build()?;
    socket.set_nonblocking(true)?;
    let entered = runtime.enter();
    let (mut from, mut to) = tokio::net::TcpStream::from_std(socket)?.into_split();
    drop(entered);
    let outbox = Arc::new(Outbox::default());
    let replies = outbox.clone();
    runtime.spawn(async move {
        let mut buf = Vec::new();
        loop {
            replies.take(&mut buf, tokio::task::yield_now).await;
            if to.write_all(&buf).await.is_err() {
                return;
            }
        }
    });
    runtime.spawn(async move {
        let (mut inbox, mut buf) = (Inbox::default(), vec![0; READ_LEN]);
        while let Ok(count @ 1..) = from.read(&mut buf).await {
            inbox.for_each(&buf[..count], |record| {
                let outbox = outbox.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(WAIT).await;
                    outbox.reply(record);
                });
            });
        }
    });
    Ok(Box::new(runtime))
}

/// Threads that exist before the tasks, one per task; each takes one, sleeps, and replies.
fn pthreads(case: Case, socket: TcpStream) -> Result<Box<dyn Any>> {
    let (mut from, mut to) = halves(socket)?;
    let outbox = Arc::new(Outbox::default());
    let queue = Arc::new((Mutex::new(VecDeque::<Record>::new()), Condvar::new()));
    for _ in 0..case.in_flight {
        let (queue, outbox) = (queue.clone(), outbox.clone());
        let serve = move || {
            loop {
                let tasks = queue.0.lock().unwrap_or_else(PoisonError::into_inner);
                let tasks = queue.1.wait_while(tasks, |tasks| tasks.is_empty());
                let record = tasks.unwrap_or_else(PoisonError::into_inner).pop_front();
                if let Some(record) = record {
                    std::thread::sleep(WAIT);
                    outbox.reply(record);
                }
            }
        };
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        thread.spawn(serve).context("cannot start one more thread of the kernel")?;
    }
    std::thread::Builder::new().spawn(move || {
        let mut buf = Vec::new();
        loop {
            outbox.take_blocking(&mut buf);
            if to.write_all(&buf).is_err() {
                return;
            }
        }
    })?;
    std::thread::Builder::new().spawn(move || {
        let (mut inbox, mut buf) = (Inbox::default(), vec![0; READ_LEN]);
        while let Ok(count @ 1..) = from.read(&mut buf) {
            inbox.for_each(&buf[..count], |record| {
                queue.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(record);
                queue.1.notify_one();
            });
        }
    })?;
    Ok(Box::new(()))
}
