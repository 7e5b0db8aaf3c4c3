//! Runs the bench as its users do.

use serde_json::Value;
use std::process::{Command, Output};

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench")).args(args).output().expect("the bench can be started")
}

/// The JSON lines of one repetition, each of which passed its check.
pub(crate) fn rows(args: &[&str]) -> Vec<Value> {
    let output = bench(&[args, &["--json", "--runs", "1"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    for row in &rows {
        assert_eq!(row["checked"], true, "{row}\n{errors}");
    }
    rows
}

/// Demands an error that says this.
pub(crate) fn fails_naming(args: &[&str], named: &str) {
    let output = bench(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains(named), "{args:?}: {errors}");
}
