//! The output of an experiment: JSON lines, a table for readers, or Markdown.

use crate::experiment::Saved;
use crate::machine::{About, about};
use crate::measured;
use crate::stats::Table;
use anyhow::Result;
use serde::Serialize;
use std::cell::OnceCell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The form of the results. Progress goes to standard error, results to standard output.
#[derive(clap::Args)]
pub(crate) struct Output {
    /// Print one JSON line per run, as it ends, instead of a table
    #[arg(long)]
    json: bool,
    /// Print the table in Markdown, with machine, kernel, commit and command above it
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Append each run to this file, one JSON line as it ends, and the tables at the end. `threads`,
    /// `io`, `web`, `proxy`, `overload` and `signserver` do not measure saved runs again: the same
    /// command continues after an interruption. `cargo xtask results` shows the tables of the files
    /// in bench/runs
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// That file, while the command runs.
    #[arg(skip)]
    saved: OnceCell<Saved>,
}

/// The speed of trials.
#[derive(Default)]
struct Pace {
    trials: u32,
    time: Duration,
}

impl Pace {
    fn took(&mut self, time: Duration) {
        // A saved result takes no time, and says nothing about the remaining trials.
        if time > AT_ONCE {
            self.trials += 1;
            self.time += time;
        }
    }

    /// The text about this many remaining trials; empty before the first.
    fn left(&self, trials: usize) -> String {
        let minutes = self.time.as_secs_f64() / f64::from(self.trials) * trials as f64 / 60.0;
        if minutes.is_finite() { format!(" ({minutes:.0} min left)") } else { String::new() }
    }
}

/// Shorter than any trial takes.
const AT_ONCE: Duration = Duration::from_millis(20);

/// The tables of one experiment.
pub(crate) struct Report {
    /// The number and length of the runs, as in "5 runs of 1 s each".
    pub(crate) runs: String,
    /// Each with its title.
    pub(crate) tables: Vec<(String, Table)>,
    /// The meaning of the columns.
    pub(crate) legend: &'static str,
}

/// A line of the file of results, with the tables that `cargo xtask results` shows.
#[derive(Serialize)]
struct ReportLine<'a> {
    /// The name of the experiment; without one, of the command.
    report: &'a str,
    #[serde(flatten)]
    about: &'a About,
    /// The crates with the measured code.
    measures: &'a [&'a str],
    runs: &'a str,
    /// Titles, and the tables in Markdown.
    tables: Vec<(&'a str, String)>,
    legend: &'a str,
}

impl Output {
    /// Prints on standard error where and how the figures are taken, and opens the file of results.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn begin(&self) -> Result<About> {
        let about = about();
        eprintln!(
            "machine: {}; kernel {}; commit {}; command: {}",
            about.machine, about.kernel, about.commit, about.command
        );
        if let Some(load) = about.busy {
            eprintln!(
                "warning: the load average is {load}: with other programs running, not even the ratios mean much"
            );
        }
        if cfg!(debug_assertions) {
            eprintln!(
                "warning: built without optimization, the figures mean nothing: use cargo run --release -p bench"
            );
        }
        if let Some(path) = &self.save {
            let saved = Saved::open(path, &about)?;
            let _ = self.saved.set(saved);
        }
        Ok(about)
    }

    /// The file of results, if there is one.
    pub(crate) fn saved(&self) -> Option<&Saved> {
        self.saved.get()
    }

    /// As `in_turns`, and saves each run.
    pub(crate) fn repeat<T, R: Serialize>(
        &self,
        runs: u32,
        trials: impl Fn(usize) -> Vec<T>,
        titles: impl Fn(&T) -> (String, String),
        make: impl Fn(&T) -> R,
    ) -> Result<Vec<R>> {
        self.in_turns(runs, trials, titles, |trial| {
            let made = make(trial);
            if let Some(Err(error)) = self.saved().map(|saved| saved.add(None, &made)) {
                eprint!("\nwarning: {error:#}: ");
            }
            made
        })
    }

    /// Makes all trials of this many repetitions, one after the other. Prints the current one on
    /// standard error, and the line of each run as it ends. `titles` are the common title of
    /// neighboring trials, which may be empty, and the trial's own.
    pub(crate) fn in_turns<T, R: Serialize>(
        &self,
        runs: u32,
        trials: impl Fn(usize) -> Vec<T>,
        titles: impl Fn(&T) -> (String, String),
        make: impl Fn(&T) -> R,
    ) -> Result<Vec<R>> {
        let mut all = Vec::new();
        let mut pace = Pace::default();
        for run in 0..runs as usize {
            eprint!("run {}/{runs}:", run + 1);
            let mut common = String::new();
            let trials = trials(run);
            let mut rest = trials.len() * (runs as usize - run);
            for trial in trials {
                let (heading, title) = titles(&trial);
                if heading != common {
                    eprint!("\n  {heading}{}:", pace.left(rest));
                    common = heading;
                }
                eprint!(" {title}");
                let begin = Instant::now();
                let made = make(&trial);
                pace.took(begin.elapsed());
                rest -= 1;
                if self.json {
                    println!("{}", serde_json::to_string(&made)?);
                }
                all.push(made);
            }
            eprintln!();
        }
        Ok(all)
    }

    /// Prints lines that summarize the runs, in JSON mode.
    pub(crate) fn summary(&self, lines: &[serde_json::Value]) -> Result<()> {
        for line in lines.iter().filter(|_| self.json) {
            println!("{}", serde_json::to_string(line)?);
        }
        Ok(())
    }

    /// Prints and saves the report at the end of all runs of this command.
    pub(crate) fn end(&self, about: &About, report: &Report) -> Result<()> {
        self.end_of(about.subcommand(), about, report)
    }

    /// Prints and saves the report at the end of all runs of an experiment.
    pub(crate) fn end_of(&self, name: &str, about: &About, report: &Report) -> Result<()> {
        if self.markdown {
            print!("{}", report.markdown(about));
        } else if !self.json {
            print!("{}", report.text());
        }
        self.saved().map_or(Ok(()), |saved| saved.add_report(&report.line(name, about)))
    }
}

impl Report {
    fn text(&self) -> String {
        let mut text = String::new();
        for (title, table) in &self.tables {
            text.push_str(&format!("\n{title}\n{}", table.render()));
        }
        format!("{text}\n{}\n", self.legend)
    }

    fn line<'a>(&'a self, name: &'a str, about: &'a About) -> ReportLine<'a> {
        let tables = self.tables.iter().map(|(title, table)| (title.as_str(), table.render_markdown()));
        ReportLine {
            report: name,
            about,
            measures: measured::crates(about.subcommand()),
            runs: &self.runs,
            tables: tables.collect(),
            legend: self.legend,
        }
    }

    fn markdown(&self, about: &About) -> String {
        let mut text = format!("- machine: {}\n- kernel: {}\n", about.machine, about.kernel);
        text.push_str(&format!("- commit: {}\n- command: `{}`\n", about.commit, about.command));
        text.push_str(&format!("- runs: {}\n", self.runs));
        if let Some(load) = about.busy {
            text.push_str(&format!("- load average when it began: {load}\n"));
        }
        for (title, table) in &self.tables {
            text.push_str(&format!("\n**{title}**\n\n{}", table.render_markdown()));
        }
        format!("{text}\n{}\n", self.legend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_by_what_was_measured() {
        let mut pace = Pace::default();
        pace.took(Duration::from_millis(1));
        assert_eq!(pace.left(7), "");
        pace.took(Duration::from_secs(20));
        pace.took(Duration::from_secs(40));
        assert_eq!(pace.left(8), " (4 min left)");
    }

    #[test]
    fn markdown_names_what_a_published_figure_must_name() {
        let mut table = Table::new(&["peer", "rate"]);
        table.row(vec!["a".into(), "1".into()]);
        let tables = vec![("W1".to_owned(), table)];
        let (machine, kernel) = ("M".to_owned(), "K".to_owned());
        let (commit, date, command) = ("C".to_owned(), "D".to_owned(), "bench colors".to_owned());
        let about = About { machine, kernel, commit, date, command, busy: None };
        let markdown = Report { runs: "5 of 1 s".to_owned(), tables, legend: "Medians." }.markdown(&about);
        for part in ["- machine: M", "- kernel: K", "- commit: C", "- command: `bench colors`", "- runs: 5 of 1 s"] {
            assert!(markdown.contains(part), "{part} is missing: {markdown}");
        }
        assert!(markdown.ends_with("\n\n**W1**\n\n| peer | rate |\n|:-|-:|\n| a | 1 |\n\nMedians.\n"), "{markdown}");
    }
}
