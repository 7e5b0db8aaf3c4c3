//! One replica: a child process that is started, watched, started again after a wait, and drained.
//!
//! ```text
//!              ┌──────────── its wait is over ─────────────┐
//!              ▼                                           │
//!   starting ──┬─ ready ──▶ ready ──┬─ ends, is sick, or is too large ──▶ waiting
//!              ├─ ends, or is late ─┼──────────────────────▲
//!              │                    └─ ends, and its successor is here ──▶ succeeded
//!              │                    │                              │
//!              └── no longer wanted ┴──────────▶ draining ─▶ gone ◀┘
//! ```
//!
//! A replica that drains leaves the directory of its clients first; then it gets SIGTERM, and SIGKILL when its time is over. Its
//! process group goes with it, and its cgroup if it has one.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use dapple_client::Client;
use dapple_io::net::TcpStream;
use dapple_io::pipe;
use dapple_io::process::{self, Child};
use dapple_io::time::{Instant, sleep, timeout};
use dapple_sync::task::{CancellationToken, First, race};
use dapple_tower::Backoff;
use dapple_tower::random::Random;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::Shared;
use super::machine::{TICKS_PER_S, use_of};
use crate::record::{Assignment, Ready, ReplicaState};

/// Why one run of a replica's process ended.
enum Ended {
    /// It was to end.
    Stopped,
    /// It ended by itself; the reason in words, and for how long it was ready.
    Failed(String, Duration),
}

/// Runs a replica until `stop`, and until it has drained.
pub(super) async fn supervise(shared: Arc<Shared>, assignment: Assignment, stop: CancellationToken) {
    let name = assignment.replica.clone();
    let backoff = Backoff::new(BACKOFF_FIRST, BACKOFF_MAX);
    let mut random = Random::fresh();
    shared.reporting.replica(&name, |report| {
        report.service = assignment.service.name.clone();
        report.version = assignment.service.version.clone();
        report.stages = assignment.service.stages().into_iter().map(str::to_owned).collect();
    });
    let mut failures = 0;
    while !stop.is_cancelled() {
        shared.reporting.replica(&name, |report| report.state = ReplicaState::Starting);
        let (reason, ready_for) = match run(&shared, &assignment, &stop).await {
            Ended::Stopped => break,
            Ended::Failed(reason, ready_for) => (reason, ready_for),
        };
        if shared.reporting.has_successor(&name) && !ready_for.is_zero() {
            tracing::info!(replica = name, reason, "its successor has taken over");
            shared.reporting.replica(&name, |report| (report.state, report.listens) = (ReplicaState::Succeeded, None));
            stop.cancelled().await;
            break;
        }
        failures = if ready_for >= STABLE { 1 } else { failures + 1 };
        let wait = backoff.random_wait(failures - 1, &mut random);
        tracing::warn!(
            replica = name,
            reason,
            failures,
            wait_ms = wait.as_millis() as u64,
            "a replica failed; it starts again"
        );
        shared.reporting.replica(&name, |report| {
            (report.state, report.listens, report.load_percent) = (ReplicaState::Waiting, None, 0);
            (report.failures, report.failure) = (failures, reason);
            report.restarts += 1;
        });
        race(stop.cancelled(), sleep(wait)).await;
    }
    shared.reporting.change(|report| drop(report.replicas.remove(&name)));
}

/// One process, from its start to its end.
async fn run(shared: &Shared, assignment: &Assignment, stop: &CancellationToken) -> Ended {
    let failed = |reason: String| Ended::Failed(reason, Duration::ZERO);
    let host = shared.reporting.get();
    let words = words_of(assignment, &host.address);
    let mut command = match shared.limits.command(&assignment.replica, &assignment.service, &words) {
        Ok(command) => command,
        Err(error) => return failed(format!("its limits cannot be set: {error}")),
    };
    command.envs(&assignment.service.env).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
    let child = match process::spawn(command).await {
        Ok(child) => child,
        Err(error) => return failed(format!("{:?} does not start: {error}", assignment.service.command[0])),
    };
    let mut process = Process { child, shared, name: &assignment.replica };
    shared.leftovers.note(&assignment.replica, process.child.id());
    let ended = process.live(assignment, &host.address, stop).await;
    process.clear();
    ended
}

/// The words of the command, with the values of this replica.
fn words_of(assignment: &Assignment, address: &str) -> Vec<String> {
    let service = &assignment.service;
    let listen = listen_at(address, service.port);
    let values = [
        ("{listen}", listen.as_str()),
        ("{address}", address),
        ("{service}", &service.name),
        ("{version}", &service.version),
        ("{replica}", &assignment.replica),
        ("{host}", &assignment.host),
    ];
    let replaced = |word: &String| values.iter().fold(word.clone(), |word, (name, value)| word.replace(name, value));
    service.command.iter().map(replaced).collect()
}

fn listen_at(address: &str, port: u16) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// A process of a replica; killed with its group when dropped.
struct Process<'a> {
    child: Child,
    shared: &'a Shared,
    name: &'a str,
}

impl Process<'_> {
    async fn live(&mut self, assignment: &Assignment, address: &str, stop: &CancellationToken) -> Ended {
        let service = &assignment.service;
        let stdout = match self.child.take_stdout() {
            Some(Ok(stdout)) => stdout,
            _ => return Ended::Failed("its standard output cannot be read".to_owned(), Duration::ZERO),
        };
        let (said, mut listens) = dapple_sync::sync::mpsc::channel(1);
        let name = self.name.to_owned();
        let reading = dapple_sched::spawn(async move { forward(&name, &stdout, said).await });
        let (address, host_address) = (address.to_owned(), address.to_owned());
        let ready = async move {
            match service.ready {
                Ready::Started => Some(None),
                Ready::Line => listens.recv().await.map(Some),
                Ready::Port => {
                    while TcpStream::connect((address.as_str(), service.port)).await.is_err() {
                        sleep(LOOK_EVERY).await;
                    }
                    Some(None)
                }
            }
        };
        let ended =
            match race(self.child.wait(), race(stop.cancelled(), timeout(Duration::from_secs(service.start_s), ready)))
                .await
            {
                First::Left(status) => Ended::Failed(in_words(&status), Duration::ZERO),
                First::Right(First::Left(())) => self.drain(assignment).await,
                First::Right(First::Right(Ok(Some(said)))) => {
                    let fixed = (service.port != 0).then(|| listen_at(&host_address, service.port));
                    self.serve(assignment, said.or(fixed), stop).await
                }
                First::Right(First::Right(Ok(None))) => {
                    let status = timeout(Duration::from_secs(1), self.child.wait()).await;
                    let reason = status.map_or_else(
                        |_| "it closed its standard output before it was ready".to_owned(),
                        |status| in_words(&status),
                    );
                    Ended::Failed(reason, Duration::ZERO)
                }
                First::Right(First::Right(Err(_))) => {
                    Ended::Failed(format!("it was not ready within {} s", service.start_s), Duration::ZERO)
                }
            };
        reading.abort();
        ended
    }

    /// From ready on.
    async fn serve(&mut self, assignment: &Assignment, listens: Option<String>, stop: &CancellationToken) -> Ended {
        let begin = Instant::now();
        tracing::info!(replica = self.name, listens, "is ready");
        let url =
            assignment.service.health.as_ref().zip(listens.as_ref()).map(|(path, at)| format!("http://{at}{path}"));
        self.shared.reporting.replica(self.name, |report| {
            (report.state, report.listens) = (ReplicaState::Ready, listens);
        });
        let watching = Watching { shared: self.shared, assignment, pid: self.child.id() };
        let ended = race(self.child.wait(), race(stop.cancelled(), race(watching.measure(), watching.ask(url)))).await;
        let ready_for = begin.elapsed();
        match ended {
            First::Left(status) => Ended::Failed(in_words(&status), ready_for),
            First::Right(First::Left(())) => self.drain(assignment).await,
            First::Right(First::Right(First::Left(reason) | First::Right(reason))) => {
                // Clients leave it first; it may still answer some of them.
                self.drain(assignment).await;
                Ended::Failed(reason, ready_for)
            }
        }
    }

    /// Lets it end: clients first, then SIGTERM, then SIGKILL.
    async fn drain(&mut self, assignment: &Assignment) -> Ended {
        self.shared.reporting.replica(self.name, |report| report.state = ReplicaState::Draining);
        self.shared.reporting.all_written(LEAVE_MAX).await;
        if let Some(pid) = self.pid() {
            let _over = kill_process(pid, Signal::TERM);
        }
        if timeout(Duration::from_secs(assignment.service.drain_s), self.child.wait()).await.is_err() {
            tracing::warn!(replica = self.name, "does not end within drain_s, and is killed");
        }
        Ended::Stopped
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Ends what is left of it: its children too.
    fn clear(&mut self) {
        // Before it was waited for, its number is its own; after that, the group's only for as long as one of its children lives.
        if let Some(pid) = self.pid() {
            let _over = kill_process_group(pid, Signal::KILL);
        }
        self.shared.limits.clear(self.name);
        self.shared.leftovers.forget(self.name);
    }
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.clear();
        }
    }
}

/// The looks at a replica that is ready.
struct Watching<'a> {
    shared: &'a Shared,
    assignment: &'a Assignment,
    pid: u32,
}

impl Watching<'_> {
    /// Measures processor and memory. Returns if it has too much memory, and the kernel does not see to that.
    async fn measure(&self) -> String {
        let service = &self.assignment.service;
        let (mut last, mut at, mut smoothed) = (use_of(self.pid).unwrap_or_default(), Instant::now(), None);
        let (begin, mut is_stable) = (at, false);
        loop {
            sleep(MEASURE_EVERY).await;
            if begin.elapsed() >= STABLE && !std::mem::replace(&mut is_stable, true) {
                self.shared.reporting.replica(&self.assignment.replica, |report| report.failures = 0);
            }
            let Some(used) = use_of(self.pid) else { continue };
            let seconds = at.elapsed().as_secs_f64().max(0.001);
            let ticks = used.ticks.saturating_sub(last.ticks) as f64;
            let percent = ticks * 100.0 / TICKS_PER_S as f64 / seconds / service.cores.max(0.01);
            // Half of the load is what it was: a moment is no load.
            let mean: f64 = smoothed.map_or(percent, |before: f64| (before + percent) / 2.0);
            smoothed = Some(mean);
            (last, at) = (used, Instant::now());
            self.shared.reporting.measured(&self.assignment.replica, mean.min(10_000.0) as u32, used.memory_mb);
            if self.shared.limits.measures_memory() && used.memory_mb > service.memory_mb {
                return format!("it has {} MB of memory, and {} are its limit", used.memory_mb, service.memory_mb);
            }
        }
    }

    /// Asks whether it is well. Returns if it is not, several times in a row.
    async fn ask(&self, url: Option<String>) -> String {
        let Some(url) = url else { return std::future::pending().await };
        let client = match Client::builder().timeout(ASK_TIMEOUT).idle_per_host(0).build() {
            Ok(client) => client,
            Err(error) => {
                tracing::warn!(replica = self.assignment.replica, %error, "its health cannot be asked for");
                return std::future::pending().await;
            }
        };
        let mut sick = 0;
        loop {
            sleep(ASK_EVERY).await;
            let problem = match client.get(&url).await {
                Ok(response) if response.status().is_success() => {
                    sick = 0;
                    continue;
                }
                Ok(response) => response.status().to_string(),
                Err(error) => error.to_string(),
            };
            sick += 1;
            tracing::warn!(replica = self.assignment.replica, problem, sick, "a replica is not well");
            if sick == SICK_MAX {
                return format!("it was not well {SICK_MAX} times in a row: {problem}");
            }
        }
    }
}

/// Writes the lines of a replica to this program's standard error, and finds where it listens.
async fn forward(name: &str, stdout: &pipe::Receiver, said: dapple_sync::sync::mpsc::Sender<String>) {
    let (mut text, mut buf) = (Vec::new(), vec![0; 4096]);
    let mut said = Some(said);
    while let Ok(count @ 1..) = stdout.read(&mut buf).await {
        text.extend_from_slice(&buf[..count]);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line).into_owned();
            // A closed stderr is no reason to end.
            let _ = writeln!(io::stderr(), "[{name}] {}", line.trim_end());
            if let Some(address) = listening_on(&line)
                && let Some(said) = said.take()
            {
                let _not_awaited = said.try_send(address);
            }
        }
        if text.len() > LINE_LEN_MAX {
            text.clear();
        }
    }
}

fn listening_on(line: &str) -> Option<String> {
    let rest = &line[line.find(LISTENING_ON)? + LISTENING_ON.len()..];
    let address = rest.split_whitespace().next()?.parse::<std::net::SocketAddr>().ok()?;
    Some(address.to_string())
}

fn in_words(status: &io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => format!("it ended: {status}"),
        Err(error) => format!("it was lost: {error}"),
    }
}

/// A replica that was ready for so long counts its failures anew.
const STABLE: Duration = Duration::from_secs(60);
const BACKOFF_FIRST: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// How long a replica waits for etcd to show that it leaves.
const LEAVE_MAX: Duration = Duration::from_secs(2);
const ASK_EVERY: Duration = Duration::from_secs(2);
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
const SICK_MAX: u32 = 4;
const LISTENING_ON: &str = "listening on ";
const LINE_LEN_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::{listening_on, words_of};
    use crate::record::{Assignment, Service};

    #[test]
    fn words_get_the_values_of_the_replica() {
        let mut one = Assignment {
            replica: "echo.7".to_owned(),
            host: "a".to_owned(),
            service: Service { port: 80, ..Service::new("echo", ["x", "--at={listen}", "{replica}-{version}"]) },
            replaces: None,
            reason: String::new(),
            placed_ms: 0,
            failed_on: Vec::new(),
        };
        assert_eq!(words_of(&one, "10.0.0.1"), ["x", "--at=10.0.0.1:80", "echo.7-1"]);
        one.service.port = 0;
        assert_eq!(words_of(&one, "::1")[1], "--at=[::1]:0");
    }

    #[test]
    fn only_an_address_is_one() {
        assert_eq!(listening_on("x listening on 127.0.0.1:80 with echo\n"), Some("127.0.0.1:80".to_owned()));
        assert_eq!(listening_on("listening on the wall\n"), None);
        assert_eq!(listening_on("listening on "), None);
    }
}
