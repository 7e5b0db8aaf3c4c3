//! The servers in use, and their common configuration.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_io::time::sleep;
use dapple_sched::environment::HashMap;
use dapple_sched::{Color, Handle};

use super::Dial;
use super::host::Host;
use crate::Origin;

/// The configuration that all servers of one client share, and the counts of their connections.
#[derive(Debug)]
pub struct Config {
    /// How connections are made.
    pub dial: Dial,
    /// The limits on connections.
    pub limits: Limits,
    /// The color of connection tasks.
    pub spawn: Spawn,
    open: AtomicUsize,
    idle: AtomicUsize,
}

/// The limits on the number of connections, and on their time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections to one server, including idle ones.
    pub connections_max: usize,
    /// Connections to all servers of a [`Hosts`].
    pub total_max: usize,
    /// Idle HTTP/1.1 connections to one server; more are closed.
    pub idle_max: usize,
    /// The same limit over all servers.
    pub idle_total_max: usize,
    /// How long a connection stays idle.
    pub idle_age_max: Duration,
    /// Requests that wait for their turn at one server.
    pub waiting_max: usize,
    /// How long they wait; `None` for no limit.
    pub wait_max: Option<Duration>,
}

/// Where the tasks of connections run: each in a color of its own, or all in one.
#[derive(Clone, Debug)]
pub enum Spawn {
    /// On the runtime that is current when a connection is made.
    Current,
    /// On this one.
    On(Handle),
    /// In this color.
    In(Color),
}

impl Spawn {
    /// Starts a detached task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(match self {
            Spawn::Current => dapple_sched::spawn_balanced(task),
            Spawn::On(handle) => handle.spawn_balanced(task),
            Spawn::In(color) => color.spawn(task),
        });
    }
}

impl Config {
    /// Creates a configuration without connections.
    pub fn new(dial: Dial, limits: Limits, spawn: Spawn) -> Arc<Config> {
        Arc::new(Config { dial, limits, spawn, open: AtomicUsize::new(0), idle: AtomicUsize::new(0) })
    }

    pub(super) fn open(&self) -> &AtomicUsize {
        &self.open
    }

    pub(super) fn idle(&self) -> &AtomicUsize {
        &self.idle
    }
}

/// The servers that a client has connections to, found by name.
pub struct Hosts<B> {
    pub(super) config: Arc<Config>,
    by_origin: Mutex<ByOrigin<B>>,
}

struct ByOrigin<B> {
    hosts: HashMap<Origin, Arc<Host<B>>>,
    /// The length at which the map drops unused servers.
    prune_at: usize,
}

impl<B: Send + 'static> Hosts<B> {
    /// Creates an empty map.
    pub fn new(config: Arc<Config>) -> Hosts<B> {
        Hosts { config, by_origin: Mutex::new(ByOrigin { hosts: HashMap::default(), prune_at: PRUNE_MIN }) }
    }

    /// The server of this name.
    pub fn get(&self, origin: &Origin) -> Arc<Host<B>> {
        let mut by_origin = self.lock();
        if let Some(host) = by_origin.hosts.get(origin) {
            return host.clone();
        }
        if by_origin.hosts.len() >= by_origin.prune_at {
            by_origin.hosts.retain(|_, host| Arc::strong_count(host) > 1 || host.connections().0 > 0);
            by_origin.prune_at = (2 * by_origin.hosts.len()).max(PRUNE_MIN);
        }
        let host = Host::new(origin.clone(), self.config.clone());
        by_origin.hosts.insert(origin.clone(), host.clone());
        host
    }

    /// The number of connections to all servers, and of idle ones.
    pub fn connections(&self) -> (usize, usize) {
        (self.config.open.load(Ordering::Relaxed), self.config.idle.load(Ordering::Relaxed))
    }

    /// Retires all servers, see [`Host::retire`].
    pub fn retire(&self) {
        let hosts: Vec<_> = self.lock().hosts.values().cloned().collect();
        hosts.iter().for_each(|host| host.retire());
    }

    /// The configuration that all servers share.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Waits until the limit for all servers allows another connection. At the limit it closes an
    /// idle one, which takes a moment to end.
    ///
    /// # Cancel safety
    ///
    /// Safe; an idle connection may have been closed meanwhile.
    ///
    /// # Errors
    ///
    /// All connections are in use.
    pub async fn make_room(&self) -> Result<(), ()> {
        for _ in 0..PLACE_TRIES {
            if self.config.open.load(Ordering::Relaxed) < self.config.limits.total_max {
                return Ok(());
            }
            let hosts: Vec<_> = self.lock().hosts.values().cloned().collect();
            hosts.iter().any(|host| host.drop_oldest());
            sleep(PLACE_PAUSE).await;
        }
        Err(())
    }

    fn lock(&self) -> MutexGuard<'_, ByOrigin<B>> {
        // Nothing that can panic half-way happens under the lock.
        self.by_origin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> fmt::Debug for Hosts<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts").field("config", &self.config).finish_non_exhaustive()
    }
}

/// How many servers the map holds before it drops unused ones.
const PRUNE_MIN: usize = 64;

/// Attempts to find room for a connection, and the pause between them.
const PLACE_TRIES: u32 = 50;
const PLACE_PAUSE: Duration = Duration::from_millis(2);
