//! Observes a running system between two moments.

use crate::usage::{Switches, Usage};
use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// The events between two moments.
pub(crate) struct Window {
    /// Seconds between them.
    pub(crate) secs: f64,
    /// The count.
    pub(crate) ops: u64,
    /// User and system time of the whole process, and its context switches.
    pub(crate) usage: Usage,
}

impl Window {
    /// Warms up for a quarter of the time, and then measures for `secs` seconds, or until the count
    /// has grown.
    pub(crate) fn of(secs: f64, count: impl Fn() -> u64) -> Result<Window> {
        std::thread::sleep(Duration::from_secs_f64((secs / 4.0).min(1.0)));
        let (used, before, begin) = (Usage::own(), count(), Instant::now());
        std::thread::sleep(Duration::from_secs_f64(secs));
        wait_until("something is done while it is measured", || count() > before)?;
        let (ops, secs) = (count() - before, begin.elapsed().as_secs_f64());
        Ok(Window { secs, ops, usage: Usage::own().since(used) })
    }

    /// Per second of wall-clock time.
    pub(crate) fn rate(&self) -> f64 {
        self.ops as f64 / self.secs
    }

    /// Nanoseconds of processor time for each.
    pub(crate) fn cpu_ns(&self) -> f64 {
        self.usage.cpu.as_nanos() as f64 / self.ops as f64
    }

    /// Context switches for each.
    pub(crate) fn switches(&self) -> Option<Switches> {
        Some(self.usage.switches(self.ops))
    }
}

/// Waits until the condition holds; after a minute returns an error that names it.
pub(crate) fn wait_until(what: &str, holds: impl Fn() -> bool) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while !holds() {
        if Instant::now() > end {
            bail!("{what}: not within {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(())
}

/// Longer than anything that works takes.
const LIMIT: Duration = Duration::from_secs(60);
