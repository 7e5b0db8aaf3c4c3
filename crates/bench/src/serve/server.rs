//! The servers under test, each started as its own users would, on a free port of the loopback address.

use super::site::Site;
use crate::machine::{Guard, bound_command};
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Who serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[value(rename_all = "kebab-case")]
pub(crate) enum Server {
    /// `dapple serve`
    Dapple,
    /// `dapple serve --serial`: the same code, everything in one color
    DappleSerial,
    /// nginx, as packaged
    Nginx,
    /// Files in memory behind hyper on tokio
    HyperTokio,
}

impl Server {
    /// All servers, in the order of the table.
    pub(crate) const ALL: [Server; 4] = [Server::Dapple, Server::DappleSerial, Server::Nginx, Server::HyperTokio];

    /// The server's name, as on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// A server that answers.
pub(crate) struct Running {
    guard: Guard,
    port: u16,
}

impl Running {
    /// Where it answers, without a slash at the end.
    pub(crate) fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Process id of the server, or of the one whose children serve.
    pub(crate) fn id(&self) -> u32 {
        self.guard.id()
    }

    /// An error if the server has ended.
    pub(crate) fn still_running(&mut self) -> Result<()> {
        self.guard.still_running()
    }
}

/// Starts a server with this many workers and waits until it takes connections.
pub(crate) fn start(server: Server, site: &Site, workers: usize, core: Option<usize>) -> Result<Running> {
    let port = free_port()?;
    let mut command = match server {
        Server::Dapple | Server::DappleSerial => dapple(server, site, workers, port, core)?,
        Server::Nginx => nginx(site, workers, port, core)?,
        Server::HyperTokio => hyper(site, workers, port, core)?,
    };
    // What a server prints at its start must not mix with the result lines; its errors stay visible.
    command.stdout(Stdio::null());
    let mut guard = Guard::start(&server.name(), &mut command)?;
    let end = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        guard.still_running()?;
        ensure!(Instant::now() < end, "{} does not answer on port {port} after 10 s", server.name());
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(Running { guard, port })
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port on the loopback address")?;
    Ok(listener.local_addr()?.port())
}

/// The `dapple` program that was built beside this one.
pub(crate) fn dapple_program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the bench's own executable")?;
    let program = own.with_file_name("dapple");
    if program.is_file() {
        return Ok(program);
    }
    let profile = if cfg!(debug_assertions) { "" } else { "--release " };
    bail!("{} is not there: build it with `cargo build {profile}-p dapple-cli`", program.display())
}

fn dapple(server: Server, site: &Site, workers: usize, port: u16, core: Option<usize>) -> Result<Command> {
    let mut command = bound_command(&dapple_program()?, core)?;
    command.arg("serve").arg(site.root());
    command.arg("--port").arg(port.to_string()).arg("--workers").arg(workers.to_string());
    if server == Server::DappleSerial {
        command.arg("--serial");
    }
    Ok(command)
}

fn hyper(site: &Site, workers: usize, port: u16, core: Option<usize>) -> Result<Command> {
    let mut command = bound_command(&std::env::current_exe()?, core)?;
    command.arg("hyper-tokio-server").arg("--port").arg(port.to_string());
    command.arg("--workers").arg(workers.to_string()).arg(site.root());
    Ok(command)
}

fn nginx(site: &Site, workers: usize, port: u16, core: Option<usize>) -> Result<Command> {
    let program = find_program("nginx").context("nginx is not installed: apt-get install nginx wrk")?;
    let prefix = site.scratch().join("nginx");
    std::fs::create_dir_all(&prefix)?;
    let config = prefix.join("nginx.conf");
    std::fs::write(&config, nginx_config(&site.root(), workers, port)).context("cannot write nginx's configuration")?;
    let mut command = bound_command(&program, core)?;
    command.arg("-p").arg(&prefix).arg("-c").arg(&config).arg("-e").arg("stderr");
    Ok(command)
}

/// Best form for small files: open files are cached, nothing is logged, connections are kept, `reuseport` spreads the
/// connections over the workers. Everything that nginx writes stays below its prefix.
fn nginx_config(root: &Path, workers: usize, port: u16) -> String {
    // The master of a root-owned nginx hands its workers to a user who cannot read a private temporary directory.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let reuse = if workers > 1 { " reuseport" } else { "" };
    format!(
        "daemon off;
{user}
worker_processes {workers};
pid nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  tcp_nodelay on;
  keepalive_timeout 75s;
  keepalive_requests 1000000000;
  open_file_cache max=10000 inactive=60s;
  open_file_cache_valid 60s;
  default_type text/html;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {{
    listen 127.0.0.1:{port} backlog=4096{reuse};
    root {root};
  }}
}}
",
        root = root.display(),
    )
}

/// A program by its name, on PATH or where Debian keeps servers, which is not on everybody's PATH.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/bin")]);
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nginx_stays_on_the_loopback_address_and_in_its_prefix() {
        let config = nginx_config(Path::new("/www"), 2, 8123);
        assert!(config.contains("listen 127.0.0.1:8123 backlog=4096 reuseport;"));
        assert!(config.contains("worker_processes 2;") && config.contains("root /www;"));
        assert!(!config.contains("/var"));
    }

    #[test]
    fn a_program_that_does_not_exist_is_not_found() {
        assert_eq!(find_program("no-such-program-anywhere"), None);
        assert!(find_program("sh").is_some());
    }
}
