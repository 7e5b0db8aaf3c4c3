//! The progress of long work, on a terminal.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// A count on the terminal, updated each second, and removed when the work ends.
pub(super) struct Progress {
    what: &'static str,
    told: Instant,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(what: &'static str) -> Progress {
        Progress { what, told: Instant::now(), is_shown: false }
    }

    pub(super) fn tell(&mut self, count: u64) {
        if io::stderr().is_terminal() && self.told.elapsed() >= Duration::from_secs(1) {
            eprint!("\r{count} {}", self.what);
            self.told = Instant::now();
            self.is_shown = true;
        }
    }

    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            eprint!("\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}
