//! `cargo xtask soak`: random work for a long time. The scheduler's part is in the bench, and runs
//! once for each number of workers; that of `dapple serve` is in `soak`.

use crate::workspace::{Workspace, cargo};
use std::path::PathBuf;
use std::process::Command;

/// The text of `cargo xtask soak --help`.
pub(crate) const HELP: &str = "\
cargo xtask soak scheduler [--minutes M] [--workers N,...] [--seed S]

Random programs on the scheduler, in one runtime after the other. Whatever is accepted must run once or be dropped once,
colors must exclude and keep order, something must always go on, and memory, threads and descriptors must stay where
they are. Exits with 1 where one does not, and says how to repeat it.

  --minutes M      how long, for each number of workers [default: 30]
  --workers N,...  workers of each runtime, one run after the other [default: 2,8]
  --seed S         what the programs are drawn from [default: the time; printed]
  --first R        begin with this runtime of the seed, as a failure says
  --life-ms MS     about how long each runtime lives [default: 1500]

This builds bench in release mode, then runs `bench soak scheduler`.

cargo xtask soak web [--minutes M] [--seed S] [--program FILE]

Good and hostile clients at two `dapple serve`, one of them with TLS: 48 at a time, by HTTP/1.1 and HTTP/2. Every eleven seconds the
servers read their configuration and new certificates (SIGHUP), are stopped for a while (SIGSTOP), or are replaced by new processes
(SIGUSR2). Every good request must be answered right, SIGHUP must not cost a connection, and when all clients are gone, so must be
their connections, their descriptors, threads, and all but 16 MB of their memory. Builds soak and dapple in release mode; of dapple not,
if --program names one.
";

/// Runs the requested soak; true if it did not fail.
pub(crate) fn run(args: &[&str]) -> Result<bool, String> {
    let rest = match args {
        ["scheduler", rest @ ..] => rest,
        ["web", rest @ ..] => return web(rest),
        _ => return Err(format!("`soak {}`: there are `soak scheduler` and `soak web`", args.join(" "))),
    };
    let (workers, rest) = split(rest)?;
    let Some(bench) = build("bench", "bench")? else { return Ok(false) };
    let mut passed = true;
    for workers in workers {
        let mut command = Command::new(&bench);
        command.args(["soak", "scheduler", "--workers", &workers.to_string()]).args(&rest);
        let status = command.status().map_err(|error| format!("cannot run {}: {error}", bench.display()))?;
        if let Some(2) = status.code() {
            // The bench has reported a mistake in the arguments, which are the same for the others.
            return Ok(false);
        }
        passed &= status.success();
    }
    Ok(passed)
}

/// Runs the soak of `dapple serve`.
fn web(args: &[&str]) -> Result<bool, String> {
    let Some(soak) = build("soak", "soak")? else { return Ok(false) };
    let mut command = Command::new(&soak);
    command.args(args);
    if !args.contains(&"--program") {
        let Some(dapple) = build("dapple-cli", "dapple")? else { return Ok(false) };
        command.arg("--program").arg(dapple);
    }
    let status = command.status().map_err(|error| format!("cannot run {}: {error}", soak.display()))?;
    Ok(status.success())
}

/// Builds a package in release mode; returns its program, or `None` if cargo has reported an error.
fn build(package: &str, program: &str) -> Result<Option<PathBuf>, String> {
    let status = cargo().args(["build", "--release", "-p", package]).status();
    if !status.map_err(|error| format!("cannot run cargo: {error}"))?.success() {
        return Ok(None);
    }
    Ok(Some(Workspace::own()?.target.join("release").join(program)))
}

/// The numbers of workers, and the arguments for the bench.
fn split<'a>(args: &[&'a str]) -> Result<(Vec<u16>, Vec<&'a str>), String> {
    let (mut workers, mut rest) = ("2,8", Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.strip_prefix("--workers") {
            Some("") => workers = args.next().ok_or("--workers wants numbers, such as 2,8")?,
            Some(value) if value.starts_with('=') => workers = &value[1..],
            _ => rest.push(*arg),
        }
    }
    let number = |text: &str| match text.parse() {
        Ok(number) if (1..=1024).contains(&number) => Ok(number),
        _ => Err(format!("--workers {workers}: `{text}` is not a number from 1 to 1024; pass some, such as 2,8")),
    };
    Ok((workers.split(',').map(number).collect::<Result<_, _>>()?, rest))
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn workers_are_taken_out() {
        assert_eq!(split(&["--minutes", "1"]), Ok((vec![2, 8], vec!["--minutes", "1"])));
        assert_eq!(split(&["--workers", "4", "--seed=3"]), Ok((vec![4], vec!["--seed=3"])));
        assert_eq!(split(&["--workers=1,2,16"]), Ok((vec![1, 2, 16], vec![])));
    }

    #[test]
    fn bad_workers_are_named() {
        for bad in [&["--workers"][..], &["--workers", "2,x"], &["--workers=0"], &["--workers="]] {
            assert!(split(bad).unwrap_err().contains("such as 2,8"), "{bad:?}");
        }
    }
}
