//! Connections to one server: idle HTTP/1.1 ones, and HTTP/2 ones, which carry many requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple_io::time::Instant;
use hyper::client::conn::{http1, http2};

pub(super) type Sender1<B> = http1::SendRequest<B>;
pub(super) type Sender2<B> = http2::SendRequest<B>;

/// The connections to one server.
pub(super) struct Pool<B> {
    idle: Vec<Idle<B>>,
    shared: Vec<Shared<B>>,
}

struct Idle<B> {
    sender: Sender1<B>,
    since: Instant,
}

/// An HTTP/2 connection.
struct Shared<B> {
    sender: Sender2<B>,
    streams: Arc<AtomicUsize>,
    /// The number of streams that the server allows, from its last SETTINGS.
    streams_max: Arc<AtomicUsize>,
    opened: Instant,
    used: Instant,
}

/// One request on an HTTP/2 connection.
pub(super) struct Stream<B> {
    pub(super) sender: Sender2<B>,
    streams: Arc<AtomicUsize>,
}

impl<B> Drop for Stream<B> {
    fn drop(&mut self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<B> Default for Pool<B> {
    fn default() -> Self {
        Pool { idle: Vec::new(), shared: Vec::new() }
    }
}

impl<B> Pool<B> {
    /// Takes the most recently used HTTP/1.1 connection, so that the others become old enough to be
    /// closed.
    pub(super) fn take(&mut self) -> Option<Sender1<B>> {
        while let Some(idle) = self.idle.pop() {
            if !idle.sender.is_closed() {
                return Some(idle.sender);
            }
        }
        None
    }

    /// Takes room on an HTTP/2 connection; with `newer_than`, on one made after that time.
    pub(super) fn share(&mut self, newer_than: Option<Instant>) -> Option<Stream<B>> {
        self.drop_closed();
        let has_room = |shared: &&mut Shared<B>| {
            if newer_than.is_some_and(|time| shared.opened <= time) {
                return false;
            }
            let streams_max = shared.streams_max.load(Ordering::Relaxed).clamp(1, STREAMS_MAX);
            shared.streams.load(Ordering::Relaxed) < streams_max
        };
        self.shared.iter_mut().find(has_room).map(Shared::begin)
    }

    /// Keeps a connection for its next request.
    pub(super) fn put(&mut self, sender: Sender1<B>) {
        self.idle.push(Idle { sender, since: Instant::now() });
    }

    /// Adds an HTTP/2 connection, and starts a request on it.
    pub(super) fn add(&mut self, sender: Sender2<B>, streams_max: Arc<AtomicUsize>) -> Stream<B> {
        let now = Instant::now();
        let mut shared = Shared { sender, streams: Arc::default(), streams_max, opened: now, used: now };
        let stream = shared.begin();
        self.shared.push(shared);
        stream
    }

    /// Closes the connection that was idle longest. Returns `false` if none is idle.
    pub(super) fn drop_oldest(&mut self) -> bool {
        let is_any = !self.idle.is_empty();
        if is_any {
            self.idle.remove(0);
        }
        is_any
    }

    /// Drops HTTP/2 connections that have ended.
    pub(super) fn drop_closed(&mut self) {
        self.shared.retain(|shared| !shared.sender.is_closed());
    }

    /// The number of idle HTTP/1.1 connections.
    pub(super) fn idle_len(&self) -> usize {
        self.idle.len()
    }

    /// Drops all connections. Each closes after its last request in flight has ended.
    pub(super) fn clear(&mut self) {
        self.idle.clear();
        self.shared.clear();
    }

    /// Drops connections that are closed or were idle for longer than `age_max`.
    pub(super) fn drop_old(&mut self, age_max: Duration) {
        self.idle.retain(|idle| !idle.sender.is_closed() && idle.since.elapsed() < age_max);
        self.shared.retain_mut(|shared| {
            if shared.streams.load(Ordering::Relaxed) > 0 {
                shared.used = Instant::now();
            }
            !shared.sender.is_closed() && shared.used.elapsed() < age_max
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.idle.is_empty() && self.shared.is_empty()
    }
}

impl<B> Shared<B> {
    fn begin(&mut self) -> Stream<B> {
        self.used = Instant::now();
        self.streams.fetch_add(1, Ordering::Relaxed);
        Stream { sender: self.sender.clone(), streams: self.streams.clone() }
    }
}

/// The most requests at a time on one HTTP/2 connection, if the server allows as many.
pub const STREAMS_MAX: usize = 100;
