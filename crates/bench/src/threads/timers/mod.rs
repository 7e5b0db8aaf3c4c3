//! Many timers: the cost of starting, moving and canceling one, its memory, and its lateness.

mod peers;

use crate::experiment::{Column, Experiment, Histogram, Peer, Plot, Seen, Trial, wait_until, workers_text};
use crate::go;
use crate::machine::own_memory_bytes;
use crate::usage::{Switches, Usage};
use anyhow::{Result, ensure};
use peers::{Phases, TimerPeer, start};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The options of `bench threads --only timers`.
#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Options of timers")]
pub(super) struct Flags {
    /// Numbers of timers
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1000000", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    timers: Vec<u32>,
}

impl Flags {
    pub(super) fn cases(&self, workers: &[usize]) -> Vec<Case> {
        let mut cases = Vec::new();
        for &timers in &self.timers {
            cases.extend(workers.iter().map(|&workers| Case { timers: timers as usize, workers }));
        }
        cases
    }
}

pub(super) struct Timers;

/// The parameters of a case.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    /// Timers that run at the same time.
    timers: usize,
    /// Kernel threads, each of which has its share of the timers.
    workers: usize,
}

/// The case of the row of `bench regret`.
pub(super) fn regret_case(workers: usize) -> Case {
    Case { timers: 1_000_000, workers }
}

/// The figures of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    /// The time to make one timer and start it, on one worker, while the others do the same.
    insert_ns: f64,
    /// The time to move its deadline.
    rearm_ns: f64,
    /// The time to cancel it before its deadline.
    cancel_ns: f64,
    /// Inserts, re-arms and cancels per second of wall-clock time, of all workers together; not
    /// measured for Go.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    ops_per_s: Option<f64>,
    /// User and system time of one insert, re-arm or cancel, on average; not measured for Go.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    cpu_ns_per_op: Option<f64>,
    /// Context switches of the whole process, per operation.
    #[serde(flatten)]
    switches: Option<Switches>,
    /// The growth of the process's anonymous resident memory, over the number of timers; including
    /// the future or handle.
    bytes_per_timer: f64,
    /// The mean delay after its deadline of a thread that slept until then.
    late_ms_mean: f64,
    /// 99 of 100 were no later; not measured for Go.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    late_ms_p99: Option<f64>,
    /// The latest of all.
    late_ms_max: f64,
    /// Seconds over which the deadlines were spread.
    secs: f64,
}

impl Experiment for Timers {
    const NAME: &'static str = "timers";
    const PEERS: &'static [Peer] = &[Peer::Dapple, Peer::DappleTokioContext, Peer::Tokio, Peer::Go];
    const LEGEND: &'static str = "\
Medians. insert, re-arm, cancel: nanoseconds of wall-clock time for one timer, each worker with its share at the same time;
deadlines are random, and timers are moved in random order. bytes: growth of the process's anonymous resident memory over the
number of timers, with their futures or handles. late: from the deadline until what waited for it ran, as many timers spread
over the seconds. Each run checks that none fired early, none twice, and all of them.";
    type Case = Case;
    type Figures = Figures;

    fn measure(trial: &Trial<Case>) -> Result<Figures> {
        match trial.peer {
            Peer::Go => go::measure(trial, trial.case.workers, Timers::limit(trial)),
            Peer::Dapple => measure::<peers::Dapple>(trial),
            Peer::DappleTokioContext => measure::<peers::TokioContext>(trial),
            _ => measure::<peers::Tokio>(trial),
        }
    }

    fn seen(_: &Case, of: &Figures) -> Option<Seen> {
        let p99_us = of.late_ms_p99.map(|ms| ms * 1e3);
        let (rate_per_s, cpu_us_per_op) = (of.ops_per_s?, of.cpu_ns_per_op? / 1e3);
        Some(Seen { rate_per_s, cpu_us_per_op, p99_us, switches: of.switches })
    }

    fn limit(trial: &Trial<Case>) -> Duration {
        Duration::from_secs_f64(60.0 + trial.secs * SPREAD + trial.case.timers as f64 * 60e-6)
    }

    fn obstacle(_: Peer, _: &Case) -> Option<String> {
        None
    }

    fn title(_: &Case) -> String {
        "timers: each started, moved, taken back; then as many that fire".to_owned()
    }

    fn labels(case: &Case) -> Vec<(&'static str, String)> {
        vec![("timers", case.timers.to_string()), ("workers", case.workers.to_string())]
    }

    fn one_worker(case: &Case) -> Option<Case> {
        Some(Case { workers: 1, ..*case })
    }

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "insert ns", figure: |of| of.insert_ns, decimals: 0 },
            Column { head: "re-arm ns", figure: |of| of.rearm_ns, decimals: 0 },
            Column { head: "cancel ns", figure: |of| of.cancel_ns, decimals: 0 },
            Column { head: "bytes", figure: |of| of.bytes_per_timer, decimals: 0 },
            Column { head: "late ms", figure: |of| of.late_ms_mean, decimals: 2 },
            Column { head: "max late ms", figure: |of| of.late_ms_max, decimals: 1 },
        ]
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        let plot = |stem, y_title, figure| Plot {
            stem,
            y_title,
            y_log: false,
            figure,
            x_title: "timers",
            x: |case: &Case| case.timers,
            part: |case: &Case| workers_text(case.workers),
        };
        vec![
            plot("insert", "ns to start one", |of: &Figures| of.insert_ns),
            plot("rearm", "ns to move one", |of: &Figures| of.rearm_ns),
            plot("cancel", "ns to take one back", |of: &Figures| of.cancel_ns),
            plot("late", "mean lateness, ms", |of: &Figures| of.late_ms_mean),
        ]
    }
}

fn measure<P: TimerPeer>(trial: &Trial<Case>) -> Result<Figures> {
    let Case { timers, workers } = trial.case;
    let peer = start::<P>(workers)?;
    let phases: &'static Phases = Box::leak(Box::new(Phases::new(workers)));
    for maker in 0..workers {
        peer.spawn(phases.make::<P>(timers / workers + usize::from(maker < timers % workers), maker as u64 + 1));
    }
    phases.wait_ready()?;
    let (used, before) = (Usage::own(), own_memory_bytes()?);
    let (insert_ns, insert_span_ns) = phases.next()?;
    let grown = own_memory_bytes()?.saturating_sub(before);
    let (rearm_ns, rearm_span_ns) = phases.next()?;
    let (cancel_ns, cancel_span_ns) = phases.next()?;
    let (usage, ops) = (Usage::own().since(used), 3 * timers as u64);
    let span_ns = insert_span_ns + rearm_span_ns + cancel_span_ns;
    let elapsed = phases.elapsed.load(Relaxed);
    ensure!(elapsed == 0, "{elapsed} timers elapsed a minute early");
    let late = lateness::<P>(&peer, timers, trial.secs * SPREAD)?;
    // The time that a peer takes to stop is not measured here.
    std::mem::forget(peer);
    let each = |ns: u64| ns as f64 / timers as f64;
    Ok(Figures {
        insert_ns: each(insert_ns),
        rearm_ns: each(rearm_ns),
        cancel_ns: each(cancel_ns),
        ops_per_s: Some(ops as f64 * 1e9 / span_ns as f64),
        cpu_ns_per_op: Some(phases.cpu().as_nanos() as f64 / ops as f64),
        switches: Some(usage.switches(ops)),
        bytes_per_timer: grown as f64 / timers as f64,
        late_ms_mean: late.sum_ns.load(Relaxed) as f64 / timers as f64 / 1e6,
        late_ms_p99: Some(late.all.quantile_ns(0.99) / 1e6),
        late_ms_max: late.max_ns.load(Relaxed) as f64 / 1e6,
        secs: trial.secs * SPREAD,
    })
}

/// The lateness of the sleeping threads.
#[derive(Default)]
struct Late {
    all: Histogram,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
    fired: AtomicU64,
    early: AtomicU64,
}

/// Lateness is measured for this multiple of a run's time: a million in one second would measure
/// throughput.
const SPREAD: f64 = 4.0;

/// Starts as many sleeping threads, with deadlines spread over this many seconds.
fn lateness<P: TimerPeer>(peer: &P, timers: usize, secs: f64) -> Result<&'static Late> {
    let late: &'static Late = Box::leak(Box::default());
    // No thread may be late because others are still being made.
    let base = Instant::now() + Duration::from_secs_f64(0.2 + timers as f64 * 4e-6);
    let mut random = Random(7);
    for _ in 0..timers {
        let deadline = base + Duration::from_secs_f64(secs * random.share());
        peer.spawn(async move {
            P::sleep_until(deadline).await;
            let now = Instant::now();
            let ns = now.saturating_duration_since(deadline).as_nanos() as u64;
            late.all.add(ns);
            late.sum_ns.fetch_add(ns, Relaxed);
            late.max_ns.fetch_max(ns, Relaxed);
            late.early.fetch_add(u64::from(now < deadline), Relaxed);
            late.fired.fetch_add(1, Relaxed);
        });
    }
    ensure!(Instant::now() < base, "making the timers took longer than until the first was due: is the machine busy?");
    wait_until("all timers fire", || late.fired.load(Relaxed) >= timers as u64)?;
    let (fired, early) = (late.fired.load(Relaxed), late.early.load(Relaxed));
    ensure!(fired == timers as u64, "{fired} timers fired, and {timers} were started");
    ensure!(early == 0, "{early} timers fired early");
    Ok(late)
}

/// Reproducible random numbers.
pub(super) struct Random(pub(super) u64);

impl Random {
    /// At least 0, below 1.
    pub(super) fn share(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
