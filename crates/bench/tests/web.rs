//! Short runs of every experiment of `web`, from the command line to its JSON lines. Dapple's own
//! server is another package, which need not have been built; servers that are not installed are
//! left out.

mod cli;

use cli::{fails_naming, rows};
use serde_json::Value;

const PEERS: &str = "hyper,epoll,nginx,apache,go";

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("{field} is a number: {row}"))
}

#[test]
fn small_and_specweb_and_hello() {
    let few = ["--connections", "20", "--secs", "0.4", "--workers", "2"];
    let rows = rows(&[&["web", "--only", "small,specweb,hello", "--peer", PEERS][..], &few].concat());
    assert!(rows.len() >= 6, "three experiments, two peers at least: {rows:#?}");
    for row in rows {
        for figure in ["rate_per_s", "mb_per_s", "p50_ms", "p99_ms", "p999_ms", "resident_mb", "load_cpu_us"] {
            assert!(number(&row, figure) > 0.0, "{figure}: {row}");
        }
        assert!((0.0..=1.0).contains(&number(&row, "jain")) && row["errors"] == 0, "{row}");
        assert_eq!(number(&row, "connects_per_s") == 0.0, row["experiment"] == "hello", "{row}");
    }
}

#[test]
fn figures_of_the_papers_are_drawn_and_told() {
    let plots = tempfile::tempdir().expect("a folder");
    let folder = plots.path().to_str().expect("its name is text");
    let mut bench = std::process::Command::new(env!("CARGO_BIN_EXE_bench"));
    bench.args(["web", "--only", "small,overload", "--peer", "hyper,epoll", "--secs", "0.2", "--runs", "1"]);
    let output = bench.args(["--connections", "10,30", "--workers", "1", "--plot", folder]).output();
    let output = output.expect("the bench can be started");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    for told in ["1.36x", "22.80 MB/s", "2.50x", "CPU to floor", "Figure 5-4"] {
        assert!(text.contains(told), "{told}: {text}");
    }
    for file in ["small-thesis-figure-5-2.svg", "small-thesis-figure-5-3.svg", "overload-rate-1-worker.svg"] {
        let svg =
            std::fs::read_to_string(plots.path().join(file)).unwrap_or_else(|_| panic!("{file} is drawn: {errors}"));
        assert!(svg.contains("<svg"), "{file}");
    }
}

#[test]
fn a_large_file_that_is_in_no_cache() {
    for row in rows(&["web", "--only", "misses", "--peer", "hyper", "--secs", "1", "--workers", "2"]) {
        assert!(number(&row, "resident_max_mb") > 200.0 && number(&row, "cpu_ms_per_100_mb") > 0.0, "{row}");
    }
}

#[test]
fn a_page_beside_clients_that_read_nothing() {
    let few = ["--peer", "hyper,nginx", "--connections", "20", "--secs", "1", "--workers", "2"];
    for row in rows(&[&["web", "--only", "stalled"][..], &few].concat()) {
        assert!(
            number(&row, "rate_per_s") > 0.0 && number(&row, "connects_per_s") > 0.0 && row["errors"] == 0,
            "{row}"
        );
    }
}

#[test]
fn a_cold_set() {
    // Without a limit, which only root may set.
    let few = ["--peer", "hyper,nginx", "--connections", "16", "--secs", "1", "--workers", "2", "--memory-mb", "0"];
    for row in rows(&[&["web", "--only", "cold", "--cold-files", "500"][..], &few].concat()) {
        assert!(number(&row, "rate_per_s") > 0.0 && row["errors"] == 0 && row["memory_mb"].is_null(), "{row}");
    }
}

#[test]
fn encrypted() {
    let few = ["--peer", "hyper,nginx,apache,go", "--workers", "1"];
    let made = rows(&[&["web", "--only", "handshakes", "--secs", "0.5", "--connections", "8"][..], &few].concat());
    assert!(!made.is_empty());
    for row in made {
        assert!(number(&row, "connects_per_s") > 0.0 && row["errors"] == 0, "{row}");
    }
    let few = ["--peer", "hyper,nginx", "--workers", "2", "--connections", "2"];
    for row in rows(&[&["web", "--only", "tls", "--secs", "1"][..], &few].concat()) {
        assert!(
            number(&row, "mb_per_s") > 0.0 && number(&row, "cpu_ms_per_100_mb") > 0.0 && row["errors"] == 0,
            "{row}"
        );
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    fails_naming(&["web", "--only", "nothing"], "possible values");
    fails_naming(&["web", "--only", "small", "--peer", "smol"], "small has dapple, ");
    fails_naming(&["web", "--connections", "50000"], "1..=19000");
}
