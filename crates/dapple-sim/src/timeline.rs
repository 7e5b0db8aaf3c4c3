//! A simulation on a time line, for people: the trace format of Chromium, which ui.perfetto.dev draws, and insight writes, too.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use crate::plan::Plan;

/// The stretches in which each worker ran, and the events. Steps that follow each other on a worker are one stretch.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Timeline {
    hosts: Vec<String>,
    steps: Vec<Stretch>,
    /// Points in time, with what the trace says of them.
    notes: Vec<(Duration, String)>,
    /// Stretches and notes beyond the limit.
    lost: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct Stretch {
    host: usize,
    worker: usize,
    from: Duration,
    until: Duration,
    steps: u64,
}

impl Timeline {
    pub(crate) fn host(&mut self, name: &str) {
        self.hosts.push(name.to_owned());
    }

    /// A step of a worker that ends `now`.
    pub(crate) fn step(&mut self, host: usize, worker: usize, took: Duration, now: Duration) {
        let (from, is_full) = (now.saturating_sub(took), self.is_full());
        // Of the last stretches, that of this worker: others may have run in between.
        let last = self.steps.iter_mut().rev().take(RECENT).find(|last| last.host == host && last.worker == worker);
        match last {
            Some(last) if from.saturating_sub(last.until) <= PAUSE_MAX => {
                (last.until, last.steps) = (now, last.steps + 1)
            }
            _ if is_full => self.lost += 1,
            _ => self.steps.push(Stretch { host, worker, from, until: now, steps: 1 }),
        }
    }

    pub(crate) fn note(&mut self, now: Duration, text: String) {
        match self.is_full() {
            true => self.lost += 1,
            false => self.notes.push((now, text)),
        }
    }

    fn is_full(&self) -> bool {
        self.steps.len() + self.notes.len() >= ENTRIES_MAX
    }

    /// Writes it. Each host has a track for each worker; the faults and the events of the network have one each.
    pub(crate) fn write(&self, plan: &Plan, kept: Option<&[usize]>, mut to: impl Write) -> io::Result<()> {
        let us = |time: Duration| time.as_nanos() as f64 / 1e3;
        let name = |process: usize, name: &str| json!({ "name": "process_name", "ph": "M", "pid": process, "args": { "name": name } });
        let mut lines: Vec<Value> = vec![name(0, "faults"), name(1, "network")];
        lines.extend(self.hosts.iter().enumerate().map(|(host, text)| name(FIRST + host, text)));
        let faults = plan.faults.iter().enumerate().filter(|(number, _)| kept.is_none_or(|kept| kept.contains(number)));
        lines.extend(faults.map(|(number, planned)| {
            let text = format!("{number}: {}", planned.fault);
            // A track for each, because they may overlap.
            json!({ "name": text, "ph": "X", "pid": 0, "tid": number, "ts": us(planned.at), "dur": us(planned.lasts) })
        }));
        lines.extend(
            self.notes
                .iter()
                .map(|(at, text)| json!({ "name": text, "ph": "i", "s": "p", "pid": 1, "tid": 0, "ts": us(*at) })),
        );
        lines.extend(self.steps.iter().map(|stretch| {
            let (ts, dur) = (us(stretch.from), us(stretch.until - stretch.from));
            let text = format!("{} steps", stretch.steps);
            json!({ "name": text, "ph": "X", "pid": FIRST + stretch.host, "tid": stretch.worker, "ts": ts, "dur": dur })
        }));
        if self.lost > 0 {
            let text = format!("{} later entries are left out", self.lost);
            let at = self.notes.last().map_or(Duration::ZERO, |(at, _)| *at);
            lines.push(json!({ "name": text, "ph": "i", "s": "g", "pid": 1, "tid": 0, "ts": us(at) }));
        }
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        writeln!(to, "[\n{}\n]", lines.join(",\n"))?;
        to.flush()
    }
}

/// The number of the first host's process in the file.
const FIRST: usize = 2;
/// Stretches that are searched for the one that goes on.
const RECENT: usize = 64;
/// A worker that rests longer begins a new stretch.
const PAUSE_MAX: Duration = Duration::from_micros(20);
/// Bounds the memory; a browser cannot show more anyway.
const ENTRIES_MAX: usize = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_its_limit_it_counts_what_it_leaves_out() {
        let mut timeline = Timeline::default();
        timeline.host("a");
        for second in 1..=ENTRIES_MAX as u64 + 7 {
            timeline.step(0, 0, Duration::from_micros(1), Duration::from_secs(second));
        }
        timeline.note(Duration::from_secs(9), "too late".to_owned());
        assert_eq!((timeline.steps.len(), timeline.notes.len(), timeline.lost), (ENTRIES_MAX, 0, 8));
        let mut file = Vec::new();
        timeline.write(&Plan::default(), None, &mut file).unwrap();
        assert!(String::from_utf8_lossy(&file).contains("8 later entries are left out"));
    }

    #[test]
    fn steps_without_a_pause_are_one_stretch() {
        let (us, mut timeline) = (Duration::from_micros, Timeline::default());
        for (worker, now) in [(0, 10), (1, 11), (0, 12), (0, 40)] {
            timeline.step(0, worker, us(1), us(now));
        }
        let stretches: Vec<_> = timeline.steps.iter().map(|one| (one.worker, one.from, one.until, one.steps)).collect();
        assert_eq!(stretches, [(0, us(9), us(12), 2), (1, us(10), us(11), 1), (0, us(39), us(40), 1)]);
    }
}
