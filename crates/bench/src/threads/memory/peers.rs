//! The threads of each peer.

use super::Case;
use super::tally::{TALLY, run};
use crate::experiment::Peer;
use anyhow::{Context, Result, bail};
use dapple::tokio_compat::BuilderExt;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

/// Makes all threads of a case, and returns when the makers have started.
pub(super) type Start = Box<dyn FnOnce(Case)>;

/// Starts the workers of a peer.
pub(super) fn start(peer: Peer, workers: usize) -> Result<Start> {
    match peer {
        Peer::Dapple => dapple(dapple_runtime(workers, |builder| builder)?),
        Peer::DappleTokioContext => dapple(dapple_runtime(workers, BuilderExt::tokio)?),
        Peer::DappleColors => dapple_colors(workers),
        Peer::Tokio => tokio(workers),
        Peer::Smol => smol(workers),
        Peer::AsyncTask => Ok(Box::new(async_task)),
        other => bail!("{other:?} is not run here"),
    }
}

/// The number of threads for each maker.
fn share(case: Case, maker: usize) -> usize {
    case.threads / case.workers + usize::from(maker < case.threads % case.workers)
}

fn dapple_runtime(workers: usize, with: impl FnOnce(dapple::Builder) -> dapple::Builder) -> Result<dapple::Runtime> {
    // The maker of millions of threads keeps its worker for seconds.
    let builder = dapple::builder().workers(workers).slow_callback(Duration::from_secs(3_600), |_| ());
    with(builder).build().context("cannot start Dapple's workers")
}

fn dapple(runtime: dapple::Runtime) -> Result<Start> {
    Ok(Box::new(move |case| {
        for maker in 0..case.workers {
            drop(runtime.spawn(async move {
                TALLY.make(share(case, maker), || drop(dapple::spawn(run(dapple::yield_now))));
            }));
        }
        std::mem::forget(runtime);
    }))
}

fn dapple_colors(workers: usize) -> Result<Start> {
    let runtime = dapple_runtime(workers, |builder| builder)?;
    Ok(Box::new(move |case| {
        // Two, even with one worker.
        let colors = case.workers.max(2);
        for maker in 0..colors {
            let color = runtime.handle().new_color_at(maker % case.workers);
            let share = share(Case { workers: colors, ..case }, maker);
            drop(runtime.spawn(async move {
                TALLY.make(share, || drop(color.spawn(run(dapple::yield_now))));
            }));
        }
        std::mem::forget(runtime);
    }))
}

fn tokio(workers: usize) -> Result<Start> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
    Ok(Box::new(move |case| {
        for maker in 0..case.workers {
            runtime.spawn(async move {
                TALLY.make(share(case, maker), || drop(tokio::spawn(run(tokio::task::yield_now))));
            });
        }
        std::mem::forget(runtime);
    }))
}

/// As `smol::spawn` does it, except that only an environment variable could set its number of
/// workers.
fn smol(workers: usize) -> Result<Start> {
    let executor: &'static smol::Executor<'static> = Box::leak(Box::new(smol::Executor::new()));
    for _ in 0..workers {
        std::thread::Builder::new().spawn(|| smol::block_on(executor.run(smol::future::pending::<()>())))?;
    }
    Ok(Box::new(move |case| {
        for maker in 0..case.workers {
            let make = async move {
                let spawn = || executor.spawn(run(smol::future::yield_now)).detach();
                TALLY.make(share(case, maker), spawn);
            };
            executor.spawn(make).detach();
        }
    }))
}

thread_local! {
    static QUEUE: RefCell<VecDeque<async_task::Runnable>> = const { RefCell::new(VecDeque::new()) };
}

/// A queue per thread that only that thread uses, so that a task costs the same as the crate's
/// tasks.
fn async_task(case: Case) {
    for maker in 0..case.workers {
        std::thread::spawn(move || {
            let schedule = |runnable| QUEUE.with_borrow_mut(|queue| queue.push_back(runnable));
            TALLY.make(share(case, maker), || {
                let (runnable, task) = async_task::spawn(run(smol::future::yield_now), schedule);
                runnable.schedule();
                task.detach();
            });
            while let Some(runnable) = QUEUE.with_borrow_mut(VecDeque::pop_front) {
                runnable.run();
            }
        });
    }
}
