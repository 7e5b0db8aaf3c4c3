//! The server under test, seen from outside.

use std::fmt::{self, Display, Formatter};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::workspace::{Workspace, cargo};

/// A running `dapple serve`; ended when dropped.
pub(super) struct Server {
    /// The first process. The later ones are started by the one before each.
    child: Child,
    /// The process that serves now.
    id: AtomicU32,
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
        Ok(Server { id: AtomicU32::new(child.id()), child, port })
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
        let folder = format!("/proc/{}", self.id());
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

    /// Sends it a signal: `HUP`.
    pub(super) fn signal(&self, name: &str) -> Result<(), String> {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.id().to_string()).status();
        match status.map_err(|error| format!("cannot run kill: {error}"))?.success() {
            true => Ok(()),
            false => Err(format!("the server is gone: signal {name} cannot be sent")),
        }
    }

    /// Has a new process take over, and waits for the end of the old one.
    pub(super) fn upgrade(&self) -> Result<(), String> {
        let old = self.id();
        let children = format!("/proc/{old}/task/{old}/children");
        self.signal("USR2")?;
        let began = Instant::now();
        let mut new = None;
        while is_alive(old) {
            // The last that was seen: it is the only child.
            let child = std::fs::read_to_string(&children).unwrap_or_default().trim().parse::<u32>().ok();
            new = child.or(new);
            if began.elapsed() > GONE_WITHIN {
                return Err(format!("process {old} is there {GONE_WITHIN:?} after its upgrade"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let new = new.filter(|new| is_alive(*new)).ok_or("no new process took over, and the old one ended")?;
        self.id.store(new, Ordering::Relaxed);
        Ok(())
    }

    /// Ends it as a service manager does; it has to be there still, and to be gone soon after.
    pub(super) fn stop(mut self) -> Result<(), String> {
        self.signal("TERM")?;
        let began = Instant::now();
        while is_alive(self.id()) {
            if began.elapsed() > GONE_WITHIN {
                return Err("the server did not end at SIGTERM".to_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("the first process ended with {status}")) }
    }

    fn id(&self) -> u32 {
        self.id.load(Ordering::Relaxed)
    }
}

/// Whether there is a process with this number that has not ended.
fn is_alive(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

impl Drop for Server {
    fn drop(&mut self) {
        if is_alive(self.id()) {
            let _ = self.signal("KILL");
        }
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
