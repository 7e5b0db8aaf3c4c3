//! Predictions: the recorded callbacks run again, on other workers and after changes.
//!
//! | in the recording | in the replay |
//! |---|---|
//! | a callback | its parts one after the other: closures in line are parts in the color of their state |
//! | a color | runs one part at a time, in the order in which they came |
//! | a worker | takes the color that has waited longest; any worker takes any |
//! | a callback with a cause | comes when the cause has ended |
//! | one without, as after an event of the kernel or a timer | comes as long after the former callback of its color as it did |
//! | the time between two callbacks of a worker that had work | belongs to each callback |
//!
//! So clients that wait for their answers before they ask again ask faster where answers come faster. Not in it: the cost
//! of moving a color between cores, and clients that cannot ask faster.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use serde::Serialize;

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
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
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
    /// `None`: it needs no color for itself.
    color: Option<usize>,
    ns: u64,
}

struct Job {
    parts: Vec<Part>,
    /// Jobs that come when this one has ended, and how long after.
    next: Vec<(usize, u64)>,
    came_ns: u64,
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

    /// The time until all is done, and the 99th percentile of the waits.
    fn run(mut self, workers: usize) -> (u64, u64) {
        let mut clock = Clock::new(self.colors, workers, &self.first);
        let mut waits = Vec::with_capacity(self.jobs.len());
        let mut end_ns = 0;
        while let Some(Reverse((now_ns, happens))) = clock.events.pop() {
            match happens {
                Happens::Comes(job) => {
                    self.jobs[job].came_ns = now_ns;
                    clock.queue(job, 0, &self.jobs);
                }
                Happens::Ends(job, part) => {
                    end_ns = now_ns;
                    clock.release(self.jobs[job].parts[part].color);
                    match part + 1 < self.jobs[job].parts.len() {
                        true => clock.queue(job, part + 1, &self.jobs),
                        false => {
                            for &(next, pause_ns) in &self.jobs[job].next {
                                clock.events.push(Reverse((now_ns + pause_ns, Happens::Comes(next))));
                            }
                        }
                    }
                }
            }
            while let Some((job, part)) = clock.take() {
                if part == 0 {
                    waits.push(now_ns - self.jobs[job].came_ns);
                }
                let ends_ns = now_ns + self.jobs[job].parts[part].ns;
                clock.events.push(Reverse((ends_ns, Happens::Ends(job, part))));
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

/// Workers, colors, and what happens next.
struct Clock {
    events: BinaryHeap<Reverse<(u64, Happens)>>,
    free: usize,
    /// For each color: whether it runs, and its parts that wait.
    colors: Vec<(bool, VecDeque<(usize, usize)>)>,
    /// Parts that could run: of colors that do not, and without a color.
    ready: VecDeque<(usize, usize)>,
}

impl Clock {
    fn new(colors: usize, workers: usize, first: &[(u64, usize)]) -> Clock {
        let events = first.iter().map(|&(at_ns, job)| Reverse((at_ns, Happens::Comes(job)))).collect();
        Clock { events, free: workers, colors: vec![(false, VecDeque::new()); colors], ready: VecDeque::new() }
    }

    fn queue(&mut self, job: usize, part: usize, jobs: &[Job]) {
        match jobs[job].parts[part].color {
            Some(color) if self.colors[color].0 => self.colors[color].1.push_back((job, part)),
            Some(color) => {
                self.colors[color].0 = true;
                self.ready.push_back((job, part));
            }
            None => self.ready.push_back((job, part)),
        }
    }

    fn release(&mut self, color: Option<usize>) {
        self.free += 1;
        let Some((runs, waiting)) = color.map(|color| &mut self.colors[color]) else { return };
        match waiting.pop_front() {
            Some(next) => self.ready.push_back(next),
            None => *runs = false,
        }
    }

    fn take(&mut self) -> Option<(usize, usize)> {
        if self.free == 0 {
            return None;
        }
        let next = self.ready.pop_front()?;
        self.free -= 1;
        Some(next)
    }
}

/// What changes do to each family.
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
        let holds = run.holds.iter().map(|hold| (hold.span, Some(hold.color)));
        let nested = run.nested.iter().map(|nested| (*nested, None));
        let mut within: Vec<_> = holds.chain(nested).collect();
        within.sort_by_key(|(span, _)| span.from);
        for (span, color) in within {
            // Colors of one set are held at the same time: the first one counts.
            if span.from < since {
                continue;
            }
            parts.push(self.part(runs, run.color, at, span.from - since));
            color.into_iter().for_each(|color| parts.push(self.part(runs, color, at, span.len())));
            since = span.to;
        }
        parts.push(self.part(runs, run.color, at, run.span.to.saturating_sub(since) + overhead_ns));
        parts.retain(|part| part.ns > 0);
        if parts.is_empty() {
            parts.push(self.part(runs, run.color, at, 0));
        }
        parts
    }

    fn part(&self, runs: &Runs<'_>, color: usize, at: usize, ns: u64) -> Part {
        let family = runs.colors[color].family;
        let split = color * self.parts_max + at % self.parts[family];
        Part { color: (!self.is_readable[family]).then_some(split), ns: (ns as f64 / self.times[family]) as u64 }
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

const GAP_MAX_NS: u64 = 1_000_000;
const SPLIT_MAX: usize = 64;
