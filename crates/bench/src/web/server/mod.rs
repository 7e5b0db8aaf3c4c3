//! The servers under test, each started as its own users would, on free ports of the loopback
//! address.

mod apache;
mod cache;
mod certificate;
mod dapple;
mod files;
mod floor;
mod hyper;
mod net;
mod nginx;
mod small;

pub(super) use dapple::arguments as dapple_arguments;
pub(crate) use dapple::program as dapple_program;
pub(super) use files::LOGIN;
pub(crate) use floor::{FloorArgs, run_floor};
pub(crate) use hyper::{HyperArgs, run_hyper};
pub(super) use net::Weather;

use super::site::Site;
use crate::experiment::Peer;
use crate::machine::{Guard, bound_in, family_memory, own_command};
use crate::usage::Usage;
use anyhow::{Context, Result, bail, ensure};
use certificate::Certificate;
use net::Net;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The parameters of a server.
pub(super) struct Setting<'a> {
    pub(super) site: &'a Site,
    /// A folder for its files.
    pub(super) scratch: &'a Path,
    pub(super) workers: usize,
    pub(super) cores: &'a [usize],
    pub(super) cache_mb: u64,
    pub(super) tls: bool,
    pub(super) weather: Weather,
    pub(super) go_program: Option<&'a Path>,
    /// Its control group.
    pub(super) group: Option<&'a Path>,
}

impl Setting<'_> {
    /// A command that starts a program with these parameters.
    fn command(&self, program: &Path) -> Result<Command> {
        bound_in(program, self.cores, self.group)
    }
}

/// A running server, or several that are one peer.
pub(super) struct Running {
    guards: Vec<Guard>,
    /// Their URLs, without a slash at the end.
    bases: Vec<String>,
    scheme: &'static str,
    /// Removed after the servers have ended.
    net: Option<Net>,
}

/// The reason why this peer cannot be started here; `None` if it can.
pub(super) fn obstacle(peer: Peer) -> Option<String> {
    match peer {
        Peer::Dapple | Peer::DappleSerial | Peer::DappleCopies | Peer::DappleFiles => {
            dapple::program().err().map(|error| error.to_string())
        }
        Peer::DappleSmall | Peer::DappleOwnScheduler => small::program().err().map(|error| error.to_string()),
        Peer::Nginx | Peer::NginxAcceptOne => missing("nginx", "nginx"),
        Peer::Apache => missing("apache2", "apache2"),
        Peer::Rclone => missing("rclone", "rclone"),
        Peer::DappleOwnTcp | Peer::DappleOwnVeth | Peer::DappleVeth => {
            dapple::program().err().map(|error| error.to_string()).or_else(Net::obstacle)
        }
        _ => None,
    }
}

fn missing(program: &str, package: &str) -> Option<String> {
    find_program(program).is_none().then(|| format!("it is not installed: apt-get install {package}"))
}

/// Starts a peer and waits until it accepts connections.
pub(super) fn start(peer: Peer, setting: &Setting) -> Result<Running> {
    let scheme = if setting.tls { "https" } else { "http" };
    let net = Net::of(peer, setting.workers, setting.weather)?;
    let mut running = Running { guards: Vec::new(), bases: Vec::new(), scheme, net };
    match peer {
        Peer::DappleCopies => {
            for copy in 0..setting.workers {
                let cores = setting.cores.get(copy..=copy).unwrap_or(setting.cores);
                running.add(peer, &Setting { workers: 1, cores, ..*setting })?;
            }
        }
        Peer::DappleOwnTcp | Peer::DappleOwnVeth | Peer::DappleVeth => running.add_apart(peer, setting)?,
        _ => running.add(peer, setting)?,
    }
    Ok(running)
}

impl Running {
    fn add(&mut self, peer: Peer, setting: &Setting) -> Result<()> {
        let port = free_port()?;
        let certificate = setting.tls.then(|| Certificate::write(setting.scratch)).transpose()?;
        let certificate = certificate.as_ref();
        let mut command = match peer {
            Peer::Dapple | Peer::DappleCopies => dapple::command(setting, port, certificate, false),
            Peer::DappleSerial => dapple::command(setting, port, certificate, true),
            Peer::DappleFiles => files::command(setting, port, certificate),
            Peer::Rclone => files::rclone(setting, port, certificate),
            Peer::DappleSmall => small::command(setting, port, false),
            Peer::DappleOwnScheduler => small::command(setting, port, true),
            Peer::Nginx => nginx::command(setting, port, certificate, true),
            Peer::NginxAcceptOne => nginx::command(setting, port, certificate, false),
            Peer::Apache => apache::command(setting, port, certificate),
            Peer::Hyper => hyper::command(setting, port, certificate),
            Peer::Go => go(setting, port, certificate),
            Peer::Epoll => floor::command(setting, port),
            _ => bail!("this peer is no web server"),
        }?;
        // The server's greeting must not mix with the result lines; its errors stay visible.
        let mut guard = Guard::start("the server", command.stdout(Stdio::null()))?;
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            guard.still_running()?;
            ensure!(Instant::now() < end, "the server does not answer on port {port} after 20 s");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.guards.push(guard);
        self.bases.push(format!("{}://127.0.0.1:{port}", self.scheme));
        Ok(())
    }

    /// Adds the server of a network of its own.
    fn add_apart(&mut self, peer: Peer, setting: &Setting) -> Result<()> {
        let net = self.net.as_ref().context("this peer has no network")?;
        let mut command = net.at_server(dapple::command_apart(setting, Net::option_of(peer))?);
        let mut guard = Guard::start("the server", command.stdout(Stdio::piped()))?;
        // The line says that it listens. Later ones would mix with the result lines.
        let output = guard.take_output().context("the server has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).context("the server ended early; see above")?;
        ensure!(line.contains(net::SERVER), "the server said {line:?}");
        self.guards.push(guard);
        self.bases.push(format!("{}://{}:{}", self.scheme, net::SERVER, dapple::PORT_APART));
        Ok(())
    }

    /// Starts the flood of its weather, if there is one. It ends when the result is dropped.
    pub(super) fn flood(&self, weather: Weather) -> Result<Option<Guard>> {
        let Some(net) = self.net.as_ref().filter(|_| weather.flood_per_s > 0) else { return Ok(None) };
        let mut flood = own_command("syn-flood")?;
        flood
            .arg(format!("{}:{}", net::SERVER, dapple::PORT_APART))
            .arg("--per-s")
            .arg(weather.flood_per_s.to_string());
        Guard::start("the flood", &mut net.at_load(flood)).map(Some)
    }

    /// The command, run where its clients are.
    pub(super) fn beside_clients(&self, command: Command) -> Command {
        match &self.net {
            Some(net) => net.at_load(command),
            None => command,
        }
    }

    /// Its URLs, without a slash at the end.
    pub(super) fn bases(&self) -> &[String] {
        &self.bases
    }

    /// The processor time and switches of all its processes so far.
    pub(super) fn usage(&self) -> Result<Usage> {
        self.guards.iter().map(|guard| Usage::of_family(guard.id())).sum()
    }

    /// Resident memory of all its processes in bytes: now, and its maximum.
    pub(super) fn memory(&self) -> Result<(u64, u64)> {
        let all = self.guards.iter().map(|guard| family_memory(guard.id())).collect::<Result<Vec<_>>>()?;
        Ok(all.into_iter().fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1)))
    }

    /// An error if the server has ended.
    pub(super) fn still_running(&mut self) -> Result<()> {
        self.guards.iter_mut().try_for_each(Guard::still_running)
    }
}

fn go(setting: &Setting, port: u16, certificate: Option<&Certificate>) -> Result<Command> {
    let program = setting.go_program.context("no Go program was built")?;
    let mut command = setting.command(program)?;
    command.arg("serve").arg("-port").arg(port.to_string()).arg("-cache-mb").arg(setting.cache_mb.to_string());
    if let Some(certificate) = certificate {
        command.arg("-cert").arg(&certificate.chain).arg("-key").arg(&certificate.key);
    }
    command.arg(setting.site.root()).env("GOMAXPROCS", setting.workers.to_string());
    if setting.group.is_some() {
        // Go's collector lets a heap grow to twice the used memory, and the limit would end the
        // process.
        command.env("GOMEMLIMIT", format!("{}MiB", setting.cache_mb * 3 / 2));
    }
    Ok(command)
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port on the loopback address")?;
    Ok(listener.local_addr()?.port())
}

/// A program by its name, on PATH or in Debian's folder for servers, which is not on every user's
/// PATH.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/bin")]);
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_exist_is_not_found() {
        assert_eq!(find_program("no-such-program-anywhere"), None);
        assert!(find_program("sh").is_some());
    }
}
