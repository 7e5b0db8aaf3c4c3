//! The text of a snapshot.

use std::fmt;

use crate::snapshot::{Family, Snapshot};

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.verdict)?;
        if self.lost > 0 {
            writeln!(f, "{} events found no room, and are missing: record for a shorter time", self.lost)?;
        }
        let busy: Vec<String> = self.workers.iter().map(|worker| format!("{:.0} %", worker.busy * 100.0)).collect();
        writeln!(f, "\nrecorded {}; workers busy: {}", time_text(self.elapsed_ns), busy.join(", "))?;
        writeln!(
            f,
            "\n{:<44} {:>7} {:>9} {:>10} {:>6} {:>7} {:>8}",
            "color", "colors", "runs", "time", "share", "hottest", "at most"
        )?;
        for family in self.families.iter().take(ROWS) {
            row(f, family)?;
        }
        writeln!(
            f,
            "\n{:<44} {:>10} {:>12} {:>10} {:>10} {:>10}",
            "waited", "same color", "other colors", "worker", "readers", "several"
        )?;
        for family in self.families.iter().take(ROWS).filter(|family| family.waits.total_ns() > 0) {
            let waits = &family.waits;
            let [same, other, worker, readers, several] =
                [waits.same_color_ns, waits.other_colors_ns, waits.worker_ns, waits.readers_ns, waits.several_ns]
                    .map(time_text);
            let name = end_of(&family.name);
            writeln!(f, "{name:<44} {same:>10} {other:>12} {worker:>10} {readers:>10} {several:>10}")?;
        }
        writeln!(f, "\npredicted")?;
        for prediction in &self.predictions {
            let word = if prediction.workers == 1 { "worker" } else { "workers" };
            let wait = time_text(prediction.wait_p99_ns);
            writeln!(
                f,
                "{:>4} {word:<8} {:>6.2} times the rate, 99 % begin within {wait}",
                prediction.workers, prediction.speedup
            )?;
        }
        writeln!(f, "\nlongest callbacks")?;
        for slow in self.slow.iter().take(SLOW_ROWS) {
            let lost = time_text(slow.waited_ns);
            writeln!(
                f,
                "{:>10}  {:<44} {} waited, for {lost} together",
                time_text(slow.run_ns),
                end_of(&slow.name),
                slow.waited
            )?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, family: &Family) -> fmt::Result {
    let mut what = end_of(&shown(family)).to_owned();
    if family.is_state {
        what += " (state)";
    }
    let [share, hottest] = [family.share, family.hottest].map(|share| format!("{:.0} %", share * 100.0));
    let most = if family.speedup_max < 1000.0 { format!("{:.1} x", family.speedup_max) } else { "-".to_owned() };
    let time = time_text(family.run_ns);
    writeln!(f, "{what:<44} {:>7} {:>9} {time:>10} {share:>6} {hottest:>7} {most:>8}", family.colors, family.runs)
}

/// The label with its line, or the line.
fn shown(family: &Family) -> String {
    match family.name == family.line || family.line.is_empty() {
        true => family.name.clone(),
        false => format!("{} ({})", family.name, family.line),
    }
}

/// The end of a long name, which tells more than its begin.
fn end_of(name: &str) -> &str {
    let from = name.char_indices().rev().nth(NAME_MAX - 1).map_or(0, |(at, _)| at);
    &name[from..]
}

/// A time in words, in the unit that leaves two to four digits before the point: `740 ns`, `12 us`, `350 ms`, `14.2 s`.
pub fn time_text(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.0} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

const NAME_MAX: usize = 36;
const ROWS: usize = 12;
const SLOW_ROWS: usize = 5;
