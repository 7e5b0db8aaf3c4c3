//! `cargo xtask h2spec`: the conformance tests of HTTP/2 against `dapple serve`, plain and
//! encrypted.

use crate::served::{self, Server};
use crate::workspace::Workspace;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// For `cargo xtask h2spec`: a missing tool is an error.
pub(crate) fn run() -> Result<bool, String> {
    let workspace = Workspace::own()?;
    match find(&workspace).or_else(|| install(&workspace)) {
        Some(h2spec) => check(&workspace, &h2spec),
        None => Err(format!("there is no h2spec; {INSTALL}")),
    }
}

/// For `cargo xtask test`: skips the check without the tool.
pub(crate) fn run_if_there() -> Result<bool, String> {
    let workspace = Workspace::own()?;
    match find(&workspace).or_else(|| install(&workspace)) {
        Some(h2spec) => check(&workspace, &h2spec),
        None => {
            println!("h2spec: SKIPPED, it cannot be had here; {INSTALL}");
            Ok(true)
        }
    }
}

fn check(workspace: &Workspace, h2spec: &Path) -> Result<bool, String> {
    let dapple = served::build(workspace)?;
    let site = workspace.target.join(format!("h2spec-{}", std::process::id()));
    let page = "<p>Long enough for a window that opens bit by bit.</p>\n".repeat(100);
    let written = std::fs::create_dir_all(&site).and_then(|()| std::fs::write(site.join("index.html"), page));
    written.map_err(|error| format!("cannot write {}: {error}", site.display()))?;
    let outcomes = [
        one(h2spec, &dapple, &site, "plain", &[], &[]),
        one(h2spec, &dapple, &site, "TLS", &["--tls-self-signed"], &["-t", "-k"]),
    ];
    let _ = std::fs::remove_dir_all(&site);
    let mut all_good = true;
    for outcome in outcomes {
        all_good &= outcome?;
    }
    Ok(all_good)
}

/// Runs all tests over one kind of connection.
fn one(
    h2spec: &Path,
    dapple: &Path,
    site: &Path,
    name: &str,
    options: &[&str],
    flags: &[&str],
) -> Result<bool, String> {
    let server = Server::start(dapple, site, options)?;
    let port = server.port();
    let mut command = Command::new(h2spec);
    command.args(["-h", "127.0.0.1", "-p", port, "-o", "10"]).args(flags).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("cannot run {}: {error}", h2spec.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let counts = text.lines().rev().find_map(counts).ok_or_else(|| format!("h2spec told no result: {text}"))?;
    println!("h2spec, {name}: {} of {} passed", counts.passed, counts.tests);
    let good = counts.tests >= TESTS_MIN && counts.tests - counts.passed <= FAILED_MAX;
    if !good {
        let failures = text.find("Failures:").unwrap_or(0);
        println!("{}", &text[failures..]);
    }
    Ok(good)
}

#[derive(Debug, PartialEq)]
struct Counts {
    tests: u32,
    passed: u32,
}

/// Reads `145 tests, 144 passed, 0 skipped, 1 failed`.
fn counts(line: &str) -> Option<Counts> {
    let mut parts = line.split(", ");
    let tests = parts.next()?.strip_suffix(" tests")?.parse().ok()?;
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    Some(Counts { tests, passed })
}

fn find(workspace: &Workspace) -> Option<PathBuf> {
    let own = std::env::var_os("H2SPEC").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("h2spec"));
    own.into_iter().chain(in_path).chain([folder(workspace).join("h2spec")]).find(|path| path.is_file())
}

/// With Go, if it is installed.
fn install(workspace: &Workspace) -> Option<PathBuf> {
    let folder = folder(workspace);
    println!("h2spec: go install {PACKAGE}, into {}", folder.display());
    let installed = Command::new("go").args(["install", PACKAGE]).env("GOBIN", &folder).status();
    installed.ok().filter(|status| status.success())?;
    Some(folder.join("h2spec"))
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("go")
}

const PACKAGE: &str = "github.com/summerwind/h2spec/cmd/h2spec@latest";

const INSTALL: &str = "install Go, then `cargo xtask h2spec` installs it, or set H2SPEC to where it is";

/// The number of tests in h2spec 2.6. One may fail: a server that also speaks HTTP/1.1 on the port
/// answers a wrong preface in HTTP/1.1, and the test expects silence.
const TESTS_MIN: u32 = 145;
const FAILED_MAX: u32 = 1;

#[cfg(test)]
mod tests {
    use super::{Counts, counts};

    #[test]
    fn counts_are_read() {
        assert_eq!(counts("145 tests, 144 passed, 0 skipped, 1 failed"), Some(Counts { tests: 145, passed: 144 }));
        assert_eq!(counts("Finished in 0.1 seconds"), None);
    }
}
