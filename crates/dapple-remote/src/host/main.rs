//! A process that hosts stages.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use dapple_io::blocking::spawn_blocking;
use dapple_io::net::{TcpListener, UnixListener};
use dapple_io::signal::{SIGINT, SIGTERM, Signal, signal};
use dapple_io::time::sleep;
use dapple_sync::task::{First, race};

use super::HostBuilder;
use super::options::{HostCommand, HostOptions};
use super::takeover::{self, Offer};
use crate::discovery::Registration;

/// Runs the stages of a program, as its command line says: the whole of a `main`.
///
/// ```no_run
/// use dapple_stage::BoxError;
/// use dapple_remote::{Host, host_main};
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     host_main(Host::builder().register_fn("double", |number: u64| async move { Ok::<_, BoxError>(2 * number) }))
/// }
/// ```
///
/// `--help` lists the options; see [`HostOptions`]. SIGTERM and SIGINT end it in stages, a second
/// one at once. Exit codes: 0 for success, 2 for a command line that makes no sense, 1 for other
/// errors.
pub fn host_main(stages: HostBuilder) -> ExitCode {
    let command = match HostOptions::parse(std::env::args().skip(1)) {
        Ok(command) => command,
        Err(problem) => return fail(&problem, 2),
    };
    match command {
        HostCommand::Run(options) => match host_run(stages, &options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error @ HostError::Options(_)) => fail(&error, 2),
            Err(error) => fail(&error, 1),
        },
        HostCommand::List => print(&stages.list_text()),
        HostCommand::Help => print(&format!("Hosts the stages of this program.\n\n{}", HostOptions::help())),
    }
}

/// The reason why a process could not host stages.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The options ask for a missing stage, or make no sense.
    #[error("{0}")]
    Options(String),
    /// Listening failed.
    #[error("cannot listen on {address}: {source}{}", advice(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The process that listens there does not hand its socket over.
    #[error("cannot take over from the process that listens on {address}: {source}")]
    TakeOver {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The certificates cannot be used.
    #[cfg(feature = "tls")]
    #[error(transparent)]
    Certificates(#[from] dapple_tls::Error),
    /// The runtime, or its listening socket, failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another process listens there: choose another --listen, or --take-over to replace a stage host"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 are for root",
        _ => "",
    }
}

/// Hosts stages until a signal ends the process, in a runtime of its own: [`host_main`] without a
/// command line. Prints its address on stdout when it listens.
///
/// # Errors
///
/// See [`HostError`].
///
/// # Panics
///
/// When called on a worker.
pub fn host_run(stages: HostBuilder, options: &HostOptions) -> Result<(), HostError> {
    options.check().map_err(HostError::Options)?;
    let stages = stages.only(&options.stages).map_err(HostError::Options)?.replicas(options.replicas);
    let stages = stages.limits(options.limits.clone());
    #[cfg(feature = "tls")]
    let stages = match &options.tls {
        Some(files) => {
            let certificates = dapple_tls::Certificates::load_blocking(std::slice::from_ref(files))
                .map_err(dapple_tls::Error::from)?;
            stages.tls(dapple_tls::TlsAcceptor::with_alpn(certificates, ["h2", "http/1.1"])?)
        }
        None => stages,
    };
    let builder = dapple_io::runtime_builder();
    let runtime = match options.workers {
        Some(workers) => builder.workers(workers).build()?,
        None => builder.build()?,
    };
    let ended = runtime.block_on(run(stages, options));
    runtime.shutdown(Duration::from_secs(1));
    ended
}

async fn run(stages: HostBuilder, options: &HostOptions) -> Result<(), HostError> {
    let signals = (signal(SIGTERM)?, signal(SIGINT)?);
    let (socket, predecessor) = listen(options)?;
    let address = socket.local_addr()?;
    let graph = stages.graph();
    let host = stages.build();
    let _kept = match &options.graph {
        Some(file) => {
            // An error now is returned; a later one goes to the log.
            graph.write(file).await?;
            Some(graph.keep(file, GRAPH_PERIOD))
        }
        None => None,
    };
    let names: Vec<String> = host.names().map(str::to_owned).collect();
    let stop = host.stopper();
    let mut serving = pin!(dapple_sched::spawn(host.serve(TcpListener::from_std(socket.try_clone()?)?)));
    if let Some(predecessor) = predecessor {
        let told = spawn_blocking(move || predecessor.tell_ready()).await.map_err(io::Error::other)?;
        told.map_err(|source| HostError::TakeOver { address, source })?;
    }
    let mut registration = None;
    if let Some(place) = &options.register {
        let started = Registration::start(place, &names, &options.reached_at(address), options.ttl);
        registration = Some(started.map_err(|error| HostError::Options(error.to_string()))?);
    }
    say(&format!("listening on {address} with {}\n", names.join(", ")));
    let successor = match race(serving.as_mut(), wait_for_end(signals, address, socket)).await {
        First::Left(ended) => {
            return Err(ended.map_err(io::Error::other)?.err().unwrap_or_else(|| io::Error::other("it ended")).into());
        }
        First::Right(successor) => successor,
    };
    match (registration, &successor) {
        (Some(registration), Some(_)) => registration.leave_to_successor(),
        (Some(registration), None) => registration.end().await,
        (None, _) => {}
    }
    stop.stop();
    let again = (signal(SIGTERM)?, signal(SIGINT)?);
    let report = match race(serving, end_at_once_on(again)).await {
        First::Left(report) => report.map_err(io::Error::other)??,
        First::Right(()) => return Ok(()),
    };
    if report.connections_cut > 0 {
        tracing::warn!(
            connections = report.connections_cut,
            "connections were cut: their requests took longer than --drain-s allows"
        );
    }
    Ok(())
}

fn listen(options: &HostOptions) -> Result<(std::net::TcpListener, Option<takeover::Takeover>), HostError> {
    let address = options.listen;
    if options.take_over {
        let taken = takeover::take_over(address).map_err(|source| HostError::TakeOver { address, source })?;
        if let Some((socket, predecessor)) = taken {
            return Ok((socket, Some(predecessor)));
        }
    }
    match TcpListener::bind(address).and_then(|listener| std::os::fd::AsFd::as_fd(&listener).try_clone_to_owned()) {
        Ok(fd) => Ok((std::net::TcpListener::from(fd), None)),
        Err(source) => Err(HostError::Listen { address, source }),
    }
}

/// The process that serves now; it waits to hear that this one leaves.
struct Successor;

/// Waits for a signal, or for a process that takes over.
async fn wait_for_end(
    mut signals: (Signal, Signal),
    address: SocketAddr,
    socket: std::net::TcpListener,
) -> Option<Successor> {
    match race(stop_signal(&mut signals), offer(address, socket)).await {
        First::Left(()) => None,
        First::Right(successor) => Some(successor),
    }
}

async fn stop_signal((terminate, interrupt): &mut (Signal, Signal)) {
    race(terminate.recv(), interrupt.recv()).await;
}

/// Offers the socket to other processes, until one has taken over.
async fn offer(address: SocketAddr, socket: std::net::TcpListener) -> Successor {
    let listener = open_offer(address).await;
    loop {
        let talk =
            match listener.accept().await.and_then(|stream| std::os::fd::AsFd::as_fd(&stream).try_clone_to_owned()) {
                Ok(fd) => UnixStream::from(fd),
                Err(error) => {
                    tracing::warn!(%error, "no process can take over for now");
                    sleep(PAUSE).await;
                    continue;
                }
            };
        let handed = match socket.try_clone() {
            Ok(socket) => spawn_blocking(move || takeover::hand_over(talk, &socket)).await.map_err(io::Error::other),
            Err(error) => Err(error),
        };
        match handed.and_then(|handed| handed) {
            Ok(talk) => {
                drop(listener);
                takeover::tell_gone(talk);
                return Successor;
            }
            Err(error) => tracing::warn!(%error, "a process that wanted to take over did not; this one goes on"),
        }
    }
}

/// The name may belong to another process for a moment.
async fn open_offer(address: SocketAddr) -> UnixListener {
    let mut is_told = false;
    loop {
        match Offer::open(address).and_then(|offer| UnixListener::from_std(offer.listener)) {
            Ok(listener) => return listener,
            Err(error) => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::debug!(%error, "no process can take over yet");
                }
                sleep(PAUSE).await;
            }
        }
    }
}

/// Waits for a second signal.
async fn end_at_once_on(mut signals: (Signal, Signal)) {
    stop_signal(&mut signals).await;
    tracing::warn!("second signal: ending at once");
}

fn say(text: &str) {
    let mut out = io::stdout().lock();
    // A closed stdout is no error.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn print(text: &str) -> ExitCode {
    say(text);
    ExitCode::SUCCESS
}

fn fail(problem: &dyn fmt::Display, code: u8) -> ExitCode {
    eprintln!("{}: {problem}", std::env::args().next().unwrap_or_default());
    ExitCode::from(code)
}

/// A drawing is for people, so it need not be updated more often.
const GRAPH_PERIOD: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);
