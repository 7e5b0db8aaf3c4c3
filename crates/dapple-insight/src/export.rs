//! The same recording for other programs, and as one file for a browser.

use dapple_sched::environment::HashMap;
use std::io::{self, Write};

use serde_json::json;

use crate::recording::Recording;
use crate::runs::Runs;
use crate::snapshot::Snapshot;

impl Snapshot {
    /// The live page with this snapshot in it, as one file that needs no server.
    pub fn html(&self) -> String {
        // In a script, `</` could end it.
        let data = serde_json::to_string(self).unwrap_or_default().replace("</", "<\\/");
        let recorded = format!("<script>window.RECORDED = {data};</script>");
        include_str!("page/page.html").replacen("<!-- recorded -->", &recorded, 1)
    }
}

impl Recording {
    /// Writes the trace format of Chromium, which ui.perfetto.dev reads: a track for each worker.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_perfetto(&self, mut to: impl Write) -> io::Result<()> {
        let runs = Runs::of(self);
        let us = |ns: u64| ns as f64 / 1e3;
        writeln!(to, "[")?;
        for run in &runs.runs {
            let thread = run.worker.map_or(-1, i32::from);
            let event = json!({
                "name": self.lines[run.line as usize].name(), "cat": "callback", "ph": "X", "pid": 1, "tid": thread,
                "ts": us(run.span.from), "dur": us(run.span.len()),
                "args": { "color": run.color, "waited_us": us(run.span.from.saturating_sub(run.accepted_ns)) },
            });
            writeln!(to, "{event},")?;
        }
        let names = (0..self.workers).map(|worker| {
            let args = json!({ "name": format!("worker {worker}") });
            json!({ "name": "thread_name", "ph": "M", "pid": 1, "tid": worker, "args": args }).to_string()
        });
        writeln!(to, "{}]", names.collect::<Vec<_>>().join(",\n"))
    }

    /// Writes one line for each chain of causes, with its time in microseconds, as flame graph programs read them. A chain
    /// has the last eight causes.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_folded(&self, mut to: impl Write) -> io::Result<()> {
        let runs = Runs::of(self);
        let places: HashMap<u64, usize> = runs.runs.iter().enumerate().map(|(at, run)| (run.callback, at)).collect();
        let mut chains: HashMap<Vec<usize>, u64> = HashMap::default();
        for run in &runs.runs {
            let mut chain = vec![runs.family_of(run)];
            let mut cause = places.get(&run.cause);
            while let Some(&at) = cause.filter(|_| chain.len() < DEPTH) {
                let family = runs.family_of(&runs.runs[at]);
                // A task that wakes itself makes no tower.
                if chain.last() != Some(&family) {
                    chain.push(family);
                }
                // A cause began before its effect, so there are no circles.
                cause = places.get(&runs.runs[at].cause).filter(|next| **next < at);
            }
            chain.reverse();
            *chains.entry(chain).or_default() += run.own_ns();
        }
        let mut lines: Vec<String> = chains
            .into_iter()
            .map(|(chain, ns)| {
                let names: Vec<String> = chain.into_iter().map(|family| runs.name(family)).collect();
                format!("{} {}", names.join(";"), ns / 1_000)
            })
            .collect();
        lines.sort();
        lines.into_iter().try_for_each(|line| writeln!(to, "{line}"))
    }
}

const DEPTH: usize = 8;
