//! A short soak, in a separate process, because it checks that process's memory and threads.

use std::process::{Command, Output};

fn soak(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(["soak", "scheduler"]).args(args).output().expect("the bench can be started")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_short_soak_of_two_and_of_eight_workers_passes() {
    for workers in ["2", "8"] {
        // The time is the seed, and a failure names it: each run of the tests is a soak of other
        // programs.
        let output = soak(&["--workers", workers, "--minutes", "0.05", "--life-ms", "300"]);
        let text = text(&output);
        assert!(output.status.success(), "{text}");
        assert!(text.contains("runtimes, ended"), "{text}");
    }
}

#[test]
fn bad_arguments_are_named() {
    for (args, named) in [
        (&["--minutes", "0"][..], "--minutes 0 makes no sense"),
        (&["--workers", "0"], "1..=1024"),
        (&["--minutes", "soon"], "invalid float"),
        (&["--what"], "unexpected argument '--what'"),
    ] {
        let output = soak(args);
        let text = text(&output);
        assert!(!output.status.success() && text.contains(named), "{args:?}: {text}");
    }
}
