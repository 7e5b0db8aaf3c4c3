//! `dapple store serve`: the tables of a store for clients of Redis.

mod commands;
mod connection;
mod glob;
mod reply;
mod request;
mod session;
mod strings;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dapple::Colored;
use dapple::net::TcpListener;
use dapple::signal::{SIGINT, SIGTERM, signal};
use dapple::store::{Error, Redb, Refusal, Store, TableOptions};
use dapple::sync::{Semaphore, watch};
use dapple::task::{First, race};
use dapple::time::{sleep, timeout};
use dapple_serve::host::{Wanted, listen};
use tracing::warn;

use super::args::ServeArgs;
use super::error::CommandError;
use super::{TextTable, open};

/// All that connections share.
pub(super) struct Service {
    store: Store<Redb>,
    password: Option<String>,
    port: u16,
    places: Arc<Semaphore>,
    connections_max: u32,
    next_client: AtomicU64,
    scans: Colored<Scans>,
}

/// The places where scans go on: the protocol's cursors are numbers, and the store's are keys.
#[derive(Default)]
struct Scans {
    next: u64,
    places: VecDeque<(u64, Bytes)>,
}

const SCANS_MAX: usize = 4096;
const DATABASES: u8 = 16;

/// Serves until SIGTERM or SIGINT; then requests that have come are answered.
pub(super) async fn run(args: &ServeArgs) -> Result<(), CommandError> {
    let stopped = |error| CommandError::Runtime(error);
    let (mut terminate, mut interrupt) = (signal(SIGTERM).map_err(stopped)?, signal(SIGINT).map_err(stopped)?);
    let store = open(&args.store, true).await?;
    let host = args.host.clone();
    let wanted = Wanted { host, port: args.port, reuse_port: false, redirects: false, option: "--host and --port" };
    let listening = listen(std::slice::from_ref(&wanted), &wanted, None)?;
    let Some((addr, socket)) = listening.into_iter().find_map(|one| Some((one.addr()?, one.socket))) else {
        return Err(CommandError::Runtime(io::Error::other("no socket listens")));
    };
    let password = args.password_file.as_deref().map(read_password).transpose()?;
    if !addr.ip().is_loopback() && password.is_none() {
        return Err(CommandError::OpenToAll(addr));
    }
    let listener = TcpListener::from_std(socket).map_err(stopped)?;
    let service = Arc::new(Service {
        store,
        password,
        port: addr.port(),
        places: Arc::new(Semaphore::new(args.connections as usize)),
        connections_max: args.connections,
        next_client: AtomicU64::new(1),
        scans: Colored::new(Scans::default()),
    });
    // A closed stdout is no reason not to serve.
    let _ = writeln!(io::stdout(), "listening on {addr}, {}", args.store.url.directory.display());
    let (stop, stopping) = watch::channel(false);
    let accepting = race(accept(listener, service.clone(), stopping), expire(service.clone()));
    let signals = race(terminate.recv(), interrupt.recv());
    let _ = race(accepting, signals).await;
    let _ = stop.send(true);
    let answered = timeout(DRAIN, service.places.acquire_many(args.connections)).await;
    if answered.is_err() {
        warn!("connections were cut: their requests took longer than {DRAIN:?}");
    }
    Ok(())
}

fn read_password(file: &Path) -> Result<String, CommandError> {
    let failed = |error| CommandError::Input { path: file.display().to_string(), error };
    let text = std::fs::read_to_string(file).map_err(failed)?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(failed(io::Error::other("its first line is empty, and a password is needed"))),
    }
}

async fn accept(listener: TcpListener, service: Arc<Service>, stopping: watch::Receiver<bool>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "no connection can be accepted for now");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = service.places.clone().try_acquire_owned() else {
            // These bytes fit into the socket's buffer.
            let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
            continue;
        };
        let (service, stopping) = (service.clone(), stopping.clone());
        drop(dapple::spawn(async move {
            connection::serve(stream, &service, stopping).await;
            drop(place);
        }));
    }
}

/// Removes values that have expired, every minute.
async fn expire(service: Arc<Service>) {
    loop {
        sleep(EXPIRE_EVERY).await;
        for database in 0..DATABASES {
            let Ok(table) = service.store.ordered_table::<Bytes, Bytes>(&name(database)).await else { continue };
            if let Err(error) = table.remove_expired().await {
                warn!(%error, database, "values that have expired could not be removed");
            }
        }
    }
}

impl Service {
    /// The table of a database, which is made when it is first used.
    async fn database(&self, database: u8) -> Result<TextTable, Error> {
        let name = name(database);
        match self.store.ordered_table(&name).await {
            Err(Error::NotApplied(Refusal::NoSuchTable(_))) => {}
            opened => return opened,
        }
        let options = TableOptions { expiry: true, ..TableOptions::default() };
        match self.store.create_ordered(&name, options).await {
            Err(Error::NotApplied(Refusal::TableExists(_))) => self.store.ordered_table(&name).await,
            created => created,
        }
    }

    fn clients(&self) -> usize {
        self.connections_max as usize - self.places.available_permits()
    }

    fn client_id(&self) -> u64 {
        self.next_client.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps the place of a scan and returns its cursor.
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

/// Whether the watch says that the server ends; a sender that is gone says so, too.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    while !*stopping.borrow() {
        if stopping.changed().await.is_err() {
            return;
        }
    }
}

const DRAIN: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const EXPIRE_EVERY: Duration = Duration::from_secs(60);

/// `race` with the end of the server.
async fn unless_stopped<T>(work: impl Future<Output = T>, stopping: &mut watch::Receiver<bool>) -> Option<T> {
    match race(work, stopped(stopping)).await {
        First::Left(done) => Some(done),
        First::Right(()) => None,
    }
}
