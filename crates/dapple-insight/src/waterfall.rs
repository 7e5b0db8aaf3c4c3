//! The time of one request, over colors, workers, and machines.
//!
//! The callbacks of a request are those of its connection's color while it lasted, and those that they have caused. Other
//! requests of the same connection at the same time, as in HTTP/2, have colors of their own. Machines agree by the ids of
//! W3C Trace Context: the part that a request names as its sender is the part of the request that sent it. Their times agree
//! as well as their wall clocks do.

use std::fmt;

use dapple_sched::environment::{HashMap, HashSet};
use serde::{Deserialize, Serialize};

use crate::recording::{Recording, Served};
use crate::runs::{Runs, Span};

/// A request that a program answered while it was recorded.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Request {
    /// The trace, in hexadecimal, as in `traceparent`.
    pub trace: String,
    /// Its part of the trace.
    pub span: u64,
    /// The part of its sender, in this program or another one; 0 if it is the first.
    pub parent: u64,
    /// Nanoseconds from the begin of the recording to its begin.
    pub began_ns: u64,
    /// How long it took.
    pub took_ns: u64,
    /// Its callbacks and the closures in line, in the order of their begins, at most 60.
    pub steps: Vec<Step>,
    /// Steps beyond the limit.
    pub steps_left_out: u64,
}

/// A callback, or a closure in line, of a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Step {
    /// The family's name, or the line.
    pub name: String,
    /// The worker that ran it.
    pub worker: Option<u16>,
    /// It ran in line, within the callback before it.
    pub in_line: bool,
    /// Nanoseconds from the request's begin until it was ready to run.
    pub ready_ns: u64,
    /// Until it began.
    pub from_ns: u64,
    /// Until it ended.
    pub to_ns: u64,
}

/// The slowest requests.
pub(crate) fn slowest(recording: &Recording, runs: &Runs<'_>) -> Vec<Request> {
    let mut served: Vec<&Served> = recording.requests.iter().collect();
    served.sort_by_key(|served| std::cmp::Reverse(served.ended_ns - served.began_ns));
    served.truncate(SLOWEST_MAX);
    requests(runs, &served)
}

fn requests(runs: &Runs<'_>, served: &[&Served]) -> Vec<Request> {
    let places: HashMap<u64, usize> = runs.runs.iter().enumerate().map(|(at, run)| (run.callback, at)).collect();
    served.iter().map(|served| request(runs, &places, served)).collect()
}

fn request(runs: &Runs<'_>, places: &HashMap<u64, usize>, served: &Served) -> Request {
    let all = Span { from: served.began_ns, to: served.ended_ns };
    let mut steps = Vec::new();
    let own_color = places.get(&served.callback).map(|at| runs.runs[*at].color);
    let mut within: HashSet<u64> = [served.callback].into_iter().collect();
    // Causes begin before their effects, and runs are in that order.
    let first = places.get(&served.callback).copied().unwrap_or(usize::MAX);
    let begin = runs.runs.partition_point(|run| run.span.from < all.from).min(first);
    for run in runs.runs[begin..].iter().take_while(|run| run.span.from <= all.to) {
        let is_own = Some(run.color) == own_color && run.span.to >= all.from;
        if !(is_own || within.contains(&run.callback) || within.contains(&run.cause)) {
            continue;
        }
        within.insert(run.callback);
        let since = |at: u64| at.clamp(all.from, all.to) - all.from;
        let mut step = |name: String, in_line, ready_ns: u64, span: Span| {
            let (ready_ns, from_ns, to_ns) = (since(ready_ns.min(span.from)), since(span.from), since(span.to));
            steps.push(Step { name, worker: run.worker, in_line, ready_ns, from_ns, to_ns });
        };
        step(runs.lines[run.line as usize].name(), false, run.accepted_ns, run.span);
        for hold in run.holds.iter().filter(|hold| hold.span.to >= all.from && hold.span.from <= all.to) {
            step(runs.name(runs.colors[hold.color].family), true, hold.span.from, hold.span);
        }
    }
    let steps_left_out = steps.len().saturating_sub(STEPS_MAX) as u64;
    steps.truncate(STEPS_MAX);
    let (began_ns, took_ns) = (all.from, all.len());
    Request {
        trace: served.trace.clone(),
        span: served.span,
        parent: served.parent,
        began_ns,
        took_ns,
        steps,
        steps_left_out,
    }
}

/// The line after which requests wait most for something that is not in the recording, and the time.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Outside {
    pub(crate) after: String,
    /// Of the time of all requests.
    pub(crate) share: f64,
    /// The mean for each request.
    pub(crate) each_ns: u64,
}

/// The times in which no callback of a request ran or was ready belong to the callback before them. `None` without requests.
pub(crate) fn outside(recording: &Recording, runs: &Runs<'_>) -> Option<Outside> {
    let served: Vec<&Served> = recording.requests.iter().take(SAMPLED_MAX).collect();
    let mut waited: HashMap<String, u64> = HashMap::default();
    let mut all_ns = 0;
    for request in requests(runs, &served) {
        all_ns += request.took_ns;
        let mut steps: Vec<&Step> = request.steps.iter().filter(|step| !step.in_line).collect();
        steps.sort_by_key(|step| step.ready_ns);
        let (mut since_ns, mut after) = (0, None);
        let mut wait = |after: Option<&Step>, ns: u64| {
            if let Some(after) = after {
                *waited.entry(after.name.clone()).or_default() += ns;
            }
        };
        for step in steps {
            wait(after, step.ready_ns.saturating_sub(since_ns));
            if step.to_ns >= since_ns {
                (since_ns, after) = (step.to_ns, Some(step));
            }
        }
        // Steps that were left out may fill the end.
        if request.steps_left_out == 0 {
            wait(after, request.took_ns.saturating_sub(since_ns));
        }
    }
    let (after, ns) = waited.into_iter().max_by(|a, b| (a.1, &b.0).cmp(&(b.1, &a.0)))?;
    let share = ns as f64 / all_ns.max(1) as f64;
    Some(Outside { after, share, each_ns: ns / served.len().max(1) as u64 })
}

/// One request in all recordings that have a part of it: prints as a waterfall.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Waterfall {
    /// The trace.
    pub trace: String,
    /// Its parts, senders first: the number of the recording, the nanoseconds since the begin of the first part, and the part.
    pub parts: Vec<(usize, u64, Request)>,
}

impl Waterfall {
    /// The parts of a trace in recordings that ran at the same time; of the slowest request in the first recording if no
    /// trace is named. `None` if there are none.
    pub fn of(recordings: &[Recording], trace: Option<&str>) -> Option<Waterfall> {
        let slowest = || {
            let served = recordings.first()?.requests.iter();
            served.max_by_key(|served| served.ended_ns - served.began_ns).map(|served| served.trace.clone())
        };
        let trace = trace.map(str::to_owned).or_else(slowest)?;
        let mut parts = Vec::new();
        for (at, recording) in recordings.iter().enumerate() {
            let served: Vec<&Served> =
                recording.requests.iter().filter(|served| served.trace == trace).take(PARTS_MAX).collect();
            let runs = Runs::of(recording);
            let began = recording.began_unix_ns;
            parts.extend(
                requests(&runs, &served).into_iter().map(|part| (at, began.saturating_add(part.began_ns), part)),
            );
        }
        let first_ns = parts.iter().map(|(_, began_ns, _)| *began_ns).min()?;
        for (_, began_ns, _) in &mut parts {
            *began_ns -= first_ns;
        }
        let parts = in_order(parts);
        Some(Waterfall { trace, parts })
    }
}

/// Senders before those that they asked, else by time.
fn in_order(mut parts: Vec<(usize, u64, Request)>) -> Vec<(usize, u64, Request)> {
    parts.sort_by_key(|(at, began_ns, _)| (*began_ns, *at));
    let mut ordered: Vec<(usize, u64, Request)> = Vec::with_capacity(parts.len());
    while !parts.is_empty() {
        let waits = |part: &(usize, u64, Request)| {
            parts.iter().any(|other| other.2.span == part.2.parent && other.2.span != part.2.span)
        };
        let next = parts.iter().position(|part| !waits(part)).unwrap_or(0);
        ordered.push(parts.remove(next));
    }
    ordered
}

impl fmt::Display for Waterfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end_ns = self.parts.iter().map(|(_, began_ns, part)| began_ns + part.took_ns).max().unwrap_or(1).max(1);
        writeln!(f, "trace {}, {:.3} ms in all", self.trace, end_ns as f64 / 1e6)?;
        for (at, began_ns, part) in &self.parts {
            let sender = if part.parent == 0 { String::new() } else { format!(", asked by {:016x}", part.parent) };
            writeln!(
                f,
                "\nrecording {}: part {:016x}{sender}, {:.3} ms",
                at + 1,
                part.span,
                part.took_ns as f64 / 1e6
            )?;
            for step in &part.steps {
                let bar = bar([step.ready_ns, step.from_ns, step.to_ns].map(|ns| began_ns + ns), end_ns);
                let name = if step.in_line { format!("  in {}", step.name) } else { step.name.clone() };
                let worker = step.worker.map_or("-".to_owned(), |worker| worker.to_string());
                let (waited, ran) = (step.from_ns - step.ready_ns, step.to_ns - step.from_ns);
                writeln!(f, "|{bar}| {:>9} + {:>9}  worker {worker}  {name}", us(waited), us(ran))?;
            }
            if part.steps_left_out > 0 {
                writeln!(f, "and {} more steps", part.steps_left_out)?;
            }
        }
        writeln!(f, "\n`.` ready and waiting, `#` running; the two times are those")
    }
}

/// Of [`BAR_LEN`] characters.
fn bar(times: [u64; 3], end_ns: u64) -> String {
    let at = |ns: u64| (ns as f64 / end_ns as f64 * BAR_LEN as f64) as usize;
    let [ready, from, to] = times.map(at).map(|at| at.min(BAR_LEN - 1));
    let mark = |at: usize| match at {
        at if at >= from && at <= to => '#',
        at if at >= ready && at < from => '.',
        _ => ' ',
    };
    (0..BAR_LEN).map(mark).collect()
}

fn us(ns: u64) -> String {
    format!("{:.1} us", ns as f64 / 1e3)
}

const SLOWEST_MAX: usize = 5;
const STEPS_MAX: usize = 60;
/// Requests of which the waits are added up.
const SAMPLED_MAX: usize = 1_000;
/// Parts of one trace in one recording.
const PARTS_MAX: usize = 50;
const BAR_LEN: usize = 40;
