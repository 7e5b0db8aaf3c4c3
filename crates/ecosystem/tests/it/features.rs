//! The built packages, according to cargo.

use std::process::Command;

/// The features with which cargo builds tokio for this package.
fn features_of_tokio(arguments: &[&str]) -> Vec<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p} {f}"]).args(arguments);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    // `tokio v1.54.1 io-util,sync (*)`
    let line = text.lines().find(|line| line.starts_with("tokio v")).expect("tokio's traits are there");
    line.split_whitespace().nth(2).unwrap_or_default().split(',').map(str::to_owned).collect()
}

/// All libraries but those that need the adapter come without tokio's runtime, reactor and timers'
/// driver.
#[test]
fn no_runtime_of_tokio_is_built() {
    let dapple = features_of_tokio(&["--package", "dapple", "--features", "full"]);
    let ecosystem = features_of_tokio(&["--package", "ecosystem", "--no-default-features"]);
    for runtime in ["rt", "rt-multi-thread", "net", "fs", "process", "signal"] {
        assert!(!dapple.iter().any(|feature| feature == runtime), "dapple: {dapple:?}");
        assert!(!ecosystem.iter().any(|feature| feature == runtime), "ecosystem: {ecosystem:?}");
    }
    assert!(ecosystem.iter().any(|feature| feature == "sync"), "this is read rightly: {ecosystem:?}");
    // Only the adapter brings it.
    assert!(features_of_tokio(&["--package", "ecosystem"]).iter().any(|feature| feature == "rt"));
}
