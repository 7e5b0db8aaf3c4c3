//! W3 without a runtime: a thread per worker, and one `parking_lot` mutex around the counter that everyone wants.
//!
//! There is no queue here: the callback runs in line, as a lock allows and a queue does not. It bounds from above what a
//! queue can reach for tiny work.

use super::case::Workload;
use super::ledger::Run;
use super::trial::Started;
use anyhow::{Result, ensure};

/// Starts a thread per worker.
pub(crate) fn start(run: &'static Run, workers: usize) -> Result<Started> {
    ensure!(run.case.workload == Workload::W3, "threads with a mutex have a form of W3 only");
    ensure!(
        workers <= run.case.colors,
        "W3 on threads needs as many colors as workers: pass --colors {workers} or more"
    );
    for poster in 0..workers {
        std::thread::Builder::new().spawn(move || {
            let mut number = 0;
            while !run.stopping() {
                let held = run.counter.lock.lock();
                run.step_w3(poster, number);
                drop(held);
                number += 1;
            }
            run.end_w3(poster, number);
        })?;
    }
    Ok(Started { tokens: workers as u64, keep: Box::new(()) })
}
