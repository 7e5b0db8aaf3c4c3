//! `dapple store serve`: the tables of a store for clients of Redis.

mod client;
mod clients;
mod commands;
mod config;
mod connection;
mod docs;
mod float;
mod glob;
mod hashes;
mod info;
mod keys;
mod memory;
mod numbers;
mod plan;
mod pubsub;
mod reply;
mod request;
mod session;
mod strings;
mod table;
mod time;
mod transaction;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use dapple::blocking::spawn_blocking;
use dapple::net::TcpStream;
use dapple::signal::{SIGHUP, Signal, signal};
use dapple::store::{AnyEngine, Error, Refusal, Store, TableOptions};
use dapple::task::{First, race};
use dapple::time::sleep;
use dapple::tls::CertificateFiles;
use dapple::{Colored, Handle};
use dapple_serve::command_line::limits;
use dapple_serve::host::{
    Admission, CertificateSource, EndStage, PerAddress, Sessions, StopSignals, Tls, Wanted, listen, serve_sessions,
};
use tracing::{error, info, warn};

use super::args::ServeArgs;
use super::error::CommandError;
use super::{open, place};
use crate::observe::told::begin_metrics;
use clients::Clients;
use memory::Memory;
use numbers::StoreNumbers;
use plan::{Database, Value};
use pubsub::Broker;

/// The state that connections share.
pub(super) struct Service {
    store: Store<AnyEngine>,
    databases: [OnceLock<Database>; DATABASES as usize],
    password: Option<String>,
    tls: Option<Arc<Tls>>,
    port: u16,
    directory: String,
    admission: Arc<Admission>,
    next_client: AtomicU64,
    clients: Arc<Clients>,
    handshakes: [AtomicU64; 2],
    /// Commands that were answered.
    commands: AtomicU64,
    memory: Arc<Memory>,
    broker: Broker,
    scans: Colored<Scans>,
}

/// The positions where scans continue: the protocol's cursors are numbers, and the store's are
/// keys.
#[derive(Default)]
struct Scans {
    next: u64,
    places: VecDeque<(u64, Bytes)>,
}

const SCANS_MAX: usize = 4096;
const DATABASES: u8 = 16;

/// Serves until SIGTERM or SIGINT, then answers the requests that have arrived; or until another process may have the store.
pub(super) async fn run(args: &ServeArgs) -> Result<(), CommandError> {
    let mut signals = StopSignals::watch().map_err(CommandError::Runtime)?;
    let renew = signal(SIGHUP).map_err(CommandError::Runtime)?;
    let tls = tls(args).await?;
    let store = open(&args.store, true).await?;
    let host = args.host.clone();
    let wanted = Wanted { host, port: args.port, reuse_port: false, redirects: false, option: "--host and --port" };
    let listening = listen(std::slice::from_ref(&wanted), &wanted, None)?;
    let Some((addr, listening)) = listening.into_iter().find_map(|one| Some((one.addr()?, one))) else {
        return Err(CommandError::Runtime(io::Error::other("no socket listens")));
    };
    let password = args.password_file.as_deref().map(read_password).transpose()?;
    if !addr.ip().is_loopback() && password.is_none() {
        return Err(CommandError::OpenToAll(addr));
    }
    let admission =
        Arc::new(Admission::new(args.limits.number(&limits::CONNECTIONS_MAX) as usize, PerAddress::Unlimited));
    let memory = Memory::new(args.limits.bytes(&limits::REQUESTS_MEMORY));
    let broker = Broker::new(args.limits.bytes(&limits::SUBSCRIBER_WAITING_MAX), memory.clone());
    let service = Arc::new(Service {
        store,
        databases: Default::default(),
        password,
        tls,
        port: addr.port(),
        directory: place(&args.store.url),
        admission: admission.clone(),
        next_client: AtomicU64::new(1),
        clients: Arc::default(),
        handshakes: Default::default(),
        commands: AtomicU64::new(0),
        memory,
        broker,
        scans: Colored::new(Scans::default()),
    });
    // A closed stdout must not stop the server.
    let encrypted = if service.tls.is_some() { ", encrypted" } else { "" };
    let _ = writeln!(io::stdout(), "listening on {addr}, {}{encrypted}", service.directory);
    let serving = serve_sessions(listening, service.clone(), admission, &mut signals, args.limits.time(&limits::DRAIN));
    let numbers = Arc::new(StoreNumbers::new(service.clone(), Handle::current()));
    begin_metrics(&args.metrics, numbers, false)?;
    let beside = race(expire(service.clone()), reload(service.clone(), renew));
    match race(serving, race(service.store.lost(), beside)).await {
        First::Left(served) => served.map_err(CommandError::Runtime),
        First::Right(First::Left(lost)) => Err(Error::from(Refusal::Engine(lost)).into()),
        First::Right(First::Right(First::Left(never) | First::Right(never))) => match never {},
    }
}

/// Loads the certificate, if there is one.
async fn tls(args: &ServeArgs) -> Result<Option<Arc<Tls>>, CommandError> {
    let Some((chain, key)) = args.tls_cert.clone().zip(args.tls_key.clone()) else { return Ok(None) };
    let source = CertificateSource::Files(vec![CertificateFiles { chain, key }]);
    let loaded = spawn_blocking(move || Tls::with_alpn(source, &[])).await.map_err(CommandError::runtime)?;
    Ok(Some(loaded.map_err(CommandError::Tls)?))
}

/// Reads the certificate again at each SIGHUP.
async fn reload(service: Arc<Service>, mut signal: Signal) -> Infallible {
    loop {
        signal.recv().await;
        let Some(tls) = &service.tls else { continue };
        match tls.reload().await {
            Ok(()) => info!("read the certificate again"),
            Err(error) => error!("the certificate stays unchanged: {error}"),
        }
    }
}

impl Sessions for Service {
    fn full(&self) -> Vec<u8> {
        b"-ERR max number of clients reached\r\n".to_vec()
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, stage: &EndStage) {
        let addresses = (stream.peer_addr().ok(), stream.local_addr().ok());
        let Some(tls) = &self.tls else { return connection::serve(stream, addresses, &self, stage).await };
        // Boxed: a handshake needs more memory than an idle connection.
        let accepted = Box::pin(tls.accept_session(stream, stage)).await;
        self.handshakes[usize::from(accepted.is_none())].fetch_add(1, Ordering::Relaxed);
        if let Some(stream) = accepted {
            connection::serve(stream, addresses, &self, stage).await;
        }
    }
}

fn read_password(file: &Path) -> Result<String, CommandError> {
    let failed = |error| CommandError::Input { path: file.display().to_string(), error };
    let text = std::fs::read_to_string(file).map_err(failed)?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(failed(io::Error::other("its first line is empty, but must be a password"))),
    }
}

/// Removes expired values, every minute.
async fn expire(service: Arc<Service>) -> Infallible {
    loop {
        sleep(EXPIRE_EVERY).await;
        for database in 0..DATABASES {
            let Ok(table) = service.store.ordered_table::<Bytes, Value>(&name(database)).await else { continue };
            if let Err(error) = table.remove_expired().await {
                warn!(%error, database, "cannot remove expired values");
            }
        }
    }
}

impl Service {
    /// The table of a database, created at its first use.
    async fn database(&self, database: u8) -> Result<&Database, Error> {
        let cell = &self.databases[usize::from(database)];
        if let Some(table) = cell.get() {
            return Ok(table);
        }
        let name = name(database);
        let options = TableOptions { expiry: true, ..TableOptions::default() };
        let table = self.store.ordered_table_or_create(&name, options).await?;
        Ok(cell.get_or_init(|| table))
    }

    fn clients_len(&self) -> usize {
        self.admission.open()
    }

    fn client_id(&self) -> u64 {
        self.next_client.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps the position of a scan and returns its cursor.
    async fn keep_scan(&self, key: Bytes) -> u64 {
        let keep = move |scans: &mut Scans| {
            scans.next += 1;
            if scans.places.len() >= SCANS_MAX {
                scans.places.pop_front();
            }
            scans.places.push_back((scans.next, key));
            scans.next
        };
        self.scans.with(keep).await
    }

    async fn scan_place(&self, cursor: u64) -> Option<Bytes> {
        let find = |scans: &Scans| scans.places.iter().find(|(id, _)| *id == cursor).map(|(_, key)| key.clone());
        self.scans.read(find).await
    }
}

fn name(database: u8) -> String {
    format!("redis-{database}")
}

const EXPIRE_EVERY: Duration = Duration::from_secs(60);
