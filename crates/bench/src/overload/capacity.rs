//! A server's capacity, of which loads are multiples.

use super::closed_loop::ClosedLoop;
use super::experiment::Case;
use super::generator::{Generator, Manners};
use super::server::{self, Running, Setting};
use super::trial::{manners, on_load_cores};
use crate::experiment::Trial;
use crate::machine::Places;
use crate::words::name;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Requests a second of each group of costs.
pub(super) type Capacities = BTreeMap<Vec<u32>, f64>;

/// Measures the peer's capacity for each group of costs that occurs. A result of an earlier trial
/// is used, too, if it is of the same repetition and at most a few minutes old.
pub(super) fn of(trial: &Trial<Case>, places: &Places, setting: &Setting) -> Result<Capacities> {
    let mut found = Capacities::new();
    let mut running: Option<Running> = None;
    for costs_us in trial.case.scenario.costs() {
        let note = note(trial, &costs_us);
        let capacity = match note.as_ref().and_then(noted) {
            Some(capacity) => capacity,
            None => {
                let running = match &mut running {
                    Some(running) => running,
                    none => none.insert(server::start(trial.peer, setting)?),
                };
                let capacity = on_load_cores(places, || measure(trial, running, &costs_us));
                let capacity = capacity.context("the capacity could not be measured")?;
                running.still_running()?;
                if let Some(note) = note {
                    std::fs::write(note, capacity.to_string()).context("cannot note the capacity")?;
                }
                capacity
            }
        };
        found.insert(costs_us, capacity);
    }
    Ok(found)
}

/// The file that stores a capacity; `None` if the trial runs alone.
fn note(trial: &Trial<Case>, costs_us: &[u32]) -> Option<PathBuf> {
    if trial.file.as_os_str().is_empty() {
        return None;
    }
    let costs: Vec<String> = costs_us.iter().map(u32::to_string).collect();
    let Case { workers, connections, .. } = trial.case;
    let (peer, connections, run) = (name(trial.peer), name(connections), trial.run);
    Some(trial.file.join(format!("{run}-{peer}-{workers}-{connections}-{}", costs.join("-"))))
}

fn noted(note: &PathBuf) -> Option<f64> {
    let age = SystemTime::now().duration_since(std::fs::metadata(note).ok()?.modified().ok()?).ok()?;
    (age < NOTE_AGE_MAX).then_some(())?;
    std::fs::read_to_string(note).ok()?.parse().ok()
}

/// The approximate time to measure the capacities of a case, in seconds.
pub(super) fn length_secs(case: &Case, secs: f64) -> f64 {
    let length = |costs: &Vec<u32>| {
        let (warm_up, window) = lengths(secs, costs);
        (warm_up + window).as_secs_f64()
    };
    case.scenario.costs().iter().map(length).sum()
}

/// The lengths of warm-up and measurement: long enough for many requests, short if all trials are
/// short.
fn lengths(secs: f64, costs_us: &[u32]) -> (Duration, Duration) {
    let cost_max = Duration::from_micros(u64::from(costs_us.iter().copied().max().unwrap_or(0)));
    let window = Duration::from_secs_f64(secs.min(WINDOW_SECS)).max((cost_max * 60).min(WINDOW_MAX));
    (WARM_UP.max(cost_max * 4), window)
}

/// Requests a second with these costs in turn. Checks that the server burns the requested time.
fn measure(trial: &Trial<Case>, running: &Running, costs_us: &[u32]) -> Result<f64> {
    let clients = CLIENTS_PER_WORKER * trial.case.workers;
    let (warm_up, window) = lengths(trial.secs, costs_us);
    let mut course = ClosedLoop::new(clients, costs_us, warm_up + window);
    // The capacity is the same for all clients, so it takes the first.
    let mut generator = Generator::new(Manners { gather: Duration::ZERO, ..manners(&trial.case, running, PATIENCE) })?;
    let before = running.cpu()?;
    generator.run(&mut course)?;
    let burned = running.cpu()?.saturating_sub(before) + CPU_CLOCK_STEP;
    let work = course.work();
    if burned < work.mul_f64(BURNED_SHARE_MIN) {
        bail!("the server had {burned:?} of CPU time for replies that ought to have cost {work:?}");
    }
    course.capacity_per_s(warm_up)
}

/// One request at work and one that waits: the server never waits for a client, and reaches no
/// limit.
const CLIENTS_PER_WORKER: usize = 2;

const WINDOW_SECS: f64 = 1.5;
const WARM_UP: Duration = Duration::from_millis(300);
const WINDOW_MAX: Duration = Duration::from_secs(3);

/// Other programs may have changed the machine's speed after this time.
const NOTE_AGE_MAX: Duration = Duration::from_secs(300);

/// How long a client waits while there is no overload.
const PATIENCE: Duration = Duration::from_secs(20);

/// The kernel counts a process's time in these steps; twice, because there are two readings.
const CPU_CLOCK_STEP: Duration = Duration::from_millis(20);

/// The least share of the claimed costs that a server must have used. A server that measures
/// wall-clock time uses less while other programs run.
const BURNED_SHARE_MIN: f64 = 0.8;
