//! `cargo xtask sim`: the scenarios of `crates/scenarios`, in the simulator.

use crate::workspace::cargo;

/// The text of `cargo xtask sim --help`.
pub(crate) const HELP: &str = "\
cargo xtask sim [SCENARIO...] [--seeds N] [--seed FIRST] [--minutes M] [--hash] [--bugs]
cargo xtask sim SCENARIO --plan FILE [--seed FIRST]
cargo xtask sim SCENARIO --seed N --timeline FILE

Runs services in the simulator: whole clusters in one thread, under faults that a seed decides. For each scenario it says how many
seeds ran and failed; as many run at a time as there are processors. A seed that fails is reported with the fewest faults that still
fail, the last events, and the command that runs it again. Without names it runs all scenarios. Exits with 1 where a seed failed.

  --seeds N     how many seeds of each scenario, besides those that failed before [default: 200]
  --seed FIRST  the first of them [default: 1]
  --minutes M   as many seeds as fit into this time, over all scenarios, or those that are named, and --seeds at most; says a line each
                minute
  --hash        prints `trace HEX` for each seed: it is the same on every machine
  --plan FILE   runs one seed with the faults of this file in place of its own, and shows the last events. The file has lines as a
                report shows them: `at 1s, for 20ms: server crashes`
  --timeline FILE
                writes what happens in one seed, named by --seed, as a time line for ui.perfetto.dev: hosts and their workers, faults,
                messages
  --kept FILE   the seeds that failed, a line `SCENARIO SEED` each. They run first the next time, unless --seed or --hash is given, and a
                seed that does not fail any more is removed [default: target/failing-seeds]
  --bugs        runs each scenario with one deliberate mistake after the other, and says which seed finds it

This builds scenarios in release mode.
";

/// The part that runs with the tests: some seeds of each scenario, and its deliberate bugs.
pub(crate) fn check() -> Result<bool, String> {
    Ok(run(&["--seeds", "200"])? && run(&["--bugs", "--seeds", "2000"])?)
}

/// Builds the scenarios and runs them; true if no seed failed.
pub(crate) fn run(args: &[&str]) -> Result<bool, String> {
    let mut command = cargo();
    command.args(["run", "--release", "--quiet", "-p", "scenarios", "--"]).args(args);
    let status = command.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    Ok(status.success())
}
