//! The upstreams that are in the list, and which of them is asked.

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

/// See the module. Read for each request, changed by a reload.
pub(crate) struct List {
    balancer: Balancer<Arc<str>, Arc<Upstream>>,
    all: ArcSwap<Vec<Arc<Upstream>>>,
    common: Arc<Common>,
    /// Where only checks bring an upstream back, none may be expected sooner than by the next one.
    retry_after_min: Duration,
}

/// An upstream that was picked for one request, which is in flight there until this is dropped.
pub(crate) type Pick = Picked<Arc<str>, Arc<Upstream>>;

impl List {
    /// An empty one. So many failures in a row put an upstream out, until a request tries it successfully; or, with `checks` so often, until
    /// a check does.
    pub(crate) fn new(common: Arc<Common>, fail_after: u32, checks: Option<Duration>) -> List {
        let mut config = Config::default();
        config.load = Load::Latency;
        config.failures_max = fail_after;
        config.probe = if checks.is_some() { Probe::Check } else { Probe::Trial };
        let (balancer, all) = (Balancer::new(config), ArcSwap::default());
        List { balancer, all, common, retry_after_min: checks.unwrap_or_default() }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Arc<Vec<Arc<Upstream>>> {
        self.all.load_full()
    }

    /// From now on it is these; none is in it twice. Those that stay keep their connections and what is known of them. Returns those that
    /// are new.
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

    /// Whom to ask, other than those that were: of two drawn by chance, the one at which less is to be waited for.
    ///
    /// # Errors
    ///
    /// None is left; after this time one may be.
    pub(crate) fn pick(&self, asked: &[Arc<str>]) -> Result<Pick, Duration> {
        let picked = self.balancer.pick_other_than(asked);
        let picked = picked.map_err(|refused| refused.retry_after.max(self.retry_after_min))?;
        // Where there is no other, it is one of those.
        if asked.contains(picked.key()) { Err(Duration::ZERO) } else { Ok(picked) }
    }

    /// As [`pick`](Self::pick), for a request that asks to change the protocol: one of HTTP/2 alone, which has no such thing, only where
    /// there is no other.
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

    /// Says how a request went, and what that changes.
    pub(crate) fn report(&self, pick: &mut Pick, outcome: Outcome) {
        pick.report(outcome);
        self.tell(pick.value());
    }

    /// Says what a check found.
    pub(crate) fn set_health(&self, upstream: &Upstream, is_well: bool) {
        self.balancer.set_health(&upstream.name, is_well);
        self.tell(upstream);
    }

    /// How each of them is.
    pub(crate) fn stats(&self) -> Vec<ReplicaStats<Arc<str>>> {
        self.balancer.stats()
    }

    /// Has the log say it when an upstream has come or gone.
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
                    reason, "an upstream failed too often, and is out of service until it is found well"
                );
            }
            _ => {}
        }
    }
}
