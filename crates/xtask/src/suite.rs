//! The steps of `cargo xtask test` and `cargo xtask ci`.

use crate::steps::{Step, run_all};
use crate::workspace::{Workspace, cargo};
use crate::{browser, etcd, h2spec, licenses, tidy};

/// Runs the tests that CI runs.
pub(crate) fn test() -> Result<bool, String> {
    Ok(run_all(&test_steps(&Workspace::own()?)))
}

/// Runs everything that CI checks, the quick checks first.
pub(crate) fn ci() -> Result<bool, String> {
    let workspace = Workspace::own()?;
    let mut steps = vec![
        Step::cargo("fmt", "fmt --all --check"),
        Step::check("tidy", tidy::run),
        Step::check("licenses", licenses::run),
        Step::cargo("clippy", "clippy --workspace --all-targets -- -D warnings"),
    ];
    steps.extend(test_steps(&workspace));
    steps.push(Step::cargo("docs", "doc --workspace --no-deps --lib").flags("RUSTDOCFLAGS", "-D warnings"));
    steps.push(Step::cargo("examples", "build --workspace --examples"));
    Ok(run_all(&steps))
}

fn test_steps(workspace: &Workspace) -> Vec<Step> {
    // Flags apply to every crate of a build, so each model would rebuild everything in the common folder, twice.
    let apart = |folder: &str| workspace.target.join(folder);
    vec![
        Step::cargo("unit and integration", "test --workspace --lib --bins --tests --examples --no-fail-fast"),
        Step::check("browser", browser::run_if_there),
        Step::check("h2spec", h2spec::run_if_there),
        Step::check("etcd", etcd::run_if_there),
        Step::cargo("documentation examples", "test --workspace --doc --no-fail-fast"),
        // Names by the system's resolver. No other feature changes what another one does.
        Step::cargo("without dns", "test -p dapple-io --no-default-features --lib --tests --no-fail-fast"),
        // A preview that nobody builds by default.
        Step::cargo("http3", "test -p dapple-cli --features http3 --test it http3").must_test(),
        // Races show at full speed or not at all.
        Step::cargo("scheduler, release mode", "test -p dapple-sched --release --lib --tests --no-fail-fast"),
        Step::cargo("loom models", "test -p dapple-sched --release --test loom")
            .flags("RUSTFLAGS", "--cfg dapple_loom")
            .target(apart("loom"))
            .must_test(),
        Step::cargo("driver, loom", "test -p dapple-io --no-default-features --release --test loom")
            .flags("RUSTFLAGS", "--cfg dapple_loom")
            .target(apart("loom"))
            .must_test(),
        Step::cargo("shuttle models", "test -p dapple-sched -p dapple-sync -p dapple-stage --release --test shuttle")
            .flags("RUSTFLAGS", "--cfg dapple_shuttle")
            .target(apart("shuttle"))
            .must_test(),
        Step::cargo("transactions, release mode", "test -p dapple-stm --release --lib --tests --no-fail-fast"),
        Step::cargo("transactions, loom", "test -p dapple-stm --release --test loom")
            .flags("RUSTFLAGS", "--cfg dapple_loom")
            .target(apart("loom"))
            .must_test(),
        Step::cargo("transactions, shuttle", "test -p dapple-stm --release --test shuttle")
            .flags("RUSTFLAGS", "--cfg dapple_shuttle")
            .target(apart("shuttle"))
            .must_test(),
    ]
}

/// Builds in release mode and runs the bench with these arguments.
pub(crate) fn bench(args: &[&str]) -> Result<bool, String> {
    let mut commands = vec![vec!["build", "--release", "-p", "dapple-cli", "-p", "bench"]];
    // What else runs beside its peers.
    if args.first() == Some(&"overload") {
        commands.push(vec!["build", "--release", "-p", "dapple", "--features", "serve", "--example", "spin_server"]);
    }
    commands.push([&["run", "--release", "-p", "bench", "--"], args].concat());
    for command in commands {
        let status = cargo().args(&command).status().map_err(|error| format!("cannot run cargo: {error}"))?;
        if !status.success() {
            return Ok(false);
        }
    }
    Ok(true)
}
