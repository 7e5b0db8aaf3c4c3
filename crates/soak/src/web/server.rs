//! The server under test, seen from outside.

use std::fmt::{self, Display, Formatter};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;

use super::{Authority, Target};

/// A running `dapple serve`; ended on drop.
pub(crate) struct Server {
    /// The first process. Each later one is started by the one before it.
    child: Child,
    /// The process that serves now.
    id: AtomicU32,
    pub(crate) target: Target,
    /// Its name in messages.
    name: &'static str,
}

/// Its use of the machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footprint {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    pub(crate) resident_kb: usize,
}

impl Display for Footprint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} descriptors, {} threads, {} KB", self.descriptors, self.threads, self.resident_kb)
    }
}

impl Server {
    /// With an authority, it speaks TLS.
    pub(crate) fn start(program: &Path, site: &Path, authority: Option<&Authority>) -> Result<Server, String> {
        let mut command = Command::new(program);
        command.arg("serve").arg(site).args(["--port", "0", "--cache-mb", "8"]).stdout(Stdio::piped());
        if let Some([chain, key]) = authority.map(Authority::files) {
            command.args(["--tls-cert", &chain, "--tls-key", &key]);
        }
        let mut child = command.spawn().map_err(|error| format!("cannot run {}: {error}", program.display()))?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("no output")?;
        BufReader::new(stdout).read_line(&mut line).map_err(|error| error.to_string())?;
        let port = line.split_whitespace().find_map(|word| word.split_once("://127.0.0.1:")?.1.parse().ok());
        let port = port.ok_or_else(|| format!("no address in {line:?}"))?;
        let target = Target::new(port, authority.map(|authority| &authority.root))?;
        let name = if authority.is_some() { "https" } else { "http" };
        Ok(Server { id: AtomicU32::new(child.id()), child, target, name })
    }

    /// Its use of the machine without clients; an error if one stays longer than the limits allow.
    pub(crate) fn settled(&self) -> Result<Footprint, String> {
        let began = Instant::now();
        loop {
            let open = self.open()?;
            // The connection of this question.
            if open <= 1 {
                break;
            }
            if began.elapsed() > GONE_WITHIN {
                return Err(format!("{} connections are open {GONE_WITHIN:?} after the last client", open - 1));
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        // The last descriptor closes a moment later, and idle threads of the blocking pool end
        // later, too.
        let mut last = self.footprint()?;
        loop {
            std::thread::sleep(REST);
            let now = self.footprint()?;
            if now == last || began.elapsed() > GONE_WITHIN {
                return Ok(now);
            }
            last = now;
        }
    }

    fn open(&self) -> Result<usize, String> {
        let text = status(&self.target).map_err(|error| format!("the server does not report its status: {error}"))?;
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

    /// The certificate for new connections; `None` without TLS.
    pub(crate) fn certificate(&self) -> Result<Option<CertificateDer<'static>>, String> {
        let wire = self.target.http1().map_err(|error| format!("no connection by {}: {error}", self.name))?;
        let soak::Wire::Tls(stream) = &wire else { return Ok(None) };
        Ok(stream.conn.peer_certificates().and_then(|chain| chain.first()).map(|first| first.clone().into_owned()))
    }

    /// Sends it a signal: `HUP`.
    pub(crate) fn signal(&self, name: &str) -> Result<(), String> {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.id().to_string()).status();
        match status.map_err(|error| format!("cannot run kill: {error}"))?.success() {
            true => Ok(()),
            false => Err(format!("the server is gone: signal {name} cannot be sent")),
        }
    }

    /// Lets a new process take over, and waits for the end of the old one.
    pub(crate) fn upgrade(&self) -> Result<(), String> {
        let old = self.id();
        let children = format!("/proc/{old}/task/{old}/children");
        self.signal("USR2")?;
        let began = Instant::now();
        let mut new = None;
        while is_alive(old) {
            // The last one seen: it is the only child.
            let child = std::fs::read_to_string(&children).unwrap_or_default().trim().parse::<u32>().ok();
            new = child.or(new);
            if began.elapsed() > GONE_WITHIN {
                return Err(format!("process {old} still runs {GONE_WITHIN:?} after its upgrade"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let new = new.filter(|new| is_alive(*new)).ok_or("no new process took over, and the old one ended")?;
        self.id.store(new, Ordering::Relaxed);
        Ok(())
    }

    /// Ends it as a service manager does; it must still run, and end soon.
    pub(crate) fn stop(mut self) -> Result<(), String> {
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

/// Whether a process with this number runs.
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

fn status(target: &Target) -> std::io::Result<String> {
    let mut stream = target.http1()?;
    stream.write_all(b"GET /-/status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// Longer than a thread of the blocking pool waits for its next job (10 s).
const REST: Duration = Duration::from_secs(12);

/// By the server's limits, no connection lasts longer.
const GONE_WITHIN: Duration = Duration::from_secs(60);
