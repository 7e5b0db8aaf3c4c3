//! One trial: the server's capacity, and its figures under a load.

use super::capacity;
use super::experiment::{Case, Connections};
use super::figures::{Figures, Known};
use super::generator::{Generator, Manners};
use super::open_loop::{Look, OpenLoop};
use super::scenario::{Lengths, Question};
use super::schedule::Phase;
use super::server::{self, Running, Setting};
use crate::experiment::Trial;
use crate::machine::{Places, open_files_max, own_cpu, pin_to};
use anyhow::{Result, bail, ensure};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// Measures the peer's capacity, restarts it, so that it has no history, and loads it.
pub(super) fn measure(trial: &Trial<Case>) -> Result<Figures> {
    let case = &trial.case;
    let places = Places::of(case.workers);
    let setting = Setting { workers: case.workers, cores: &places.server, go_program: trial.go_program.as_deref() };
    let measured = capacity::of(trial, &places, &setting)?;
    let own = |costs: &[u32]| measured.get(costs).copied().unwrap_or(f64::NAN);
    let first = case.scenario.costs().first().map_or(f64::NAN, |costs| own(costs));
    let factor = case.rate_of.map_or(1.0, |rate| rate / first);
    let lengths = Lengths { secs: trial.secs, peak_secs: case.peak_secs, give_up_secs: case.give_up_ms as f64 / 1e3 };
    let phases = case.scenario.phases(case.load.unwrap_or(1.0), lengths, &|costs| factor * own(costs));
    let kept: usize = case.scenario.clients().iter().map(|clients| clients.connections_min).sum();
    ensure_files(&phases, lengths.give_up_secs, kept)?;

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
        rest: (case.scenario.question() == Question::Change).then_some(REST_PHASE),
    };
    running.still_running()?;
    let figures = Figures::of(&book, &known)?;
    if figures.load_fell_behind {
        eprint!(" (the load was {:.1} ms late)", figures.load_late_p99_ms);
    }
    Ok(figures)
}

/// The approximate time of a trial, in seconds, without measuring the capacity.
pub(super) fn length_secs(case: &Case, secs: f64) -> f64 {
    let lengths = Lengths { secs, peak_secs: case.peak_secs, give_up_secs: case.give_up_ms as f64 / 1e3 };
    START_SECS + case.scenario.phases(1.0, lengths, &|_| 1.0).iter().map(|phase| phase.secs).sum::<f64>()
}

/// The behavior of clients in this case.
pub(super) fn manners(case: &Case, running: &Running, give_up: Duration) -> Manners {
    let keeps = case.connections == Connections::Kept;
    let to = running.address();
    Manners { to, keeps, give_up, gather: Duration::ZERO, sources: case.sources, clients: case.scenario.clients() }
}

/// Runs the generator in a separate thread on its cores, with a higher priority than the server if
/// that is allowed: real clients are elsewhere, and do not wait for the server's processors.
pub(super) fn on_load_cores<T: Send>(places: &Places, run: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let placed = || {
        if !places.load.is_empty() {
            pin_to(&places.load)?;
        }
        // For this thread only, and only if the process may do so (root may); otherwise the
        // reported lateness shows it.
        let _ = rustix::process::setpriority_process(None, NICE);
        // Without slack: otherwise the kernel prolongs sleeps of a fraction of a millisecond by
        // 0.05 ms.
        let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
        run()
    };
    std::thread::scope(|scope| scope.spawn(placed).join()).unwrap_or_else(|_| bail!("the load generator panicked"))
}

/// Raises the limit on open files to the number of requests that can be open at a time: those that
/// arrive before the first one is given up.
fn ensure_files(phases: &[Phase], give_up_secs: f64, kept: usize) -> Result<()> {
    let rate_per_s = phases.iter().map(|phase| phase.rate_per_s).fold(0.0, f64::max);
    ensure!(rate_per_s.is_finite(), "the capacity is unknown");
    let files = (rate_per_s * give_up_secs * 1.2) as usize + kept + OTHER_FILES;
    let files_max = open_files_max();
    ensure!(
        files <= files_max,
        "{rate_per_s:.0} requests a second may take {files} open files, and this process may have {files_max}: raise \
         `ulimit -n`, or pass a lower --load"
    );
    Ok(())
}

/// Index of the phase after the peak: warm-up, peak, rest.
const REST_PHASE: usize = 2;

/// The approximate time to start and end processes.
const START_SECS: f64 = 0.5;

/// Much less than any figure.
const GATHER: Duration = Duration::from_micros(200);

const NICE: i32 = -10;

/// Open files besides connections.
const OTHER_FILES: usize = 64;
