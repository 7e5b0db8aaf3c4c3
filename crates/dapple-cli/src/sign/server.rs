//! The server: it listens, accepts, and ends in stages.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use dapple::net::{TcpListener, TcpStream};
use dapple::signal::{SIGINT, SIGTERM, Signal, signal};
use dapple::sync::{Semaphore, watch};
use dapple::time::{sleep, timeout};
use tracing::warn;

use super::args::Args;
use super::connection::{Service, serve};
use super::digest::Secrets;
use super::error::SignError;
use super::log::Log;
use super::protocol::{ErrorCode, Frame};
use super::race::{First, race};
use super::signer::{Parts, Signer};
use crate::server::{Wanted, listen};

/// Serves until SIGTERM or SIGINT; then all tasks that were accepted are answered. A second signal ends it at once.
///
/// # Errors
///
/// What kept the server from starting.
pub(crate) fn run(args: &Args) -> Result<(), SignError> {
    if let Some(misuse) = args.misuse() {
        return Err(SignError::Misuse(misuse));
    }
    let secrets = Secrets::read(args.first_secret.as_deref(), args.second_secret.as_deref())?;
    let log = Log::open(&args.log, args.sync, args.log_max_mb << 20)?;
    let mut builder = dapple::builder();
    if let Some(workers) = args.workers {
        builder = builder.workers(usize::from(workers));
    }
    let runtime = builder.build().map_err(SignError::Runtime)?;
    let ended = runtime.block_on(serve_until_stopped(args, Parts { secrets, log }));
    runtime.shutdown(Duration::from_secs(1));
    ended
}

async fn serve_until_stopped(args: &Args, parts: Parts) -> Result<(), SignError> {
    let mut signals = (signal(SIGTERM).map_err(SignError::Runtime)?, signal(SIGINT).map_err(SignError::Runtime)?);
    let (host, port) = args.addr.clone();
    let wanted = Wanted { host, port, reuse_port: false, redirects: false };
    let listening = listen(std::slice::from_ref(&wanted), &wanted, None)?;
    let Some((addr, socket)) = listening.into_iter().find_map(|one| Some((one.addr()?, one.socket))) else {
        return Err(SignError::Runtime(io::Error::other("no socket listens")));
    };
    let listener = TcpListener::from_std(socket).map_err(SignError::Runtime)?;
    let log = parts.log.clone();
    let signer = Signer::new(args, parts);
    let _kept = match (&args.graph, signer.graph()) {
        (Some(file), Some(graph)) => {
            graph.write(file).await.map_err(SignError::Graph)?;
            Some(graph.keep(file, GRAPH_EVERY))
        }
        _ => None,
    };
    let service = Arc::new(Service {
        signer,
        task_bytes_max: args.task_bytes_max,
        in_flight_max: args.in_flight_max,
        frame_timeout: args.frame_timeout_s,
        idle: args.idle_s,
    });
    announce(args, addr, log.records());
    let places = Arc::new(Semaphore::new(args.connections as usize));
    let (stop, stopping) = watch::channel(false);
    let accepting = accept(listener, service, places.clone(), stopping);
    let _ = race(accepting, stop_signal(&mut signals)).await;
    let _ = stop.send(true);
    let answered = timeout(args.drain_s, places.acquire_many(args.connections));
    match race(answered, stop_signal(&mut signals)).await {
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

async fn stop_signal((terminate, interrupt): &mut (Signal, Signal)) {
    let _ = race(terminate.recv(), interrupt.recv()).await;
}

/// Prints the one line on stdout. Scripts wait for it and read the port from it.
fn announce(args: &Args, addr: SocketAddr, records: u64) {
    let mut stdout = io::stdout().lock();
    let variant = format!("{:?}", args.variant).to_lowercase();
    let durable = if args.sync { ", durable" } else { "" };
    let line = format!("listening on {addr}, {variant}, with {records} records in {}{durable}", args.log.display());
    // A closed stdout is no reason not to serve.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    if args.first_secret.is_none() || args.second_secret.is_none() {
        eprintln!("dapple: a secret that is not given is the one that the thesis has published: for trying only");
    }
}

const GRAPH_EVERY: Duration = Duration::from_secs(1);

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
