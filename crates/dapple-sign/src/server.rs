//! The server: it listens, accepts, and ends in stages.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use dapple::net::TcpStream;
use dapple_serve::command_line::limits;
use dapple_serve::host::{Admission, EndStage, PerAddress, Sessions, StopSignals, Wanted, listen, serve_sessions};

use super::args::{Args, BODY_MAX};
use super::budget::Budget;
use super::connection::{Service, serve};
use super::digest::{Secrets, warn_of_published};
use super::error::SignError;
use super::frame::{ErrorCode, Frame};
use super::log::Log;
use super::signer::{Backing, Parts, Signer};

/// Serves until SIGTERM or SIGINT, then answers all accepted tasks. A second signal ends it at
/// once.
///
/// # Errors
///
/// The server cannot start.
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
    // For `dapple top` and `dapple record`; the server is of the same use without it.
    let _ = dapple::insight::attachable();
    let (host, port) = args.addr.clone();
    let wanted = Wanted { host, port, reuse_port: false, redirects: false, option: "--addr HOST:PORT" };
    let listening = listen(std::slice::from_ref(&wanted), &wanted, None)?;
    let Some((addr, listening)) = listening.into_iter().find_map(|one| Some((one.addr()?, one))) else {
        return Err(SignError::Runtime(io::Error::other("no socket listens")));
    };
    let behind = describe(args, &backing);
    let signer = Signer::new(args, backing);
    let _kept = match (&args.graph, signer.graph()) {
        (Some(file), Some(graph)) => {
            graph.write(file).await.map_err(SignError::Graph)?;
            Some(graph.keep(file, GRAPH_EVERY))
        }
        _ => None,
    };
    let own = &args.limits;
    let service = Arc::new(Service {
        signer,
        budget: Budget::new(own.number(&limits::REQUESTS_MEMORY), args.copies()),
        task_bytes_max: own.number(&BODY_MAX) as u32,
        in_flight_max: own.number(&limits::IN_FLIGHT_MAX) as u32,
        frame_timeout: own.time(&limits::FRAME_TIMEOUT),
        idle: own.time(&limits::IDLE_TIMEOUT),
    });
    announce(args, addr, &behind);
    let admission = Arc::new(Admission::new(own.number(&limits::CONNECTIONS_MAX) as usize, PerAddress::Unlimited));
    let drain = own.time(&limits::DRAIN);
    serve_sessions(listening, service, admission, &mut signals, drain).await.map_err(SignError::Runtime)
}

impl Sessions for Service {
    fn full(&self) -> Vec<u8> {
        let mut buf = BytesMut::new();
        let text = "connection limit reached; retry later or reuse an existing connection".to_owned();
        Frame::Error { code: ErrorCode::Connections, text }.encode(&mut buf);
        buf.into()
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, stage: &EndStage) {
        serve(stream, self, stage).await;
    }
}

/// Describes the signer, for the line that is printed.
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
    // A closed stdout must not stop the server.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    if args.hosts.is_none() {
        warn_of_published(args.first_secret.as_deref(), args.second_secret.as_deref());
    }
}

const GRAPH_EVERY: Duration = Duration::from_secs(1);
