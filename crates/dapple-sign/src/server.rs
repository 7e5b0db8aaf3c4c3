//! The server: it listens, accepts, and ends in stages.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use dapple::net::{TcpListener, TcpStream};
use dapple::signal::{SIGINT, SIGTERM, Signal, signal};
use dapple::sync::{Semaphore, watch};
use dapple::time::{sleep, timeout};
use tracing::warn;

use super::args::Args;
use super::budget::Budget;
use super::connection::{Service, serve};
use super::digest::{Secrets, warn_of_published};
use super::error::SignError;
use super::frame::{ErrorCode, Frame};
use super::log::Log;
use super::signer::{Backing, Parts, Signer};
use dapple::task::{First, race};
use dapple_serve::host::{Wanted, listen};

/// Serves until SIGTERM or SIGINT; then all tasks that were accepted are answered. A second signal ends it at once.
///
/// # Errors
///
/// What kept the server from starting.
pub fn run(args: &Args) -> Result<(), SignError> {
    if let Some(misuse) = args.misuse() {
        return Err(SignError::Misuse(misuse));
    }
    let backing = match (&args.hosts, &args.log) {
        (Some(hosts), _) => Backing::Hosts(hosts.clone()),
        (None, log) => {
            let secrets = Secrets::read(args.first_secret.as_deref(), args.second_secret.as_deref())?;
            let log = Log::open(log.as_deref().unwrap_or(Path::new("")), args.sync, args.log_max())?;
            Backing::Here(Parts { secrets, log })
        }
    };
    let mut builder = dapple::builder();
    if let Some(workers) = args.workers {
        builder = builder.workers(usize::from(workers));
    }
    let runtime = builder.build().map_err(SignError::Runtime)?;
    let ended = runtime.block_on(serve_until_stopped(args, backing));
    runtime.shutdown(Duration::from_secs(1));
    ended
}

async fn serve_until_stopped(args: &Args, backing: Backing) -> Result<(), SignError> {
    let mut signals = StopSignals::watch().map_err(SignError::Runtime)?;
    let (host, port) = args.addr.clone();
    let wanted = Wanted { host, port, reuse_port: false, redirects: false, option: "--addr HOST:PORT" };
    let listening = listen(std::slice::from_ref(&wanted), &wanted, None)?;
    let Some((addr, socket)) = listening.into_iter().find_map(|one| Some((one.addr()?, one.socket))) else {
        return Err(SignError::Runtime(io::Error::other("no socket listens")));
    };
    let listener = TcpListener::from_std(socket).map_err(SignError::Runtime)?;
    let behind = describe(args, &backing);
    let signer = Signer::new(args, backing);
    let _kept = match (&args.graph, signer.graph()) {
        (Some(file), Some(graph)) => {
            graph.write(file).await.map_err(SignError::Graph)?;
            Some(graph.keep(file, GRAPH_EVERY))
        }
        _ => None,
    };
    let service = Arc::new(Service {
        signer,
        budget: Budget::new(args.tasks_mib, args.copies()),
        task_bytes_max: args.task_bytes_max,
        in_flight_max: args.in_flight_max,
        frame_timeout: args.frame_timeout_s,
        idle: args.idle_s,
    });
    announce(args, addr, &behind);
    let places = Arc::new(Semaphore::new(args.connections as usize));
    let (stop, stopping) = watch::channel(false);
    let accepting = accept(listener, service, places.clone(), stopping);
    let _ = race(accepting, signals.next()).await;
    let _ = stop.send(true);
    let answered = timeout(args.drain_s, places.acquire_many(args.connections));
    match race(answered, signals.next()).await {
        First::Left(Ok(_)) => {}
        First::Left(Err(_)) => warn!("connections were cut: their tasks took longer than --drain-s allows"),
        First::Right(()) => warn!("a second signal: ended at once"),
    }
    Ok(())
}

async fn accept(listener: TcpListener, service: Arc<Service>, places: Arc<Semaphore>, stopping: watch::Receiver<bool>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "no connection can be accepted for now");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match places.clone().try_acquire_owned() {
            Ok(place) => {
                let (service, stopping) = (service.clone(), stopping.clone());
                drop(dapple::spawn(async move {
                    serve(stream, service, stopping).await;
                    drop(place);
                }));
            }
            Err(_) => turn_away(&stream),
        }
    }
}

/// The few bytes fit into the socket's buffer, or are lost: who is one too many costs no time.
fn turn_away(stream: &TcpStream) {
    let mut buf = BytesMut::new();
    let text = "as many connections as may be; try again later, or use those that you have".to_owned();
    Frame::Error { code: ErrorCode::Connections, text }.encode(&mut buf);
    let _ = stream.try_write(&buf);
}

/// SIGTERM and SIGINT, caught from when this is made.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// # Errors
    ///
    /// There is no runtime here, or the kernel allows no handler.
    pub(super) fn watch() -> io::Result<StopSignals> {
        Ok(StopSignals { terminate: signal(SIGTERM)?, interrupt: signal(SIGINT)? })
    }

    /// The next of them. Cancel safe.
    pub(super) async fn next(&mut self) {
        let _ = race(self.terminate.recv(), self.interrupt.recv()).await;
    }
}

/// What tasks are signed with, for the line that is printed.
fn describe(args: &Args, backing: &Backing) -> String {
    match backing {
        Backing::Hosts(hosts) => format!("by the hosts {hosts}"),
        Backing::Here(parts) => {
            let durable = if args.sync { ", durable" } else { "" };
            let file = args.log.as_deref().unwrap_or(Path::new("")).display();
            format!("with {} records in {file}{durable}", parts.log.records())
        }
    }
}

/// Prints the one line on stdout. Scripts wait for it and read the port from it.
fn announce(args: &Args, addr: SocketAddr, behind: &str) {
    let mut stdout = io::stdout().lock();
    let line = format!("listening on {addr}, {}, {behind}", args.variant.name());
    // A closed stdout is no reason not to serve.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    if args.hosts.is_none() {
        warn_of_published(args.first_secret.as_deref(), args.second_secret.as_deref());
    }
}

const GRAPH_EVERY: Duration = Duration::from_secs(1);

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
