//! Plain threads and `parking_lot` mutexes, without a runtime.
//!
//! There is no queue here: callbacks run in line, which a lock allows and a queue does not. That is
//! an upper bound for tiny work. A thread that meets a held lock spins and then sleeps; a runtime
//! would run other callbacks.

use super::case::{Peer, Workload};
use super::ledger::Run;
use super::trial::Started;
use crate::words::name;
use anyhow::{Result, bail, ensure};

/// Starts a thread per worker.
pub(crate) fn start(run: &'static Run, workers: usize) -> Result<Started> {
    let (work, most): (fn(&'static Run, u32), _) = match run.case.workload {
        Workload::W3InLine => (count, run.case.colors),
        Workload::W5 => (transfer, run.case.in_flight as usize),
        other => bail!("{} has no form of {}", name(Peer::ParkingLot), name(other)),
    };
    ensure!(workers <= most, "{most} is the most threads that have something to do in this case");
    for index in 0..workers as u32 {
        std::thread::Builder::new().spawn(move || work(run, index))?;
    }
    Ok(Started { tokens: workers as u64, keep: Box::new(()) })
}

/// W3 in line: the thread is a poster.
fn count(run: &'static Run, poster: u32) {
    let mut number = 0;
    while !run.stopping() {
        let held = run.counter.lock.lock();
        run.step_w3(poster as usize, number);
        drop(held);
        number += 1;
    }
    run.end_w3(poster as usize, number);
}

/// W5: the thread is a token. More tokens than threads would only take turns.
fn transfer(run: &'static Run, token: u32) {
    let mut number = 0;
    while !run.stopping() {
        let pair = run.pair(token, number);
        let (low, high) = pair.in_order();
        let _low = run.lanes[low as usize].lock.lock();
        let _high = run.lanes[high as usize].lock.lock();
        run.transfer(pair);
        number += 1;
    }
    run.end_w5(token, number);
}
