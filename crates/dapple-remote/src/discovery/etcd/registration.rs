//! A host's registration, under a lease that expires by itself when the host dies.

use std::collections::BTreeSet;
use std::time::Duration;

use dapple_etcd::{Error, Etcd, Lease, Put, Txn};
use dapple_io::time::{sleep, timeout};
use dapple_sched::JoinHandle;
use dapple_sync::task::CancellationToken;
use dapple_sync::task::{First, race};

use super::place::EtcdFolder;
use crate::backoff::Failures;
use crate::discovery::{Discovery, DiscoveryError};

/// A host's entry in etcd, one key for each stage. A task renews it, and makes it again if etcd has
/// lost it. It disappears some seconds after its process.
///
/// If dropped, a task removes it in the background; [`end`](Self::end) waits for that.
#[derive(Debug)]
pub struct Registration {
    ended: CancellationToken,
    /// Set before `ended` if the entry stays.
    left: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Registration {
    /// Registers stages at the address by which others reach this host. It retries until etcd
    /// answers. After a host has died, others learn of it within `ttl`, which is at least 2 s, in
    /// whole seconds.
    ///
    /// # Errors
    ///
    /// The discovery is not etcd.
    ///
    /// # Panics
    ///
    /// If no runtime is current.
    pub fn start<S: AsRef<str>>(
        discovery: &Discovery,
        stages: impl IntoIterator<Item = S>,
        address: &str,
        ttl: Duration,
    ) -> Result<Registration, DiscoveryError> {
        let no_etcd = || DiscoveryError(format!("hosts register themselves in etcd only; `{discovery}` is none"));
        let place = discovery.place().ok_or_else(no_etcd)?.clone();
        let entries = Entries {
            etcd: place.client(),
            keys: stages
                .into_iter()
                .map(|stage| place.key(stage.as_ref(), address))
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            address: address.to_owned(),
            ttl: Duration::from_secs(ttl.as_secs().max(TTL_MIN_S)),
            place,
        };
        let (ended, left) = (CancellationToken::new(), CancellationToken::new());
        let task = dapple_sched::spawn(keep(entries, ended.clone(), left.clone()));
        Ok(Registration { ended, left, task: Some(task) })
    }

    /// Removes the entry, so that no new client comes. Takes at most two seconds: if etcd does not
    /// answer, the entry expires later.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, the entry is removed all the same.
    pub async fn end(mut self) {
        self.ended.cancel();
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }

    /// Leaves the entry to the process that took over: that process has the same keys, under its
    /// own lease.
    pub(crate) fn leave_to_successor(self) {
        self.left.cancel();
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

struct Entries {
    etcd: Etcd,
    keys: Vec<String>,
    address: String,
    ttl: Duration,
    place: EtcdFolder,
}

/// Registers, and removes the entry at the end. The lease renews itself.
async fn keep(entries: Entries, ended: CancellationToken, left: CancellationToken) {
    let mut failures = Failures::new(BACKOFF_FIRST, BACKOFF_MAX);
    let mut is_told = false;
    loop {
        let lease = match race(ended.cancelled(), entries.register()).await {
            First::Left(()) => return,
            First::Right(Ok(lease)) => lease,
            First::Right(Err(problem)) => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(%problem, place = %entries.place, "this host is not registered; it is tried again");
                }
                match race(ended.cancelled(), sleep(failures.failed())).await {
                    First::Left(()) => return,
                    First::Right(()) => continue,
                }
            }
        };
        failures.reset();
        is_told = false;
        if let First::Left(()) = race(ended.cancelled(), lease.lost()).await {
            match left.is_cancelled() {
                true => lease.leave(),
                false => drop(timeout(END_MAX, lease.revoke()).await),
            }
            return;
        }
    }
}

impl Entries {
    /// Writes the keys under a new lease. That is idempotent, so it is sent again if a reply is
    /// lost.
    async fn register(&self) -> Result<Lease, Error> {
        let lease = self.etcd.lease(self.ttl).await?;
        let put = |key: &String| Put::new(key.clone(), self.address.clone()).lease(lease.id());
        for keys in self.keys.chunks(OPS_MAX) {
            let txn = keys.iter().fold(Txn::new(), |txn, key| txn.then(put(key)));
            self.etcd.txn_guarded(&txn).await?;
        }
        Ok(lease)
    }
}

/// The most operations of one transaction; etcd takes 128.
const OPS_MAX: usize = 100;
const TTL_MIN_S: u64 = 2;
const END_MAX: Duration = Duration::from_secs(2);
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
