//! Steps of CI for the oldest Rust and for aarch64, if the machine has what they need. Elsewhere
//! each says what is missing.

use crate::steps::Step;
use crate::workspace::Workspace;
use std::process::Command;

/// The steps that this machine can run.
pub(crate) fn steps(workspace: &Workspace) -> Vec<Step> {
    vec![oldest_rust(workspace), aarch64(workspace)]
}

/// All features of the libraries but those that need a later Rust. clippy's `incompatible_msrv`
/// looks for functions of std that are too new at every build; this also finds syntax and
/// dependencies.
fn oldest_rust(workspace: &Workspace) -> Step {
    let installed = printed("rustup", &["toolchain", "list"]);
    match toolchain(&installed, OLDEST) {
        Some(name) => Step::cargo("oldest Rust", &format!("check -p dapple --lib --features {FEATURES}"))
            .toolchain(name)
            .target(workspace.target.join("oldest")),
        None => Step::check("oldest Rust", || {
            println!(
                "oldest Rust: SKIPPED, Rust {OLDEST} is not installed: rustup toolchain install {OLDEST} --profile minimal"
            );
            Ok(true)
        }),
    }
}

/// The library with its server, compiled for aarch64; with a linker and an emulator, the
/// scheduler's tests run, too.
fn aarch64(workspace: &Workspace) -> Step {
    let installed = printed("rustup", &["target", "list", "--installed"]);
    if !installed.lines().any(|line| line == AARCH64) {
        return Step::check("aarch64", || {
            println!("aarch64: SKIPPED, its std is not installed: rustup target add {AARCH64}");
            Ok(true)
        });
    }
    let can_run = [LINKER, EMULATOR].iter().all(|program| Command::new(program).arg("--version").output().is_ok());
    let target = workspace.target.join("aarch64");
    match can_run {
        true => Step::cargo(
            "aarch64",
            &format!("test -p dapple-sched --target {AARCH64} --lib --tests --no-fail-fast -- --skip compile_fail"),
        )
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER.to_owned())
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("{EMULATOR} -L /usr/aarch64-linux-gnu"))
        .target(target),
        false => Step::cargo("aarch64", &format!("check -p dapple --features serve --target {AARCH64}")).target(target),
    }
}

/// The name of a toolchain of that version in the output of `rustup toolchain list`.
fn toolchain<'a>(list: &'a str, version: &str) -> Option<&'a str> {
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    names.into_iter().find(|name| {
        let rest = name.strip_prefix(version);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
    })
}

/// The output of a program; empty if it is not installed.
fn printed(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// `rust-version` in `Cargo.toml`.
const OLDEST: &str = "1.88";
const FEATURES: &str = "full,hyper-util,tokio-compat";
const AARCH64: &str = "aarch64-unknown-linux-gnu";
/// Of Debian's `gcc-aarch64-linux-gnu` and `qemu-user`.
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";

#[cfg(test)]
mod tests {
    use super::{OLDEST, toolchain};

    #[test]
    fn toolchains_are_found_by_version() {
        let list = "stable-x86_64-unknown-linux-gnu (active, default)\n1.88.0-x86_64-unknown-linux-gnu\n";
        assert_eq!(toolchain(list, "1.88"), Some("1.88.0-x86_64-unknown-linux-gnu"));
        assert_eq!(toolchain("1.8-x\n1.880-x\nstable", "1.88"), None);
        assert_eq!(toolchain("", "1.88"), None);
    }

    #[test]
    fn the_oldest_rust_is_that_of_the_manifest() {
        let manifest = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("rust-version = \"{OLDEST}\"")));
    }
}
