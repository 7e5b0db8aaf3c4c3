//! Short runs of `bench signserver`, if `dapple` was built next to the bench, which check that
//! every task is accounted for. They do not check speed, because other tests run at the same time.

mod cli;

use cli::{fails_naming, rows};
use serde_json::Value;

/// Whether the program was built.
fn is_built() -> bool {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_bench")).with_file_name("dapple");
    let is_built = program.is_file();
    if !is_built {
        eprintln!("left out: {} was not built", program.display());
    }
    is_built
}

fn count(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or_else(|| panic!("{field} is a count: {row}"))
}

#[test]
fn what_is_signed_is_in_the_log() {
    if !is_built() {
        return;
    }
    let few = ["--variant", "threaded,pipelined", "--in-flight", "1,8", "--workers", "1", "--secs", "0.3"];
    let plots = tempfile::tempdir().expect("a folder");
    let folder = plots.path().to_str().expect("its name is text");
    let drawn = ["signserver", "--only", "sweep", "--folder", folder, "--plot", folder];
    let rows = rows(&[&drawn[..], &few].concat());
    assert_eq!(rows.len(), 4, "{rows:#?}");
    for row in &rows {
        assert!(count(row, "signed") > 0 && row["signed"] == row["records"] && row["sync"] == false, "{row}");
    }
    for figure in ["22-threaded", "26-pipelined", "30-all"] {
        let svg = plots.path().join(format!("signserver-sweep-figure-{figure}-1-worker.svg"));
        assert!(std::fs::read_to_string(&svg).is_ok_and(|svg| svg.contains("<svg")), "{}", svg.display());
    }
}

#[test]
fn a_kill_loses_nothing_that_the_client_does_not_know_of() {
    if !is_built() {
        return;
    }
    let few = ["--variant", "pipelined", "--kill-in-flight", "8", "--workers", "1", "--secs", "0.3", "--sync"];
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_str().expect("its name is text");
    let rows = rows(&[&["signserver", "--only", "failover", "--folder", folder][..], &few].concat());
    assert_eq!(rows.len(), 1, "{rows:#?}");
    let row = &rows[0];
    let known = count(row, "signed") + count(row, "lost") + count(row, "failed");
    assert!((count(row, "signed")..=known).contains(&count(row, "records")) && row["sync"] == true, "{row}");
    assert!(count(row, "records_when_killed") < count(row, "records_of_killed"), "{row}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    fails_naming(&["signserver", "--peer", "nginx"], "takes no part");
    fails_naming(&["signserver", "--in-flight", "0"], "--in-flight");
    if is_built() {
        fails_naming(&["signserver", "--folder", "/no/such/folder"], "pass another --folder");
    }
}
