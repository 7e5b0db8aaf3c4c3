//! The state that all connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dapple::stage::middleware::retry::Budget;
use dapple::tls::TlsConnector;
use dapple::{Color, Handle};
use dapple_client::upstream::{Config, Dial, Limits, Spawn};
use dapple_serve::command_line::limits;
use http::uri::PathAndQuery;
use ipnet::IpNet;

use super::args::ReverseArgs;
use super::common::Common;
use super::forwarded::Forwarding;
use super::list::List;
use super::source::Upstreams;
use super::target::Target;
use super::upstream::{Checks, Upstream, check_health};
use crate::observe::Observing;
use crate::proxy::args::Args;
use crate::proxy::cache::Cache;
use crate::proxy::tally::Tally;
use crate::server::Admission;
use dapple_client::relay::Via;

/// A reverse proxy.
///
/// ```text
///   accept                        the default color
///   read, parse, pick, write      the connection's color, or that of its stream (HTTP/2)
///   connections to upstreams      a color for each
///   health checks                 a color for each upstream
///   cache                         sixteen shards, a color each
///   fetch, for all that wait      a color for each
/// ```
///
/// With `--serial` all but the checks are the default color.
pub(crate) struct Reverse {
    pub(crate) list: Arc<List>,
    pub(crate) common: Arc<Common>,
    pub(crate) upstreams: Upstreams,
    /// `None` if responses are not kept. A reload of the upstreams leaves it unchanged.
    pub(crate) cache: Option<Arc<Cache<Upstreams>>>,
    pub(crate) forwarding: Forwarding,
    pub(crate) rewrites_host: bool,
    pub(crate) via: Via,
    pub(crate) tally: Arc<Tally>,
    /// The clients that may connect, besides this machine; all if none is named.
    pub(crate) clients: Vec<IpNet>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) observing: Observing,
    pub(crate) tunnels_max: usize,
    checks: Option<Checks>,
    crowded: AtomicBool,
}

impl Reverse {
    /// Creates a proxy for the upstreams in the options.
    pub(crate) fn new(
        args: &Args,
        encryption: TlsConnector,
        admission: Arc<Admission>,
        observing: Observing,
        handle: Handle,
    ) -> Reverse {
        let ReverseArgs { to, rewrite_host, trust_forwarded, no_forwarded, pool, health, .. } = &args.reverse;
        let (waits, serial) = (args.waits(), args.runtime.serial);
        let connections_max = pool.number(&limits::UPSTREAM_CONNECTIONS_MAX) as usize;
        let pool_limits = Limits {
            connections_max,
            total_max: usize::MAX,
            idle_max: connections_max,
            idle_total_max: usize::MAX,
            idle_age_max: pool.time(&limits::UPSTREAM_IDLE_TIMEOUT),
            waiting_max: connections_max.max(WAITING_MIN),
            wait_max: Some(waits.connect),
        };
        let spawn = if serial { Spawn::In(Color::DEFAULT) } else { Spawn::On(handle.clone()) };
        let config = Config::new(Dial::new(encryption, waits.connect), pool_limits, spawn);
        let common = Arc::new(Common { config, waits, handle: handle.clone(), serial });
        let path = health.health_path.as_deref().and_then(|path| PathAndQuery::try_from(path).ok());
        let checks = path.map(|path| Checks {
            path,
            interval: health.health_interval_s,
            timeout: health.health_timeout_s,
            passes: health.health_passes,
            failures: health.health_failures,
        });
        let every = checks.as_ref().map(|checks| checks.interval);
        let list = Arc::new(List::new(common.clone(), health.fail_after, every));
        let (budget, retries_max) =
            (budget(pool.number(&limits::RETRY_PERCENT) as u32), pool.number(&limits::RETRIES) as u32);
        let upstreams = Upstreams { list: list.clone(), budget, retries_max, common: common.clone() };
        let (via, tally) = (Via::random("dapple"), Arc::new(Tally::new(handle)));
        let cache = |mb| Cache::new(mb, &args.cache, common.serial, upstreams.clone(), via.clone(), tally.clone());
        let cache = Some(args.cache.mb(true)).filter(|mb| *mb > 0).map(cache).map(Arc::new);
        Reverse {
            list,
            common,
            upstreams,
            cache,
            forwarding: Forwarding { trusted: trust_forwarded.clone(), is_silent: *no_forwarded },
            rewrites_host: *rewrite_host,
            via,
            tally,
            clients: args.allow.allow_clients.clone(),
            admission,
            observing,
            tunnels_max: args.tunnels_max(),
            checks,
            crowded: AtomicBool::new(false),
        }
        .with(to)
    }

    fn with(self, targets: &[Target]) -> Reverse {
        self.set_upstreams(targets);
        self
    }

    /// Replaces the upstreams. Starts health checks of new ones if these are on.
    pub(crate) fn set_upstreams(&self, targets: &[Target]) {
        for upstream in self.list.set(targets) {
            self.begin_checks(&upstream);
        }
    }

    fn begin_checks(&self, upstream: &Arc<Upstream>) {
        if let Some(checks) = self.checks.clone() {
            let check = check_health(self.list.clone(), Arc::downgrade(upstream), checks);
            drop(Color::new().spawn_background(check));
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

/// The budget for retries: `percent` of the requests of the last ten seconds, plus one per second;
/// none if it is 0.
fn budget(percent: u32) -> Budget {
    let min_per_s = u32::from(percent > 0);
    Budget::new(BUDGET_TIME, min_per_s, percent as f32 / 100.0)
}

/// The fewest requests that may wait for their turn at an upstream.
const WAITING_MIN: usize = 100;

const BUDGET_TIME: Duration = Duration::from_secs(10);
