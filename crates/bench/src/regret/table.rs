//! The table of `bench regret`, and its verdicts.

use super::{Row, Rule, Run};
use crate::experiment::{Seen, runs_text, workers_text};
use crate::output::Report;
use crate::stats::{Table, median, paired, ratio_text};
use crate::usage::Switches;
use std::collections::BTreeSet;

/// One number of workers of a row, compared with one worker and with as many copies.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Ratios {
    rate: Option<f64>,
    cpu: Option<f64>,
    p99: Option<f64>,
    copies: Option<f64>,
}

/// The least rate, as a multiple of that of one worker, or of as many copies.
const RATE_MIN: f64 = 0.95;
/// The most CPU time per operation, as a multiple of that of one worker, if all work is in the
/// process.
const CPU_MAX: f64 = 1.5;
/// The same, if others need the cores too.
const CPU_SHARED_MAX: f64 = 1.1;
/// The highest 99th percentile, as a multiple of that of one worker, if others need the cores too.
const P99_SHARED_MAX: f64 = 1.1;

impl Rule {
    /// The figures that break the rule, as in "CPU 1.31x".
    fn breaches(self, ratios: &Ratios) -> Vec<String> {
        let least = |what, ratio: Option<f64>, least| (what, ratio.filter(|ratio| *ratio < least));
        let most = |what, ratio: Option<f64>, most| (what, ratio.filter(|ratio| *ratio > most));
        let checks = match self {
            Rule::InProcess => vec![least("rate", ratios.rate, RATE_MIN), most("CPU", ratios.cpu, CPU_MAX)],
            Rule::SharedCores => vec![
                // Without copies, the rate depends on whether the load or the server gets the
                // cores. Copies share the cores with the same load.
                match ratios.copies {
                    Some(_) => least("rate, to copies", ratios.copies, RATE_MIN),
                    None => least("rate", ratios.rate, RATE_MIN),
                },
                most("CPU", ratios.cpu, CPU_SHARED_MAX),
                most("p99", ratios.p99, P99_SHARED_MAX),
            ],
        };
        checks.into_iter().filter_map(|(what, ratio)| Some(format!("{what} {}", ratio_text(Some(ratio?))))).collect()
    }
}

const LEGEND: &str = "\
Medians. rate/s: operations a second; CPU us, switches, wakes: of the process that runs Dapple, for each; p99: 99 of 100 took no longer. A
switch is a change of a core from one thread to another, a wake one of a thread that had gone to sleep. rate, CPU, p99: against one
worker; copies: the rate against as many processes of one worker each. Ratios are medians of paired runs. REGRET, where all work is in the
process: rate below 0.95x or CPU above 1.5x. REGRET, where the load or the other end of a connection needs the same cores (*): CPU above
1.1x, p99 above 1.1x, or a rate below 0.95x of that of as many copies, of one worker where there are none.";

/// One table of all rows.
pub(super) fn report(rows: &[Row], workers: &BTreeSet<usize>, all: &[Run], runs: u32, secs: f64) -> Report {
    let mut table = Table::new(&[
        "row", "workers", "rate/s", "CPU us", "p99 us", "switches", "wakes", "rate", "CPU", "p99", "copies", "verdict",
    ]);
    for row in rows {
        for &workers in workers {
            table.row(cells(row, workers, all));
        }
    }
    let runs = format!("{} of {secs} s each, the numbers of workers by turns", runs_text(runs as usize));
    Report { runs, tables: vec![("more workers against one".to_owned(), table)], legend: LEGEND }
}

/// A line for each number of workers of each row that regrets.
pub(super) fn regrets(rows: &[Row], workers: &BTreeSet<usize>, all: &[Run]) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        for &workers in workers {
            let breaches = row.rule.breaches(&ratios(&row.name, workers, all));
            if !breaches.is_empty() {
                lines.push(format!("{} with {}: {}", row.name, workers_text(workers), breaches.join(", ")));
            }
        }
    }
    lines
}

fn runs_of<'a>(row: &str, workers: usize, copies: bool, all: &'a [Run]) -> Vec<&'a Run> {
    all.iter().filter(|run| run.row == row && run.workers == workers && run.copies == copies).collect()
}

fn ratios(row: &str, workers: usize, all: &[Run]) -> Ratios {
    if workers == 1 {
        return Ratios::default();
    }
    let own = runs_of(row, workers, false, all);
    let against = |base: &[&Run], figure: fn(&Seen) -> f64| {
        let figure = |run: &Run| run.seen.as_ref().map_or(f64::NAN, figure);
        let seen = |runs: &[&'_ Run]| runs.iter().filter(|run| run.seen.is_some()).count();
        let ratio = (seen(&own) > 0 && seen(base) > 0).then(|| paired(&own, base, |run| run.run, figure)).flatten();
        ratio.filter(|ratio| ratio.is_finite())
    };
    let one = runs_of(row, 1, false, all);
    Ratios {
        rate: against(&one, |seen| seen.rate_per_s),
        cpu: against(&one, |seen| seen.cpu_us_per_op),
        p99: against(&one, |seen| seen.p99_us.unwrap_or(f64::NAN)),
        copies: against(&runs_of(row, workers, true, all), |seen| seen.rate_per_s),
    }
}

fn cells(row: &Row, workers: usize, all: &[Run]) -> Vec<String> {
    let own = runs_of(&row.name, workers, false, all);
    let of = |figure: fn(&Seen) -> Option<f64>| {
        let figures: Vec<f64> = own.iter().filter_map(|run| figure(run.seen.as_ref()?)).collect();
        median(&figures)
    };
    let switches = |figure: fn(&Switches) -> f64| {
        let figures: Vec<f64> = own.iter().filter_map(|run| run.seen?.switches.as_ref().map(figure)).collect();
        figure_text(median(&figures))
    };
    let ratios = ratios(&row.name, workers, all);
    vec![
        format!("{}{}", row.name, if row.rule == Rule::SharedCores { " *" } else { "" }),
        workers.to_string(),
        rate_text(of(|seen| Some(seen.rate_per_s))),
        figure_text(of(|seen| Some(seen.cpu_us_per_op))),
        figure_text(of(|seen| seen.p99_us)),
        switches(|of| of.switches_per_op),
        switches(|of| of.wakes_per_op),
        ratio_text(ratios.rate),
        ratio_text(ratios.cpu),
        ratio_text(ratios.p99),
        ratio_text(ratios.copies),
        verdict_text(row, workers, &own, &ratios),
    ]
}

fn verdict_text(row: &Row, workers: usize, own: &[&Run], ratios: &Ratios) -> String {
    let failed = own.iter().filter(|run| run.problem.is_some()).count();
    if failed > 0 {
        return format!("{failed} FAILED");
    }
    if let Some(why) = own.iter().find_map(|run| run.not_run.as_ref()) {
        return format!("not run: {why}");
    }
    match row.rule.breaches(ratios) {
        _ if workers == 1 => String::new(),
        _ if ratios.rate.is_none() => "one worker failed".to_owned(),
        breaches if breaches.is_empty() => "ok".to_owned(),
        breaches => format!("REGRET: {}", breaches.join(", ")),
    }
}

/// A rate, as in "142 K".
fn rate_text(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{} M", figure_text(rate / 1e6)),
        rate if rate >= 1e3 => format!("{} K", figure_text(rate / 1e3)),
        rate => figure_text(rate),
    }
}

/// A number with the decimals that matter.
fn figure_text(figure: f64) -> String {
    let decimals = match figure {
        figure if figure.is_nan() => return "-".to_owned(),
        figure if figure >= 100.0 => 0,
        figure if figure >= 10.0 => 1,
        figure if figure >= 1.0 => 2,
        figure if figure >= 0.1 => 3,
        _ => 4,
    };
    format!("{figure:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::super::Made;
    use super::*;

    fn run(workers: usize, copies: bool, run: usize, rate_per_s: f64, p99_us: f64) -> Run {
        let seen = Seen { rate_per_s, cpu_us_per_op: 2.0, p99_us: Some(p99_us), switches: None };
        let row = "r".to_owned();
        Run { row, workers, copies, run, seen: Some(seen), checked: true, problem: None, not_run: None }
    }

    fn row(rule: Rule) -> Row {
        Row::new("r".to_owned(), String::new(), rule, |_| Made::NotHere(String::new()))
    }

    fn ratios_with(set: impl FnOnce(&mut Ratios)) -> Ratios {
        let mut ratios = Ratios { rate: Some(1.0), cpu: Some(1.0), p99: Some(1.0), copies: None };
        set(&mut ratios);
        ratios
    }

    #[test]
    fn in_the_process_rate_and_processor_time_count() {
        let breaches = |set: fn(&mut Ratios)| Rule::InProcess.breaches(&ratios_with(set));
        assert!(breaches(|of| of.p99 = Some(9.0)).is_empty());
        assert!(breaches(|of| of.cpu = Some(1.49)).is_empty());
        assert_eq!(breaches(|of| of.rate = Some(0.94)), ["rate 0.94x"]);
        assert_eq!(breaches(|of| of.cpu = Some(1.51)), ["CPU 1.51x"]);
        assert!(Rule::InProcess.breaches(&Ratios::default()).is_empty());
    }

    #[test]
    fn beside_a_load_the_copies_decide_about_the_rate() {
        let breaches = |set: fn(&mut Ratios)| Rule::SharedCores.breaches(&ratios_with(set));
        assert_eq!(breaches(|of| of.rate = Some(0.7)), ["rate 0.70x"]);
        assert!(breaches(|of| (of.rate, of.copies) = (Some(0.7), Some(1.2))).is_empty());
        assert_eq!(breaches(|of| of.copies = Some(0.9)), ["rate, to copies 0.90x"]);
        let costs = breaches(|of| (of.cpu, of.p99) = (Some(1.2), Some(1.3)));
        assert_eq!(costs, ["CPU 1.20x", "p99 1.30x"]);
    }

    #[test]
    fn runs_are_compared_with_those_of_their_repetition() {
        let all = [run(1, false, 0, 10.0, 1.0), run(1, false, 1, 40.0, 1.0), run(2, false, 0, 20.0, 2.0)];
        let all = [&all[..], &[run(2, false, 1, 80.0, 2.0), run(2, true, 0, 25.0, 1.0)]].concat();
        let ratios = ratios("r", 2, &all);
        assert_eq!((ratios.rate, ratios.p99, ratios.copies), (Some(2.0), Some(2.0), Some(0.8)));
        let (rows, workers) = ([row(Rule::SharedCores)], BTreeSet::from([1, 2]));
        assert_eq!(regrets(&rows, &workers, &all), ["r with 2 workers: rate, to copies 0.80x, p99 2.00x"]);
        assert!(regrets(&[row(Rule::InProcess)], &workers, &all).is_empty());
        assert_eq!(
            cells(&rows[0], 2, &all).last().map(String::as_str),
            Some("REGRET: rate, to copies 0.80x, p99 2.00x")
        );
    }

    #[test]
    fn what_was_not_run_or_failed_says_so() {
        let none = |not_run: Option<&str>, problem: Option<&str>| Run {
            seen: None,
            not_run: not_run.map(str::to_owned),
            problem: problem.map(str::to_owned),
            ..run(2, false, 0, 0.0, 0.0)
        };
        let verdict = |run: Run| cells(&row(Rule::InProcess), 2, &[run]).pop();
        assert_eq!(verdict(none(Some("too few files"), None)).as_deref(), Some("not run: too few files"));
        assert_eq!(verdict(none(None, Some("wrong"))).as_deref(), Some("1 FAILED"));
        assert_eq!(verdict(run(2, false, 0, 1.0, 1.0)).as_deref(), Some("one worker failed"));
    }

    #[test]
    fn figures_are_told_to_three_digits() {
        let texts = [0.0123, 1.234, 12.34, 123.4].map(figure_text);
        assert_eq!(texts, ["0.0123", "1.23", "12.3", "123"]);
        assert_eq!([33.1e6, 142e3, 7.0, f64::NAN].map(rate_text), ["33.1 M", "142 K", "7.00", "-"]);
    }
}
