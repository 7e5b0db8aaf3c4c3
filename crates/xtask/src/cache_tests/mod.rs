//! `cargo xtask cache-tests`: the public tests for HTTP caches, http-cache-tests, against both
//! forms of `dapple proxy`.
//!
//! The suite is the last version on npm, and this repository has no part of it. Its tests are of
//! three kinds: what a cache must do (`required`), should do (`optimal`), and may do (`check`).
//! Only the first kind must pass, except for the tests in [`expected`], each with a reason.
//!
//! Tests wait 3 s for responses to become stale, and a hundred run at once, so a busy machine may
//! make one fail. An unexpected failure runs again with few others, and counts as passed if it
//! passes then: a real fault does not disappear.

mod expected;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use self::expected::reason;
use crate::apt;
use crate::served::{self, Server};
use crate::workspace::Workspace;

/// For `cargo xtask cache-tests`: a missing suite is an error.
pub(crate) fn run() -> Result<bool, String> {
    let workspace = Workspace::own()?;
    let suite = find(&workspace).map_or_else(|| install(&workspace), Ok);
    check(&workspace, &suite.map_err(|problem| format!("there is no http-cache-tests: {problem}; {INSTALL}"))?)
}

/// For `cargo xtask test`: skips the check without the suite.
pub(crate) fn run_if_there() -> Result<bool, String> {
    let workspace = Workspace::own()?;
    match find(&workspace).map_or_else(|| install(&workspace), Ok) {
        Ok(suite) => check(&workspace, &suite),
        Err(problem) => {
            println!("cache-tests: SKIPPED, http-cache-tests cannot be had here: {problem}; {INSTALL}");
            Ok(true)
        }
    }
}

fn check(workspace: &Workspace, suite: &Path) -> Result<bool, String> {
    let dapple = served::build(workspace)?;
    let mut command = Command::new("node");
    command.arg("server/server.mjs").current_dir(suite);
    let pid_file = folder(workspace).join("server.pid");
    command.env("npm_config_protocol", "http").env("npm_config_port", "0").env("npm_config_pidfile", pid_file);
    let origin = Server::spawn(command)?;
    let origin_url = format!("http://127.0.0.1:{}", origin.port());
    let mut all_good = true;
    for proxy in [Proxy::Forward, Proxy::Reverse] {
        let mut command = Command::new(&dapple);
        command.args(["proxy", "--port", "0"]);
        match proxy {
            Proxy::Forward => command.arg("--allow-private"),
            // Some tests let the server end connections, which must not put it out of service here.
            Proxy::Reverse => command.args(["--to", &origin_url, "--cache-mb", "64", "--fail-after", "1000"]),
        };
        let server = Server::spawn(command)?;
        let asked = if proxy == Proxy::Forward { &origin_url } else { &server.url };
        all_good &= judge(proxy, |ids| {
            let script = workspace.root.join(SCRIPT);
            let mut command = Command::new("node");
            command.arg(script).arg(suite).args([asked, &server.url]).args(ids).stderr(Stdio::inherit());
            let output = command.output().map_err(|error| format!("cannot run node: {error}"))?;
            let text = String::from_utf8_lossy(&output.stdout);
            text.lines().map(Verdict::read).collect()
        })?;
    }
    Ok(all_good)
}

/// Whether all tests went as expected. `run` runs these tests, or all if none is named.
fn judge(proxy: Proxy, run: impl Fn(&[String]) -> Result<Vec<Verdict>, String>) -> Result<bool, String> {
    let all = run(&[])?;
    let count = |kind: &str| {
        let (total, passed) = (
            all.iter().filter(|verdict| verdict.kind == kind).count(),
            all.iter().filter(|verdict| verdict.kind == kind && verdict.is_passed()).count(),
        );
        format!("{passed} of {total} {kind}")
    };
    println!("cache-tests, {proxy:?}: {}, {}, {} passed", count("required"), count("optimal"), count("check"));
    let required: Vec<&Verdict> = all.iter().filter(|verdict| verdict.kind == "required").collect();
    if required.len() < REQUIRED_MIN {
        return Err(format!("of {REQUIRED_MIN} tests that a cache has to pass, {} ran", required.len()));
    }
    for verdict in required.iter().filter(|verdict| verdict.is_passed()) {
        if reason(&verdict.id).is_some() {
            println!("  {} passes, although it is listed as one that fails", verdict.id);
        }
    }
    let is_odd =
        |verdict: &&Verdict| verdict.kind == "required" && !verdict.is_passed() && reason(&verdict.id).is_none();
    let mut odd: Vec<Verdict> = required.into_iter().filter(is_odd).cloned().collect();
    for _ in 1..TRIES_MAX {
        if odd.is_empty() {
            break;
        }
        let ids: Vec<String> = odd.iter().map(|verdict| verdict.id.clone()).collect();
        println!("  once more: {}", ids.join(" "));
        let again = run(&ids)?;
        odd.retain(|verdict| !again.iter().any(|other| other.id == verdict.id && other.is_passed()));
    }
    for Verdict { id, result, text, .. } in &odd {
        println!("  {id} FAILED ({result}): {text}");
    }
    Ok(odd.is_empty())
}

/// The proxy under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proxy {
    Forward,
    Reverse,
}

/// The result of one test.
#[derive(Clone, Debug)]
struct Verdict {
    id: String,
    kind: String,
    /// `passed`, `failed`, `setup` (it did not reach its subject), `dependency` (a test that it
    /// depends on did not pass).
    result: String,
    text: String,
}

impl Verdict {
    fn read(line: &str) -> Result<Verdict, String> {
        let value: Value = serde_json::from_str(line).map_err(|error| format!("{line:?} is no verdict: {error}"))?;
        let [id, kind, result, text] =
            ["id", "kind", "result", "text"].map(|key| value[key].as_str().unwrap_or_default().to_owned());
        Ok(Verdict { id, kind, result, text })
    }

    fn is_passed(&self) -> bool {
        self.result == "passed"
    }
}

fn find(workspace: &Workspace) -> Option<PathBuf> {
    let own = std::env::var_os("HTTP_CACHE_TESTS").map(PathBuf::from);
    own.or_else(|| Some(unpacked(workspace)).filter(|folder| folder.join("server/server.mjs").is_file()))
}

/// With npm, without the packages that only the suite's own programs need.
fn install(workspace: &Workspace) -> Result<PathBuf, String> {
    let folder = folder(workspace);
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    println!("cache-tests: npm pack {PACKAGE}, into {}", folder.display());
    if ["node", "npm"].iter().any(|program| Command::new(program).arg("--version").output().is_err()) {
        apt::install("cache-tests", &["nodejs", "npm"]);
    }
    let mut npm = Command::new("npm");
    npm.args(["pack", "--json", PACKAGE]).current_dir(&folder).stderr(Stdio::null());
    let packed = npm.output().map_err(|error| format!("cannot run npm: {error}"))?;
    let text = String::from_utf8_lossy(&packed.stdout);
    if !packed.status.success() || !text.contains(INTEGRITY) {
        return Err(format!("npm did not fetch {PACKAGE}, or other bytes than those of {INTEGRITY}"));
    }
    let packed: Value = serde_json::from_str(&text).map_err(|error| format!("npm printed no JSON: {error}"))?;
    let file = packed[0]["filename"].as_str().ok_or("npm named no file")?;
    let unpack = Command::new("tar").args(["-xzf", file]).current_dir(&folder).status();
    if !unpack.is_ok_and(|status| status.success()) {
        return Err(format!("tar did not unpack {file}"));
    }
    Ok(unpacked(workspace))
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("http-cache-tests")
}

fn unpacked(workspace: &Workspace) -> PathBuf {
    folder(workspace).join("package")
}

const PACKAGE: &str = "http-cache-tests@0.4.5";
const INTEGRITY: &str =
    "sha512-DjuwN9nUZXLTW+wav1LRESCZNVxl8SshwOy4z1pxuWbWt5/ay6sM9QQ1lebBaDO6P1IMBoK6mdf+PuVP/QNL8A==";

const INSTALL: &str = "install Node.js 18 or later with npm, then `cargo xtask cache-tests` fetches it, or set HTTP_CACHE_TESTS to where it is";

const SCRIPT: &str = "crates/xtask/src/cache_tests/run.mjs";

/// How often a test may run.
const TRIES_MAX: usize = 3;

/// The number of required tests, without those of `CDN-Cache-Control`.
const REQUIRED_MIN: usize = 150;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{Proxy, REQUIRED_MIN, Verdict, judge};

    fn verdict(id: usize, result: &str) -> Verdict {
        Verdict::read(&format!(r#"{{"id":"test-{id}","kind":"required","result":"{result}","text":""}}"#)).unwrap()
    }

    /// The outcome of a run in which one test fails this often.
    fn outcome(failures: usize) -> Result<bool, String> {
        let runs = Cell::new(0);
        judge(Proxy::Forward, |ids| {
            runs.set(runs.get() + 1);
            let result = if runs.get() <= failures { "failed" } else { "passed" };
            let others = if ids.is_empty() { 1..REQUIRED_MIN } else { 0..0 };
            Ok(std::iter::once(verdict(0, result)).chain(others.map(|id| verdict(id, "passed"))).collect())
        })
    }

    #[test]
    fn what_fails_runs_again() {
        assert_eq!([0, 1, 2, 3].map(outcome), [Ok(true), Ok(true), Ok(true), Ok(false)]);
    }

    #[test]
    fn what_does_not_run_has_not_passed() {
        assert!(judge(Proxy::Reverse, |_| Ok(vec![verdict(0, "passed")])).is_err());
        assert!(Verdict::read("Listening").is_err());
    }
}
