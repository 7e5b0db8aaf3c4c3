//! The end of a server, after it stops accepting.

use std::thread;
use std::time::Duration;

use dapple_sched::Runtime;
use tracing::{info, warn};

use super::admission::{Admission, Refusal};
use super::signals::{Command, Signals};

/// Ends the process at one more signal. Runs on a thread of its own, because the main thread waits
/// for the runtime, which waits for all its tasks.
pub(super) fn end_at_once_on(mut signals: Signals) {
    let watch = move || {
        while dapple_sched::block_on(signals.next()) != Command::Stop {}
        warn!("second signal: ending at once");
        std::process::exit(EXIT_AT_ONCE);
    };
    // Without this thread the server still ends, only not at once.
    let _ = thread::Builder::new().name("dapple-signals".to_owned()).spawn(watch);
}

/// Closes idle connections at once, and the others after their response.
pub fn finish(runtime: Runtime, limit: Duration, admission: &Admission) {
    let report = runtime.shutdown(limit);
    let [full, address, memory] = Refusal::ALL.map(|(refusal, _)| admission.refused(refusal));
    info!(full, address, memory, "connections refused in total, by limit");
    let cut = admission.cut();
    if cut > 0 {
        warn!(cut, "cut connections: their responses took longer than --drain-s allows");
    } else if report.tasks_dropped > 0 {
        warn!(tasks = report.tasks_dropped, "some background work did not finish; no response was lost");
    }
}

/// The exit code that a shell reports for a program ended by Ctrl-C.
const EXIT_AT_ONCE: i32 = 130;
