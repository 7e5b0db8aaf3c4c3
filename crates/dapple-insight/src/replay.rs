//! Predictions: the recorded callbacks run again, on other workers and after changes.
//!
//! | in the recording | in the replay |
//! |---|---|
//! | a callback | has its color from its begin to its end; a closure in line is a part that holds the color of its state, too |
//! | a color | has one at a time, in the order in which they came |
//! | a worker | takes the color that has waited longest; any worker takes any |
//! | a callback with a cause | comes when the cause has ended |
//! | one without, as after an event of the kernel or a timer | comes as long after the former callback of its color as it did |
//! | the time between two callbacks of a worker that had work | belongs to each callback |
//!
//! So clients that wait for their answers before they ask again ask faster where answers come faster. Not in it: the cost
//! of moving a color between cores, and clients that cannot ask faster.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use dapple_sched::environment::HashMap;

use serde::{Deserialize, Serialize};

use crate::runs::{Run, Runs};

/// A change of a program, to ask what it would bring. A family is named as in [`Family::name`](crate::Family::name).
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Change {
    /// Its callbacks and closures take less time by this factor.
    Faster {
        /// The family.
        family: String,
        /// By how many times.
        times: f64,
    },
    /// Each of its colors is split into this many.
    Split {
        /// The family.
        family: String,
        /// Parts of each.
        parts: usize,
    },
    /// Its states are read instead of held (`read` instead of `with`), so any number of closures run at the same time.
    Readable {
        /// The family.
        family: String,
    },
}

/// The throughput on other workers or after a change.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Prediction {
    /// Workers.
    pub workers: usize,
    /// The rate, by that with the recorded number of workers and no change.
    pub speedup: f64,
    /// The 99th percentile of the time between post and begin, in nanoseconds.
    pub wait_p99_ns: u64,
}

pub(crate) fn predict(runs: &Runs<'_>, recorded: usize, workers: usize, changes: &[Change]) -> Prediction {
    let (before_ns, _) = Replay::new(runs, &[]).run(recorded);
    let (after_ns, wait_p99_ns) = Replay::new(runs, changes).run(workers.max(1));
    Prediction { workers, speedup: before_ns.max(1) as f64 / after_ns.max(1) as f64, wait_p99_ns }
}

/// A piece of a callback.
#[derive(Clone, Copy)]
struct Part {
    /// The color of a state that it holds, beside the callback's own.
    holds: Option<usize>,
    ns: u64,
}

struct Job {
    /// `None`: it needs no color for itself.
    color: Option<usize>,
    parts: Vec<Part>,
    /// Jobs that come when this one has ended, and how long after.
    next: Vec<(usize, u64)>,
    came_ns: u64,
}

impl Job {
    fn work_ns(&self) -> u64 {
        self.parts.iter().map(|part| part.ns).sum()
    }
}

struct Replay {
    jobs: Vec<Job>,
    /// Jobs that come by themselves, and when.
    first: Vec<(u64, usize)>,
    colors: usize,
}

impl Replay {
    fn new(runs: &Runs<'_>, changes: &[Change]) -> Replay {
        let places: HashMap<u64, usize> = runs.runs.iter().enumerate().map(|(at, run)| (run.callback, at)).collect();
        let overhead_ns = overhead(runs);
        let effects = Effects::of(runs, changes);
        let jobs = runs.runs.iter().enumerate().map(|(at, run)| Job {
            color: effects.color(runs, run.color, at),
            parts: effects.parts(runs, run, at, overhead_ns),
            next: Vec::new(),
            came_ns: 0,
        });
        let mut replay =
            Replay { jobs: jobs.collect(), first: Vec::new(), colors: runs.colors.len() * effects.parts_max };
        let former = former(runs);
        for (at, run) in runs.runs.iter().enumerate() {
            // A cause began before its effect, so there are no circles.
            match (places.get(&run.cause).filter(|cause| **cause < at), former[at]) {
                (Some(&cause), _) => replay.jobs[cause].next.push((at, 0)),
                (None, Some(former)) => {
                    let pause_ns = run.accepted_ns.saturating_sub(runs.runs[former].span.to);
                    replay.jobs[former].next.push((at, pause_ns));
                }
                (None, None) => replay.first.push((run.accepted_ns, at)),
            }
        }
        replay
    }

    /// The time until [`MOST`] of the work is done, and the 99th percentile of the waits. Not all of it: the last event may
    /// have come from outside at any time.
    fn run(mut self, workers: usize) -> (u64, u64) {
        let all_ns: u64 = self.jobs.iter().map(Job::work_ns).sum();
        let mut done_ns = 0;
        let mut clock = Clock::new(self.colors, workers, &self.first);
        let mut waits = Vec::with_capacity(self.jobs.len());
        let mut end_ns = 0;
        while let Some(Reverse((now_ns, happens))) = clock.events.pop() {
            match happens {
                Happens::Comes(job) => {
                    self.jobs[job].came_ns = now_ns;
                    clock.come(Step { job, part: 0, holds: false }, self.jobs[job].color);
                }
                Happens::Ends(job, part) => {
                    done_ns += self.jobs[job].parts[part].ns;
                    if end_ns == 0 && done_ns as f64 >= all_ns as f64 * MOST {
                        end_ns = now_ns;
                    }
                    let Job { color, parts, next, .. } = &self.jobs[job];
                    clock.release(parts[part].holds);
                    if let Some(part) = Some(part + 1).filter(|part| *part < parts.len()) {
                        // The same worker goes on with it.
                        clock.begin(Step { job, part, holds: false }, parts[part], now_ns);
                    } else {
                        clock.free += 1;
                        clock.release(*color);
                        for &(next, pause_ns) in next {
                            clock.events.push(Reverse((now_ns + pause_ns, Happens::Comes(next))));
                        }
                    }
                }
            }
            while let Some(step) = clock.take() {
                let job = &self.jobs[step.job];
                if step.part == 0 && !step.holds {
                    waits.push(now_ns - job.came_ns);
                }
                clock.begin(step, job.parts[step.part], now_ns);
            }
        }
        waits.sort_unstable();
        let begin_ns = self.first.iter().map(|(at_ns, _)| *at_ns).min().unwrap_or(0);
        (end_ns.saturating_sub(begin_ns), waits.get(waits.len() * 99 / 100).copied().unwrap_or(0))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Ends(usize, usize),
    Comes(usize),
}

/// A part that is ready to run.
#[derive(Clone, Copy)]
struct Step {
    job: usize,
    part: usize,
    /// It has waited for its state, and holds it.
    holds: bool,
}

/// Workers, colors, and what happens next.
struct Clock {
    events: BinaryHeap<Reverse<(u64, Happens)>>,
    free: usize,
    /// For each color: whether it is taken, and the steps that wait for it.
    colors: Vec<(bool, VecDeque<Step>)>,
    ready: VecDeque<Step>,
}

impl Clock {
    fn new(colors: usize, workers: usize, first: &[(u64, usize)]) -> Clock {
        let events = first.iter().map(|&(at_ns, job)| Reverse((at_ns, Happens::Comes(job)))).collect();
        Clock { events, free: workers, colors: vec![(false, VecDeque::new()); colors], ready: VecDeque::new() }
    }

    /// A callback comes to its color.
    fn come(&mut self, step: Step, color: Option<usize>) {
        match color.map(|color| &mut self.colors[color]) {
            Some((true, waiting)) => waiting.push_back(step),
            Some((taken, _)) => {
                *taken = true;
                self.ready.push_back(step);
            }
            None => self.ready.push_back(step),
        }
    }

    /// A worker begins a part, unless its state is held: then the worker is free again.
    fn begin(&mut self, step: Step, part: Part, now_ns: u64) {
        if let Some((taken, waiting)) = part.holds.filter(|_| !step.holds).map(|color| &mut self.colors[color]) {
            if *taken {
                waiting.push_back(Step { holds: true, ..step });
                self.free += 1;
                return;
            }
            *taken = true;
        }
        self.events.push(Reverse((now_ns + part.ns, Happens::Ends(step.job, step.part))));
    }

    /// The next that waits for the color has it now.
    fn release(&mut self, color: Option<usize>) {
        let Some((taken, waiting)) = color.map(|color| &mut self.colors[color]) else { return };
        match waiting.pop_front() {
            Some(next) => self.ready.push_back(next),
            None => *taken = false,
        }
    }

    fn take(&mut self) -> Option<Step> {
        if self.free == 0 {
            return None;
        }
        let next = self.ready.pop_front()?;
        self.free -= 1;
        Some(next)
    }
}

/// The effects of changes on each family.
struct Effects {
    times: Vec<f64>,
    parts: Vec<usize>,
    is_readable: Vec<bool>,
    parts_max: usize,
}

impl Effects {
    fn of(runs: &Runs<'_>, changes: &[Change]) -> Effects {
        let count = runs.families.len();
        let mut effects =
            Effects { times: vec![1.0; count], parts: vec![1; count], is_readable: vec![false; count], parts_max: 1 };
        for family in 0..count {
            let name = runs.name(family);
            for change in changes {
                match change {
                    Change::Faster { family: of, times } if *of == name => effects.times[family] *= times.max(1e-6),
                    Change::Split { family: of, parts } if *of == name => {
                        effects.parts[family] = (*parts).clamp(1, SPLIT_MAX)
                    }
                    Change::Readable { family: of } if *of == name => effects.is_readable[family] = true,
                    _ => {}
                }
            }
        }
        effects.parts_max = effects.parts.iter().copied().max().unwrap_or(1);
        effects
    }

    /// The pieces of a callback, in order.
    fn parts(&self, runs: &Runs<'_>, run: &Run, at: usize, overhead_ns: u64) -> Vec<Part> {
        let mut parts = Vec::with_capacity(1 + 2 * run.holds.len());
        let mut since = run.span.from;
        let own = |ns: u64| Part { holds: None, ns: self.time(runs, run.color, ns) };
        let holds = run.holds.iter().map(|hold| (hold.span, Some((hold.color, hold.reads))));
        let nested = run.nested.iter().map(|nested| (*nested, None));
        let mut within: Vec<_> = holds.chain(nested).collect();
        within.sort_by_key(|(span, _)| span.from);
        for (span, color) in within {
            // Colors of one set are held at the same time: the first one counts.
            if span.from < since {
                continue;
            }
            parts.push(own(span.from - since));
            if let Some((color, reads)) = color {
                // Readers run at the same time; that they also wait for writers is left out.
                let holds = self.color(runs, color, at).filter(|_| !reads);
                parts.push(Part { holds, ns: self.time(runs, color, span.len()) });
            }
            since = span.to;
        }
        parts.push(own(run.span.to.saturating_sub(since) + overhead_ns));
        parts.retain(|part| part.ns > 0);
        if parts.is_empty() {
            parts.push(own(0));
        }
        parts
    }

    fn color(&self, runs: &Runs<'_>, color: usize, at: usize) -> Option<usize> {
        let family = runs.colors[color].family;
        (!self.is_readable[family]).then_some(color * self.parts_max + at % self.parts[family])
    }

    fn time(&self, runs: &Runs<'_>, color: usize, ns: u64) -> u64 {
        (ns as f64 / self.times[runs.colors[color].family]) as u64
    }
}

/// For each callback, the former one of its color that had ended when it came.
fn former(runs: &Runs<'_>) -> Vec<Option<usize>> {
    let mut of_color: Vec<Vec<usize>> = vec![Vec::new(); runs.colors.len()];
    runs.runs.iter().enumerate().for_each(|(at, run)| of_color[run.color].push(at));
    runs.runs
        .iter()
        .map(|run| {
            let of_color = &of_color[run.color];
            let ended = of_color.partition_point(|&other| runs.runs[other].span.to <= run.accepted_ns);
            ended.checked_sub(1).map(|last| of_color[last])
        })
        .collect()
}

/// The mean time between two callbacks of a worker where the second one waited: the scheduler's, and that of polls of
/// the kernel.
fn overhead(runs: &Runs<'_>) -> u64 {
    let mut last: Vec<Option<u64>> = vec![None; runs.workers.len()];
    let (mut sum_ns, mut count) = (0, 0);
    for run in &runs.runs {
        let Some(last) = run.worker.and_then(|worker| last.get_mut(usize::from(worker))) else { continue };
        if let Some(ended_ns) = last.replace(run.span.to)
            && run.accepted_ns <= ended_ns
        {
            let gap_ns = run.span.from.saturating_sub(ended_ns);
            // A longer one is that of a worker that lost its core.
            if gap_ns < GAP_MAX_NS {
                (sum_ns, count) = (sum_ns + gap_ns, count + 1);
            }
        }
    }
    sum_ns.checked_div(count).unwrap_or(0)
}

/// The part of the work after which the time is taken.
const MOST: f64 = 0.9;

const GAP_MAX_NS: u64 = 1_000_000;
const SPLIT_MAX: usize = 64;
