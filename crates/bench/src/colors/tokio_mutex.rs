//! The workloads on tokio with a spawned task per callback and a mutex per color: what people write today.
//!
//! Best form: a `parking_lot` mutex rather than tokio's, as nothing awaits while it is held, and the next callback is
//! spawned after the lock is released. A mutex does not keep the order in which tasks were spawned: here order is counted
//! (`order_breaks`), not demanded.

use super::case::{Peer, W2_BURSTS, W3_BURSTS, Workload};
use super::ledger::{Lane, Run};
use super::tokio_mpsc::runtime;
use super::trial::Started;
use anyhow::{Result, bail};
use parking_lot::Mutex;

/// Starts the run's tasks on a runtime with this many workers.
pub(crate) fn start(run: &'static Run, workers: usize) -> Result<Started> {
    let runtime = runtime(workers)?;
    let entered = runtime.enter();
    let tokens = match run.case.workload {
        Workload::W1 => start_w1(run),
        Workload::W2 => start_w2(run),
        Workload::W3 => start_w3(run),
        Workload::W4 => start_w4(run),
        Workload::W5 => bail!("{:?} has no form of W5 yet", Peer::TokioSpawnMutex),
    };
    drop(entered);
    Ok(Started { tokens, keep: Box::new(runtime) })
}

/// A color of W1.
struct Chain {
    run: &'static Run,
    lane: &'static Lane,
    lock: Mutex<()>,
}

fn start_w1(run: &'static Run) -> u64 {
    for lane in &run.lanes {
        let chain: &'static Chain = Box::leak(Box::new(Chain { run, lane, lock: Mutex::new(()) }));
        (0..run.case.in_flight).for_each(|token| spawn_w1(chain, token));
    }
    run.case.colors as u64 * run.case.in_flight
}

fn spawn_w1(chain: &'static Chain, expected: u64) {
    tokio::spawn(async move {
        let run = chain.run;
        if run.stopping() {
            return run.end_w1(chain.lane, expected);
        }
        let held = chain.lock.lock();
        chain.lane.step(expected, run.spin);
        drop(held);
        spawn_w1(chain, expected + run.case.in_flight);
    });
}

/// The locks of W2, W3 and W4, one a color.
struct Net {
    run: &'static Run,
    posters: Vec<Mutex<()>>,
    targets: Vec<Mutex<()>>,
}

impl Net {
    fn leak(run: &'static Run, posters: usize, targets: usize) -> &'static Net {
        let locks = |count| (0..count).map(|_| Mutex::new(())).collect();
        Box::leak(Box::new(Net { run, posters: locks(posters), targets: locks(targets) }))
    }
}

fn start_w2(run: &'static Run) -> u64 {
    let net = Net::leak(run, 1, run.case.colors);
    (0..W2_BURSTS).for_each(|_| spawn_burst_w2(net));
    W2_BURSTS
}

fn spawn_burst_w2(net: &'static Net) {
    tokio::spawn(async move {
        let _held = net.posters[0].lock();
        net.run.burst_w2(|index, number, last| spawn_target_w2(net, index, number, last));
    });
}

fn spawn_target_w2(net: &'static Net, index: usize, number: u64, last: bool) {
    tokio::spawn(async move {
        let held = net.targets[index].lock();
        net.run.lanes[index].step(number, net.run.spin);
        drop(held);
        if last {
            spawn_burst_w2(net);
        }
    });
}

fn start_w3(run: &'static Run) -> u64 {
    let net = Net::leak(run, run.case.colors, 1);
    for poster in 0..net.posters.len() {
        (0..W3_BURSTS).for_each(|_| spawn_burst_w3(net, poster));
    }
    net.posters.len() as u64 * W3_BURSTS
}

fn spawn_burst_w3(net: &'static Net, poster: usize) {
    tokio::spawn(async move {
        let _held = net.posters[poster].lock();
        net.run.burst_w3(poster, |number, last| spawn_count_w3(net, poster, number, last));
    });
}

fn spawn_count_w3(net: &'static Net, poster: usize, number: u64, last: bool) {
    tokio::spawn(async move {
        let held = net.targets[0].lock();
        net.run.step_w3(poster, number);
        drop(held);
        if last {
            spawn_burst_w3(net, poster);
        }
    });
}

fn start_w4(run: &'static Run) -> u64 {
    let net = Net::leak(run, 0, 2);
    (0..run.case.in_flight).for_each(|token| spawn_w4(net, 0, token));
    run.case.in_flight
}

fn spawn_w4(net: &'static Net, side: usize, expected: u64) {
    tokio::spawn(async move {
        let run = net.run;
        if run.stopping() {
            return run.end_w4(side, expected);
        }
        let held = net.targets[side].lock();
        run.lanes[side].step(expected, run.spin);
        drop(held);
        spawn_w4(net, 1 - side, expected + side as u64 * run.case.in_flight);
    });
}
