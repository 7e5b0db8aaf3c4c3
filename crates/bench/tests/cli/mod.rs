//! Runs the bench as its users do.

use std::ffi::OsStr;
use std::process::{Command, Output};

use serde_json::Value;

fn run(args: &[impl AsRef<OsStr>]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench")).args(args).output().expect("the bench can be started")
}

/// Makes a run five times as long. False if its arguments have no length.
fn lengthen(args: &mut [String]) -> bool {
    let at = args.iter().position(|arg| arg == "--secs").map(|at| at + 1);
    let Some(secs) = at.and_then(|at| args.get_mut(at)) else { return false };
    let longer = 5.0 * secs.parse::<f64>().expect("a number of seconds");
    *secs = longer.to_string();
    true
}

/// The JSON lines of one repetition, each of which passed its check.
///
/// If that was too short for a busy machine, as the bench then reports, the test repeats it with
/// the requested time.
pub(crate) fn rows(args: &[&str]) -> Vec<Value> {
    let mut args: Vec<String> = [args, &["--json", "--runs", "1"]].concat().into_iter().map(String::from).collect();
    let mut output = run(&args);
    for _ in 0..LONGER_MAX {
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.success() || !errors.contains("pass more --secs") || !lengthen(&mut args) {
            break;
        }
        output = run(&args);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    for row in &rows {
        assert_eq!(row["checked"], true, "{row}\n{errors}");
    }
    rows
}

/// Expects an error with this text.
pub(crate) fn fails_naming(args: &[&str], named: &str) {
    let output = run(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains(named), "{args:?}: {errors}");
}

/// The most attempts with longer times: the last one is 25 times as long.
const LONGER_MAX: u32 = 2;
