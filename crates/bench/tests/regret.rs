//! Short runs of `regret`, from the command line to its JSON lines.

mod cli;

use cli::{fails_naming, rows};
use serde_json::Value;

#[test]
fn rows_of_several_commands() {
    let few = ["--workers", "1,2", "--secs", "0.1", "--no-fail"];
    let rows = rows(&[&["regret", "--rows", "w4,packets-pipe,stm"][..], &few].concat());
    let names = |workers: u64| -> Vec<&Value> {
        rows.iter().filter(|row| row["workers"] == workers).map(|row| &row["row"]).collect()
    };
    let expected = ["w4", "w4/split", "packets-pipe-1", "packets-pipe-16", "stm"];
    assert_eq!(
        (names(1), names(2)),
        (expected.map(Value::from).iter().collect(), expected.map(Value::from).iter().collect())
    );
    for row in &rows {
        for figure in ["rate_per_s", "cpu_us_per_op"] {
            assert!(row[figure].as_f64().is_some_and(|figure| figure > 0.0), "{figure}: {row}");
        }
        assert!(row["switches_per_op"].is_f64() && row["wakes_per_op"].is_f64(), "{row}");
        let is_timed = row["row"].as_str().is_some_and(|name| name.starts_with("packets"));
        assert_eq!(row["p99_us"].is_f64(), is_timed, "{row}");
    }
}

#[test]
fn what_cannot_be_run_says_so() {
    // There is no disk in /proc, and that is no failure.
    let rows = rows(&["regret", "--rows", "disk", "--workers", "1,2", "--folder", "/proc"]);
    assert_eq!(rows.len(), 2, "{rows:#?}");
    for row in rows {
        assert!(row["not_run"].as_str().is_some_and(|why| why.contains("pass another --folder")), "{row}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    fails_naming(&["regret", "--rows", "w1,no-such-row"], "no row's name has no-such-row in it: --list shows them all");
    fails_naming(&["regret", "--workers", "2,8"], "must have 1 in it");
    fails_naming(&["regret", "--rows", "w4", "--secs", "0"], "pass a number above 0");
}
