//! Many seeds of one scenario, and what is said of one that fails.

use std::env;
use std::path::Path;

use crate::plan::Plan;
use crate::simulation::{Outcome, Simulation};
use crate::trace::LINES_MAX;

/// Runs a scenario with the seeds 1 to `seeds`. The first three, and then one of ten, run twice, to see that a seed decides everything.
///
/// `DAPPLE_SIM_SEED` in the environment names the only seed to run, and `DAPPLE_SIM_FAULTS` the numbers of the only faults of its plan;
/// `DAPPLE_SIM_SEEDS` says how many seeds to run. With `DAPPLE_SIM_SEED`, `DAPPLE_SIM_TIMELINE` names a file for the time line, see
/// [`Outcome::write_timeline`].
///
/// ```
/// dapple_sim::check("nothing", 3, |sim| sim.client("client", || async {}));
/// ```
///
/// # Panics
/// If a seed fails: with the seed, the smallest plan that was found to fail in the same way, the last events, and the line that runs it
/// again. If there are no seeds, or a variable says what cannot be.
pub fn check(name: &str, seeds: u64, scenario: impl Fn(&mut Simulation)) {
    let faults = env::var("DAPPLE_SIM_FAULTS").ok();
    if let Some(seed) = number_of("DAPPLE_SIM_SEED") {
        let kept = faults.map(|list| numbers(&list));
        let file = env::var_os("DAPPLE_SIM_TIMELINE");
        let mut sim = Simulation::with(seed, LINES_MAX, kept.clone());
        if file.is_some() {
            sim.timeline();
        }
        let outcome = made(sim, &scenario);
        eprintln!("{name}: {outcome}");
        if let Some(file) = file {
            match outcome.save_timeline(Path::new(&file)) {
                Ok(()) => eprintln!("the time line is in {}: open it at ui.perfetto.dev", file.display()),
                Err(error) => eprintln!("cannot write the time line to {}: {error}", file.display()),
            }
        }
        let planned = outcome.plan.len();
        let missing = kept.iter().flatten().find(|number| **number >= planned);
        assert!(
            missing.is_none(),
            "DAPPLE_SIM_FAULTS: {name} has no fault {missing:?}; seed {seed} has {planned}, counted from 0"
        );
        assert!(outcome.failure.is_none(), "{}", told_with_command(name, &outcome));
        return;
    }
    assert!(faults.is_none(), "DAPPLE_SIM_FAULTS has the faults of one seed: DAPPLE_SIM_SEED must name it");
    let seeds = number_of("DAPPLE_SIM_SEEDS").unwrap_or(seeds);
    assert!(seeds > 0, "{name}: no seeds are to run, which shows nothing");
    for seed in 1..=seeds {
        let is_twice = seed <= TWICE || seed.is_multiple_of(10);
        let lines_max = if is_twice { TWICE_LINES_MAX } else { 0 };
        let outcome = run(seed, lines_max, None, &scenario);
        if outcome.failure.is_some() {
            panic!("{}", report(name, &outcome, &scenario));
        }
        if is_twice {
            let again = run(seed, lines_max, None, &scenario);
            assert_eq!(
                again.hash,
                outcome.hash,
                "{name}: seed {seed} does not decide everything: something real is inside; {}",
                difference(&outcome.lines, &again.lines)
            );
        }
    }
}

/// Runs one seed of a scenario.
///
/// ```
/// let outcome = dapple_sim::run_seed(7, &|sim| sim.client("client", || async {}));
/// assert!(outcome.failure.is_none());
/// ```
pub fn run_seed(seed: u64, scenario: &impl Fn(&mut Simulation)) -> Outcome {
    run(seed, 0, None, scenario)
}

/// Runs one seed of a scenario with these faults in place of its own; the outcome has the last events in words.
///
/// Plans are written as they are displayed, so one can come from a report, and be changed. If it names a host that the scenario does
/// not have, the outcome is a failure that says so.
///
/// ```
/// use dapple_sim::{Simulation, run_plan};
/// use dapple_sim::time::{Instant, sleep};
/// use std::time::Duration;
///
/// let scenario = |sim: &mut Simulation| sim.client("client", || async {
///     let began = Instant::now();
///     sleep(Duration::from_secs(1)).await;
///     assert!(began.elapsed() < Duration::from_secs(2), "nothing froze this host");
/// });
/// let plan = "at 500ms, for 3s: client stands still".parse().unwrap();
/// assert!(run_plan(1, &plan, &scenario).failure.is_some());
/// ```
pub fn run_plan(seed: u64, plan: &Plan, scenario: &impl Fn(&mut Simulation)) -> Outcome {
    let mut sim = Simulation::with(seed, LINES_MAX, None);
    sim.replace_plan(plan.clone());
    made(sim, scenario)
}

/// Runs one seed of a scenario; the outcome has a time line, see [`Outcome::save_timeline`].
///
/// ```
/// let outcome = dapple_sim::run_drawn(7, &|sim| sim.client("client", || async {}));
/// let mut file = Vec::new();
/// outcome.write_timeline(&mut file)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn run_drawn(seed: u64, scenario: &impl Fn(&mut Simulation)) -> Outcome {
    let mut sim = Simulation::new(seed);
    sim.timeline();
    made(sim, scenario)
}

fn run(seed: u64, lines_max: usize, kept: Option<Vec<usize>>, scenario: &impl Fn(&mut Simulation)) -> Outcome {
    made(Simulation::with(seed, lines_max, kept), scenario)
}

/// Lets the scenario make its hosts, and runs them.
fn made(mut sim: Simulation, scenario: &impl Fn(&mut Simulation)) -> Outcome {
    sim.catching(|sim| scenario(sim));
    sim.run()
}

/// The first event of two runs in which they differ.
fn difference(first: &[String], second: &[String]) -> String {
    if first == second {
        return "the same events come in other steps".to_owned();
    }
    let len = first.len().min(second.len());
    let at = (0..len).find(|at| first[*at] != second[*at]).unwrap_or(len);
    let line = |lines: &[String]| lines.get(at).map_or("no event", |line| line.trim()).to_owned();
    let before = at.checked_sub(1).map_or("the beginning", |before| first[before].trim());
    format!("after `{before}` (line {at}) comes `{}`, then `{}`", line(first), line(second))
}

/// The numbers of faults of a plan that still fails without the others: one after the other is left out, as long as it fails in the same
/// way, that is with the same text but for its numbers.
///
/// ```
/// use dapple_sim::{Fault, Plan, Simulation, run_seed, shrink};
/// use dapple_sim::net::TcpStream;
/// use std::time::Duration;
///
/// let scenario = |sim: &mut Simulation| {
///     sim.host("server", std::future::pending::<()>);
///     sim.client("client", || async {
///         dapple_sim::time::sleep(Duration::from_secs(2)).await;
///         let error = TcpStream::connect("server:80").await.unwrap_err();
///         assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
///     });
///     let mut plan = Plan::default();
///     plan.add(Duration::ZERO, Duration::from_secs(1), Fault::Freeze("client".into()));
///     plan.add(Duration::from_secs(1), Duration::from_secs(99), Fault::Crash("server".into()));
///     sim.plan(plan);
/// };
/// let outcome = run_seed(1, &scenario);
/// assert!(outcome.failure.is_some());
/// assert_eq!(shrink(&outcome, &scenario), [1], "the other one has nothing to do with it");
/// ```
pub fn shrink(failed: &Outcome, scenario: &impl Fn(&mut Simulation)) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..failed.plan.len()).collect();
    for number in (0..failed.plan.len()).rev() {
        let fewer: Vec<usize> = kept.iter().copied().filter(|kept| *kept != number).collect();
        let failure = run(failed.seed, 0, Some(fewer.clone()), scenario).failure;
        if failure.is_some() && kind(failure.as_deref()) == kind(failed.failure.as_deref()) {
            kept = fewer;
        }
    }
    kept
}

/// The text of a failure without its numbers.
fn kind(failure: Option<&str>) -> String {
    failure.unwrap_or_default().chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Tells of a failed simulation: with the fewest faults that were found to fail, the last events, and the line that runs it again.
///
/// ```
/// use dapple_sim::{Simulation, report, run_seed};
///
/// let scenario = |sim: &mut Simulation| sim.client("client", || async { panic!("on purpose") });
/// let report = report("panics", &run_seed(7, &scenario), &scenario);
/// assert!(report.contains("on purpose") && report.contains("DAPPLE_SIM_SEED=7"));
/// ```
pub fn report(name: &str, failed: &Outcome, scenario: &impl Fn(&mut Simulation)) -> String {
    told_with_command(name, &smallest(failed, scenario))
}

/// The same without the line that runs it again, for programs with a command of their own.
///
/// ```
/// use dapple_sim::{Simulation, explain, run_seed};
///
/// let scenario = |sim: &mut Simulation| sim.client("client", || async { panic!("on purpose") });
/// assert!(!explain("panics", &run_seed(7, &scenario), &scenario).contains("cargo test"));
/// ```
pub fn explain(name: &str, failed: &Outcome, scenario: &impl Fn(&mut Simulation)) -> String {
    told(name, &smallest(failed, scenario))
}

/// The simulation that fails with the fewest faults that were found, with its last events.
fn smallest(failed: &Outcome, scenario: &impl Fn(&mut Simulation)) -> Outcome {
    run(failed.seed, LINES_MAX, Some(shrink(failed, scenario)), scenario)
}

fn told(name: &str, outcome: &Outcome) -> String {
    let (plan, kept) = (outcome.plan.to_string(), &outcome.kept);
    let of_plan = plan.lines().enumerate().filter(|(number, _)| kept.as_ref().is_none_or(|kept| kept.contains(number)));
    let faults: Vec<&str> = of_plan.map(|(_, line)| line).collect();
    format!(
        "{name}: {outcome}\nfaults:\n  {}\nthe last events:\n{}",
        if faults.is_empty() { "none".to_owned() } else { faults.join("\n  ") },
        outcome.lines.join("\n"),
    )
}

fn told_with_command(name: &str, outcome: &Outcome) -> String {
    let list = outcome.kept.as_ref().map(|kept| kept.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    let variable = list.map(|list| format!(" DAPPLE_SIM_FAULTS={list}")).unwrap_or_default();
    let test = name.rsplit("::").next().unwrap_or(name);
    // A name that is no name of a test is none to choose it by.
    let is_test = test.chars().all(|c| c.is_alphanumeric() || c == '_');
    let test = if is_test { format!(" {test}") } else { String::new() };
    format!("{}\nagain by: DAPPLE_SIM_SEED={}{variable} cargo test{test}", told(name, outcome), outcome.seed)
}

fn number_of(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text:?}")))
}

fn numbers(list: &str) -> Vec<usize> {
    let number = |part: &str| {
        part.trim().parse().unwrap_or_else(|_| panic!("DAPPLE_SIM_FAULTS: {part:?} is no number of a fault"))
    };
    list.split(',').filter(|part| !part.is_empty()).map(number).collect()
}

/// So many seeds run twice.
const TWICE: u64 = 3;
/// The lines of such a run that are kept, to tell of a difference.
const TWICE_LINES_MAX: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn the_first_difference_is_told() {
        let lines = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(difference(&lines("a b c"), &lines("a x c")), "after `a` (line 1) comes `b`, then `x`");
        assert_eq!(difference(&lines("a"), &lines("a b")), "after `a` (line 1) comes `no event`, then `b`");
        assert_eq!(difference(&lines("a"), &lines("a")), "the same events come in other steps");
        assert_eq!(difference(&lines("a"), &lines("b")), "after `the beginning` (line 0) comes `a`, then `b`");
    }
}
