//! The events of a simulation: a hash of all of it, and the last part in words.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::timeline::Timeline;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    lines: VecDeque<String>,
    lines_max: usize,
    /// Only where it is to be shown.
    pub(crate) timeline: Option<Timeline>,
}

impl Trace {
    pub(crate) fn new(lines_max: usize) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, events: 0, lines: VecDeque::new(), lines_max, timeline: None }
    }

    /// Takes numbers into the hash.
    #[inline]
    pub(crate) fn note(&mut self, numbers: [u64; 3]) {
        self.events += 1;
        for number in numbers {
            self.hash = (self.hash ^ number).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
    }

    /// The same of something that is worth a line, of which the last are kept where they are to be shown.
    pub(crate) fn line(&mut self, now: Duration, numbers: [u64; 3], what: fmt::Arguments<'_>) {
        self.note(numbers);
        if let Some(timeline) = &mut self.timeline {
            timeline.note(now, what.to_string());
        }
        if self.lines_max == 0 {
            return;
        }
        if self.lines.len() == self.lines_max {
            self.lines.pop_front();
        }
        let mut line = format!("{:>14.6} s  ", now.as_secs_f64());
        _ = line.write_fmt(what);
        self.lines.push_back(line);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}

/// The lines of a report.
pub(crate) const LINES_MAX: usize = 200;
