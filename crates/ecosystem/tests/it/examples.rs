//! The examples, run as a reader runs them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds all examples, and returns their programs by name.
///
/// CI names its own packages and features: with other ones, cargo would build most libraries again.
fn build(names: &[String]) -> Vec<PathBuf> {
    let mut cargo = Command::new(env!("CARGO"));
    let selection = std::env::var("DAPPLE_TEST_SELECTION");
    let selection = selection.as_deref().unwrap_or("--package ecosystem");
    cargo.arg("build").args(selection.split(' ')).args(["--message-format", "json"]);
    for name in names {
        cargo.args(["--example", name]);
    }
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).unwrap();
    let found = messages.split("\"executable\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    found.map(PathBuf::from).collect()
}

/// Names of the examples, and their texts.
fn sources() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut sources: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    sources.sort();
    sources
}

#[test]
fn each_is_short_and_listed() {
    let libraries = include_str!("../../src/lib.rs");
    for (name, text) in sources() {
        assert!(text.lines().count() <= 40, "{name} has {} lines, 40 at most", text.lines().count());
        assert!(text.starts_with("//! "), "{name} says what it shows");
        assert!(libraries.contains(&format!("`{name}`")), "{name} is in the table of src/lib.rs");
    }
}

/// Each checks its own result; this test checks that it succeeds, and prints its result.
#[test]
fn each_runs_and_says_what_it_did() {
    let names: Vec<String> = sources().into_iter().map(|(name, _)| name).collect();
    let programs = build(&names);
    for (name, expected) in SAID {
        let program = programs.iter().find(|program| program.file_name().is_some_and(|file| file == *name));
        let output = Command::new(program.unwrap_or_else(|| panic!("{name} is built"))).output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{name}: {}: {text}", output.status);
        assert!(text.contains(expected), "{name}: {text}");
    }
    assert_eq!(SAID.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>(), names, "and all were run");
}

/// The examples in order of their names, and what each says among other things.
const SAID: &[(&str, &str)] = &[
    ("axum_middleware", "refused: 3; took too long: 2"),
    ("axum_router", "axum answered through hyper: Hello, Ann!"),
    ("axum_stage", "503, try again after 1 s: refused: the queue is full, with 1 waiting"),
    ("hickory_lookup", "a.test says hello"),
    ("reqwest_client", "reqwest was answered: HELLO"),
    ("rustls_both_ways", "over HTTP/2: a secret"),
    ("serve_axum", "axum answered through dapple::serve: Hello, Ann!"),
    ("serve_tonic", "tonic answered through dapple::serve: Serving"),
    ("tokio_sync", "is number 10"),
    ("tonic_health", "gRPC says Serving, HTTP/1.1 says 200 OK, on one port"),
    ("tower_limits", "answered: [2, 4]; refused at once: 3"),
];
