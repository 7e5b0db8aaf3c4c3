//! One trial: what the server can do, and what it does under a load.

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

/// Measures what the peer can do, starts it anew, so that it knows nothing of this, and loads it.
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

/// About how many seconds a trial takes, without looking for the capacity.
pub(super) fn length_secs(case: &Case, secs: f64) -> f64 {
    let lengths = Lengths { secs, peak_secs: case.peak_secs, give_up_secs: case.give_up_ms as f64 / 1e3 };
    START_SECS + case.scenario.phases(1.0, lengths, &|_| 1.0).iter().map(|phase| phase.secs).sum::<f64>()
}

/// How clients behave in this case.
pub(super) fn manners(case: &Case, running: &Running, give_up: Duration) -> Manners {
    let keeps = case.connections == Connections::Kept;
    let to = running.address();
    Manners { to, keeps, give_up, gather: Duration::ZERO, sources: case.sources, clients: case.scenario.clients() }
}

/// Runs the generator in a thread of its own, where it belongs, and ahead of the server where that is allowed: clients are
/// elsewhere in truth, and do not wait for the server's processors.
pub(super) fn on_load_cores<T: Send>(places: &Places, run: impl FnOnce() -> Result<T> + Send) -> Result<T> {
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

/// Index of the phase after the peak: warming up, peak, rest.
const REST_PHASE: usize = 2;

/// What starting processes and ending them takes, about.
const START_SECS: f64 = 0.5;

/// Much less than what any figure is about.
const GATHER: Duration = Duration::from_micros(200);

const NICE: i32 = -10;

/// Files that are open besides connections.
const OTHER_FILES: usize = 64;
