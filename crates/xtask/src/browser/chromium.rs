//! Finds, installs and drives Chromium.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::apt;

/// How a user installs it.
pub(super) const INSTALL: &str =
    "`apt-get install chromium` or your system's way installs it, and CHROMIUM=/path/to/it says where it is";

/// An installed browser.
pub(super) struct Chromium {
    program: PathBuf,
    /// It runs in the network of this process; without one, in this program's.
    network_of: Option<u32>,
}

impl Chromium {
    /// The program in the variable `CHROMIUM`, or the first one on the path.
    pub(super) fn find() -> Option<Chromium> {
        if let Some(program) = std::env::var_os("CHROMIUM") {
            return Some(Chromium { program: program.into(), network_of: None });
        }
        let path = std::env::var_os("PATH")?;
        let mut programs = std::env::split_paths(&path).flat_map(|folder| NAMES.map(|name| folder.join(name)));
        programs.find(|program| program.is_file()).map(|program| Chromium { program, network_of: None })
    }

    /// Installs it if that needs no question: as root, with apt.
    pub(super) fn install() -> Option<Chromium> {
        apt::install("browser", &["chromium"]).then(Chromium::find)?
    }

    /// The same browser, in the network of another process.
    pub(super) fn in_network_of(&self, process: u32) -> Chromium {
        Chromium { program: self.program.clone(), network_of: Some(process) }
    }

    /// Loads a page in a new profile, and returns the loaded document.
    pub(super) fn dump_dom(&self, url: &str, profile: &Path) -> Result<String, String> {
        let mut command = match self.network_of {
            None => Command::new(&self.program),
            Some(process) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/proc/{process}/ns/net")).arg(&self.program);
                command
            }
        };
        command.args(FLAGS).arg(format!("--user-data-dir={}", profile.display())).arg(url);
        // It leaves no files among the user's settings.
        command.envs(["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"].map(|folder| (folder, profile)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let named = |error| format!("cannot run {}: {error}", self.program.display());
        let mut child = command.spawn().map_err(named)?;
        let output = read_in_thread(child.stdout.take());
        let errors = read_in_thread(child.stderr.take());
        let is_over = wait(&mut child).map_err(named)?;
        let [output, errors] = [output, errors].map(|thread| thread.join().unwrap_or_default());
        if is_over {
            return Ok(output);
        }
        let last = errors.lines().rev().take(5).collect::<Vec<_>>().join("\n");
        Err(format!("the browser did not succeed within {} s; its last output was:\n{last}", LIMIT.as_secs()))
    }
}

fn read_in_thread(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Whether it succeeded within the limit; afterwards it has ended.
fn wait(child: &mut Child) -> std::io::Result<bool> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if begin.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// No window, no network access besides the page, and any certificate. HTTP/3 would be a different
/// protocol than requested.
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--ignore-certificate-errors",
    // Only time spent waiting for the network counts.
    "--virtual-time-budget=60000",
    "--dump-dom",
];

/// Only a browser that hangs reaches it.
const LIMIT: Duration = Duration::from_secs(180);
