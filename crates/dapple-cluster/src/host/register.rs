//! The host's own entry, and those of its replicas for clients: under one lease.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dapple_etcd::{Compare, Delete, Error, Guard, Guarded, Lease, Put, Txn};
use dapple_io::time::{sleep, timeout};
use dapple_sync::sync::oneshot;
use dapple_sync::task::{CancellationToken, First, race};
use dapple_tower::Backoff;
use dapple_tower::random::Random;

use super::machine::{Ticks, memory_mb};
use super::{HostError, Shared};
use crate::directory::{Directory, json};
use crate::record::{HostReport, ReplicaState};

/// Registers the host, again after each lost lease, until `ended`. Says once that it has.
///
/// # Errors
///
/// Another host has the name.
pub(super) async fn register(
    directory: Directory,
    shared: Arc<Shared>,
    ttl: Duration,
    ended: CancellationToken,
    first: oneshot::Sender<()>,
) -> Result<(), HostError> {
    let (mut first, mut failures, mut random) = (Some(first), 0, Random::fresh());
    let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
    loop {
        let entry = match race(ended.cancelled(), Entry::claim(&directory, &shared, ttl)).await {
            First::Left(()) => return Ok(()),
            First::Right(entry) => entry,
        };
        match entry {
            Ok(mut entry) => {
                failures = 0;
                if let Some(first) = first.take() {
                    let _heard = first.send(());
                }
                match race(ended.cancelled(), entry.keep(&shared)).await {
                    First::Left(()) => {
                        // Others use only hosts that they see.
                        let _late = timeout(END_MAX, entry.lease.revoke()).await;
                        return Ok(());
                    }
                    First::Right(reason) => {
                        tracing::warn!(
                            reason,
                            "this host is no longer registered; it registers again, and its replicas run on"
                        );
                    }
                }
            }
            Err(error @ HostError::NameTaken { .. }) => return Err(error),
            Err(error) => {
                tracing::warn!(%error, place = %directory.place(), "this host is not registered; it tries again")
            }
        }
        if let First::Left(()) = race(ended.cancelled(), sleep(backoff.random_wait(failures, &mut random))).await {
            return Ok(());
        }
        failures = (failures + 1).min(16);
    }
}

/// An entry under its lease.
struct Entry<'a> {
    directory: &'a Directory,
    lease: Lease,
    key: String,
    /// The revision of the last write.
    revision: i64,
    /// The keys for clients that are there.
    found: BTreeSet<(String, String)>,
    ticks: Ticks,
}

impl<'a> Entry<'a> {
    /// Makes the entry. One of an earlier start of this host is in the way until its lease ends.
    async fn claim(directory: &'a Directory, shared: &Shared, ttl: Duration) -> Result<Entry<'a>, HostError> {
        let etcd = directory.etcd();
        let report = shared.reporting.get();
        let key = directory.place().key("hosts", &report.name);
        let (mut waited, mut guard) = (Duration::ZERO, Guard::Absent);
        loop {
            let lease = etcd.lease(ttl).await?;
            let number = *shared.reporting.changes().borrow();
            let report = shared.reporting.get();
            let put = Put::new(key.clone(), json(&report)).lease(lease.id());
            match etcd.put_guarded(put, guard).await? {
                Guarded::Applied { revision } => {
                    let ticks = Ticks::now();
                    let mut entry = Entry { directory, lease, key, revision, found: BTreeSet::new(), ticks };
                    entry.write_found(&report).await?;
                    shared.reporting.is_written(number);
                    return Ok(entry);
                }
                Guarded::Refused { current } => {
                    lease.revoke().await;
                    let read = |record: &dapple_etcd::Record| serde_json::from_slice::<HostReport>(&record.value).ok();
                    let other = current.as_ref().and_then(read).unwrap_or_default();
                    guard = match current {
                        // Its own, under an earlier lease.
                        Some(record) if other.incarnation == report.incarnation => Guard::Revision(record.mod_revision),
                        _ => Guard::Absent,
                    };
                    if guard == Guard::Absent && waited > ttl * 2 + GRACE {
                        return Err(HostError::NameTaken { name: report.name, address: other.address });
                    }
                    sleep(AGAIN).await;
                    waited += AGAIN;
                }
            }
        }
    }

    /// Writes each change, and the load now and then. Returns why it ended.
    async fn keep(&mut self, shared: &Shared) -> String {
        let mut changes = shared.reporting.changes();
        loop {
            let number = *changes.borrow_and_update();
            self.measure(shared);
            match self.write(shared, number).await {
                Ok(true) => {}
                Ok(false) => return "another program has changed its entry".to_owned(),
                Err(error) if self.lease.is_lost() => return error.to_string(),
                Err(error) => {
                    tracing::warn!(%error, "the host's report is not written; it tries again");
                    sleep(AGAIN).await;
                    continue;
                }
            }
            let changed = timeout(MEASURE_EVERY, changes.changed());
            if let First::Left(()) = race(self.lease.lost(), changed).await {
                return "its lease is over".to_owned();
            }
        }
    }

    /// The load since the last look, which is not a change by itself.
    fn measure(&mut self, shared: &Shared) {
        let now = Ticks::now();
        if !now.is_later_than(self.ticks) {
            return;
        }
        let (percent, (_, free)) = (now.percent_since(self.ticks), memory_mb());
        self.ticks = now;
        shared.reporting.loaded(percent, free);
    }

    async fn write(&mut self, shared: &Shared, number: u64) -> Result<bool, Error> {
        let report = shared.reporting.get();
        let put = Put::new(self.key.clone(), json(&report)).lease(self.lease.id());
        match self.directory.etcd().put_guarded(put, Guard::Revision(self.revision)).await? {
            Guarded::Applied { revision } => self.revision = revision,
            Guarded::Refused { .. } => return Ok(false),
        }
        self.write_found(&report).await?;
        shared.reporting.is_written(number);
        Ok(true)
    }

    /// Lets clients find the replicas that are ready, and no others.
    async fn write_found(&mut self, report: &HostReport) -> Result<(), Error> {
        let ready = report.replicas.values().filter(|replica| replica.state == ReplicaState::Ready);
        let of_replica = |replica: &crate::record::ReplicaReport| {
            let listens = replica.listens.clone().unwrap_or_default();
            replica.stages.iter().map(move |stage| (stage.clone(), listens.clone())).collect::<Vec<_>>()
        };
        let wanted: BTreeSet<(String, String)> =
            ready.filter(|replica| replica.listens.is_some()).flat_map(of_replica).collect();
        let place = self.directory.place();
        let key = |(stage, address): &(String, String)| place.found_key(stage, address);
        let puts = wanted
            .difference(&self.found)
            .map(|one| dapple_etcd::Op::from(Put::new(key(one), one.1.clone()).lease(self.lease.id())));
        let deletes = self.found.difference(&wanted).map(|one| dapple_etcd::Op::from(Delete::new(key(one))));
        let ops: Vec<dapple_etcd::Op> = puts.chain(deletes).collect();
        for ops in ops.chunks(OPS_MAX) {
            // Only for as long as this host has its entry: a successor of the same name has its own.
            let mine = Compare::lease_equals(self.key.clone(), self.lease.id());
            let txn = ops.iter().cloned().fold(Txn::new().when(mine), |txn, op| txn.then(op));
            self.directory.etcd().txn_guarded(&txn).await?;
        }
        self.found = wanted;
        Ok(())
    }
}

/// The most operations of one transaction; etcd takes 128.
const OPS_MAX: usize = 100;
/// How often the load is written.
const MEASURE_EVERY: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(500);
const GRACE: Duration = Duration::from_secs(5);
const END_MAX: Duration = Duration::from_secs(2);
