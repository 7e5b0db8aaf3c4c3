//! The progress line of a load on standard error, if that is a terminal.

use super::client::Load;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Sleeps, and shows the rate of answers meanwhile.
pub(super) fn sleep_showing(load: &Arc<Load>, phase: &'static str, secs: f64) {
    let end = Instant::now() + Duration::from_secs_f64(secs);
    let bar = ProgressBar::new((secs * 1e3) as u64);
    if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(phase);
    let begin = Instant::now();
    let (mut seen, mut seen_at) = (load.tally.answers.load(Relaxed), begin);
    loop {
        let now = Instant::now();
        let Some(left) = end.checked_duration_since(now).filter(|left| !left.is_zero()) else { break };
        // Without a terminal, this thread leaves the processor to the load.
        std::thread::sleep(if bar.is_hidden() { left } else { left.min(STEP) });
        if !bar.is_hidden() {
            let (answers, at) = (load.tally.answers.load(Relaxed), Instant::now());
            let rate = (answers - seen) as f64 / (at - seen_at).as_secs_f64();
            (seen, seen_at) = (answers, at);
            bar.set_position((at - begin).as_millis() as u64);
            bar.set_message(format!("{rate:.0} a second, {} errors", load.tally.errors.load(Relaxed)));
        }
    }
    bar.finish_and_clear();
}

const STEP: Duration = Duration::from_millis(250);
