//! Short runs of `bench overload`, which check that every request is accounted for. They do not
//! check how many were answered in time, because other tests run at the same time.

mod cli;

use cli::{fails_naming, rows};
use serde_json::Value;

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("{field} is a number: {row}"))
}

/// Every request is in one of the counts, and there were enough.
fn adds_up(row: &Value) {
    let ends = ["good", "late", "refused", "given_up", "errors"].map(|end| number(row, end));
    assert_eq!(number(row, "arrivals"), ends.iter().sum::<f64>(), "{row}");
    assert!(number(row, "arrivals") > 0.0 && number(row, "capacity_per_s") > 0.0, "{row}");
    let phases = row["phases"].as_array().expect("a list");
    assert_eq!(phases.iter().map(|phase| number(phase, "arrivals")).sum::<f64>(), number(row, "arrivals"), "{row}");
    assert!(number(row, "server_cpu_percent") >= 0.0 && number(row, "load_late_p99_ms") >= 0.0, "{row}");
}

/// The lines of single runs, and the summary lines.
fn run(args: &[&str]) -> (Vec<Value>, Vec<Value>) {
    let (summaries, runs) =
        rows(&[&["overload"][..], args].concat()).into_iter().partition(|row| row["summary"].is_string());
    (runs, summaries)
}

#[test]
fn every_request_is_accounted_for() {
    let few = ["--scenario", "2ms", "--load", "0.5,3", "--workers", "1", "--secs", "0.5", "--peer", "hyper-pool10"];
    // The same requests, whatever the current speed of this machine.
    let (runs, summaries) = run(&[&few[..], &["--rate-of", "100"]].concat());
    assert_eq!((runs.len(), summaries.len()), (2, 1), "{runs:#?}");
    for row in &runs {
        adds_up(row);
        assert!(row["scenario"] == "2ms" && row["connections"] == "new", "{row}");
        assert_eq!(row["refused_without_retry_after"], 0, "{row}");
    }
    let arrivals: Vec<f64> = runs.iter().map(|row| number(row, "arrivals")).collect();
    assert!((10.0..40.0).contains(&arrivals[0]) && (110.0..190.0).contains(&arrivals[1]), "{arrivals:?}");
    let summary = &summaries[0];
    assert!(summary["goodput_per_s"]["3x"].is_f64() && summary["runs"] == 1, "{summary}");
}

#[test]
fn connections_are_kept_and_costs_are_mixed() {
    let few = ["--scenario", "mixed,cost-change", "--load", "2", "--workers", "2", "--secs", "0.5"];
    let (runs, _) = run(&[&few[..], &["--connections", "kept", "--peer", "hyper,hyper-tower20"]].concat());
    assert_eq!(runs.len(), 4, "{runs:#?}");
    for row in &runs {
        adds_up(row);
        let is_mixed = row["scenario"] == "mixed";
        assert_eq!(row["phases"].as_array().map(Vec::len), Some(if is_mixed { 1 } else { 3 }), "{row}");
        assert_eq!(row["per_100_ms"].is_array(), !is_mixed, "{row}");
    }
}

#[test]
fn a_peak_is_followed_by_a_rest_and_drawn() {
    let plots = tempfile::tempdir().expect("a folder");
    let folder = plots.path().to_str().expect("its name is text");
    let few = ["--scenario", "load-change,cost-rise", "--peak-secs", "0.3", "--workers", "1", "--secs", "0.4"];
    let (runs, summaries) = run(&[&few[..], &["--peer", "hyper", "--plot", folder]].concat());
    assert_eq!((runs.len(), summaries.len()), (2, 2), "{runs:#?}");
    for row in &runs {
        adds_up(row);
        // Warm-up, peak, rest, and the last second, in which the last requests may be given up.
        assert_eq!(row["per_100_ms"].as_array().map(Vec::len), Some(21), "{row}");
        assert!(row["recovered_after_ms"].is_null() || number(row, "recovered_after_ms") <= 400.0, "{row}");
    }
    let drawn = plots.path().join("change-over-time-load-change-1-worker.svg");
    assert!(std::fs::read_to_string(&drawn).is_ok_and(|svg| svg.contains("<svg")), "{}", drawn.display());
}

#[test]
fn several_clients_are_told_apart() {
    let plots = tempfile::tempdir().expect("a folder");
    let folder = plots.path().to_str().expect("its name is text");
    let few = ["--scenario", "flood,classes", "--workers", "1", "--secs", "0.5", "--peer", "hyper-pool10"];
    let (runs, summaries) = run(&[&few[..], &["--rate-of", "40", "--plot", folder]].concat());
    assert_eq!((runs.len(), summaries.len()), (2, 2), "{runs:#?}");
    for row in &runs {
        adds_up(row);
        let clients = row["clients"].as_array().expect("a list");
        let names: Vec<&str> = clients.iter().filter_map(|own| own["client"].as_str()).collect();
        let is_flood = row["scenario"] == "flood";
        let (expected, connections) =
            if is_flood { (vec!["flood", "other"], "kept") } else { (vec!["health", "high", "normal", "low"], "new") };
        assert_eq!((names, row["connections"].as_str()), (expected, Some(connections)), "{row}");
        let arrivals: f64 = clients.iter().map(|own| number(own, "arrivals")).sum();
        assert_eq!(arrivals, number(row, "arrivals"), "{row}");
    }
    assert!(summaries[1]["in_time_percent"]["health"].is_f64(), "{summaries:#?}");
    let drawn = plots.path().join("shares-in-time-classes-1-worker.svg");
    assert!(std::fs::read_to_string(&drawn).is_ok_and(|svg| svg.contains("health")), "{}", drawn.display());
}

#[test]
fn what_is_saved_is_not_measured_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("results.jsonl");
    let file = file.to_str().expect("its name is text");
    let few = ["--scenario", "2ms", "--workers", "1", "--secs", "0.5", "--peer", "hyper", "--save", file];
    let of = |load: &str| run(&[&few[..], &["--load", load]].concat()).0;
    let first = of("0.5");
    let second = of("0.5,0.8");
    assert_eq!((first.len(), second.len()), (1, 2), "{second:#?}");
    assert_eq!(first[0], second[0], "no other measurement has the same figures");
    // The other lines have the sessions and the tables.
    let saved = std::fs::read_to_string(file).expect("it is there");
    let runs = saved.lines().filter(|line| line.starts_with(r#"{"commit":"#));
    assert_eq!(runs.count(), 2, "{saved}");
}

#[test]
fn go_sheds_too() {
    let few = ["--scenario", "2ms", "--load", "2", "--workers", "1", "--secs", "0.5", "--peer", "hyper,go,go-limit10"];
    // Go is left out if it is not installed.
    let (runs, _) = run(&few);
    assert!(!runs.is_empty());
    runs.iter().for_each(adds_up);
}

#[test]
fn what_makes_no_sense_is_refused() {
    fails_naming(&["overload", "--scenario", "nothing"], "write a cost such as 5ms");
    fails_naming(&["overload", "--load", "0"], "--load 0 makes no sense");
    fails_naming(&["overload", "--rate-of", "0"], "write own, or a number");
    fails_naming(&["overload", "--peak-secs", "0"], "--peak-secs 0 makes no sense");
    fails_naming(&["overload", "--peer", "nginx"], "takes no part");
    let many =
        ["overload", "--peer", "hyper", "--rate-of", "1000000", "--load", "100", "--secs", "0.5", "--workers", "1"];
    fails_naming(&[&many[..], &["--scenario", "1ms", "--runs", "1"]].concat(), "raise `ulimit -n`");
}
