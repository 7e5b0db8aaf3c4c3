//! A look at something that runs, from one moment to another.

use crate::usage::{Switches, Usage};
use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// What happened between two moments.
pub(crate) struct Window {
    /// Seconds between them.
    pub(crate) secs: f64,
    /// What was counted.
    pub(crate) ops: u64,
    /// User and system time of the whole process, and its context switches.
    pub(crate) usage: Usage,
}

impl Window {
    /// Lets what runs get into its stride for a quarter of the time, and then looks at it for so many seconds, or until
    /// something was done.
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

/// Waits until this holds; an error that says what did not happen where it takes longer than a minute.
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

/// Longer than anything takes that works.
const LIMIT: Duration = Duration::from_secs(60);
