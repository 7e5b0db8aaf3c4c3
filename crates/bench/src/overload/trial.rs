//! One trial: what the server can do, and what it does under a load.

use super::closed_loop::ClosedLoop;
use super::experiment::{Case, Connections};
use super::figures::{Figures, Known};
use super::generator::{Generator, Manners};
use super::open_loop::{Look, OpenLoop};
use super::scenario::Lengths;
use super::schedule::Phase;
use super::server::{self, Running, Setting};
use crate::experiment::Trial;
use crate::machine::{Places, open_files_max, own_cpu, pin_to};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// Measures what the peer can do, starts it anew, so that it knows nothing of this, and loads it.
pub(super) fn measure(trial: &Trial<Case>) -> Result<Figures> {
    let case = &trial.case;
    let places = Places::of(case.workers);
    let setting = Setting { workers: case.workers, cores: &places.server, go_program: trial.go_program.as_deref() };
    let mut measured = BTreeMap::new();
    let mut running = server::start(trial.peer, &setting)?;
    for costs_us in case.scenario.costs() {
        let found = on_load_cores(&places, || capacity(trial, &running, &costs_us));
        measured.insert(costs_us.clone(), found.context("the capacity could not be measured")?);
    }
    running.still_running()?;
    drop(running);

    let own = |costs: &[u32]| measured.get(costs).copied().unwrap_or(f64::NAN);
    let first = case.scenario.costs().first().map_or(f64::NAN, |costs| own(costs));
    let factor = case.rate_of.map_or(1.0, |rate| rate / first);
    let lengths = Lengths { secs: trial.secs, peak_secs: case.peak_secs, give_up_secs: case.give_up_ms as f64 / 1e3 };
    let phases = case.scenario.phases(case.load.unwrap_or(1.0), lengths, &|costs| factor * own(costs));
    ensure_files(&phases, lengths.give_up_secs)?;

    let mut running = server::start(trial.peer, &setting)?;
    let look = || Ok(Look { at: Instant::now(), server: running.cpu()?, own: own_cpu() });
    let mut course = OpenLoop::new(phases, case.seed.wrapping_add(trial.run as u64), look);
    let mut generator =
        Generator::new(Manners { gather: GATHER, ..manners(case, &running, Duration::from_millis(case.give_up_ms)) })?;
    on_load_cores(&places, || generator.run(&mut course))?;
    let looks = course.looks()?;
    let book = course.book;
    let known = Known {
        deadline: Duration::from_millis(case.deadline_ms),
        capacity: &own,
        looks,
        resident_bytes: running.memory()?,
        in_flight_max: generator.in_flight_max(),
        rest: case.scenario.has_peak().then_some(REST_PHASE),
    };
    running.still_running()?;
    let figures = Figures::of(&book, &known)?;
    if figures.load_fell_behind {
        eprint!("\nwarning: the load generator was late ({:.1} ms, p99): ", figures.load_late_p99_ms);
    }
    Ok(figures)
}

/// About how many seconds a trial takes.
pub(super) fn length_secs(case: &Case, secs: f64) -> f64 {
    let lengths = Lengths { secs, peak_secs: case.peak_secs, give_up_secs: case.give_up_ms as f64 / 1e3 };
    let load: f64 = case.scenario.phases(1.0, lengths, &|_| 1.0).iter().map(|phase| phase.secs).sum();
    let capacity = |costs: &Vec<u32>| {
        let (warm_up, window) = capacity_lengths(secs, costs);
        (warm_up + window).as_secs_f64()
    };
    START_SECS + load + case.scenario.costs().iter().map(capacity).sum::<f64>()
}

/// How long the capacity is looked for: unseen, and seen. Long enough for many requests; short where all is to be short.
fn capacity_lengths(secs: f64, costs_us: &[u32]) -> (Duration, Duration) {
    let cost_max = Duration::from_micros(u64::from(costs_us.iter().copied().max().unwrap_or(0)));
    let window = Duration::from_secs_f64(secs.min(CAPACITY_SECS)).max((cost_max * 60).min(CAPACITY_MAX));
    (CAPACITY_WARM_UP.max(cost_max * 4), window)
}

/// What a server can do: requests a second that cost these by turns. Sees to it that the server does burn what it is asked to.
fn capacity(trial: &Trial<Case>, running: &Running, costs_us: &[u32]) -> Result<f64> {
    let clients = CLIENTS_PER_WORKER * trial.case.workers;
    let (warm_up, window) = capacity_lengths(trial.secs, costs_us);
    let mut course = ClosedLoop::new(clients, costs_us, warm_up + window);
    let mut generator = Generator::new(manners(&trial.case, running, PATIENCE))?;
    let before = running.cpu()?;
    generator.run(&mut course)?;
    let burned = running.cpu()?.saturating_sub(before) + CPU_CLOCK_STEP;
    let work = course.work();
    if burned < work.mul_f64(BURNED_SHARE_MIN) {
        bail!("the server had {burned:?} of CPU time for replies that ought to have cost {work:?}");
    }
    course.capacity_per_s(warm_up)
}

fn manners(case: &Case, running: &Running, give_up: Duration) -> Manners {
    let keeps = case.connections == Connections::Kept;
    Manners { to: running.address(), keeps, give_up, gather: Duration::ZERO, sources: case.sources }
}

/// Runs the generator in a thread of its own, where it belongs, and ahead of the server where that is allowed: clients are
/// elsewhere in truth, and do not wait for the server's processors.
fn on_load_cores<T: Send>(places: &Places, run: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let placed = || {
        if !places.load.is_empty() {
            pin_to(&places.load)?;
        }
        // Of this thread only, and root's right; the lateness tells what it is like without.
        let _ = rustix::process::setpriority_process(None, NICE);
        // Sleeps of a fraction of a millisecond, which the kernel otherwise makes longer by half of a tenth.
        let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
        run()
    };
    std::thread::scope(|scope| scope.spawn(placed).join()).unwrap_or_else(|_| bail!("the load generator panicked"))
}

/// As many requests may be under way as come until they are given up.
fn ensure_files(phases: &[Phase], give_up_secs: f64) -> Result<()> {
    let rate_per_s = phases.iter().map(|phase| phase.rate_per_s).fold(0.0, f64::max);
    ensure!(rate_per_s.is_finite(), "the capacity is unknown");
    let files = (rate_per_s * give_up_secs * 1.2) as usize + OTHER_FILES;
    let files_max = open_files_max();
    ensure!(
        files <= files_max,
        "{rate_per_s:.0} requests a second may take {files} open files, and this process may have {files_max}: raise \
         `ulimit -n`, or pass a lower --load"
    );
    Ok(())
}

/// Index of the phase after the peak: warming up, peak, rest.
const REST_PHASE: usize = 2;

/// One at work, one that waits: the server never waits for a client, and no limit is reached.
const CLIENTS_PER_WORKER: usize = 2;

/// What starting two servers takes, about.
const START_SECS: f64 = 0.5;

const CAPACITY_SECS: f64 = 1.5;
const CAPACITY_WARM_UP: Duration = Duration::from_millis(300);
const CAPACITY_MAX: Duration = Duration::from_secs(3);

/// How long a client waits while nobody is overloaded.
const PATIENCE: Duration = Duration::from_secs(20);

/// The kernel counts a process's time in such steps; twice, as there are two looks.
const CPU_CLOCK_STEP: Duration = Duration::from_millis(20);

/// How much of what replies claim to cost a server must have had. One that measures by the clock on the wall has less, where
/// others use the processor too.
const BURNED_SHARE_MIN: f64 = 0.8;

/// Much less than what any figure is about.
const GATHER: Duration = Duration::from_micros(200);

const NICE: i32 = -10;

/// Files that are open besides connections.
const OTHER_FILES: usize = 64;
