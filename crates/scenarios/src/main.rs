//! Runs scenarios in the simulator; `cargo xtask sim` builds and starts it.

#![forbid(unsafe_code)]

mod kept;
mod parallel;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use dapple_sim::{Outcome, Plan, explain, run_drawn, run_plan};
use scenarios::{ALL, Scenario};

use kept::Kept;

/// The arguments.
struct Asked {
    seeds: Option<u64>,
    first: Option<u64>,
    minutes: Option<u64>,
    hash: bool,
    bugs: bool,
    plan: Option<Plan>,
    timeline: Option<PathBuf>,
    kept: PathBuf,
    names: Vec<String>,
}

/// The seeds of one scenario so far.
#[derive(Default)]
struct Count {
    seeds: u64,
    steps: u64,
    simulated: Duration,
    failing: Vec<u64>,
}

fn main() -> ExitCode {
    let read = parse(std::env::args().skip(1)).and_then(|asked| {
        let kept = Kept::read(&asked.kept).map_err(|error| format!("cannot read {}: {error}", asked.kept.display()))?;
        Ok((asked, kept))
    });
    let (asked, mut kept) = match read {
        Ok(read) => read,
        Err(problem) => {
            eprintln!("sim: {problem}");
            return ExitCode::from(2);
        }
    };
    // Each panic inside is told with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let wanted = |scenario: &&Scenario| asked.names.is_empty() || asked.names.iter().any(|name| name == scenario.name);
    let began = Instant::now();
    let mut failed = 0;
    for scenario in ALL.iter().filter(wanted) {
        let first = asked.first.unwrap_or(1);
        failed += match (&asked.plan, &asked.timeline) {
            (Some(plan), _) => replay(scenario, plan, first),
            (None, Some(file)) => draw(scenario, first, file),
            (None, None) if asked.bugs => find_bugs(scenario, asked.seeds.unwrap_or(SEEDS)),
            (None, None) => run(scenario, &asked, began, &mut kept),
        };
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the seeds of one scenario, or all of its share of the minutes; returns how many failed.
fn run(scenario: &Scenario, asked: &Asked, began: Instant, kept: &mut Kept) -> u64 {
    let scenarios = if asked.names.is_empty() { ALL.len() } else { asked.names.len() };
    let share = asked.minutes.map(|minutes| Duration::from_secs(minutes.saturating_mul(60)) / scenarios as u32);
    let (start, mut told) = (Instant::now(), began);
    let mut count = Count::default();
    // A run of certain seeds is to do these only.
    let failed_before = if asked.first.is_none() && !asked.hash { kept.of(scenario.name) } else { Vec::new() };
    each(failed_before.into_iter(), scenario, |outcome| {
        if !count.take(scenario, outcome, asked.hash) {
            let seed = outcome.seed;
            println!("{}: seed {seed} failed in an earlier run, and does not fail now", scenario.name);
            warn(kept.remove(scenario.name, seed));
        }
    });
    let first = asked.first.unwrap_or(1);
    let seeds_max = asked.seeds.unwrap_or(if share.is_some() { u64::MAX } else { SEEDS });
    let seeds = (first..=u64::MAX).take(usize::try_from(seeds_max).unwrap_or(usize::MAX));
    let seeds = seeds.take_while(|_| share.is_none_or(|share| start.elapsed() < share));
    each(seeds, scenario, |outcome| {
        if count.take(scenario, outcome, asked.hash) {
            warn(kept.add(scenario.name, outcome.seed));
        }
        if told.elapsed() > Duration::from_secs(60) {
            told = Instant::now();
            println!("{}: {} seeds so far, {} failed", scenario.name, count.seeds, count.failing.len());
        }
    });
    count.say(scenario.name, start.elapsed())
}

fn each(seeds: impl Iterator<Item = u64> + Send, scenario: &Scenario, mut take: impl FnMut(&Outcome)) {
    parallel::in_order(seeds, scenario.setup, |outcome| {
        take(outcome);
        ControlFlow::<()>::Continue(())
    });
}

impl Count {
    /// Counts the outcome of one seed, with a report of the first that fails; true if it failed.
    fn take(&mut self, scenario: &Scenario, outcome: &Outcome, hash: bool) -> bool {
        let seed = outcome.seed;
        self.seeds += 1;
        self.steps += outcome.steps;
        self.simulated += outcome.time;
        if hash {
            println!("{} {seed}: trace {:016x}", scenario.name, outcome.hash);
        }
        if outcome.failure.is_some() && !self.failing.contains(&seed) {
            self.failing.push(seed);
            if self.failing.len() == 1 {
                let told = explain(scenario.name, outcome, &scenario.setup);
                println!("{told}\nagain by: cargo xtask sim {} --seeds 1 --seed {seed}", scenario.name);
            }
        }
        outcome.failure.is_some()
    }

    /// Says how many seeds ran and failed; returns how many failed.
    fn say(&self, name: &str, took: Duration) -> u64 {
        let Count { seeds, steps, simulated, failing } = self;
        let seconds = took.as_secs_f64();
        println!(
            "{name}: {seeds} seeds, {} failed ({seconds:.1} s, {:.2} M steps/s, {:.0} times real time)",
            failing.len(),
            *steps as f64 / seconds / 1e6,
            simulated.as_secs_f64() / seconds,
        );
        if !failing.is_empty() {
            println!("{name}: failing seeds: {failing:?}");
        }
        failing.len() as u64
    }
}

/// The run goes on without a file of failing seeds.
fn warn(written: std::io::Result<()>) {
    if let Err(error) = written {
        eprintln!("sim: cannot keep failing seeds: {error}");
    }
}

/// Runs one seed with the faults of a file; returns 1 if it failed.
fn replay(scenario: &Scenario, plan: &Plan, seed: u64) -> u64 {
    let outcome = run_plan(seed, plan, &scenario.setup);
    println!("{}: {outcome}\nthe last events:\n{}", scenario.name, outcome.lines.join("\n"));
    outcome.failure.is_some().into()
}

/// Runs one seed, and writes its time line; returns 1 if it failed, or the file could not be written.
fn draw(scenario: &Scenario, seed: u64, file: &Path) -> u64 {
    let outcome = run_drawn(seed, &scenario.setup);
    println!("{}: {outcome}", scenario.name);
    match outcome.save_timeline(file) {
        Ok(()) => println!("its time line is in {}: open it at ui.perfetto.dev", file.display()),
        Err(error) => {
            eprintln!("sim: cannot write {}: {error}", file.display());
            return 1;
        }
    }
    outcome.failure.is_some().into()
}

/// Says for each bug how many seeds it took to find it; returns how many were not found.
fn find_bugs(scenario: &Scenario, seeds: u64) -> u64 {
    let mut missed = 0;
    for (bug, setup) in scenario.bugs {
        let found = parallel::in_order(1..=seeds, *setup, |outcome| match outcome.failure {
            Some(_) => ControlFlow::Break(outcome.seed),
            None => ControlFlow::Continue(()),
        });
        match found {
            Some(seed) => println!("{}: {bug}: found by seed {seed}", scenario.name),
            None => {
                missed += 1;
                println!("{}: {bug}: NOT found by {seeds} seeds", scenario.name);
            }
        }
    }
    missed
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut asked = Asked {
        seeds: None,
        first: None,
        minutes: None,
        hash: false,
        bugs: false,
        plan: None,
        timeline: None,
        kept: kept::default_file(),
        names: Vec::new(),
    };
    while let Some(arg) = args.next() {
        let mut value = || match args.next() {
            Some(value) if !value.starts_with("--") => Ok(value),
            _ => Err(format!("{arg} needs a value")),
        };
        match &*arg {
            "--seeds" => asked.seeds = Some(number(&arg, &value()?)?),
            "--seed" => asked.first = Some(number(&arg, &value()?)?),
            "--minutes" => match number(&arg, &value()?)? {
                0 => return Err("--minutes: nothing would run; give at least 1".to_owned()),
                minutes => asked.minutes = Some(minutes),
            },
            "--hash" => asked.hash = true,
            "--bugs" => asked.bugs = true,
            "--plan" => asked.plan = Some(read_plan(&value()?)?),
            "--timeline" => asked.timeline = Some(value()?.into()),
            "--kept" => asked.kept = value()?.into(),
            name if ALL.iter().any(|scenario| scenario.name == name) => asked.names.push(arg),
            _ => {
                let names: Vec<&str> = ALL.iter().map(|scenario| scenario.name).collect();
                return Err(format!("there is no scenario or flag {arg:?}; there are {}", names.join(", ")));
            }
        }
    }
    match unfit(&asked) {
        Some(why) => Err(why),
        None => Ok(asked),
    }
}

/// Why these flags do not go together, or lack something.
fn unfit(asked: &Asked) -> Option<String> {
    let (is_one, is_plan) = (asked.names.len() == 1, asked.plan.is_some());
    if is_plan && !is_one {
        return Some("--plan needs the name of one scenario: a plan names its hosts".to_owned());
    }
    if asked.timeline.is_some() && (!is_one || asked.first.is_none() || is_plan || asked.bugs) {
        return Some("--timeline draws one seed of one scenario: name the scenario, and give --seed".to_owned());
    }
    if is_plan && asked.bugs {
        return Some("--plan runs one plan, and --bugs looks for mistakes: give one of them".to_owned());
    }
    let (seeds, minutes) = (asked.seeds.is_some(), asked.minutes.is_some());
    let idle = [
        (is_plan && seeds, "--seeds", "--plan, which runs one seed"),
        (is_plan && minutes, "--minutes", "--plan, which runs one seed"),
        (asked.bugs && minutes, "--minutes", "--bugs, where --seeds says how many to try"),
        (asked.bugs && asked.hash, "--hash", "--bugs, where --seeds says how many to try"),
    ];
    let (_, flag, with) = idle.into_iter().find(|(is_idle, ..)| *is_idle)?;
    Some(format!("{flag} does not go with {with}"))
}

/// How many seeds of each scenario run, if no flag says it.
const SEEDS: u64 = 200;

fn number(flag: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{flag}: {value:?} is no number"))
}

fn read_plan(file: &str) -> Result<Plan, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))?;
    text.parse().map_err(|error| format!("{file}: {error}"))
}
