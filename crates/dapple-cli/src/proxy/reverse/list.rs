//! The list of upstreams, and the choice among them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use dapple::stage::balance::{Balancer, Config, Load, Outcome, Picked, Probe, ReplicaState, ReplicaStats};
use tracing::{info, warn};

use super::common::Common;
use super::target::{Scheme, Target};
use super::upstream::Upstream;

/// The upstreams. Read for each request, changed by a reload.
pub(crate) struct List {
    balancer: Balancer<Arc<str>, Arc<Upstream>>,
    all: ArcSwap<Vec<Arc<Upstream>>>,
    common: Arc<Common>,
    /// If only checks bring an upstream back, none can be expected before the next check.
    retry_after_min: Duration,
}

/// An upstream picked for one request, which is in flight there until this is dropped.
pub(crate) type Pick = Picked<Arc<str>, Arc<Upstream>>;

impl List {
    /// Creates an empty list. `fail_after` failures in a row take an upstream out of service, until
    /// a request tries it with success; or, with `checks` at this interval, until a check does.
    pub(crate) fn new(common: Arc<Common>, fail_after: u32, checks: Option<Duration>) -> List {
        let mut config = Config::default();
        config.load = Load::Latency;
        config.failures_max = fail_after;
        config.probe = if checks.is_some() { Probe::Check } else { Probe::Trial };
        let (balancer, all) = (Balancer::new(config), ArcSwap::default());
        List { balancer, all, common, retry_after_min: checks.unwrap_or_default() }
    }

    /// All upstreams.
    pub(crate) fn all(&self) -> Arc<Vec<Arc<Upstream>>> {
        self.all.load_full()
    }

    /// Replaces the list; no target occurs twice in it. Upstreams that stay keep their connections
    /// and state. Returns the new ones.
    pub(crate) fn set(&self, targets: &[Target]) -> Vec<Arc<Upstream>> {
        let before = self.all();
        let mut seen = HashSet::new();
        let targets: Vec<&Target> = targets.iter().filter(|target| seen.insert(*target)).collect();
        let (mut all, mut new): (Vec<Arc<Upstream>>, Vec<_>) = Default::default();
        for target in &targets {
            let known = before.iter().find(|known| known.target == **target).cloned();
            all.push(known.unwrap_or_else(|| {
                let upstream = Upstream::new((*target).clone(), self.common.clone());
                new.push(upstream.clone());
                upstream
            }));
        }
        self.balancer.set(all.iter().map(|upstream| (upstream.name.clone(), upstream.clone())));
        self.all.store(Arc::new(all));
        before.iter().filter(|known| !seen.contains(&known.target)).for_each(|gone| gone.retire());
        new
    }

    /// Picks an upstream other than those `asked`: of two random ones, the one with the shorter
    /// expected wait.
    ///
    /// # Errors
    ///
    /// None is left; one may be after this time.
    pub(crate) fn pick(&self, asked: &[Arc<str>]) -> Result<Pick, Duration> {
        let picked = self.balancer.pick_other_than(asked);
        let picked = picked.map_err(|refused| refused.retry_after.max(self.retry_after_min))?;
        // If there is no other, the pick is one of those already tried.
        if asked.contains(picked.key()) { Err(Duration::ZERO) } else { Ok(picked) }
    }

    /// As [`pick`](Self::pick), for a request that asks to change the protocol. Picks an HTTP/2
    /// upstream, which cannot change the protocol, only if there is no other.
    ///
    /// # Errors
    ///
    /// As those of [`pick`](Self::pick).
    pub(crate) fn pick_for_upgrade(&self, asked: &[Arc<str>]) -> Result<Pick, Duration> {
        let all = self.all();
        let unable = all.iter().filter(|upstream| upstream.target.scheme == Scheme::H2c);
        let avoided: Vec<Arc<str>> =
            unable.map(|upstream| upstream.name.clone()).chain(asked.iter().cloned()).collect();
        self.pick(&avoided).or_else(|_| self.pick(asked))
    }

    /// Reports how a request went, and logs any change that follows.
    pub(crate) fn report(&self, pick: &mut Pick, outcome: Outcome) {
        pick.report(outcome);
        self.tell(pick.value());
    }

    /// Reports the result of a check.
    pub(crate) fn set_health(&self, upstream: &Upstream, is_well: bool) {
        self.balancer.set_health(&upstream.name, is_well);
        self.tell(upstream);
    }

    /// The state of each upstream.
    pub(crate) fn stats(&self) -> Vec<ReplicaStats<Arc<str>>> {
        self.balancer.stats()
    }

    /// Logs a change of an upstream's state.
    pub(crate) fn tell(&self, upstream: &Upstream) {
        let stats = self.stats().into_iter().find(|stats| stats.key == upstream.name);
        let (name, state) = (&*upstream.name, stats.map(|stats| stats.state));
        match state {
            Some(ReplicaState::In) if !upstream.is_in.swap(true, Ordering::Relaxed) => {
                info!(upstream = name, "an upstream is in service again");
            }
            Some(ReplicaState::Out { .. }) if upstream.is_in.swap(false, Ordering::Relaxed) => {
                upstream.counts.outs.fetch_add(1, Ordering::Relaxed);
                let reason = upstream.last_failure();
                warn!(
                    upstream = name,
                    reason, "an upstream failed too often, and is out of service until it is healthy again"
                );
            }
            _ => {}
        }
    }
}
