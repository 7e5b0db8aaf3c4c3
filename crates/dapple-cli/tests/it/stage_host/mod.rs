//! `dapple stage-host` as real processes, and remote stages that talk to them.

pub(crate) mod etcd;
mod kills;
mod options;
mod taking_over;

use std::future::poll_fn;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use dapple::stage::BoxError;
use tower_service::Service;

/// A running stage host; killed when dropped, if it still runs.
pub(crate) struct StageHost {
    pub(crate) child: Child,
    pub(crate) address: String,
    /// The line that it printed.
    pub(crate) line: String,
}

impl StageHost {
    /// Starts a host on a free port, with one worker.
    pub(crate) fn start(options: &[&str]) -> StageHost {
        StageHost::start_at("127.0.0.1:0", options)
    }

    pub(crate) fn start_at(address: &str, options: &[&str]) -> StageHost {
        let mut command = command();
        command.args(["--listen", address, "--workers", "1"]).args(options);
        StageHost::try_spawn(command).unwrap_or_else(|status| panic!("the host ended: {status}"))
    }

    /// `Err` if it ends before it listens.
    pub(crate) fn try_spawn(mut command: Command) -> Result<StageHost, ExitStatus> {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some(address) = line.strip_prefix("listening on ").and_then(|rest| rest.split(' ').next()) else {
            return Err(child.wait().unwrap());
        };
        Ok(StageHost { address: address.to_owned(), line: line.clone(), child })
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "the host does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for StageHost {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dapple"));
    command.arg("stage-host");
    command
}

/// Waits until the service is ready, and sends it a request.
pub(crate) async fn send<S, Req>(service: &mut S, request: Req) -> Result<S::Response, BoxError>
where
    S: Service<Req>,
    S::Error: Into<BoxError>,
{
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
    service.call(request).await.map_err(Into::into)
}

/// Checks repeatedly, until the condition holds.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}: that does not happen");
        dapple::time::sleep(Duration::from_millis(5)).await;
    }
}
