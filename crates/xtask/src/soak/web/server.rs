//! The server under test, seen from outside.

use std::fmt::{self, Display, Formatter};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::workspace::{Workspace, cargo};

/// A running `dapple serve`; ended when dropped.
pub(super) struct Server {
    child: Child,
    pub(super) port: u16,
}

/// What it takes of the machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Footprint {
    pub(super) descriptors: usize,
    pub(super) threads: usize,
    pub(super) resident_kb: usize,
}

impl Display for Footprint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} descriptors, {} threads, {} KB", self.descriptors, self.threads, self.resident_kb)
    }
}

/// Builds it in release mode.
pub(super) fn build() -> Result<PathBuf, String> {
    let status = cargo().args(["build", "--release", "-p", "dapple-cli"]).status();
    match status.map_err(|error| format!("cannot run cargo: {error}"))?.success() {
        true => Ok(Workspace::own()?.target.join("release/dapple")),
        false => Err("dapple could not be built".to_owned()),
    }
}

impl Server {
    pub(super) fn start(program: &Path, site: &Path) -> Result<Server, String> {
        let mut command = Command::new(program);
        command.arg("serve").arg(site).args(["--port", "0", "--cache-mb", "8"]).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot run {}: {error}", program.display()))?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("no output")?;
        BufReader::new(stdout).read_line(&mut line).map_err(|error| error.to_string())?;
        let port = line.split_whitespace().find_map(|word| word.strip_prefix("http://127.0.0.1:")?.parse().ok());
        let port = port.ok_or_else(|| format!("no address in {line:?}"))?;
        Ok(Server { child, port })
    }

    /// What it takes when no client is left; an error if one stays longer than the limits allow.
    pub(super) fn settled(&self) -> Result<Footprint, String> {
        let began = Instant::now();
        loop {
            let open = self.open()?;
            // The one that asks.
            if open <= 1 {
                break;
            }
            if began.elapsed() > GONE_WITHIN {
                return Err(format!("{} connections are open {GONE_WITHIN:?} after the last client", open - 1));
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        // The descriptor of the last one is closed a moment later.
        let mut last = self.footprint()?;
        loop {
            std::thread::sleep(Duration::from_secs(2));
            let now = self.footprint()?;
            if now == last || began.elapsed() > GONE_WITHIN {
                return Ok(now);
            }
            last = now;
        }
    }

    fn open(&self) -> Result<usize, String> {
        let text = status(self.port).map_err(|error| format!("the server does not tell its status: {error}"))?;
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| format!("{error} in {text:?}"))?;
        let open = json["connections"]["open"].as_u64().ok_or("the status has no connections")?;
        usize::try_from(open).map_err(|error| error.to_string())
    }

    fn footprint(&self) -> Result<Footprint, String> {
        let folder = format!("/proc/{}", self.child.id());
        let descriptors = std::fs::read_dir(format!("{folder}/fd")).map_err(|error| error.to_string())?.count();
        let text = std::fs::read_to_string(format!("{folder}/status")).map_err(|error| error.to_string())?;
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<usize>().ok()
        };
        let threads = number("Threads:").ok_or("no number of threads")?;
        let resident_kb = number("VmRSS:").ok_or("no size")?;
        Ok(Footprint { descriptors, threads, resident_kb })
    }

    /// Ends it; it has to be there still.
    pub(super) fn stop(mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("the server ended by itself: {status}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn status(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(GONE_WITHIN))?;
    stream.write_all(b"GET /-/status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// The limits of a connection let nobody stay longer.
const GONE_WITHIN: Duration = Duration::from_secs(60);
