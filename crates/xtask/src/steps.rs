//! Runs steps one after the other, reports them, and adds up their results.

use crate::workspace::cargo;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// A test program without output for this long hangs. (Compilers print to standard error, so this
/// includes a whole build.)
const SILENCE_MAX: Duration = Duration::from_secs(25 * 60);

/// One step.
pub(crate) struct Step {
    name: &'static str,
    work: Work,
    /// As in rustup; `None` for the one that runs this program.
    toolchain: Option<String>,
    must_test: bool,
}

enum Work {
    /// Arguments for cargo, and variables added to the environment.
    Cargo { args: Vec<String>, env: Vec<(&'static str, String)> },
    /// A check of this program: returns whether it passed.
    Check(fn() -> Result<bool, String>),
}

/// The result of a step.
struct Outcome {
    name: &'static str,
    passed: u64,
    failed: u64,
    failures: Vec<Failure>,
    took: Duration,
    /// Processor time of all its processes, which other work on the machine does not lengthen; zero
    /// if the system does not report it.
    cpu: Duration,
    advice: Option<String>,
}

impl Step {
    /// `cargo ARGS`; `args` is split at spaces.
    pub(crate) fn cargo(name: &'static str, args: &str) -> Step {
        let args = args.split(' ').map(str::to_owned).collect();
        Step { name, work: Work::Cargo { args, env: Vec::new() }, toolchain: None, must_test: false }
    }

    /// A check of this program.
    pub(crate) fn check(name: &'static str, check: fn() -> Result<bool, String>) -> Step {
        Step { name, work: Work::Check(check), toolchain: None, must_test: false }
    }

    /// Fails if a test program has no test: a flag compiles the models in, and without it their
    /// file is empty and passes.
    pub(crate) fn must_test(self) -> Step {
        Step { must_test: true, ..self }
    }

    /// Adds flags to one of cargo's flag variables, after the user's.
    pub(crate) fn flags(self, variable: &'static str, flags: &str) -> Step {
        let before = std::env::var(variable).unwrap_or_default();
        self.env(variable, format!("{before} {flags}").trim().to_owned())
    }

    /// Builds in a separate folder: builds with other flags in the same one would rebuild each
    /// other's results.
    pub(crate) fn target(self, folder: PathBuf) -> Step {
        self.env("CARGO_TARGET_DIR", folder.display().to_string())
    }

    /// Uses this toolchain's cargo.
    pub(crate) fn toolchain(self, name: &str) -> Step {
        Step { toolchain: Some(name.to_owned()), ..self }
    }

    /// Sets a variable of the environment.
    pub(crate) fn env(mut self, variable: &'static str, value: String) -> Step {
        if let Work::Cargo { env, .. } = &mut self.work {
            env.push((variable, value));
        }
        self
    }

    fn run(&self) -> Outcome {
        let (begin, cpu) = (Instant::now(), cpu_of_children());
        let (mut ok, mut tally, mut advice) = match &self.work {
            Work::Cargo { args, env } => run_cargo(self.toolchain.as_deref(), args, env),
            Work::Check(check) => match check() {
                Ok(passed) => (passed, Tally::default(), None),
                Err(problem) => (false, Tally::default(), Some(problem)),
            },
        };
        if ok && self.must_test && (tally.passed == 0 || tally.empty > 0) {
            ok = false;
            advice =
                Some("a program ran no test: is the flag that compiles them in spelled as in the sources?".to_owned());
        }
        // A step without tests counts as one, and so does one that failed for another reason than a
        // test, such as a compile error.
        match (ok, tally.passed, tally.failed) {
            (true, 0, 0) => tally.passed = 1,
            (false, _, 0) => tally.failed = 1,
            _ => {}
        }
        let cpu = cpu_of_children().saturating_sub(cpu);
        let (passed, failed, failures) = (tally.passed, tally.failed, tally.failures);
        Outcome { name: self.name, passed, failed, failures, took: begin.elapsed(), cpu, advice }
    }

    fn describe(&self) -> String {
        match &self.work {
            Work::Cargo { args, env } => {
                let variables: String = env.iter().map(|(name, value)| format!("{name}={value:?} ")).collect();
                let toolchain = self.toolchain.as_ref().map(|name| format!("+{name} ")).unwrap_or_default();
                format!("{variables}cargo {toolchain}{}", args.join(" "))
            }
            Work::Check(_) => format!("cargo xtask {}", self.name),
        }
    }
}

/// Runs all steps, even after a failure, and ends with a line `N passed, N failed`. True if none
/// failed.
pub(crate) fn run_all(steps: &[Step]) -> bool {
    let mut outcomes = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        println!("\n== {}/{} {}\n   {}", index + 1, steps.len(), step.name, step.describe());
        let outcome = step.run();
        let [took, cpu] = [outcome.took, outcome.cpu].map(|time| time.as_secs_f64());
        println!("   {} in {took:.1} s, {cpu:.1} s of processor time", verdict(&outcome));
        outcomes.push(outcome);
    }
    println!("\n== summary");
    println!("{:<26} {:<28} {:>9} {:>11}", "", "", "elapsed", "processors");
    for outcome in &outcomes {
        let [took, cpu] = [outcome.took, outcome.cpu].map(|time| time.as_secs_f64());
        println!("{:<26} {:<28} {took:>7.1} s {cpu:>9.1} s", outcome.name, verdict(outcome));
    }
    for outcome in &outcomes {
        if let Some(advice) = &outcome.advice {
            println!("{}: {advice}", outcome.name);
        }
        for failure in &outcome.failures {
            println!("{}: {} FAILED\n{}", outcome.name, failure.test, failure.why.join("\n"));
        }
    }
    let passed: u64 = outcomes.iter().map(|outcome| outcome.passed).sum();
    let failed: u64 = outcomes.iter().map(|outcome| outcome.failed).sum();
    println!("{passed} passed, {failed} failed");
    failed == 0
}

fn verdict(outcome: &Outcome) -> String {
    let word = if outcome.failed == 0 { "ok" } else { "FAILED" };
    format!("{word}: {} passed, {} failed", outcome.passed, outcome.failed)
}

/// Processor time of this process's ended children, and of those that they waited for.
fn cpu_of_children() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // `PID (NAME) STATE PARENT …`, where a name may contain anything.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
    let ticks = fields.split_whitespace().skip(CPU_FIELDS).take(2).filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * TICK_MS)
}

/// Fields of `/proc/self/stat` between the name and the children's user and system time.
const CPU_FIELDS: usize = 13;
/// The unit of times on all Linux systems.
const TICK_MS: u64 = 10;

fn run_cargo(
    toolchain: Option<&str>,
    args: &[String],
    env: &[(&'static str, String)],
) -> (bool, Tally, Option<String>) {
    if let Some(advice) = missing_component(args) {
        return (false, Tally::default(), Some(advice));
    }
    let mut command = match toolchain {
        Some(name) => {
            let mut command = Command::new("rustup");
            command.args(["run", name, "cargo"]);
            command
        }
        None => cargo(),
    };
    command.args(args).envs(env.iter().map(|(name, value)| (*name, value))).stdout(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            return (false, Tally::default(), Some(format!("cannot run cargo: {error}")));
        }
    };
    let mut tally = Tally::default();
    if let Some(output) = child.stdout.take() {
        // Passed on line by line, so that a long step shows its progress.
        let pass_on = |line: &str| {
            tally.read(line);
            println!("{line}");
            let _ = std::io::stdout().flush();
        };
        follow(output, SILENCE_MAX, pass_on, || end_children(child.id()));
    }
    let ok = child.wait().is_ok_and(|status| status.success());
    (ok, tally, None)
}

/// Each line of `output`, until it ends. Calls `when_silent` after each `silence_max` without
/// output.
fn follow(output: ChildStdout, silence_max: Duration, mut line: impl FnMut(&str), mut when_silent: impl FnMut()) {
    let (tx, rx) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if tx.send(line).is_err() {
                return;
            }
        }
    });
    loop {
        match rx.recv_timeout(silence_max) {
            Ok(read) => line(&read),
            Err(RecvTimeoutError::Timeout) => when_silent(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let _ = reader.join();
}

/// Ends cargo's current children, but not cargo: it reports a failure, and continues with the other
/// tests.
fn end_children(cargo: u32) {
    for (pid, name) in children(cargo) {
        let minutes = SILENCE_MAX.as_secs() / 60;
        println!("   {name} printed nothing for {minutes} minutes and is ended; what it last said is `running` hangs");
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
}

/// The children of this process, on systems with `/proc`.
fn children(parent: u32) -> Vec<(u32, String)> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let child = |entry: std::fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // `PID (NAME) STATE PARENT …`, where a name may contain anything.
        let (before, after) = stat.rsplit_once(')')?;
        let name = before.split_once('(')?.1.to_owned();
        let is_child = after.split_whitespace().nth(1)? == parent.to_string();
        is_child.then_some((pid, name))
    };
    processes.flatten().filter_map(child).collect()
}

/// The component to install for `cargo fmt` and `cargo clippy`, which a toolchain may lack.
fn missing_component(args: &[String]) -> Option<String> {
    let component = match args.first().map(String::as_str) {
        Some("fmt") => "rustfmt",
        Some("clippy") => "clippy",
        _ => return None,
    };
    let mut probe: Command = cargo();
    probe.args([args[0].as_str(), "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    let there = probe.status().is_ok_and(|status| status.success());
    (!there).then(|| format!("`cargo {}` is not installed: rustup component add {component}", args[0]))
}

/// Tests counted from the output of `cargo test`.
#[derive(Default, Debug, PartialEq)]
struct Tally {
    passed: u64,
    failed: u64,
    /// Programs without a test.
    empty: u64,
    failures: Vec<Failure>,
    /// The last line was in a block `---- TEST stdout ----`.
    is_in_failure: bool,
}

/// A test that failed.
#[derive(Default, Debug, PartialEq)]
struct Failure {
    test: String,
    /// The first lines of its last panic, or of what it has printed.
    why: Vec<String>,
    has_panicked: bool,
    /// The lines of a panic go on.
    is_open: bool,
}

impl Failure {
    fn read(&mut self, line: &str) {
        if line.starts_with("thread '") && line.contains("panicked at") {
            self.why.clear();
            (self.is_open, self.has_panicked) = (true, true);
        } else if ["stack backtrace:", "note: "].iter().any(|end| line.starts_with(end)) {
            self.is_open = false;
        }
        let goes_on = self.is_open || !self.has_panicked;
        if goes_on && !line.is_empty() && self.why.len() < WHY_LINES_MAX {
            self.why.push(format!("  {line}"));
        }
    }
}

const WHY_LINES_MAX: usize = 12;

impl Tally {
    /// Reads a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`, or one of a failed test.
    fn read(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----")) {
            self.failures.push(Failure { test: test.to_owned(), ..Failure::default() });
            self.is_in_failure = true;
        } else if line == "failures:" {
            self.is_in_failure = false;
        } else if self.is_in_failure
            && let Some(failure) = self.failures.last_mut()
        {
            failure.read(line);
        }
        let Some(counts) = line.trim_start().strip_prefix("test result: ") else {
            return;
        };
        let before = self.passed + self.failed;
        for part in counts.split(['.', ';']) {
            let mut words = part.split_whitespace();
            match (words.next().and_then(|word| word.parse::<u64>().ok()), words.next()) {
                (Some(count), Some("passed")) => self.passed += count,
                (Some(count), Some("failed")) => self.failed += count,
                _ => {}
            }
        }
        self.empty += u64::from(self.passed + self.failed == before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_cargo_test_are_summed() {
        let mut tally = Tally::default();
        tally.read("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.10s");
        tally.read("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        tally.read("test tests::passed ... ok");
        assert_eq!(tally, Tally { passed: 13, failed: 2, ..Tally::default() });
        tally.read("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.00s");
        assert_eq!(tally, Tally { passed: 13, failed: 2, empty: 1, ..Tally::default() });
    }

    #[test]
    fn a_failed_test_is_told_with_its_last_panic() {
        let mut tally = Tally::default();
        let output = "\
failures:

---- a::fails stdout ----

thread 'worker' (1) panicked at src/a.rs:1:2:
as it should
note: run with `RUST_BACKTRACE=1`

thread 'a::fails' (2) panicked at src/a.rs:3:4:
assertion failed: one
 and its second line
stack backtrace:
   0: a frame
---- b stdout ----
Error: no panic


failures:
    a::fails
    b

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        output.lines().for_each(|line| tally.read(line));
        let told: Vec<_> = tally.failures.iter().map(|one| (&*one.test, one.why.join("\n"))).collect();
        let why = "  thread 'a::fails' (2) panicked at src/a.rs:3:4:\n  assertion failed: one\n   and its second line";
        assert_eq!(told, [("a::fails", why.to_owned()), ("b", "  Error: no panic".to_owned())]);
    }

    #[test]
    fn what_hangs_is_told_from_what_prints() {
        let spawn = |script: &str| Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut quick = spawn("echo one; echo two");
        let mut lines = Vec::new();
        let take = |line: &str| lines.push(line.to_owned());
        follow(quick.stdout.take().unwrap(), Duration::from_secs(60), take, || panic!("it has printed, and ended"));
        assert_eq!(lines, ["one", "two"]);
        assert!(quick.wait().unwrap().success());

        let mut hangs = spawn("sleep 1000; echo after it");
        let (pid, mut ended) = (hangs.id(), Vec::new());
        let mut lines = Vec::new();
        let end = || {
            for (pid, name) in children(pid) {
                Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
                ended.push(name);
            }
        };
        follow(hangs.stdout.take().unwrap(), Duration::from_millis(200), |line| lines.push(line.to_owned()), end);
        // Named `sh` until it has become `sleep`. If the shell is slow, it is found a second time.
        let is_told = |name: &String| ["sleep", "sh"].contains(&name.as_str());
        assert!(!ended.is_empty() && ended.iter().all(is_told), "{ended:?}");
        assert_eq!(lines, ["after it"]);
        assert!(hangs.wait().unwrap().success());
    }

    #[test]
    fn what_children_took_is_counted() {
        if !std::path::Path::new("/proc/self/stat").exists() {
            return;
        }
        let before = cpu_of_children();
        let script = "n=0; while [ $n -lt 100000 ]; do n=$((n + 1)); done";
        assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
        let took = cpu_of_children() - before;
        assert!(took > Duration::ZERO && took < Duration::from_secs(3600), "{took:?}");
    }

    #[test]
    fn a_check_counts_as_one() {
        let good = Step::check("good", || Ok(true)).run();
        let bad = Step::check("bad", || Err("why".into())).run();
        assert_eq!((good.passed, good.failed), (1, 0));
        assert_eq!((bad.passed, bad.failed, bad.advice.as_deref()), (0, 1, Some("why")));
    }

    #[test]
    fn a_cargo_step_that_fails_without_tests_counts_as_failed() {
        let outcome = Step::cargo("no such", "this-error-is-expected").run();
        assert_eq!((outcome.passed, outcome.failed), (0, 1));
    }

    #[test]
    fn a_step_that_must_test_fails_without_tests() {
        let outcome = Step::cargo("version", "--version").must_test().run();
        assert_eq!((outcome.passed, outcome.failed), (0, 1));
        assert!(outcome.advice.is_some_and(|advice| advice.contains("no test: is")));
        let outcome = Step::cargo("version", "--version").run();
        assert_eq!((outcome.passed, outcome.failed), (1, 0));
    }

    #[test]
    fn flags_and_target_show_in_the_command() {
        let step = Step::cargo("loom", "test -p x").flags("XTASK_TEST_FLAGS", "--cfg y").target("/t".into());
        assert_eq!(step.describe(), "XTASK_TEST_FLAGS=\"--cfg y\" CARGO_TARGET_DIR=\"/t\" cargo test -p x");
    }
}
