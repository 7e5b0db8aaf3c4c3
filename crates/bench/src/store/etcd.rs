//! A member of etcd, for one trial.

use anyhow::{Context, Result, ensure};
use dapple::etcd::Etcd;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ends when dropped.
pub(super) struct Member {
    child: Child,
    address: String,
}

/// How long a member may take to start, or to answer.
const START_MAX: Duration = Duration::from_secs(30);

/// The program that the variable ETCD names, or the one in the path.
pub(super) fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
    std::env::var_os("ETCD").map(PathBuf::from).into_iter().chain(in_path).find(|path| path.is_file())
}

impl Member {
    /// A cluster of one, with its files in `directory`.
    pub(super) fn start(directory: &Path) -> Result<Member> {
        let program = program().context("there is no etcd: install it, or name it by ETCD=PATH")?;
        let free = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
        let [address, peer] = [free[0].local_addr()?.to_string(), format!("http://{}", free[1].local_addr()?)];
        drop(free);
        let client = format!("http://{address}");
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(directory.join("etcd"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("etcd does not start")?;
        let member = Member { child, address };
        let begun = Instant::now();
        while TcpStream::connect(&member.address).is_err() {
            ensure!(begun.elapsed() < START_MAX, "etcd does not listen on {}", member.address);
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(member)
    }

    /// A client of it.
    pub(super) fn client(&self) -> Result<Etcd> {
        Ok(Etcd::builder([&*self.address]).timeout(START_MAX).build()?)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
