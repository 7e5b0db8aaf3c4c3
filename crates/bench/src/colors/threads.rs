//! W3 in line without a runtime: a thread per worker, and one `parking_lot` mutex around the counter that everyone wants.
//!
//! There is no queue here: the callback runs in line, as a lock allows and a queue does not. It bounds from above what
//! tiny work can reach.

use super::case::{Workload, name};
use super::ledger::Run;
use super::trial::Started;
use anyhow::{Result, ensure};

/// Starts a thread per worker.
pub(crate) fn start(run: &'static Run, workers: usize) -> Result<Started> {
    ensure!(
        run.case.workload == Workload::W3InLine,
        "threads with a mutex have no form of {}",
        name(run.case.workload)
    );
    ensure!(workers <= run.case.colors, "a thread is a poster: pass --colors {workers} or more");
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
