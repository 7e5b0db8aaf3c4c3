//! The tables of saved runs as Markdown.

use super::git::Since;
use serde_json::Value;

/// A file of saved runs.
pub(super) struct Run {
    name: String,
    reports: Vec<Report>,
}

/// The tables of one experiment, as the bench saved them.
struct Report {
    /// The experiment.
    name: String,
    machine: String,
    kernel: String,
    /// One, or several where runs of several were put together.
    commits: Vec<String>,
    date: String,
    command: String,
    runs: String,
    load_average: Option<f64>,
    /// The crates with the measured code.
    measures: Vec<String>,
    /// Titles, and the tables in Markdown.
    tables: Vec<(String, String)>,
    legend: String,
}

impl Run {
    /// Reads a file. An error where it has no tables.
    pub(super) fn read(name: &str, text: &str) -> Result<Run, String> {
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut reports: Vec<Report> =
            lines.filter(|line| line["report"].is_string()).map(|line| Report::of(&line)).collect();
        keep_the_last(&mut reports);
        match reports.is_empty() {
            true => Err(format!(
                "bench/runs/{name}.jsonl has no tables: run the same bench command again, with --save and this file; \
                 most commands do not measure again what it has"
            )),
            false => Ok(Run { name: name.to_owned(), reports }),
        }
    }
}

/// Of tables of the same experiment with the same title keeps the last one.
fn keep_the_last(reports: &mut Vec<Report>) {
    let mut seen: Vec<(String, String)> = Vec::new();
    for report in reports.iter_mut().rev() {
        let mut titles = Vec::new();
        report.tables.retain(|(title, _)| {
            let key = (report.name.clone(), title.clone());
            titles.push(key.clone());
            !seen.contains(&key)
        });
        seen.extend(titles);
    }
    reports.retain(|report| !report.tables.is_empty());
}

impl Report {
    fn of(line: &Value) -> Report {
        let text = |of: &Value| of.as_str().unwrap_or("not saved").to_owned();
        let all = |of: &Value| of.as_array().into_iter().flatten().map(text).collect::<Vec<String>>();
        let tables = line["tables"].as_array().into_iter().flatten();
        Report {
            name: text(&line["report"]),
            machine: text(&line["machine"]),
            kernel: text(&line["kernel"]),
            commits: text(&line["commit"]).split(" and ").map(str::to_owned).collect(),
            date: text(&line["date"]),
            command: text(&line["command"]),
            runs: text(&line["runs"]),
            load_average: line["busy"].as_f64(),
            measures: all(&line["measures"]),
            tables: tables.map(|table| (text(&table[0]), text(&table[1]))).collect(),
            legend: text(&line["legend"]),
        }
    }

    /// The list above the tables. `page` is asked where git does not know.
    fn head(&self, page: &str, since: &impl Fn(&str, &[String]) -> Since) -> String {
        let names = self.measures.iter().map(|name| format!("`{name}`")).collect::<Vec<String>>().join(", ");
        let mut head = format!("- machine: {}\n- kernel: {}\n", self.machine, self.kernel);
        head.push_str(&format!("- commit: {}, {}\n", self.commits.join(" and "), self.date));
        head.push_str(&format!("- command: `{}`\n- runs: {}\n", self.command, self.runs));
        if let Some(load) = self.load_average {
            head.push_str(&format!("- load average when it began: {load}\n"));
        }
        head.push_str(&format!("- measures: {names}\n"));
        for commit in &self.commits {
            let mark = format!("- **older**: the code of {names} has changed since {commit}\n");
            let is_older = match since(commit, &self.measures) {
                Since::Same => false,
                Since::Changed => true,
                Since::Unknown => page.contains(&mark),
            };
            if is_older {
                head.push_str(&mark);
            }
        }
        head
    }
}

/// All tables. A list that is the same for several experiments is above the first one only, and their
/// common legend below the last one.
pub(super) fn section(runs: &[Run], page: &str, since: impl Fn(&str, &[String]) -> Since) -> String {
    if runs.is_empty() {
        return "No runs are saved yet.\n\n".to_owned();
    }
    let mut text = String::new();
    for run in runs {
        text.push_str(&format!("### {}\n\nFrom [runs/{0}.jsonl](runs/{0}.jsonl).\n\n", run.name));
        let heads: Vec<String> = run.reports.iter().map(|report| report.head(page, &since)).collect();
        let is_same =
            |at: usize| heads.get(at) == heads.get(at + 1) && run.reports[at].legend == run.reports[at + 1].legend;
        for (at, report) in run.reports.iter().enumerate() {
            if at == 0 || !is_same(at - 1) {
                text.push_str(&format!("{}\n", heads[at]));
            }
            for (title, table) in &report.tables {
                text.push_str(&format!("**{title}**\n\n{table}\n"));
            }
            if at + 1 == heads.len() || !is_same(at) {
                text.push_str(&format!("{}\n\n", report.legend));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(experiment: &str, commit: &str, title: &str, cell: &str) -> String {
        serde_json::json!({
            "report": experiment, "machine": "M", "kernel": "K", "commit": commit, "date": "2026-11-26",
            "command": "bench web --only small", "busy": 1.5, "measures": ["dapple-io", "dapple-sched"],
            "runs": "5 runs", "tables": [[title, format!("| a |\n|:-|\n| {cell} |\n")]], "legend": "Medians.",
        })
        .to_string()
    }

    fn shown(text: &str, page: &str, since: Since) -> String {
        section(&[Run::read("web", text).expect("it has tables")], page, |_, _| since)
    }

    #[test]
    fn each_table_has_its_commit_and_machine() {
        let text =
            format!("{{\"session\":{{}}}}\n{{\"run\":0}}\n{}\n{{\"run", line("small", "abc", "small: files", "1"));
        let due = "### web\n\nFrom [runs/web.jsonl](runs/web.jsonl).\n\n- machine: M\n- kernel: K\n\
            - commit: abc, 2026-11-26\n- command: `bench web --only small`\n- runs: 5 runs\n\
            - load average when it began: 1.5\n- measures: `dapple-io`, `dapple-sched`\n\n\
            **small: files**\n\n| a |\n|:-|\n| 1 |\n\nMedians.\n\n";
        assert_eq!(shown(&text, "", Since::Same), due);
    }

    #[test]
    fn a_table_is_marked_once_its_code_has_changed() {
        let text = line("small", "abc and def", "small", "1");
        let mark = "- **older**: the code of `dapple-io`, `dapple-sched` has changed since abc\n";
        let older = shown(&text, "", Since::Changed);
        assert!(older.contains(mark) && older.contains("since def\n"), "{older}");
        assert!(!shown(&text, &older, Since::Same).contains("older"));
    }

    #[test]
    fn where_git_does_not_know_the_marks_stay() {
        let text = line("small", "abc", "small", "1");
        let older = shown(&text, "", Since::Changed);
        assert_eq!(shown(&text, &older, Since::Unknown), older);
        assert!(!shown(&text, "", Since::Unknown).contains("older"));
    }

    #[test]
    fn a_later_table_replaces_an_earlier_one() {
        let lines = [("small", "t", "1"), ("hello", "t", "2"), ("small", "t", "3"), ("small", "u", "4")];
        let text = lines.map(|(experiment, title, cell)| line(experiment, "abc", title, cell)).join("\n");
        let shown = shown(&text, "", Since::Same);
        let cells: Vec<&str> = shown.lines().filter(|line| line.starts_with("| ") && *line != "| a |").collect();
        assert_eq!(cells, ["| 2 |", "| 3 |", "| 4 |"], "{shown}");
        assert_eq!((shown.matches("- machine").count(), shown.matches("Medians.").count()), (1, 1));
    }

    #[test]
    fn runs_without_tables_are_a_problem() {
        let problem = Run::read("web", "{\"run\":0}\n").err();
        assert!(problem.is_some_and(|problem| problem.starts_with("bench/runs/web.jsonl has no tables")));
        assert_eq!(section(&[], "", |_, _| Since::Same), "No runs are saved yet.\n\n");
    }
}
