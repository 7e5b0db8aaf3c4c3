//! Runs scenarios in the simulator; `cargo xtask sim` builds and starts it.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use dapple_sim::{report, run_seed};
use scenarios::{ALL, Scenario};

/// The arguments.
struct Asked {
    seeds: u64,
    first: u64,
    minutes: Option<u64>,
    hash: bool,
    bugs: bool,
    names: Vec<String>,
}

fn main() -> ExitCode {
    let asked = match parse(std::env::args().skip(1)) {
        Ok(asked) => asked,
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
        failed += if asked.bugs { find_bugs(scenario, asked.seeds) } else { run(scenario, &asked, began) };
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the seeds of one scenario, or all of its share of the minutes; returns how many failed.
fn run(scenario: &Scenario, asked: &Asked, began: Instant) -> u64 {
    let share = asked.minutes.map(|minutes| Duration::from_secs(minutes * 60 / ALL.len() as u64));
    let (start, mut told) = (Instant::now(), began);
    let (mut seeds, mut failing, mut steps, mut simulated) = (0, Vec::new(), 0, Duration::ZERO);
    for seed in asked.first.. {
        if share.map_or(seeds >= asked.seeds, |share| start.elapsed() >= share) {
            break;
        }
        let outcome = run_seed(seed, &scenario.setup);
        (seeds, steps, simulated) = (seeds + 1, steps + outcome.steps, simulated + outcome.time);
        if asked.hash {
            println!("{} {seed}: trace {:016x}", scenario.name, outcome.hash);
        }
        if outcome.failure.is_some() {
            failing.push(seed);
            if failing.len() == 1 {
                println!("{}", report(scenario.name, &outcome, &scenario.setup));
                println!("or by: cargo xtask sim {} --seeds 1 --seed {seed}", scenario.name);
            }
        }
        if told.elapsed() > Duration::from_secs(60) {
            told = Instant::now();
            println!("{}: {seeds} seeds so far, {} failed", scenario.name, failing.len());
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let rate = steps as f64 / seconds / 1e6;
    println!(
        "{}: {seeds} seeds, {} failed ({:.1} s, {rate:.2} M steps/s, {:.0} times real time)",
        scenario.name,
        failing.len(),
        seconds,
        simulated.as_secs_f64() / seconds,
    );
    if !failing.is_empty() {
        println!("{}: failing seeds: {failing:?}", scenario.name);
    }
    failing.len() as u64
}

/// Says for each bug how many seeds it took to find it; returns how many were not found.
fn find_bugs(scenario: &Scenario, seeds: u64) -> u64 {
    let mut missed = 0;
    for (bug, setup) in scenario.bugs {
        match (1..=seeds).find(|&seed| run_seed(seed, setup).failure.is_some()) {
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
    let mut asked = Asked { seeds: 200, first: 1, minutes: None, hash: false, bugs: false, names: Vec::new() };
    while let Some(arg) = args.next() {
        let mut number = || -> Result<u64, String> {
            let value = args.next().ok_or_else(|| format!("{arg} needs a number"))?;
            value.parse().map_err(|_| format!("{arg}: {value:?} is no number"))
        };
        match &*arg {
            "--seeds" => asked.seeds = number()?,
            "--seed" => asked.first = number()?,
            "--minutes" => asked.minutes = Some(number()?),
            "--hash" => asked.hash = true,
            "--bugs" => asked.bugs = true,
            name if ALL.iter().any(|scenario| scenario.name == name) => asked.names.push(arg),
            _ => {
                let names: Vec<&str> = ALL.iter().map(|scenario| scenario.name).collect();
                return Err(format!("there is no scenario or flag {arg:?}; there are {}", names.join(", ")));
            }
        }
    }
    Ok(asked)
}
