//! `dapple sign` as a process that can be killed and restarted.

use super::log::count_records;
use super::program::{Launch, Secrets};
use crate::experiment::Peer;
use crate::machine::{Guard, family_memory};
use crate::usage::Usage;
use crate::words::name;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

/// The four variants of `dapple sign`.
pub(super) const PEERS: &[Peer] = &[Peer::Threaded, Peer::Wrapped, Peer::Pipelined, Peer::Replicated];

/// The parameters of a server.
pub(super) struct Setting<'a> {
    pub(super) launch: &'a Launch,
    pub(super) variant: Peer,
    pub(super) log: PathBuf,
    pub(super) sync: bool,
    pub(super) workers: usize,
    /// Its cores; empty for any.
    pub(super) cores: &'a [usize],
    /// The most tasks that clients have in flight: none may be refused.
    pub(super) in_flight: usize,
    pub(super) secrets: &'a Secrets,
}

/// A server that accepts connections.
pub(super) struct Server {
    guard: Guard,
    address: SocketAddr,
    log: PathBuf,
    /// Keeps the pipe for its output open.
    _output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts it at this address, with any port for 0, and waits until it listens.
    pub(super) fn start(setting: &Setting, address: SocketAddr) -> Result<Server> {
        let mut command = setting.launch.command(setting.cores)?;
        command.arg("sign").arg("--variant").arg(name(setting.variant)).arg("--log").arg(&setting.log);
        command.arg("--addr").arg(address.to_string()).arg("--workers").arg(setting.workers.to_string());
        // Twice as many: a slot becomes free a little after its task is answered.
        let room = |least: usize| least.max(2 * setting.in_flight).to_string();
        match setting.variant {
            Peer::Threaded => command.args(["--threads", &room(256)]),
            _ => command.args(["--queue", &room(1_024)]),
        };
        command.args(["--in-flight-max", &room(1_024)]);
        command.args(setting.secrets.args());
        if setting.sync {
            command.arg("--sync");
        }
        let mut guard = Guard::start("dapple sign", command.stdout(Stdio::piped()))?;
        let mut output = BufReader::new(guard.take_output().context("dapple sign has no output")?);
        let mut line = String::new();
        output.read_line(&mut line).context("cannot read what dapple sign prints")?;
        let address = listening_at(&line)
            .with_context(|| format!("dapple sign did not start, and printed {line:?}; standard error says why"))?;
        Ok(Server { guard, address, log: setting.log.clone(), _output: output })
    }

    /// Its address.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The processor time and switches of the process so far.
    pub(super) fn usage(&self) -> Result<Usage> {
        Usage::of_family(self.guard.id())
    }

    /// The maximum of its resident memory, in MB.
    pub(super) fn resident_max_mb(&self) -> Result<f64> {
        Ok(family_memory(self.guard.id())?.1 as f64 / 1e6)
    }

    /// Stops it gracefully; returns the number of records in its log.
    pub(super) fn stop(self) -> Result<u64> {
        self.guard.stop(STOP_MAX)?;
        count_records(&self.log, true)
    }

    /// Kills it (SIGKILL); returns the number of records in its log.
    pub(super) fn kill(self) -> Result<u64> {
        self.guard.kill()?;
        count_records(&self.log, false)
    }
}

/// A port of the loopback address that the kernel chooses.
pub(super) fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// The address in the line that a server prints when it listens.
fn listening_at(line: &str) -> Result<SocketAddr> {
    let rest = line.strip_prefix("listening on ").context("no line that begins with \"listening on\"")?;
    let address = rest.split([',', ' ', '\n']).next().unwrap_or_default();
    let address: SocketAddr = address.parse().with_context(|| format!("no address: {address:?}"))?;
    ensure!(address.port() != 0, "no port: {address}");
    Ok(address)
}

/// Longer than an idle server takes.
const STOP_MAX: Duration = Duration::from_secs(40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_the_address() {
        let address = listening_at("listening on 127.0.0.1:7070, wrapped, with 0 records in a, b.log\n").ok();
        assert_eq!(address, Some((Ipv4Addr::LOCALHOST, 7070).into()));
        assert_eq!(listening_at("listening on 127.0.0.1:9\n").ok(), Some((Ipv4Addr::LOCALHOST, 9).into()));
        for line in ["", "listening on\n", "listening on nowhere, wrapped\n", "listening on 127.0.0.1:0, wrapped\n"] {
            assert!(listening_at(line).is_err(), "{line}");
        }
    }
}
