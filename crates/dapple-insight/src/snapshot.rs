//! Everything that is shown, as data.

use dapple_sched::environment::HashMap;

use serde::{Deserialize, Serialize};

use crate::recording::Recording;
use crate::replay::Prediction;
use crate::runs::{Run, Runs, Span};
use crate::verdict::{self, Verdict};
use crate::waterfall::{self, Request};

/// The findings of a recording. Times are nanoseconds, shares are from 0 to 1.
///
/// ```
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # let insight = dapple_insight::Insight::new(runtime.handle()).unwrap();
/// # let session = insight.begin().unwrap();
/// # runtime.block_on(runtime.spawn(async {})).unwrap();
/// let snapshot = session.end().snapshot();
/// assert!(snapshot.families.iter().all(|family| family.share < 0.5 || snapshot.work_ns < 1_000_000), "{snapshot}");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The bottleneck.
    pub verdict: Verdict,
    /// How long was recorded.
    pub elapsed_ns: u64,
    /// Events that found no room: the figures miss them.
    pub lost: u64,
    /// The time that all callbacks took together.
    pub work_ns: u64,
    /// Each worker.
    pub workers: Vec<Worker>,
    /// The families with the busiest colors, at most 50; the rest of them are one more, `other`.
    pub families: Vec<Family>,
    /// The families that post to each other, most first, at most 50.
    pub edges: Vec<Edge>,
    /// The longest callbacks, at most 10.
    pub slow: Vec<Slow>,
    /// The throughput with other numbers of workers.
    pub predictions: Vec<Prediction>,
    /// The slowest requests that began and ended meanwhile, at most 5.
    #[serde(default)]
    pub requests: Vec<Request>,
}

/// A worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Worker {
    /// Time in callbacks.
    pub busy_ns: u64,
    /// The same, by the time recorded.
    pub busy: f64,
}

/// Colors that belong together: those with one label; else the states that one line has made, or the colors to which one
/// line posts or spawns.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Family {
    /// The label ([`Color::set_label`](dapple_sched::Color::set_label)); without one, the line, as `src/bank.rs:41`.
    pub name: String,
    /// The line; if several have the same label, one of them.
    pub line: String,
    /// It has states; otherwise callbacks or tasks.
    pub is_state: bool,
    /// How many colors.
    pub colors: usize,
    /// Callbacks, polls and closures in line.
    pub runs: u64,
    /// The time that they took. That of a closure in line counts here and in the callback around it.
    pub run_ns: u64,
    /// The same, by the time of all callbacks.
    pub share: f64,
    /// Of these, closures that read a state, at the same time as others.
    pub reads: u64,
    /// How much of the recorded time its busiest color was busy with one thing at a time, so not with readers. Near 1, it
    /// is the bottleneck.
    pub hottest: f64,
    /// With any number of workers the program gets no faster than by this, because of the busiest color.
    pub speedup_max: f64,
    /// The time between post and begin, of all callbacks together.
    pub waits: Waits,
}

/// Where callbacks waited.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Waits {
    /// Behind callbacks of the same color.
    pub same_color_ns: u64,
    /// Behind other colors on the worker that ran it.
    pub other_colors_ns: u64,
    /// For the worker to wake up or to come round.
    pub worker_ns: u64,
    /// For readers of the same color to end.
    pub readers_ns: u64,
    /// Until a callback had all of the several colors that it holds.
    pub several_ns: u64,
}

impl Waits {
    /// All of it.
    pub fn total_ns(&self) -> u64 {
        self.same_color_ns + self.other_colors_ns + self.worker_ns + self.readers_ns + self.several_ns
    }
}

/// Callbacks of one family that those of another one have caused.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Edge {
    /// The family of the cause.
    pub from: String,
    /// The family of the callback.
    pub to: String,
    /// How often.
    pub count: u64,
}

/// A long callback.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Slow {
    /// The line that posted it, or spawned its task.
    pub name: String,
    /// How long it kept its worker.
    pub run_ns: u64,
    /// The worker.
    pub worker: Option<u16>,
    /// The callbacks that were ready meanwhile, in the same color or on the same worker, and the time that they lost.
    pub waited: u64,
    /// See `waited`.
    pub waited_ns: u64,
}

impl Snapshot {
    pub(crate) fn of(recording: &Recording, runs: &Runs<'_>) -> Snapshot {
        let families = families(runs);
        let work_ns = work(runs);
        let elapsed_ns = runs.elapsed_ns;
        let busy = |busy_ns: u64| Worker { busy_ns, busy: share(busy_ns, elapsed_ns) };
        let mut snapshot = Snapshot {
            verdict: Verdict::Idle { busy: 0.0 },
            elapsed_ns,
            lost: recording.lost,
            work_ns,
            workers: runs.workers.iter().map(|worker| busy(worker.total())).collect(),
            edges: edges(runs),
            slow: slow(runs),
            families,
            predictions: PREDICTED.iter().map(|&workers| recording.predict(workers, &[])).collect(),
            requests: waterfall::slowest(recording, runs),
        };
        snapshot.verdict = verdict::of(&snapshot, waterfall::outside(recording, runs));
        fold(&mut snapshot.families);
        snapshot
    }
}

/// Makes one family of those beyond the limit.
fn fold(families: &mut Vec<Family>) {
    let rest = families.split_off(families.len().min(FAMILIES_MAX));
    let other = rest.into_iter().reduce(|mut sum, family| {
        sum.colors += family.colors;
        sum.runs += family.runs;
        sum.run_ns += family.run_ns;
        sum.reads += family.reads;
        sum.share = (sum.share + family.share).min(1.0);
        sum.hottest = sum.hottest.max(family.hottest);
        sum.speedup_max = sum.speedup_max.min(family.speedup_max);
        add(&mut sum.waits, family.waits);
        sum
    });
    families.extend(other.map(|other| Family {
        name: "other".to_owned(),
        line: String::new(),
        is_state: false,
        ..other
    }));
}

/// A part of a whole, from 0 to 1.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

/// The time of all callbacks.
fn work(runs: &Runs<'_>) -> u64 {
    runs.runs.iter().map(Run::own_ns).sum()
}

/// All families, the one with the busiest color first.
fn families(runs: &Runs<'_>) -> Vec<Family> {
    let work_ns = work(runs);
    let mut families: Vec<Family> = (0..runs.families.len())
        .map(|family| Family {
            name: runs.name(family),
            line: runs.place(family),
            is_state: runs.families[family].is_state,
            colors: runs.families[family].colors,
            runs: 0,
            run_ns: 0,
            reads: 0,
            share: 0.0,
            hottest: 0.0,
            speedup_max: f64::INFINITY,
            waits: Waits::default(),
        })
        .collect();
    for run in &runs.runs {
        let family = &mut families[runs.family_of(run)];
        // The turn of a waiter for a state runs nothing of its own; the closure counts.
        family.runs += u64::from(!family.is_state);
        add(&mut family.waits, waits(runs, run));
        for hold in &run.holds {
            let family = &mut families[runs.colors[hold.color].family];
            (family.runs, family.reads) = (family.runs + 1, family.reads + u64::from(hold.reads));
        }
    }
    for color in &runs.colors {
        let family = &mut families[color.family];
        let busy_ns = color.busy.total();
        let serial_ns = color.serial_ns();
        family.run_ns += busy_ns;
        family.hottest = family.hottest.max(share(serial_ns, runs.elapsed_ns));
        family.speedup_max = family.speedup_max.min(work_ns.max(1) as f64 / serial_ns.max(1) as f64).max(1.0);
    }
    for family in &mut families {
        family.share = share(family.run_ns, work_ns);
    }
    families.sort_by(|a, b| b.hottest.total_cmp(&a.hottest).then(b.run_ns.cmp(&a.run_ns)));
    families
}

pub(crate) fn add(sum: &mut Waits, more: Waits) {
    sum.same_color_ns += more.same_color_ns;
    sum.other_colors_ns += more.other_colors_ns;
    sum.worker_ns += more.worker_ns;
    sum.readers_ns += more.readers_ns;
    sum.several_ns += more.several_ns;
}

/// The causes of a callback's wait.
fn waits(runs: &Runs<'_>, run: &Run) -> Waits {
    let waited = Span { from: run.accepted_ns, to: run.span.from.max(run.accepted_ns) };
    if run.several {
        // Only one of its colors is known, so not which of them it waited for.
        return Waits { several_ns: waited.len(), ..Waits::default() };
    }
    let color = &runs.colors[run.color];
    let own_color_ns = color.busy.within(waited);
    let readers_ns = color.reading.within(waited).min(own_color_ns);
    let worker = run.worker.and_then(|worker| runs.workers.get(usize::from(worker)));
    let busy_ns = worker.map_or(0, |worker| worker.within(waited));
    let rest_ns = waited.len().saturating_sub(own_color_ns);
    let other_colors_ns = busy_ns.saturating_sub(own_color_ns).min(rest_ns);
    let (same_color_ns, worker_ns) = (own_color_ns - readers_ns, rest_ns - other_colors_ns);
    Waits { same_color_ns, other_colors_ns, worker_ns, readers_ns, several_ns: 0 }
}

fn edges(runs: &Runs<'_>) -> Vec<Edge> {
    let families: HashMap<u64, usize> = runs.runs.iter().map(|run| (run.callback, runs.family_of(run))).collect();
    let mut counts: HashMap<(usize, usize), u64> = HashMap::default();
    for run in &runs.runs {
        if let Some(from) = families.get(&run.cause) {
            *counts.entry((*from, runs.family_of(run))).or_default() += 1;
        }
    }
    let mut edges: Vec<Edge> = counts
        .into_iter()
        .map(|((from, to), count)| Edge { from: runs.name(from), to: runs.name(to), count })
        .collect();
    edges.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| (&a.from, &a.to).cmp(&(&b.from, &b.to))));
    edges.truncate(FAMILIES_MAX);
    edges
}

fn slow(runs: &Runs<'_>) -> Vec<Slow> {
    let mut longest: Vec<&Run> = runs.runs.iter().collect();
    longest.sort_by_key(|run| std::cmp::Reverse(run.own_ns()));
    longest.truncate(SLOW_MAX);
    let lost = |slow: &Run, run: &Run| {
        let meets = run.color == slow.color || (run.worker.is_some() && run.worker == slow.worker);
        let (from, to) = (run.accepted_ns.max(slow.span.from), run.span.from.min(slow.span.to));
        if meets && run.callback != slow.callback { to.saturating_sub(from) } else { 0 }
    };
    let of = |slow: &Run| {
        let lost: Vec<u64> = runs.runs.iter().map(|run| lost(slow, run)).filter(|ns| *ns > 0).collect();
        Slow {
            name: runs.lines[slow.line as usize].place(),
            run_ns: slow.own_ns(),
            worker: slow.worker,
            waited: lost.len() as u64,
            waited_ns: lost.iter().sum(),
        }
    };
    longest.into_iter().map(of).collect()
}

const FAMILIES_MAX: usize = 50;
const SLOW_MAX: usize = 10;

/// Numbers of workers to predict.
const PREDICTED: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
