//! The clients that are connected, for `CLIENT LIST` and `CLIENT KILL`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dapple::task::CancellationToken;
use dapple::time::Instant;

/// All clients, by their numbers.
#[derive(Default)]
pub(super) struct Clients(Mutex<BTreeMap<u64, Arc<Client>>>);

/// A client as others see it.
pub(super) struct Client {
    pub(super) id: u64,
    /// Its address and the server's.
    pub(super) addr: String,
    pub(super) laddr: String,
    since: Instant,
    /// Cancelled when another client kills this one.
    pub(super) killed: CancellationToken,
    shown: Mutex<Shown>,
}

/// The state of a client after its last commands.
#[derive(Clone)]
pub(super) struct Shown {
    pub(super) name: Bytes,
    pub(super) library: [Bytes; 2],
    pub(super) database: u8,
    pub(super) channels: usize,
    pub(super) patterns: usize,
    /// The number of commands after `MULTI`.
    pub(super) queued: Option<usize>,
    pub(super) is_resp3: bool,
    /// The last command.
    pub(super) command: &'static str,
    pub(super) at: Instant,
}

/// The place of a client among all; dropping it frees the place.
pub(super) struct Registered {
    clients: Arc<Clients>,
    pub(super) client: Arc<Client>,
}

impl Clients {
    pub(super) fn register(
        self: &Arc<Self>,
        id: u64,
        addr: Option<SocketAddr>,
        laddr: Option<SocketAddr>,
    ) -> Registered {
        let text = |addr: Option<SocketAddr>| addr.map_or_else(String::new, |addr| addr.to_string());
        let now = Instant::now();
        let client = Arc::new(Client {
            id,
            addr: text(addr),
            laddr: text(laddr),
            since: now,
            killed: CancellationToken::new(),
            shown: Mutex::new(Shown::new(now)),
        });
        self.lock().insert(id, client.clone());
        Registered { clients: self.clone(), client }
    }

    /// All clients, in the order in which they came.
    pub(super) fn all(&self) -> Vec<Arc<Client>> {
        self.lock().values().cloned().collect()
    }

    /// The client with this number.
    pub(super) fn of(&self, id: u64) -> Option<Arc<Client>> {
        self.lock().get(&id).cloned()
    }

    // No caller's code runs under the lock.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.clients.lock().remove(&self.client.id);
    }
}

impl Shown {
    fn new(at: Instant) -> Shown {
        let (name, library) = (Bytes::new(), [Bytes::new(), Bytes::new()]);
        let (database, channels, patterns, queued) = (0, 0, 0, None);
        Shown { name, library, database, channels, patterns, queued, is_resp3: false, command: "NULL", at }
    }

    fn is_subscriber(&self) -> bool {
        self.channels + self.patterns > 0
    }
}

impl Client {
    pub(super) fn show(&self, shown: Shown) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }

    fn shown(&self) -> Shown {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The word of Redis for what it does: `normal` or `pubsub`.
    pub(super) fn kind(&self) -> &'static str {
        if self.shown().is_subscriber() { "pubsub" } else { "normal" }
    }

    /// The line of `CLIENT LIST`.
    pub(super) fn line(&self) -> String {
        let shown = self.shown();
        let flags = match (shown.is_subscriber(), shown.queued) {
            (true, _) => "P",
            (false, Some(_)) => "x",
            (false, None) => "N",
        };
        let [library, version] = shown.library.each_ref().map(|word| String::from_utf8_lossy(word));
        let mut line = String::new();
        // Writing to memory does not fail.
        let _ = writeln!(
            line,
            "id={} addr={} laddr={} name={} age={} idle={} flags={flags} db={} sub={} psub={} ssub=0 multi={} cmd={} \
             user=default resp={} lib-name={library} lib-ver={version}",
            self.id,
            self.addr,
            self.laddr,
            String::from_utf8_lossy(&shown.name),
            self.since.elapsed().as_secs(),
            shown.at.elapsed().as_secs(),
            shown.database,
            shown.channels,
            shown.patterns,
            shown.queued.map_or(-1, |queued| queued as i64),
            shown.command.to_ascii_lowercase(),
            if shown.is_resp3 { 3 } else { 2 },
        );
        line
    }
}
