//! `bench regret`: whether a second worker ever hurts. It runs every row of the other commands with
//! one worker and with more, for one table with a verdict.
//!
//! There are no workloads here: a row runs a case of another command's experiment, by the trial of
//! that command.

mod files;
mod row;
mod table;

pub(crate) use files::Files;
pub(crate) use row::{Ask, Made, Row, Rule};

use crate::experiment::Seen;
use crate::output::Output;
use crate::words::{check_secs, verdict};
use crate::{colors, io, proxy, signserver, threads, web};
use anyhow::{Result, bail, ensure};
use files::Prepared;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Arguments of `bench regret`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// Only the rows with one of these in their names (default: all)
    #[arg(long, value_delimiter = ',', value_name = "PATTERN,...")]
    rows: Vec<String>,
    /// Print the names of the rows, and their descriptions, and end
    #[arg(long)]
    list: bool,
    /// Numbers of workers; with 1, the base of the comparison
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,2,8", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Vec<u16>,
    /// Repetitions; all rows within each, and the numbers of workers in turn within a row
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seconds measured per run, if time ends it
    #[arg(long, default_value_t = 1.0)]
    secs: f64,
    /// Succeed even if a row regrets, but not if a check failed
    #[arg(long)]
    no_fail: bool,
    /// Folder for the file to read and for logs; not in memory
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Megabytes (2^20) of that file
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    file_mb: u64,
}

/// One trial's outcome: a line of JSON.
#[derive(Clone, Debug, Serialize)]
struct Run {
    row: String,
    workers: usize,
    /// The same number of processes with one worker each, which the row is compared with.
    copies: bool,
    run: usize,
    #[serde(flatten)]
    seen: Option<Seen>,
    checked: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// The reason why this machine cannot run it.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_run: Option<String>,
}

impl Run {
    /// A short name of its trial within the row.
    fn title(workers: usize, copies: bool) -> String {
        format!("{workers}{}", if copies { " copies" } else { "w" })
    }

    fn failure(&self) -> Option<String> {
        let problem = self.problem.as_ref()?;
        Some(format!("{}, {}, run {}: {problem}", self.row, Run::title(self.workers, self.copies), self.run))
    }
}

/// Runs the requested rows and reports them; an error if a run's check failed or, by default, if a
/// row regrets.
pub(crate) fn run(args: &Args) -> Result<()> {
    let rows = rows(&args.rows)?;
    if args.list {
        let width = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
        rows.iter().for_each(|row| println!("{:<width$}  {}", row.name, row.what));
        return Ok(());
    }
    check_secs(args.secs, 600.0)?;
    let workers: BTreeSet<usize> = args.workers.iter().map(|&workers| usize::from(workers)).collect();
    ensure!(workers.contains(&1), "--workers must have 1 in it, which the others are compared with");
    let about = args.output.begin()?;
    let files = RefCell::new(Prepared::new(&args.folder, args.file_mb));
    let all = args.output.repeat(
        args.runs,
        |run| trials(&rows, &workers, run),
        |(row, ask)| (row.name.clone(), Run::title(ask.workers, ask.copies)),
        |(row, turn)| once(row, *turn, args.secs, &files),
    )?;
    args.output.end(&about, &table::report(&rows, &workers, &all, args.runs, args.secs))?;
    verdict(&all, Run::failure)?;
    match table::regrets(&rows, &workers, &all) {
        regrets if !regrets.is_empty() && !args.no_fail => bail!("REGRET:\n  {}", regrets.join("\n  ")),
        _ => Ok(()),
    }
}

/// All rows, or the requested ones.
fn rows(patterns: &[String]) -> Result<Vec<Row>> {
    let mut rows = colors::regret_rows();
    rows.extend(web::regret_rows());
    rows.extend(io::regret_rows());
    rows.extend(threads::regret_rows());
    rows.extend(signserver::regret_rows());
    rows.extend(proxy::regret_rows());
    for pattern in patterns {
        ensure!(
            rows.iter().any(|row| row.name.contains(pattern)),
            "no row's name has {pattern} in it: --list shows them all"
        );
    }
    rows.retain(|row| patterns.is_empty() || patterns.iter().any(|pattern| row.name.contains(pattern)));
    Ok(rows)
}

/// One trial of a row.
#[derive(Clone, Copy)]
struct Turn {
    workers: usize,
    copies: bool,
    run: usize,
}

/// The trials of one repetition. Each starts the rows with another number of workers.
fn trials<'a>(rows: &'a [Row], workers: &BTreeSet<usize>, run: usize) -> Vec<(&'a Row, Turn)> {
    let mut trials = Vec::new();
    for row in rows {
        let mut turns: Vec<Turn> = workers.iter().map(|&workers| Turn { workers, copies: false, run }).collect();
        let copied = workers.iter().filter(|&&workers| row.copies && workers > 1);
        turns.extend(copied.map(|&workers| Turn { workers, copies: true, run }));
        let first = run % turns.len();
        turns.rotate_left(first);
        trials.extend(turns.into_iter().map(|turn| (row, turn)));
    }
    trials
}

fn once(row: &Row, Turn { workers, copies, run }: Turn, secs: f64, files: &RefCell<Prepared>) -> Run {
    let made = match files.borrow_mut().path(row.files) {
        Ok(file) => row.make(&Ask { workers, copies, run, secs, file: &file }),
        Err(why) => Made::NotHere(why),
    };
    let row = row.name.clone();
    let of = Run { row, workers, copies, run, seen: None, checked: true, problem: None, not_run: None };
    match made {
        Made::Seen(seen) => Run { seen: Some(seen), ..of },
        Made::NotHere(why) => Run { not_run: Some(why), ..of },
        Made::Failed(problem) => Run { checked: false, problem: Some(problem), ..of },
    }
}
