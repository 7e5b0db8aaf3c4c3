//! `cargo xtask mutants`: plants deliberate bugs in a copy of a crate with models, and checks that
//! the models catch them.
//!
//! Not a part of `ci`: each bug needs a build and a run. The crate's `tests/mutations.txt` lists
//! the bugs; the head of the scheduler's explains the format.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::workspace::{Workspace, cargo};

/// One deliberate bug.
#[derive(Debug, PartialEq, Eq)]
struct Mutant {
    what: String,
    /// One of `MODELED`.
    package: &'static str,
    /// Path in the crate's folder.
    file: String,
    suite: String,
    test: String,
    before: String,
    after: String,
}

/// The result of a bug.
enum Fate {
    /// With the line of the failure.
    Caught(String),
    Escaped,
    /// It could not be tried.
    Broken(String),
}

/// Tries all bugs, or those with one of `words` in their text; true if all were caught.
pub(crate) fn run(words: &[&str]) -> Result<bool, String> {
    let workspace = Workspace::own()?;
    let mutants = all(&workspace.root)?;
    let folder = workspace.target.join("mutants");
    let tree = folder.join("tree");
    copy_tree(&workspace.root, &tree)?;
    let (mut caught, mut failed) = (0, 0);
    for mutant in &mutants {
        let Mutant { what, package, file, suite, test, .. } = mutant;
        let text = format!("{what} {package} {file} {suite} {test}");
        if !words.is_empty() && !words.iter().any(|word| text.contains(word)) {
            continue;
        }
        let begin = Instant::now();
        let fate = mutant.try_it(&tree, &folder).unwrap_or_else(Fate::Broken);
        let (verdict, detail) = match fate {
            Fate::Caught(how) => ("caught", how),
            Fate::Escaped => ("ESCAPED", "the test passed".to_owned()),
            Fate::Broken(problem) => ("BROKEN", problem),
        };
        if verdict == "caught" {
            caught += 1
        } else {
            failed += 1
        }
        println!(
            "{verdict:8} {}\n         by {} {}, {:.0} s: {detail}",
            mutant.what,
            mutant.suite,
            mutant.test,
            begin.elapsed().as_secs_f64()
        );
    }
    println!("{caught} caught, {failed} not");
    Ok(failed == 0)
}

/// The deliberate bugs of all crates.
fn all(root: &Path) -> Result<Vec<Mutant>, String> {
    let mut mutants = Vec::new();
    for package in MODELED {
        mutants.extend(parse(package, &read(&folder_of(root, package).join("tests/mutations.txt"))?)?);
    }
    Ok(mutants)
}

fn folder_of(root: &Path, package: &str) -> PathBuf {
    root.join("crates").join(package)
}

impl Mutant {
    /// Plants the bug, runs its test, and takes the bug out again.
    fn try_it(&self, tree: &Path, folder: &Path) -> Result<Fate, String> {
        let path = folder_of(tree, self.package).join(&self.file);
        let sound = read(&path)?;
        match sound.matches(&self.before).count() {
            1 => {}
            n => return Ok(Fate::Broken(format!("the text to replace occurs {n} times in {}", self.file))),
        }
        write(&path, &sound.replacen(&self.before, &self.after, 1))?;
        let fate = self.run_test(tree, folder);
        write(&path, &sound)?;
        fate
    }

    fn run_test(&self, tree: &Path, folder: &Path) -> Result<Fate, String> {
        let command = |args: &[&str]| {
            let mut command = cargo();
            command.current_dir(tree).args(["test", "-p", self.package, "--release", "--test", &self.suite]);
            // Builds take most of the time; these settings shorten them.
            command
                .args(["--config", &format!("profile.release.package.{}.opt-level=0", self.package)])
                .env("CARGO_INCREMENTAL", "1");
            command.env("CARGO_TARGET_DIR", folder.join(&self.suite)).env("RUST_BACKTRACE", "0");
            if self.suite != "it" {
                command
                    .env("RUSTFLAGS", format!("--cfg dapple_{} -A warnings", self.suite))
                    .arg("--no-default-features");
            }
            command.args(args);
            command
        };
        let build = output(command(&["--no-run", "--quiet"]), folder, BUILD_TIMEOUT)?;
        if build.passed != Some(true) {
            let error = build.text.lines().find(|line| line.starts_with("error")).unwrap_or("it does not build");
            return Ok(Fate::Broken(error.to_owned()));
        }
        let run = output(command(&["--quiet", "--", &self.test]), folder, RUN_TIMEOUT)?;
        Ok(match run.passed {
            _ if !run.text.contains("running 1 test") => Fate::Broken(format!("there is not one test {}", self.test)),
            Some(true) => Fate::Escaped,
            Some(false) => Fate::Caught(message(&run.text)),
            None => Fate::Caught(format!("not over after {} s", RUN_TIMEOUT.as_secs())),
        })
    }
}

/// The output of a command, and whether it succeeded; `None` if it was stopped.
struct Output {
    passed: Option<bool>,
    text: String,
}

/// Runs a command that may not end. Its output goes to a file, because a pipe would have to be read
/// meanwhile.
fn output(mut command: Command, folder: &Path, timeout: Duration) -> Result<Output, String> {
    let path = folder.join("output.txt");
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = fs::File::create(&path).map_err(failed)?;
    command.stdin(Stdio::null()).stdout(file.try_clone().map_err(failed)?).stderr(file);
    // Its own process group, so that a hanging test is stopped together with its cargo.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().map_err(|error| format!("cannot run cargo: {error}"))?;
    let deadline = Instant::now() + timeout;
    let passed = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break Some(status.success());
        }
        if Instant::now() > deadline {
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let text = fs::read(&path).map_err(failed)?;
    Ok(Output { passed, text: String::from_utf8_lossy(&text).into_owned() })
}

/// The line with the finding of a failed test.
fn message(text: &str) -> String {
    let mut lines = text.lines();
    let found = lines.by_ref().find(|line| line.contains("panicked at"));
    let line = found.and_then(|_| lines.find(|line| !line.trim().is_empty()));
    let line = line.or_else(|| text.lines().find(|line| line.contains("signal:"))).unwrap_or("it failed");
    line.trim().chars().take(MESSAGE_CHARS).collect()
}

fn parse(package: &'static str, text: &str) -> Result<Vec<Mutant>, String> {
    let mut mutants: Vec<Mutant> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let problem = |what: &str| format!("{package}: mutations.txt, line {}: {what}", index + 1);
        if let Some(what) = line.strip_prefix("# ") {
            let [file, suite, test, before, after] = [(); 5].map(|()| String::new());
            mutants.push(Mutant { what: what.to_owned(), package, file, suite, test, before, after });
            continue;
        }
        // Text above the first block is a comment.
        let Some(mutant) = mutants.last_mut() else { continue };
        if let Some(file) = line.strip_prefix("in ") {
            file.clone_into(&mut mutant.file);
        } else if let Some(test) = line.strip_prefix("by ") {
            let (suite, test) = test.split_once(' ').ok_or_else(|| problem("`by SUITE TEST`"))?;
            suite.clone_into(&mut mutant.suite);
            test.clone_into(&mut mutant.test);
        } else if let Some(text) = line.strip_prefix('-') {
            mutant.before += &format!("{text}\n");
        } else if let Some(text) = line.strip_prefix('+') {
            mutant.after += &format!("{text}\n");
        } else if !line.is_empty() {
            return Err(problem("neither `#`, `in`, `by`, `-` nor `+`"));
        }
    }
    Ok(mutants)
}

/// Copies the files of a build. Unchanged files keep their time, so that builds are short.
fn copy_tree(root: &Path, tree: &Path) -> Result<(), String> {
    let mut folders: Vec<_> = FOLDERS.map(PathBuf::from).into();
    let mut files = vec![PathBuf::from("Cargo.toml"), PathBuf::from("Cargo.lock")];
    while let Some(folder) = folders.pop() {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        for entry in fs::read_dir(root.join(&folder)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let list = if entry.file_type().map_err(failed)?.is_dir() { &mut folders } else { &mut files };
            list.push(folder.join(entry.file_name()));
        }
    }
    remove_others(tree, &files)?;
    for file in files {
        let (from, to) = (root.join(&file), tree.join(&file));
        let failed = |error: std::io::Error| format!("{}: {error}", to.display());
        let contents = fs::read(&from).map_err(|error| format!("{}: {error}", from.display()))?;
        if fs::read(&to).is_ok_and(|there| there == contents) {
            continue;
        }
        fs::create_dir_all(to.parent().unwrap_or(tree)).map_err(failed)?;
        fs::write(&to, contents).map_err(failed)?;
    }
    Ok(())
}

/// Removes files of an earlier run that do not exist any more.
fn remove_others(tree: &Path, files: &[PathBuf]) -> Result<(), String> {
    let wanted: std::collections::BTreeSet<&PathBuf> = files.iter().collect();
    let mut folders: Vec<_> = FOLDERS.map(PathBuf::from).into();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(tree.join(&folder)) else { continue };
        for entry in entries.flatten() {
            let path = folder.join(entry.file_name());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if !wanted.contains(&path) {
                fs::remove_file(tree.join(&path)).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The crates that have models and a list of bugs.
const MODELED: [&str; 7] =
    ["dapple-commit", "dapple-io", "dapple-sched", "dapple-stage", "dapple-stm", "dapple-sync", "dapple-tower"];
/// The parts of the workspace that a build of a crate needs.
const FOLDERS: [&str; 3] = ["crates", "examples", "services"];
const BUILD_TIMEOUT: Duration = Duration::from_secs(900);
const RUN_TIMEOUT: Duration = Duration::from_secs(300);
const MESSAGE_CHARS: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read() {
        let text = "For people.\n\n# a bug\nin src/a.rs\nby loom b\n-  one\n-  two\n+  three\n\n# another\nin c\nby it d\n-e\n+f\n";
        let mutants = parse("a", text).unwrap();
        assert_eq!(mutants.len(), 2);
        assert_eq!((mutants[0].file.as_str(), mutants[0].test.as_str()), ("src/a.rs", "b"));
        assert_eq!((mutants[0].before.as_str(), mutants[0].after.as_str()), ("  one\n  two\n", "  three\n"));
        assert_eq!(mutants[1].suite, "it");
        assert!(parse("a", "# a bug\nat src/a.rs\n").unwrap_err().contains("line 2"));
    }

    #[test]
    fn what_is_replaced_is_there() {
        let workspace = Workspace::own().unwrap();
        for mutant in all(&workspace.root).unwrap() {
            let text = read(&folder_of(&workspace.root, mutant.package).join(&mutant.file)).unwrap();
            assert_eq!(text.matches(&mutant.before).count(), 1, "{}: move the text of this bug along", mutant.what);
            assert_ne!(mutant.before, mutant.after);
        }
    }

    #[test]
    fn a_failure_is_told_by_what_follows_the_panic() {
        let text = "running 1 test\nthread 'a' panicked at b.rs:1:2:\n\n  deadlock; threads = 2\nmore\n";
        assert_eq!(message(text), "deadlock; threads = 2");
        assert_eq!(message("nothing"), "it failed");
    }
}
