//! Short runs of every experiment of `threads`, from the command line to its JSON lines.

mod cli;

use cli::{fails_naming, rows};

#[test]
fn memory() {
    let rows = rows(&["threads", "--only", "memory", "--threads", "2000", "--workers", "1,2", "--secs", "0.2"]);
    // Go is left out if it is not installed.
    assert!(rows.len() >= 10, "{rows:#?}");
    for row in rows {
        assert_eq!(row["threads"], 2_000);
        assert!(row["bytes_per_thread"].as_f64().is_some_and(|bytes| bytes > 8.0), "{row}");
        assert!(row["yields_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{row}");
        assert!(row["workers"].is_u64() && row["peer"].is_string(), "{row}");
    }
}

#[test]
fn fifo() {
    let few = ["--pairs", "3", "--idle", "0,50", "--workers", "2", "--secs", "0.1"];
    let rows = rows(&[&["threads", "--only", "fifo"][..], &few].concat());
    assert!(rows.len() >= 8, "{rows:#?}");
    for row in rows {
        assert!(row["idle"] == 0 || row["idle"] == 50, "{row}");
        assert!(row["mb_per_s"].as_f64().is_some_and(|rate| rate > 0.0) && row["cpu_s_per_gb"].is_f64(), "{row}");
    }
}

#[test]
fn timers() {
    for row in rows(&["threads", "--only", "timers", "--timers", "500", "--workers", "2", "--secs", "0.05"]) {
        assert_eq!(row["timers"], 500);
        for figure in ["insert_ns", "rearm_ns", "cancel_ns", "bytes_per_timer", "late_ms_mean", "late_ms_max"] {
            assert!(row[figure].is_f64(), "{figure}: {row}");
        }
    }
}

#[test]
fn fairness() {
    let rows = rows(&["threads", "--only", "fairness", "--yielding", "100", "--workers", "2", "--secs", "0.1"]);
    assert!(rows.len() >= 9, "three peers and three sources: {rows:#?}");
    for row in rows {
        assert!(row["source"].is_string() && row["first_run_ms"].is_f64() && row["starved"].is_u64(), "{row}");
    }
}

#[test]
fn disk() {
    let few = ["--disk-threads", "1,20", "--workers", "2", "--secs", "0.1", "--file-mb", "4"];
    let rows = rows(&[&["threads", "--only", "disk"][..], &few].concat());
    assert!(rows.len() >= 8, "{rows:#?}");
    for row in rows {
        assert!(row["mb_per_s"].as_f64().is_some_and(|rate| rate > 0.0) && row["cpu_us_per_read"].is_f64(), "{row}");
    }
}

#[test]
fn spectrum() {
    // A pool of ten, so that the hybrid's queue is used.
    let few = ["--in-flight", "40", "--pool", "10", "--workers", "1", "--secs", "0.3"];
    let rows = rows(&[&["threads", "--only", "spectrum"][..], &few].concat());
    assert_eq!(rows.len(), 6, "{rows:#?}");
    for row in rows {
        let p50_ms = row["p50_ms"].as_f64().expect("a number");
        assert!(p50_ms > 40.0 && row["p99_ms"].as_f64().is_some_and(|p99_ms| p99_ms >= p50_ms), "{row}");
        assert!(row["tasks_per_s"].as_f64().is_some_and(|rate| rate > 0.0) && row["cpu_us_per_task"].is_f64(), "{row}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    fails_naming(&["threads", "--secs", "0"], "--secs 0 makes no sense");
    fails_naming(&["threads", "--only", "memory", "--threads", "0"], "--threads");
    fails_naming(&["threads", "--only", "memory", "--peer", "mutex"], "memory has dapple, ");
    fails_naming(&["threads", "--only", "nothing"], "possible values");
    fails_naming(&["threads", "--only", "fifo", "--idle", "1000000", "--peer", "dapple"], "raise `ulimit -n`");
    fails_naming(&["threads", "--only", "disk", "--folder", "/no/such/folder"], "pass another --folder");
    let much = ["threads", "--only", "memory", "--threads", "1000000000", "--peer", "tokio"];
    fails_naming(&much, "pass fewer --threads");
}
