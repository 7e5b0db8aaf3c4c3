//! The state that all connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use dapple::Handle;

use super::args::Args;
use super::cache::Cache;
use super::rules::Rules;
use super::source::Origins;
use super::tally::Tally;
use super::upstream::Upstream;
use crate::observe::Observing;
use crate::server::Admission;
use dapple_client::relay::Via;

/// The proxy.
///
/// The structure is that of the papers' (libasync-mp: a client's connection, the cache and the
/// fetches have colors of their own):
///
/// ```text
///   accept                       the default color
///   read, parse, hash            the connection's color
///   cache                        sixteen shards, a color each
///   fetch, for all that wait     a color for each
///   connections to origins       a color for each
///   write, tunnel                the connection's color
/// ```
///
/// With `--serial` all of these are the default color; nothing else changes.
pub(crate) struct Proxy {
    pub(crate) cache: Arc<Cache<Origins>>,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) via: Via,
    pub(crate) tally: Arc<Tally>,
    /// Decides which clients may connect.
    pub(crate) admission: Arc<Admission>,
    /// The sinks of reports about requests.
    pub(crate) observing: Observing,
    pub(crate) handle: Handle,
    pub(crate) tunnels_max: usize,
    /// Whether servers learn the addresses of clients.
    pub(crate) forwarded: bool,
    /// Whether `/-/status` answers.
    pub(crate) status: bool,
    pub(crate) serial: bool,
    pub(crate) started: Instant,
    crowded: AtomicBool,
}

impl Proxy {
    /// Allows `spare` connections to origins in addition to one for each client.
    pub(crate) fn new(
        args: &Args,
        rules: Rules,
        admission: Arc<Admission>,
        spare: u64,
        observing: Observing,
        handle: Handle,
    ) -> Proxy {
        // One for each client, and some that are idle or fetch for the cache after their client has
        // left.
        let connections_max = admission.max() + spare as usize;
        let tally = Arc::new(Tally::new(handle.clone()));
        let via = Via::random("dapple");
        let upstream =
            Upstream::new(rules, args.waits(), connections_max, args.runtime.serial, tally.clone(), handle.clone());
        let upstream = Arc::new(upstream);
        let (cache_mb, source) = (args.cache.mb(false), Origins(upstream.clone()));
        let cache = Cache::new(cache_mb, &args.cache, args.runtime.serial, source, via.clone(), tally.clone());
        Proxy {
            cache: Arc::new(cache),
            upstream,
            via,
            tally,
            admission,
            observing,
            handle,
            tunnels_max: args.tunnels_max(),
            forwarded: args.allow.forwarded,
            status: !args.runtime.no_status,
            serial: args.runtime.serial,
            started: Instant::now(),
            crowded: AtomicBool::new(false),
        }
    }

    /// Whether each reply should be the last on its connection.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    pub(crate) fn set_crowded(&self, is_crowded: bool) {
        self.crowded.store(is_crowded, Ordering::Relaxed);
    }
}
