//! The steps of `cargo xtask test` and `cargo xtask ci`.

use crate::steps::{Step, run_all};
use crate::workspace::{Workspace, cargo};
use crate::{browser, cache_tests, databases, etcd, h2spec, licenses, sanitize, sim, site, targets, tidy, torture};

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
        Step::check("links", site::check),
        Step::check("licenses", licenses::run),
        Step::cargo("clippy", "clippy --workspace --all-targets -- -D warnings"),
    ];
    steps.extend(test_steps(&workspace));
    // A dry run of the release: whether cargo accepts the packages. The crates have been built
    // already.
    steps.push(Step::cargo("packages", "publish --workspace --dry-run --no-verify --allow-dirty --locked"));
    steps.extend(targets::steps(&workspace));
    steps.extend(sanitize::address_steps(&workspace));
    steps.push(Step::cargo("docs", "doc --workspace --no-deps --lib").flags("RUSTDOCFLAGS", "-D warnings"));
    Ok(run_all(&steps))
}

fn test_steps(workspace: &Workspace) -> Vec<Step> {
    // A build of some packages gives their dependencies other features than a build of all, and so
    // builds them again. The steps build all, or, with other flags, few packages at once.
    let models = |name, args: &str, model: &str| {
        let flag = format!("--cfg dapple_{model}");
        Step::cargo(name, args).flags("RUSTFLAGS", &flag).target(workspace.target.join(model)).must_test()
    };
    vec![
        Step::check("databases", databases::install_if_missing),
        // Without a filter: unit, integration and doc tests; the examples are built. Tests that run
        // examples ask cargo for them with the same selection.
        Step::cargo("tests", &format!("test {ALL} --no-fail-fast")).env("DAPPLE_TEST_SELECTION", ALL.to_owned()),
        Step::check("browser", browser::run_if_there),
        Step::check("h2spec", h2spec::run_if_there),
        Step::check("cache-tests", cache_tests::run_if_there),
        Step::check("etcd", etcd::run_if_there),
        Step::check("store-torture", torture::run_if_there),
        // With the system's resolver, and the code that resolves names. No other feature changes
        // the behavior of another one.
        Step::cargo(
            "without dns",
            "test -p dapple-io --no-default-features --lib --tests --no-fail-fast -- net:: happy_eyeballs:: stream:: watch::",
        ),
        // Races show only at full speed. Compile errors are the same.
        Step::cargo(
            "release mode",
            "test -p dapple-sched -p dapple-stm --release --lib --tests --no-fail-fast -- --skip compile_fail",
        ),
        Step::check("simulator", sim::check),
        models(
            "loom models",
            "test -p dapple-sched -p dapple-stm -p dapple-io --no-default-features --release --no-fail-fast --test loom",
            "loom",
        ),
        models(
            "shuttle models",
            "test -p dapple-sched -p dapple-sync -p dapple-tower -p dapple-commit -p dapple-stage -p dapple-stm --release --no-fail-fast --test shuttle",
            "shuttle",
        ),
    ]
}

/// Builds in release mode and runs the bench with these arguments.
pub(crate) fn bench(args: &[&str]) -> Result<bool, String> {
    let mut commands = vec![vec!["build", "--release", "-p", "dapple-cli", "-p", "bench"]];
    // Other programs needed next to its peers.
    if args.first() == Some(&"overload") {
        commands.push(vec!["build", "--release", "-p", "dapple", "--features", "serve", "--example", "spin_server"]);
    }
    if args.first() == Some(&"services") {
        commands.push(vec!["build", "--release", "-p", "search", "-p", "webtable"]);
    }
    if args.first() == Some(&"web") {
        commands.push(vec![
            "build",
            "--release",
            "-p",
            "dapple",
            "--features",
            "serve",
            "--example",
            "small_web_server",
        ]);
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

/// The features of all test steps: with what no default build has. (Clippy sees the programs
/// without it.)
pub(crate) const ALL: &str = "--workspace --features dapple-cli/full,dapple-cli/http3";
