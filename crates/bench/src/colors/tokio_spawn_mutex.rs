//! The workloads on tokio with a spawned task per callback and a mutex per color: the usual way
//! today.
//!
//! Best form: a `parking_lot` mutex rather than tokio's, because nothing awaits while it is held,
//! and the next callback is spawned after the lock is released; a callback with two mutexes takes
//! them in the order of their addresses. A mutex does not keep the order in which tasks were
//! spawned, so the check counts broken orders (`order_breaks`) and does not reject them.

use super::case::{Peer, W2_BURSTS, W3_BURSTS, Workload};
use super::ledger::{Lane, Run};
use super::tokio_mpsc::runtime;
use super::trial::Started;
use crate::words::name;
use anyhow::{Result, bail};

/// Starts the run's tasks on a runtime with this many workers.
pub(crate) fn start(run: &'static Run, workers: usize) -> Result<Started> {
    let runtime = runtime(workers)?;
    let entered = runtime.enter();
    let tokens = match run.case.workload {
        Workload::W1 => start_w1(run),
        Workload::W2 => start_w2(run),
        Workload::W3 => start_w3(run),
        Workload::W4 => start_w4(run),
        Workload::W5 => start_w5(run),
        other => bail!("{} has no form of {}", name(Peer::TokioSpawnMutex), name(other)),
    };
    drop(entered);
    Ok(Started { tokens, keep: Box::new(runtime) })
}

fn start_w1(run: &'static Run) -> u64 {
    for lane in &run.lanes {
        (0..run.case.in_flight).for_each(|token| spawn_w1(run, lane, token));
    }
    run.case.colors as u64 * run.case.in_flight
}

fn spawn_w1(run: &'static Run, lane: &'static Lane, expected: u64) {
    tokio::spawn(async move {
        if run.stopping() {
            return run.end_w1(lane, expected);
        }
        let held = lane.lock.lock();
        lane.step(expected, run.spin);
        drop(held);
        spawn_w1(run, lane, expected + run.case.in_flight);
    });
}

fn start_w2(run: &'static Run) -> u64 {
    (0..W2_BURSTS).for_each(|_| spawn_burst_w2(run));
    W2_BURSTS
}

fn spawn_burst_w2(run: &'static Run) {
    tokio::spawn(async move {
        let _held = run.posters[0].lock.lock();
        run.burst_w2(|index, number, last| spawn_target_w2(run, index, number, last));
    });
}

fn spawn_target_w2(run: &'static Run, index: usize, number: u64, last: bool) {
    tokio::spawn(async move {
        let lane = &run.lanes[index];
        let held = lane.lock.lock();
        lane.step(number, run.spin);
        drop(held);
        if last {
            spawn_burst_w2(run);
        }
    });
}

fn start_w3(run: &'static Run) -> u64 {
    for poster in 0..run.case.colors {
        (0..W3_BURSTS).for_each(|_| spawn_burst_w3(run, poster));
    }
    run.case.colors as u64 * W3_BURSTS
}

fn spawn_burst_w3(run: &'static Run, poster: usize) {
    tokio::spawn(async move {
        let _held = run.posters[poster].lock.lock();
        run.burst_w3(poster, |number, last| spawn_count_w3(run, poster, number, last));
    });
}

fn spawn_count_w3(run: &'static Run, poster: usize, number: u64, last: bool) {
    tokio::spawn(async move {
        let held = run.counter.lock.lock();
        run.step_w3(poster, number);
        drop(held);
        if last {
            spawn_burst_w3(run, poster);
        }
    });
}

fn start_w4(run: &'static Run) -> u64 {
    (0..run.case.in_flight).for_each(|token| spawn_w4(run, 0, token));
    run.case.in_flight
}

fn spawn_w4(run: &'static Run, side: usize, expected: u64) {
    tokio::spawn(async move {
        if run.stopping() {
            return run.end_w4(side, expected);
        }
        let held = run.lanes[side].lock.lock();
        run.lanes[side].step(expected, run.spin);
        drop(held);
        spawn_w4(run, 1 - side, expected + side as u64 * run.case.in_flight);
    });
}

fn start_w5(run: &'static Run) -> u64 {
    (0..run.case.in_flight as u32).for_each(|token| spawn_w5(run, token, 0));
    run.case.in_flight
}

fn spawn_w5(run: &'static Run, token: u32, number: u64) {
    tokio::spawn(async move {
        if run.stopping() {
            return run.end_w5(token, number);
        }
        let pair = run.pair(token, number);
        let (low, high) = pair.in_order();
        let held = (run.lanes[low as usize].lock.lock(), run.lanes[high as usize].lock.lock());
        run.transfer(pair);
        drop(held);
        spawn_w5(run, token, number + 1);
    });
}
