//! The reads of each peer.

use super::{Blocks, Reading, Run};
use crate::experiment::{BLOCK_LEN, Peer, open_direct};
use anyhow::{Context, Result, bail};
use compio::buf::{IntoInner, IoBuf};
use compio::io::AsyncReadAt;
use dapple::fs::{AlignedBuf, BufferPool};
use std::any::Any;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::channel;

/// Starts all threads; they run for as long as the result lives.
pub(super) fn start(peer: Peer, reading: &Reading, run: &Arc<Run>) -> Result<Box<dyn Any>> {
    match peer {
        Peer::Dapple => dapple(reading, run),
        Peer::Tokio => tokio(reading, run),
        Peer::Compio => compio(reading, run),
        Peer::Pthreads => pthreads(reading, run),
        other => bail!("{other:?} is not run here"),
    }
}

fn open(reading: &Reading) -> Result<File> {
    match reading.direct {
        true => open_direct(&reading.path),
        false => File::open(&reading.path).context("the file to be read is gone"),
    }
}

fn offset(number: u64) -> u64 {
    number * BLOCK_LEN as u64
}

fn dapple(reading: &Reading, run: &Arc<Run>) -> Result<Box<dyn Any>> {
    let runtime = dapple::builder().workers(reading.workers).build().context("cannot start Dapple's workers")?;
    let path = reading.path.clone();
    let direct = reading.direct;
    let open = async move { dapple::fs::OpenOptions::new().read(true).direct(direct).open(path).await };
    let file = runtime.block_on(async { dapple::spawn(open).await })??;
    let pool = BufferPool::new(reading.threads, BLOCK_LEN)?;
    for thread in 0..reading.threads {
        let (file, mut blocks) = (file.clone(), Blocks::of(run, thread));
        let mut buf = pool.take().context("a buffer is missing")?;
        drop(runtime.spawn(async move {
            while let Some(number) = blocks.next() {
                let (count, back) = file.read_buf_at(offset(number), buf).await;
                buf = back;
                blocks.note(number, count.map(|count| &buf[..count]));
            }
        }));
    }
    Ok(Box::new(runtime))
}

/// As `tokio::fs` does it, except that its files cannot use aligned memory.
fn tokio(reading: &Reading, run: &Arc<Run>) -> Result<Box<dyn Any>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(reading.workers).enable_all().build()?;
    let file = Arc::new(open(reading)?);
    for thread in 0..reading.threads {
        let (file, mut blocks) = (file.clone(), Blocks::of(run, thread));
        runtime.spawn(async move {
            let mut buf = AlignedBuf::new(BLOCK_LEN);
            while let Some(number) = blocks.next() {
                let file = file.clone();
                let read = tokio::task::spawn_blocking(move || {
                    let count = file.read_at(&mut buf, offset(number));
                    (count, buf)
                });
                let Ok((count, back)) = read.await else { return };
                buf = back;
                blocks.note(number, count.map(|count| &buf[..count]));
            }
        });
    }
    Ok(Box::new(runtime))
}

/// A runtime per worker, each with its share of the tasks.
fn compio(reading: &Reading, run: &Arc<Run>) -> Result<Box<dyn Any>> {
    let Reading { threads, workers, direct, .. } = *reading;
    let (ready, readies) = channel();
    for worker in 0..workers {
        let (path, run, ready) = (reading.path.clone(), run.clone(), ready.clone());
        let own = (worker..threads).step_by(workers);
        std::thread::Builder::new().spawn(move || {
            let start = || -> Result<_> {
                let runtime = compio::runtime::Runtime::new().context("cannot start compio, which needs io_uring")?;
                let file = runtime.block_on(async {
                    compio::fs::OpenOptions::new()
                        .read(true)
                        .custom_flags(if direct { DIRECT } else { 0 })
                        .open(path)
                        .await
                })?;
                Ok((runtime, file))
            };
            let (runtime, file) = match start() {
                Ok(started) => started,
                Err(error) => return drop(ready.send(Err(error))),
            };
            drop(ready.send(Ok(())));
            runtime.block_on(async {
                let tasks: Vec<_> = own
                    .map(|thread| compio::runtime::spawn(compio_reader(file.clone(), Blocks::of(&run, thread))))
                    .collect();
                for task in tasks {
                    let _ = task.await;
                }
            });
        })?;
    }
    for _ in 0..workers {
        readies.recv().context("a worker of compio ended")??;
    }
    Ok(Box::new(()))
}

/// The kernel's `O_DIRECT`.
const DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;

async fn compio_reader(file: compio::fs::File, mut blocks: Blocks) {
    // Memory that is aligned for O_DIRECT: a part of a vector that begins at such an address.
    let mut memory = vec![0; 2 * BLOCK_LEN];
    let begin = memory.as_ptr().align_offset(BLOCK_LEN);
    while let Some(number) = blocks.next() {
        let read = file.read_at(memory.slice(begin..begin + BLOCK_LEN), offset(number)).await;
        memory = read.1.into_inner();
        blocks.note(number, read.0.map(|count| &memory[begin..begin + count]));
    }
}

fn pthreads(reading: &Reading, run: &Arc<Run>) -> Result<Box<dyn Any>> {
    let file = Arc::new(open(reading)?);
    for thread in 0..reading.threads {
        let (file, mut blocks) = (file.clone(), Blocks::of(run, thread));
        let read = move || {
            let mut buf = AlignedBuf::new(BLOCK_LEN);
            while let Some(number) = blocks.next() {
                let count = file.read_at(&mut buf, offset(number));
                blocks.note(number, count.map(|count| &buf[..count]));
            }
        };
        std::thread::Builder::new().stack_size(64 << 10).spawn(read).context("cannot start one more thread")?;
    }
    Ok(Box::new(()))
}
