//! Starts a successor while the server works, and waits for its outcome.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;

use dapple_sync::sync::oneshot;
use tracing::{error, info, warn};

use super::handover::Successor;
use super::signals::Command;

/// The upgrade of this process; at most one runs at a time.
pub struct Upgrade {
    /// The program file, opened at the start: once the file is replaced, the kernel only knows the
    /// old one.
    program: io::Result<PathBuf>,
    running: Option<Running>,
}

struct Running {
    outcome: oneshot::Receiver<Result<u32, String>>,
    is_cancelled: Arc<AtomicBool>,
}

/// An event that a server has to handle.
#[derive(Debug)]
pub enum Event {
    Command(Command),
    /// The process with this id accepts now.
    Replaced(u32),
}

#[expect(clippy::new_without_default, reason = "its thread watches the process")]
impl Upgrade {
    pub fn new() -> Upgrade {
        Upgrade { program: std::env::current_exe(), running: None }
    }

    /// Starts a successor, unless one is starting.
    pub fn begin(&mut self, sockets: io::Result<Vec<(String, OwnedFd)>>) {
        if self.running.is_some() {
            return warn!("an upgrade is already running");
        }
        let (program, sockets) = match (&self.program, sockets) {
            (Ok(program), Ok(sockets)) => (program.clone(), sockets),
            (Err(error), _) => return error!(%error, "cannot upgrade: the program file is unknown"),
            (_, Err(error)) => return error!(%error, "cannot upgrade: the listening sockets cannot be passed on"),
        };
        let (tell, outcome) = oneshot::channel();
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let cancelled = is_cancelled.clone();
        let start = move || {
            let ready = Successor::start(&program, &sockets)
                .map_err(|error| format!("cannot start {}: {error}", program.display()))
                .and_then(|successor| successor.wait_ready(&cancelled));
            drop(sockets);
            // There is no receiver if this process ends meanwhile.
            let _ = tell.send(ready);
        };
        match thread::Builder::new().name("dapple-upgrade".to_owned()).spawn(start) {
            Ok(_) => self.running = Some(Running { outcome, is_cancelled }),
            Err(error) => error!(%error, "cannot upgrade: no thread is left for it"),
        }
    }

    /// Waits for the next command, or until the successor is ready. Logs a failed upgrade, and
    /// forgets it.
    pub async fn unless(&mut self, command: impl Future<Output = Command>) -> Event {
        let mut command = pin!(command);
        let either = poll_fn(|cx| {
            if let Some(running) = &mut self.running
                && let Poll::Ready(outcome) = Pin::new(&mut running.outcome).poll(cx)
            {
                self.running = None;
                match outcome.unwrap_or_else(|_| Err("its watcher ended".to_owned())) {
                    Ok(process) => {
                        info!(process, "the successor is ready");
                        return Poll::Ready(Event::Replaced(process));
                    }
                    Err(problem) => error!("the upgrade failed; this process goes on: {problem}"),
                }
            }
            command.as_mut().poll(cx).map(Event::Command)
        });
        either.await
    }

    /// Ends a successor that is not ready yet.
    pub fn cancel(&mut self) {
        if let Some(running) = self.running.take() {
            running.is_cancelled.store(true, Ordering::Relaxed);
        }
    }
}
