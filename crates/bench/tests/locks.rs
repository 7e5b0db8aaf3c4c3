//! `bench locks` counts a program with a known number of locked instructions. The server is another package, which need not
//! have been built.

use std::process::Command;

#[test]
fn known_locks_are_counted() {
    let output = Command::new(env!("CARGO_BIN_EXE_bench")).args(["locks", "--check"]).output();
    let output = output.expect("the bench can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("is not installed") || errors.contains("are known") {
        eprintln!("left out: {errors}");
        return;
    }
    assert!(output.status.success(), "{errors}");
}
