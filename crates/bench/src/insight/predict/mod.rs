//! `bench insight --only predictions`: what recordings predict for another number of workers, and what is then measured.

mod clients;
mod trial;

pub(crate) use trial::{PredictArgs, Predicted, run_predict};

use crate::machine::{own_command, run_apart};
use crate::output::{Output, Report};
use crate::stats::{Table, median};
use crate::words::{checked, name, verdict};
use anyhow::Result;
use clap::ValueEnum;
use std::time::Duration;
use trial::Foreseen;

/// Runs the trials; the table is that of a report of its own.
pub(super) fn run(
    output: &Output,
    programs: &[Predicted],
    (runs, secs): (u32, f64),
    spin_rounds: u64,
) -> Result<(Report, Result<()>)> {
    let all = output.repeat(
        runs,
        |run| trials(programs, run, secs, spin_rounds),
        |trial| (String::new(), format!("{}/{}w", name(trial.predicted), trial.workers)),
        |trial| apart(trial).unwrap_or_else(|error| Foreseen::failed(trial, format!("{error:#}"))),
    )?;
    let verdict = verdict(&all, |run| {
        let problem = run.problem.as_ref()?;
        Some(format!("{} workers={} run={}: {problem}", name(run.predicted), run.workers, run.run))
    });
    let report = Report {
        runs: format!("{runs} of {secs} s each, with one and two workers by turns"),
        tables: vec![("Predicted and measured".to_owned(), table(&all))],
        legend: LEGEND,
    };
    Ok((report, verdict))
}

fn trials(programs: &[Predicted], run: usize, secs: f64, spin_rounds: u64) -> Vec<PredictArgs> {
    let wanted = |program: &&Predicted| programs.is_empty() || programs.contains(program);
    let of = |&predicted: &Predicted| {
        let order = if run.is_multiple_of(2) { [(1, 2), (2, 1)] } else { [(2, 1), (1, 2)] };
        order.map(|(workers, other)| PredictArgs { predicted, workers, other, run, secs, spin_rounds })
    };
    Predicted::value_variants().iter().filter(wanted).flat_map(of).collect()
}

fn apart(args: &PredictArgs) -> Result<Foreseen> {
    let mut command = own_command("insight-predict")?;
    command.args(["--predicted", &name(args.predicted), "--workers", &args.workers.to_string()]);
    command.args(["--other", &args.other.to_string(), "--run", &args.run.to_string()]);
    command.args(["--secs", &args.secs.to_string(), "--spin-rounds", &args.spin_rounds.to_string()]);
    run_apart(command, Duration::from_secs_f64(args.secs * 4.0 + 60.0))
}

fn table(all: &[Foreseen]) -> Table {
    let head = ["program", "1 worker", "2 workers", "measured", "1 to 2", "off by", "2 to 1", "off by", "checked", ""];
    let mut table = Table::new(&head);
    for &program in Predicted::value_variants() {
        let of = |workers: usize| -> Vec<&Foreseen> {
            all.iter().filter(|run| (run.predicted, run.workers) == (program, workers)).collect()
        };
        let (one, two) = (of(1), of(2));
        if one.is_empty() && two.is_empty() {
            continue;
        }
        let middle = |runs: &[&Foreseen], figure: fn(&Foreseen) -> f64| {
            let passed: Vec<f64> = runs.iter().filter(|run| run.checked).map(|run| figure(run)).collect();
            median(&passed)
        };
        let rates = [&one, &two].map(|runs| middle(runs, |run| run.rate_per_s));
        let measured = rates[1] / rates[0];
        let (up, down) = (middle(&one, |run| run.speedup), middle(&two, |run| run.speedup));
        let off = [up / measured - 1.0, down * measured - 1.0];
        // Without a figure, too.
        let met = off.iter().all(|off| off.abs() <= GOAL);
        let percent = |off: f64| format!("{:+.0} %", off * 100.0);
        table.row(vec![
            name(program),
            format!("{:.1}", rates[0] / 1e3),
            format!("{:.1}", rates[1] / 1e3),
            format!("{measured:.2}"),
            format!("{up:.2}"),
            percent(off[0]),
            format!("{down:.2}"),
            percent(off[1]),
            checked(one.iter().chain(&two).map(|run| run.checked)),
            if met { String::new() } else { "MISSED".to_owned() },
        ]);
    }
    table
}

/// The share by which a prediction may be off.
const GOAL: f64 = 0.1;

const LEGEND: &str = "\
Medians; rates in thousands a second. measured: the rate with two workers by that with one, each in a process of its own, in windows of
50 ms in which nothing records. 1 to 2: the same as predicted by recordings of 50 ms of the program with one worker; 2 to 1: the rate with
one worker by that with two, as predicted by recordings with two. off by: predicted by measured; the goal is 10 %, and MISSED marks a row
beyond it. Clients run in the program, as two cores leave none for them. w1 to w5: as in `colors`, with 10 us of work in each callback.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_runs_checks_itself_and_is_predicted() {
        for &predicted in Predicted::value_variants() {
            let args = PredictArgs { predicted, workers: 2, other: 1, run: 0, secs: 0.05, spin_rounds: 1_000 };
            // On a busy machine it may take longer until something runs.
            let run = |secs| trial::measure(&PredictArgs { secs, ..args }).expect("it starts");
            let found = [0.05, 2.0, 20.0].into_iter().map(run).find(|run| run.checked);
            assert!(found.is_some_and(|run| run.speedup > 0.0), "{predicted:?}");
        }
    }
}
