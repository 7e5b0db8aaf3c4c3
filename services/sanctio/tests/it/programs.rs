//! The gateway's programs, and curl.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A process that ends with the test.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Process {
        Process(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Process {
    /// Asks it to end, and returns whether it ended in order.
    pub(crate) fn end(mut self) -> bool {
        let status = Command::new("kill").arg(self.0.id().to_string()).status();
        assert!(status.unwrap().success());
        self.0.wait().unwrap().success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether these programs, each with Debian's package, are there; tries to install them as root. In CI they must be.
pub(crate) fn has(programs: &[(&str, &str)]) -> bool {
    let folders = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
    let is_there = |name: &str| folders.split(':').any(|folder| Path::new(folder).join(name).is_file());
    programs.iter().all(|(name, package)| has_or_installs(name, package, || is_there(name)))
}

/// Whether this is there, perhaps after the installation of its package. In CI it must be.
pub(crate) fn has_or_installs(name: &str, package: &str, is_there: impl Fn() -> bool) -> bool {
    // apt refuses to run twice at the same time; tests do.
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_there() {
        let mut apt = Command::new("apt-get");
        apt.args(["install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120", package]);
        let _ = apt.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).output();
    }
    let found = is_there();
    if !found {
        let text = format!("{name} is not there and cannot be installed; `apt-get install {package}`");
        assert!(std::env::var_os("CI").is_none(), "{text}");
        eprintln!("SKIPPED: {text}");
    }
    found
}

/// Asks again until there is an answer, for a minute.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The program of a network, which cargo builds if it is not there.
pub(crate) fn program(name: &str) -> PathBuf {
    static PROGRAMS: LazyLock<Mutex<HashMap<String, PathBuf>>> = LazyLock::new(Mutex::default);
    let build = || {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--package", name, "--message-format", "json"]);
        let output = cargo.stderr(Stdio::inherit()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let path =
            text.lines().filter_map(|line| line.split_once("\"executable\":\"")?.1.split('"').next()).next_back();
        path.unwrap_or_else(|| panic!("cargo does not build {name}")).into()
    };
    PROGRAMS.lock().unwrap().entry(name.to_owned()).or_insert_with(build).clone()
}

/// The gateway.
pub(crate) struct Gateway {
    pub(crate) process: Process,
    pub(crate) base: String,
}

impl Gateway {
    /// Starts it with a store in this folder.
    pub(crate) fn start(folder: &Path, args: &[&str]) -> Gateway {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanctio"));
        command.arg(format!("--store=redb:{}", folder.join("store").display())).args(args);
        if !args.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.stdout(Stdio::piped());
        let mut process = Process::start(&mut command);
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().rsplit_once("listening on ").unwrap_or_else(|| panic!("{line}")).1;
        Gateway { base: format!("http://{address}"), process }
    }

    /// The status and the body of a reply to curl.
    pub(crate) fn curl(&self, path: &str, args: &[&str]) -> (u16, String) {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--write-out", "%{stderr}%{http_code}"]).args(args);
        let Output { stdout, stderr, .. } = curl.arg(format!("{}{path}", self.base)).output().unwrap();
        (String::from_utf8(stderr).unwrap().parse().unwrap(), String::from_utf8(stdout).unwrap())
    }

    pub(crate) fn put(&self, name: &str, legs: &str) -> u16 {
        self.curl(&format!("/talks/{name}"), &["-X", "PUT", "--json", legs]).0
    }

    pub(crate) fn say(&self, name: &str, text: &str) -> u16 {
        let body = serde_json::json!({ "name": name, "text": text }).to_string();
        self.curl("/talks/talk/messages", &["--json", &body]).0
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        let (status, body) = self.curl(path, &[]);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The archive of the conversation `talk`: each message as `NAME: TEXT`.
    pub(crate) fn archive(&self, query: &str) -> Vec<String> {
        let (mut all, mut query) = (Vec::new(), query.to_owned());
        loop {
            let answer = self.json(&format!("/talks/talk/messages?{query}"));
            for message in answer["messages"].as_array().unwrap() {
                all.push(format!("{}: {}", message["name"].as_str().unwrap(), message["text"].as_str().unwrap()));
            }
            match answer["next"].as_u64() {
                Some(next) => query = format!("at={next}"),
                None => return all,
            }
        }
    }

    /// Starts the program of a network, for this gateway.
    pub(crate) fn network(&self, name: &str, args: &[&str]) -> Process {
        Process::start(Command::new(program(name)).args(["--hub", &self.base]).args(args))
    }

    /// Waits until the program of a network listens for a leg, so that it gets all that is said from now on.
    pub(crate) fn wait_for_leg(&self, leg: &str) {
        until(&format!("no program listens for {leg}"), || self.json("/status")["talk"]["legs"][leg].as_u64());
    }

    /// Asks it to end, and returns whether it ended in order.
    pub(crate) fn end(self) -> bool {
        self.process.end()
    }
}
