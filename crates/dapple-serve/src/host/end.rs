//! The end of a server, once nobody is accepted any more.

use std::thread;
use std::time::Duration;

use dapple_sched::Runtime;
use tracing::{info, warn};

use super::admission::{Admission, Refusal};
use super::signals::{Command, Signals};

/// Ends the process when one more signal comes. On a thread of its own, because the main thread waits for the runtime
/// meanwhile, and that waits for all its tasks.
pub(super) fn end_at_once_on(mut signals: Signals) {
    let watch = move || {
        while dapple_sched::block_on(signals.next()) != Command::Stop {}
        warn!("a second signal: ended at once");
        std::process::exit(EXIT_AT_ONCE);
    };
    // Without this thread the server still ends, only not at once.
    let _ = thread::Builder::new().name("dapple-signals".to_owned()).spawn(watch);
}

/// Idle connections close, the others do after their response.
pub fn finish(runtime: Runtime, limit: Duration, admission: &Admission) {
    let report = runtime.shutdown(limit);
    let [full, address, memory] = Refusal::ALL.map(|(refusal, _)| admission.refused(refusal));
    info!(full, address, memory, "connections refused in all, by the limit that they met");
    let cut = admission.cut();
    if cut > 0 {
        warn!(cut, "connections were cut: their responses took longer than --drain-s allows");
    } else if report.tasks_dropped > 0 {
        warn!(tasks = report.tasks_dropped, "not everything that was begun has ended; no response was lost");
    }
}

/// What a shell reports for a program that Ctrl-C ended.
const EXIT_AT_ONCE: i32 = 130;
