//! `dapple host` and `dapple cluster` as real processes.

mod namespaces;
mod options;
mod real_etcd;
mod services_page;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::stage_host::etcd::Etcd;

fn dapple() -> &'static str {
    env!("CARGO_BIN_EXE_dapple")
}

/// A running `dapple host`; killed when dropped.
struct Host {
    child: Child,
    state: PathBuf,
}

impl Host {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a signal");
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// The numbers of the processes that it has noted.
    fn noted(&self) -> Vec<i32> {
        let files = std::fs::read_dir(self.state.join("replicas")).expect("its folder").flatten();
        let number = |text: String| text.split(' ').next().and_then(|pid| pid.parse().ok());
        files.filter_map(|file| number(std::fs::read_to_string(file.path()).ok()?)).collect()
    }
}

impl Drop for Host {
    /// Its replicas, too: they outlive it.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in self.noted() {
            let _over = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
        }
    }
}

/// A cluster of processes on this machine.
struct Cluster {
    etcd: Etcd,
    folder: TempDir,
}

impl Cluster {
    /// `None` without etcd.
    fn start() -> Option<Cluster> {
        Cluster::start_at("127.0.0.1")
    }

    /// With an etcd at this address.
    fn start_at(ip: &str) -> Option<Cluster> {
        let etcd = Etcd::start_at(ip)?;
        let cluster = Cluster { etcd, folder: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder") };
        cluster.until("etcd answers", || cluster.try_run(&["status"]).is_ok());
        Some(cluster)
    }

    fn place(&self) -> String {
        format!("etcd://{}/test", self.etcd.client)
    }

    /// Starts a host, and waits until it is registered.
    fn host(&self, name: &str, options: &[&str]) -> Host {
        self.host_by(Command::new(dapple()), name, options)
    }

    /// Starts a host by a command that begins in another way.
    fn host_by(&self, mut command: Command, name: &str, options: &[&str]) -> Host {
        let state = self.folder.path().join(name);
        command.args([
            "host",
            "--join",
            &self.place(),
            "--name",
            name,
            "--workers",
            "1",
            "--cores",
            "8",
            "--memory-mb",
            "100000",
        ]);
        command.arg("--state").arg(&state).args(options).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let host = Host { child, state };
        // It prints the address of its page before.
        let begun = format!("host {name} of");
        assert!(lines.map_while(Result::ok).any(|line| line.contains(&begun)), "it ended");
        host
    }

    fn try_run(&self, words: &[&str]) -> Result<String, String> {
        let output = Command::new(dapple())
            .args(["cluster", "--json", "--join", &self.place()])
            .args(words)
            .output()
            .expect("it runs");
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).expect("text")),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    fn run(&self, words: &[&str]) -> Value {
        let text = self.try_run(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        serde_json::from_str(&text).expect("JSON")
    }

    fn apply(&self, text: &str) {
        let file = self.folder.path().join("services.toml");
        std::fs::write(&file, text).expect("a file");
        self.run(&["apply", file.to_str().expect("text")]);
    }

    /// The hosts of the replicas of `echo` that are ready and as described, sorted; `None` unless there are so many.
    fn ready(&self, count: usize) -> Option<Vec<String>> {
        let status = self.run(&["status"]);
        let service = status["services"].as_array()?.iter().find(|one| one["name"] == "echo")?.clone();
        let all = [&service["assigned"], &service["ready"], &service["current"]];
        if all.iter().any(|number| number.as_u64() != Some(count as u64)) {
            return None;
        }
        let mut hosts: Vec<String> = status["replicas"]
            .as_array()?
            .iter()
            .map(|one| one["host"].as_str().unwrap_or_default().to_owned())
            .collect();
        hosts.sort_unstable();
        Some(hosts)
    }

    fn hosts(&self) -> Vec<String> {
        let status = self.run(&["status"]);
        let hosts = status["hosts"].as_array().expect("a list").iter();
        hosts.map(|host| host["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Looks again and again; the limit is for a machine that has much else to do.
    fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            if begin.elapsed() > Duration::from_secs(300) {
                panic!(
                    "{what}: that does not happen: {:?}; {:?}",
                    self.try_run(&["status"]),
                    self.try_run(&["events"])
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// The description of a service of stage hosts.
fn echo(more: &str) -> String {
    let command = format!(
        "[\"{}\", \"stage-host\", \"--listen\", \"{{listen}}\", \"--stage\", \"echo\", \"--workers\", \"1\"]",
        dapple()
    );
    format!("[[service]]\nname = \"echo\"\ncommand = {command}\ncores = 0.1\n{more}\n")
}

fn is_running(pid: i32) -> bool {
    // One that has ended and was not waited for is none.
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}
