//! Short runs of every experiment of `io`, from the command line to its JSON lines.

mod cli;

use cli::{fails_naming, rows};

#[test]
fn packets() {
    let few = ["--packet-len", "10,100000", "--in-flight", "1,64", "--workers", "2", "--secs", "0.1"];
    let rows = rows(&[&["io", "--only", "packets"][..], &few].concat());
    assert_eq!(rows.len(), 36, "three peers, three transports, two sizes, two depths: {rows:#?}");
    for row in rows {
        for figure in ["packets_per_s", "mb_per_s", "p50_us", "p99_us", "cpu_us_per_packet"] {
            assert!(row[figure].as_f64().is_some_and(|figure| figure > 0.0), "{figure}: {row}");
        }
    }
}

#[test]
fn files() {
    let plots = tempfile::tempdir().expect("a folder");
    let folder = plots.path().to_str().expect("its name is text");
    let few = ["--readers", "1,3", "--workers", "1", "--secs", "0.1", "--file-mb", "2", "--plot", folder];
    let rows = rows(&[&["io", "--only", "files"][..], &few].concat());
    assert_eq!(rows.len(), 16, "four peers, twice two numbers of readers: {rows:#?}");
    for row in rows {
        assert!(row["p50_us"].is_f64() && row["mb_per_s"].is_f64() && row["cached"].is_boolean(), "{row}");
    }
    for file in ["files-latency-cached-1-worker.svg", "files-latency-uncached-1-worker.svg"] {
        let svg = std::fs::read_to_string(plots.path().join(file)).expect("it is drawn");
        for text in ["readers", "median latency, us", "dapple", "compio"] {
            assert!(svg.contains(text), "{file} does not say {text}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    fails_naming(&["io", "--packet-len", "9"], "10..=");
    fails_naming(&["io", "--only", "packets", "--peer", "go"], "packets has dapple, tokio, pthreads");
    fails_naming(&["io", "--only", "files", "--folder", "/proc", "--peer", "dapple"], "pass another --folder");
    fails_naming(&["io", "--plot", "/proc/none"], "cannot write plots");
}
