//! The servers under test, each in a separate process, on a free port of the loopback address.

mod burn;
mod dapple;
mod hyper;

pub(crate) use hyper::{HyperArgs, run_hyper};

use crate::experiment::Peer;
use crate::machine::{Guard, bound_to, family_cpu, family_memory};
use crate::web::free_port;
use anyhow::{Context, Result, bail, ensure};
use hyper::Variant;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The peers of these experiments.
pub(super) const PEERS: &[Peer] =
    &[Peer::Dapple, Peer::Hyper, Peer::HyperTower20, Peer::HyperPool10, Peer::HyperPool20, Peer::Go, Peer::GoLimit10];

/// The parameters of a server.
pub(super) struct Setting<'a> {
    pub(super) workers: usize,
    /// Its cores; empty for any.
    pub(super) cores: &'a [usize],
    pub(super) go_program: Option<&'a Path>,
}

impl Setting<'_> {
    /// A command that starts a program with these parameters.
    fn command(&self, program: &Path) -> Result<Command> {
        bound_to(program, self.cores)
    }
}

/// A server that accepts connections.
pub(super) struct Running {
    guard: Guard,
    port: u16,
}

/// The reason why this peer cannot be started here; `None` if it can.
pub(super) fn obstacle(peer: Peer) -> Option<String> {
    match peer {
        Peer::Dapple => dapple::program().err().map(|error| error.to_string()),
        _ => None,
    }
}

/// Starts a peer and waits until it accepts connections.
pub(super) fn start(peer: Peer, setting: &Setting) -> Result<Running> {
    let port = free_port()?;
    let hyper = |limit: Option<usize>, pool: bool| hyper::command(setting, port, Variant { limit, pool });
    let mut command = match peer {
        Peer::Dapple => dapple::command(setting, port),
        Peer::Hyper => hyper(None, false),
        Peer::HyperTower20 => hyper(Some(20), false),
        Peer::HyperPool10 => hyper(Some(10), true),
        Peer::HyperPool20 => hyper(Some(20), true),
        Peer::Go => go(setting, port, 0),
        Peer::GoLimit10 => go(setting, port, 10),
        _ => bail!("this peer takes no part in overload"),
    }?;
    // The server's greeting must not mix with the result lines; its errors stay visible.
    let guard = Guard::start("the server", command.stdout(Stdio::null()))?;
    let mut running = Running { guard, port };
    let end = Instant::now() + START_MAX;
    while TcpStream::connect(running.address()).is_err() {
        running.still_running()?;
        ensure!(Instant::now() < end, "the server does not answer on port {port} after {START_MAX:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(running)
}

impl Running {
    /// Its address.
    pub(super) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// User and system time so far.
    pub(super) fn cpu(&self) -> Result<Duration> {
        family_cpu(self.guard.id())
    }

    /// Resident memory in bytes: now, and its maximum.
    pub(super) fn memory(&self) -> Result<(u64, u64)> {
        family_memory(self.guard.id())
    }

    /// An error if the server has ended.
    pub(super) fn still_running(&mut self) -> Result<()> {
        self.guard.still_running()
    }
}

fn go(setting: &Setting, port: u16, limit: usize) -> Result<Command> {
    let program = setting.go_program.context("no Go program was built")?;
    let mut command = setting.command(program)?;
    command.arg("spin").arg("-port").arg(port.to_string()).arg("-limit").arg(limit.to_string());
    command.env("GOMAXPROCS", setting.workers.to_string());
    Ok(command)
}

/// Longer than any server takes to start.
const START_MAX: Duration = Duration::from_secs(20);
