//! Replicas in child processes, and on other machines.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use dapple_io::pipe;
use dapple_io::process::{self, Child};
use dapple_io::time::timeout;
use dapple_stage::{Replica, Replicated, Retired};
use dapple_sync::task::{First, race};
use dapple_tower::BoxError;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::balanced::{CHECK_EVERY, Found};
use super::{Discovery, Peer, RemoteStage};

/// Replicas in other processes and on other machines: constructors of [`Replica`].
pub trait RemoteReplica<Req, Resp>: Sized {
    /// A stage that another program runs, in another process or on another machine. It gets no
    /// requests while it cannot be reached.
    fn remote(stage: RemoteStage<Req, Resp>) -> Self;

    /// Starts a process that hosts the stage of this name, such as `dapple stage-host` or a program
    /// with [`host_main`](crate::host_main) as its `main`, and waits until its standard output says
    /// where it listens. Let it listen on port 0.
    ///
    /// When retired, the process gets SIGTERM, and SIGKILL if it has not ended a minute later. A
    /// process that ends earlier is dead. The end of the runtime kills it; if this process itself
    /// is killed, the child goes on, and finds the pipe of its standard input closed, if it has
    /// one.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, it kills the process, also one that is just being started,
    /// unless the runtime ends at that moment.
    ///
    /// # Errors
    ///
    /// The process cannot be started, ends, or prints nothing for 30 s.
    ///
    /// ```
    /// use std::process::Command;
    /// use dapple_remote::RemoteReplica;
    /// use dapple_stage::{Replica, Stage};
    ///
    /// # let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// // Up to eight processes, as many as the load asks for.
    /// let echo = Stage::builder("echo").width(4).replicate_with::<String, _, _>(1..=8, |_number| {
    ///     let mut command = Command::new("dapple");
    ///     command.args(["stage-host", "--listen", "127.0.0.1:0", "--workers", "1", "--stage", "echo"]);
    ///     Replica::<String, String>::process(command, "echo")
    /// });
    /// # let _ = echo;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn process(
        command: Command,
        stage: &str,
    ) -> impl Future<Output = Result<Self, BoxError>> + Send + use<Self, Req, Resp>;
}

impl<Req, Resp> RemoteReplica<Req, Resp> for Replica<Req, Resp>
where
    Req: Serialize + Send + 'static,
    Resp: DeserializeOwned + Send + 'static,
{
    fn remote(stage: RemoteStage<Req, Resp>) -> Replica<Req, Resp> {
        let peer = stage.peer().clone();
        Replica::new(stage).check(move || {
            let peer = peer.clone();
            // A replica that takes longer is not up yet; the attempt continues.
            async move { timeout(CHECK_EVERY, peer.connect()).await.is_ok_and(|connected| connected.is_ok()) }
        })
    }

    fn process(
        mut command: Command,
        stage: &str,
    ) -> impl Future<Output = Result<Replica<Req, Resp>, BoxError>> + Send + use<Req, Resp> {
        let stage = stage.to_owned();
        command.stdout(Stdio::piped());
        async move {
            // In a task of its own, which goes on if this future is dropped: then it kills the
            // process once it has started.
            let spawning = dapple_sched::spawn(async { process::spawn(command).await.map(|child| Process { child }) });
            let mut process = spawning.await??;
            let child = &mut process.child;
            let stdout = child.take_stdout().ok_or("its standard output is gone")??;
            // Kept, because the process may take the end of its stdin for the end of this process.
            let stdin = child.take_stdin().transpose()?;
            let said = async {
                match listening_on(&stdout).await {
                    Some(address) => Ok(address),
                    None => Err(child.wait().await),
                }
            };
            let address = match timeout(START_MAX, said).await {
                Ok(Ok(address)) => address,
                Ok(Err(status)) => {
                    let status = status?;
                    return Err(format!("the process ended before it said `listening on ADDRESS`: {status}").into());
                }
                Err(_) => return Err("the process does not say `listening on ADDRESS`".into()),
            };
            let remote = Peer::new(address.to_string())?.stage(&stage);
            Ok(Replica::remote(remote).lives(async move |retired| {
                process.live(retired, &stdout).await;
                drop(stdin);
            }))
        }
    }
}

/// A child process, which is killed when this is dropped.
struct Process {
    child: Child,
}

impl Process {
    /// Its process id, which stays its own until it was waited for.
    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Waits for its end.
    async fn live(mut self, retired: Retired, stdout: &pipe::Receiver) {
        let ended = race(self.child.wait(), race(retired, discard(stdout))).await;
        if let First::Left(status) = ended {
            match status {
                Ok(status) => tracing::warn!(pid = self.child.id(), %status, "the process of a replica has ended"),
                Err(error) => tracing::warn!(%error, "the process of a replica is lost"),
            }
            return;
        }
        if let Some(pid) = self.pid() {
            let _already_over = kill_process(pid, Signal::TERM);
        }
        let ended = race(timeout(END_MAX, self.child.wait()), discard(stdout)).await;
        if let First::Left(Err(_)) = ended {
            tracing::warn!(pid = self.child.id(), "the process of a replica does not end, and is killed");
            let _already_over = self.child.kill();
            let _status = self.child.wait().await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Ok(None) = self.child.try_wait() else { return };
        let _already_over = self.child.kill();
        // An unreaped child stays in the kernel's table. Not a task, because the runtime may be
        // ending; it takes only a moment.
        let Some(pid) = self.pid() else { return };
        let wait = move || {
            let _status = retry_on_intr(|| waitpid(Some(pid), WaitOptions::empty()));
        };
        let _detached = thread::Builder::new().name("dapple-killed".to_owned()).spawn(wait);
    }
}

/// The address that a host prints; `None` if it ends without.
async fn listening_on(stdout: &pipe::Receiver) -> Option<SocketAddr> {
    let (mut text, mut buf) = (Vec::new(), [0; 1024]);
    while let Ok(count @ 1..) = stdout.read(&mut buf).await {
        text.extend_from_slice(&buf[..count]);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let rest = line.find(LISTENING_ON).map(|at| &line[at + LISTENING_ON.len()..]);
            if let Some(address) = rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok()) {
                return Some(reachable(address));
            }
        }
        // No line of a host is this long.
        if text.len() > LINE_LEN_MAX {
            text.clear();
        }
    }
    None
}

/// A host that listens on all addresses is reached on this machine.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
    }
    address
}

/// Reads the output of a process, so that it never waits for room; does not end.
async fn discard(stdout: &pipe::Receiver) {
    let mut buf = [0; 1024];
    while let Ok(1..) = stdout.read(&mut buf).await {}
    std::future::pending().await
}

/// Replicas found by a [`Discovery`], for stages of replicas ([`Replicated`]).
pub trait RemoteReplicas {
    /// Lets the hosts of this stage take part, as they [join](Replicated::join) and leave.
    ///
    /// ```
    /// use dapple_remote::{Discovery, RemoteReplicas};
    /// use dapple_stage::{Replica, Stage};
    /// use tower::service_fn;
    ///
    /// # let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// // One to four here, and those on two other machines.
    /// let here = service_fn(async |text: String| Ok::<_, std::convert::Infallible>(text));
    /// let copy = move |_number| std::future::ready(Ok(Replica::new(here)));
    /// let echo = Stage::builder("echo").width(4).replicate_with(1..=4, copy);
    /// echo.find(&"10.0.0.1:7000,10.0.0.2:7000".parse::<Discovery>().expect("a list"), "echo");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn find(&self, hosts: &Discovery, stage: &str);
}

impl<Req, Resp> RemoteReplicas for Replicated<Req, Resp, BoxError>
where
    Req: Serialize + Send + 'static,
    Resp: DeserializeOwned + Send + 'static,
{
    fn find(&self, hosts: &Discovery, stage: &str) {
        let stage = stage.to_owned();
        let _entered = self.runtime().enter();
        self.follow(Found {
            members: hosts.members(&stage),
            connect: Box::new(move |address| Ok(Replica::remote(Peer::new(address)?.stage(&stage)))),
        });
    }
}

/// How long a process may take until it listens.
const START_MAX: Duration = Duration::from_secs(30);
/// How long a process may take to end.
const END_MAX: Duration = Duration::from_secs(60);
const LISTENING_ON: &str = "listening on ";
const LINE_LEN_MAX: usize = 64 << 10;
