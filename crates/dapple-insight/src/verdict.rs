//! The sentence at the top: what bounds the program.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::snapshot::{Edge, Family, Slow, Snapshot};
use crate::waterfall::Outside;

/// The bottleneck of a program.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "bound_by", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// One color is always busy: more workers bring nothing.
    Color {
        /// Its family.
        family: String,
        /// Its line, as `src/bank.rs:41`; the family's name if it has no label.
        line: String,
        /// The share of the recorded time in which it was busy.
        busy: f64,
        /// The share of all callbacks' time that is serial because of it.
        serial: f64,
        /// With any number of workers the program gets no faster than by this.
        speedup_max: f64,
    },
    /// A callback keeps its worker for long, and others wait for it.
    Blocked {
        /// The line that posted it.
        callback: String,
        /// How long.
        run_ns: u64,
        /// How many callbacks waited.
        waited: u64,
    },
    /// Two families take turns: each waits for the other, and one worker does all.
    LockStep {
        /// One.
        one: String,
        /// The other one.
        other: String,
        /// The share of the recorded time in which one of them ran.
        busy: f64,
    },
    /// Readers and writers of a state wait for each other.
    Readers {
        /// The family of the state.
        family: String,
        /// How many waited at a time, on the average.
        waiting: f64,
        /// The share of the recorded time in which a writer had it.
        writing: f64,
    },
    /// Callbacks that hold several colors wait until they have all of them.
    Several {
        /// The family of one of the colors.
        family: String,
        /// How many waited at a time, on the average.
        waiting: f64,
    },
    /// The workers are busy: more of them would help.
    Workers {
        /// The mean share of time in which they ran callbacks.
        busy: f64,
        /// The color that would bound it next.
        next: String,
        /// The best speed-up that this color allows.
        speedup_max: f64,
    },
    /// Requests wait for something outside of the program: a disk, another program, or a timer.
    Outside {
        /// The line of the callback after which they wait.
        after: String,
        /// The share of the requests' time.
        share: f64,
        /// The mean wait of a request.
        each_ns: u64,
    },
    /// No worker and no color is busy: the program waits for clients, for the disk or for other programs.
    Idle {
        /// The mean share of time in which the workers ran callbacks.
        busy: f64,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: &f64| share * 100.0;
        match self {
            Verdict::Color { family, line, busy, serial, speedup_max } => write!(
                f,
                "{} is the bottleneck: its color was busy for {:.0} % of the time, and {:.0} % of the work is serial because \
                 of it; no number of workers makes the program faster than by {speedup_max:.1} times",
                if family == line { line.clone() } else { format!("{family} ({line})") },
                percent(busy),
                percent(serial)
            ),
            Verdict::Blocked { callback, run_ns, waited } => write!(
                f,
                "{callback} keeps its worker for {:.0} ms at a time, and {waited} other callbacks waited for one of these; \
                 move what blocks to `dapple::blocking`, or yield",
                *run_ns as f64 / 1e6
            ),
            Verdict::LockStep { one, other, busy } => write!(
                f,
                "{one} and {other} run in lock step for {:.0} % of the time: each waits for the other, so one worker does it all",
                percent(busy)
            ),
            Verdict::Readers { family, waiting, writing } => write!(
                f,
                "readers and writers of {family} wait for each other, {waiting:.1} of them at a time on the average: it was held for \
                 writing for {:.0} % of the time; write less often, or split it",
                percent(writing)
            ),
            Verdict::Several { family, waiting } => write!(
                f,
                "callbacks that hold several colors wait for {family} and others, {waiting:.1} of them at a time on the average: hold \
                 fewer colors at once, or for less time"
            ),
            Verdict::Workers { busy, next, speedup_max } => write!(
                f,
                "the workers are the bottleneck: they were busy for {:.0} % of the time; with more of them {next} is the next one, \
                 at {speedup_max:.1} times",
                percent(busy)
            ),
            Verdict::Outside { after, share, each_ns } => write!(
                f,
                "requests wait for something outside of the program after {after}, a disk, another program or a timer: for {:.0} % of \
                 their time, {:.1} ms each",
                percent(share),
                *each_ns as f64 / 1e6
            ),
            Verdict::Idle { busy } => write!(
                f,
                "nothing in the program is the bottleneck: its workers were busy for {:.0} % of the time, and no color was always \
                 busy; it waits for clients, the disk or other programs",
                percent(busy)
            ),
        }
    }
}

/// The verdict of a snapshot, from its other fields.
pub(crate) fn of(snapshot: &Snapshot, outside: Option<Outside>) -> Verdict {
    let Snapshot { workers, families, slow, edges, elapsed_ns, .. } = snapshot;
    let busy = workers.iter().map(|worker| worker.busy).sum::<f64>() / workers.len().max(1) as f64;
    let hottest = families.first();
    if let Some(blocked) = blocked(slow) {
        return blocked;
    }
    if let Some(family) = hottest.filter(|family| family.hottest >= SATURATED) {
        return of_color(family);
    }
    if busy < SATURATED
        && let Some(waits) = readers(families, *elapsed_ns).or_else(|| several(families, *elapsed_ns))
    {
        return waits;
    }
    if let Some(steps) = lock_step(families, edges, busy * workers.len() as f64) {
        return steps;
    }
    match hottest {
        Some(family) if busy >= SATURATED => {
            Verdict::Workers { busy, next: family.name.clone(), speedup_max: family.speedup_max }
        }
        _ => match outside.filter(|outside| outside.share >= MOSTLY) {
            Some(Outside { after, share, each_ns }) => Verdict::Outside { after, share, each_ns },
            None => Verdict::Idle { busy },
        },
    }
}

fn of_color(family: &Family) -> Verdict {
    Verdict::Color {
        family: family.name.clone(),
        line: family.line.clone(),
        busy: family.hottest,
        serial: 1.0 / family.speedup_max,
        speedup_max: family.speedup_max,
    }
}

/// The state that is read and written for which most wait, if on the average one does.
fn readers(families: &[Family], elapsed_ns: u64) -> Option<Verdict> {
    let waiting = |family: &Family| per(family.waits.readers_ns + family.waits.same_color_ns, elapsed_ns);
    let shared = families.iter().filter(|family| family.is_state && (1..family.runs).contains(&family.reads));
    let worst = shared.max_by(|a, b| waiting(a).total_cmp(&waiting(b))).filter(|worst| waiting(worst) >= SATURATED)?;
    Some(Verdict::Readers { family: worst.name.clone(), waiting: waiting(worst), writing: worst.hottest })
}

/// The same for callbacks that hold several colors.
fn several(families: &[Family], elapsed_ns: u64) -> Option<Verdict> {
    let waiting = |family: &Family| per(family.waits.several_ns, elapsed_ns);
    let worst = families.iter().max_by(|a, b| waiting(a).total_cmp(&waiting(b)))?;
    (waiting(worst) >= SATURATED).then(|| Verdict::Several { family: worst.name.clone(), waiting: waiting(worst) })
}

/// How many at a time, by the sum of their times.
fn per(sum_ns: u64, elapsed_ns: u64) -> f64 {
    sum_ns as f64 / elapsed_ns.max(1) as f64
}

/// A long callback for which others waited.
fn blocked(slow: &[Slow]) -> Option<Verdict> {
    let longest =
        slow.iter().filter(|slow| slow.run_ns >= BLOCKS_NS && slow.waited > 0).max_by_key(|slow| slow.waited_ns)?;
    let Slow { name, run_ns, waited, .. } = longest;
    Some(Verdict::Blocked { callback: name.clone(), run_ns: *run_ns, waited: *waited })
}

/// Two families that cause each other, where about one thing runs at a time. `concurrency`: how many callbacks ran at a
/// time, on the average.
fn lock_step(families: &[Family], edges: &[Edge], concurrency: f64) -> Option<Verdict> {
    if !(SATURATED..1.2).contains(&concurrency) {
        return None;
    }
    let back = |edge: &Edge| edges.iter().find(|back| back.from == edge.to && back.to == edge.from);
    let family = |name: &str| families.iter().find(|family| family.name == name && family.colors == 1);
    let pairs = edges.iter().filter(|edge| edge.from < edge.to).filter_map(|edge| {
        let back = back(edge)?;
        let both = [family(&edge.from)?, family(&edge.to)?];
        let even = edge.count.min(back.count) * 10 >= edge.count.max(back.count) * 9;
        even.then(|| (edge, both.iter().map(|family| family.hottest).sum::<f64>()))
    });
    let (edge, busy) = pairs.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (busy >= SATURATED).then(|| Verdict::LockStep {
        one: edge.from.clone(),
        other: edge.to.clone(),
        busy: busy.min(1.0),
    })
}

/// A color or a worker that is busy for this share of the time is a bottleneck.
const SATURATED: f64 = 0.85;

/// Requests that wait outside for this share of their time wait for nothing else.
const MOSTLY: f64 = 0.5;

/// A callback that takes as long as this blocks.
const BLOCKS_NS: u64 = 20_000_000;
