//! The programs under test.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A running partition or front, which ends with the test.
pub(crate) struct Program {
    child: Child,
    /// `HOST:PORT`.
    pub(crate) address: String,
}

impl Program {
    pub(crate) fn start(args: &[&str]) -> Program {
        let mut child = command(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().trim_end_matches('/').rsplit([' ', '/']).next().unwrap();
        assert!(address.starts_with("127.0.0.1:"), "the program says where it listens: {line}");
        Program { child, address: address.to_owned() }
    }

    pub(crate) fn part(store: &str, address: &str) -> Program {
        Program::start(&["part", "--store", store, "--listen", address])
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn signal(&mut self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        if name == "TERM" {
            assert!(self.child.wait().unwrap().success(), "SIGTERM ends it in order");
        }
    }

    /// The status and the body of a reply to curl.
    pub(crate) fn curl(&self, path: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.address);
        let output = Command::new("curl").args(["--silent", "--write-out", "\n%{http_code}", &url]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), body.to_owned())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Loads a partition and returns the program's words.
pub(crate) fn load(part: &str, store: &str, documents: &Path) -> String {
    let output = run(&["load", "--part", part, "--store", store, documents.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_search"));
    command.args(args);
    command
}

/// Whether curl is there; tries to install it as root.
pub(crate) fn has_curl() -> bool {
    let is_there = || Command::new("curl").arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there() {
        let mut apt = Command::new("apt-get");
        let _ = apt.args(["install", "--yes", "--no-install-recommends", "curl"]).stdin(Stdio::null()).output();
    }
    let found = is_there();
    if !found {
        eprintln!("SKIPPED: curl is not there and cannot be installed; install it with `apt-get install curl`");
    }
    found
}
