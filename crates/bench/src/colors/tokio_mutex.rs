//! W5 on tokio with a task per token and tokio's own mutex per account, which a task may hold
//! across an await.
//!
//! Best form: the task of a token starts its next transfer itself, so nothing is spawned during the
//! run; each task takes the mutexes in the order of their addresses, so that they cannot deadlock.

use super::case::{Peer, Workload};
use super::ledger::Run;
use super::tokio_mpsc::runtime;
use super::trial::Started;
use crate::words::name;
use anyhow::{Result, ensure};

/// Starts a task per token on a runtime with this many workers.
pub(crate) fn start(run: &'static Run, workers: usize) -> Result<Started> {
    let workload = run.case.workload;
    ensure!(workload == Workload::W5, "{} has no form of {}", name(Peer::TokioMutex), name(workload));
    let runtime = runtime(workers)?;
    for token in 0..run.case.in_flight as u32 {
        runtime.spawn(transfers(run, token));
    }
    Ok(Started { tokens: run.case.in_flight, keep: Box::new(runtime) })
}

async fn transfers(run: &'static Run, token: u32) {
    let mut number = 0;
    while !run.stopping() {
        let pair = run.pair(token, number);
        let (low, high) = pair.in_order();
        let _low = run.lanes[low as usize].task_lock.lock().await;
        let _high = run.lanes[high as usize].task_lock.lock().await;
        run.transfer(pair);
        number += 1;
    }
    run.end_w5(token, number);
}
