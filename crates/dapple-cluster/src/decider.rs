//! The host that decides: a lock of etcd under a lease of its own, and writes on the condition that it still has the lock.
//!
//! ```text
//!   waiting ── has the lock ──▶ deciding: read all at one revision ─▶ plan ─▶ write one decision after the other
//!      ▲                            ▲                                            │
//!      │                            └── a change, or five seconds ◀─── all done ─┤
//!      └──────── the lease is over, or a write says that the lock is not held ◀──┘
//! ```
//!
//! Each write is one transaction: the decision, the time of the change, and the event with its reason. Its conditions are the lock, and that
//! the records are as they were read. A decider that dies leaves decisions that it has not written: the next one finds them again.

use std::time::Duration;

use dapple_etcd::{Compare, Error, Get, Held, Keys, Lease, Put, Reason, Txn, Watching};
use dapple_io::time::{sleep, timeout};
use dapple_sync::task::{First, race};
use dapple_tower::Backoff;
use dapple_tower::random::Random;

use crate::clock::now_ms;
use crate::directory::{Directory, EVENTS_MAX, Snapshot, json};
use crate::plan::{Change, Decision, plan};
use crate::record::Event;

/// A candidate for deciding.
#[derive(Clone, Debug)]
pub struct Decider {
    directory: Directory,
    name: String,
    ttl: Duration,
}

/// The time during which one host decides. Dropped, it gives the lock up.
#[derive(Debug)]
pub struct Term {
    directory: Directory,
    name: String,
    lease: Lease,
    held: Held,
    /// The number of the last event.
    events: u64,
    /// The revision of the last reading.
    seen: i64,
}

/// How a round of decisions ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// So many decisions were written, and none is left.
    Done(usize),
    /// So many were written; the rest no longer fits what is in the store, or was not to be written.
    Partly(usize),
    /// Another host decides.
    Fenced,
}

impl Decider {
    /// A candidate of this name. Its term ends when it was not heard of for `ttl`, which is at least 2 s.
    pub fn new(directory: Directory, name: &str, ttl: Duration) -> Decider {
        Decider { directory, name: name.to_owned(), ttl }
    }

    /// Decides whenever no other host does. Does not return.
    pub async fn run(&self) {
        let (mut failures, mut random) = (0, Random::fresh());
        let backoff = Backoff::new(AGAIN_MIN, AGAIN_MAX);
        loop {
            match self.term().await {
                Ok(mut term) => {
                    failures = 0;
                    tracing::info!(host = %self.name, "this host decides");
                    let ended = term.decide().await;
                    tracing::info!(host = %self.name, reason = %ended, "this host no longer decides");
                }
                // Another host has the lock.
                Err(Error::Unavailable { message, .. }) => tracing::debug!(message, "this host waits to decide"),
                Err(error) if error.reason() == Some(Reason::NoLease) => {
                    tracing::debug!(%error, "this host waits to decide");
                }
                Err(error) => tracing::warn!(%error, "this host cannot become the one that decides; it tries again"),
            }
            sleep(backoff.random_wait(failures, &mut random)).await;
            failures = (failures + 1).min(16);
        }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    ///
    /// [`Error`]; another host had the lock for an hour.
    pub async fn term(&self) -> Result<Term, Error> {
        let etcd = self.directory.etcd();
        let lease = etcd.lease(self.ttl).await?;
        let held = etcd.clone().timeout(LOCK_WAIT).lock(&self.directory.singular("decider"), &lease).await?;
        let mut term =
            Term { directory: self.directory.clone(), name: self.name.clone(), lease, held, events: 0, seen: 0 };
        let events = term.directory.events().await?;
        term.events = events.last().map_or(0, |event| event.number);
        let deciding = Put::new(term.directory.singular("deciding"), term.name.clone()).lease(term.lease.id());
        etcd.txn_guarded(&Txn::new().when(term.held.compare()).then(deciding)).await?;
        Ok(term)
    }
}

impl Term {
    /// Decides until another host does; returns the reason.
    pub async fn decide(&mut self) -> String {
        loop {
            if self.lease.is_lost() {
                return "its lease is over".to_owned();
            }
            match self.round(usize::MAX).await {
                Ok(Round::Fenced) => return "another host has the lock".to_owned(),
                Ok(Round::Partly(_)) => {}
                Ok(Round::Done(_)) => {
                    let waited = race(self.lease.lost(), timeout(LOOK_EVERY, self.change())).await;
                    if let First::Right(Ok(Err(error))) = waited {
                        tracing::warn!(%error, "the host that decides does not see changes at once");
                        sleep(LOOK_EVERY).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a decision was not written; it is made again");
                    sleep(AFTER_ERROR).await;
                }
            }
        }
    }

    /// Reads all, plans, and writes up to `writes_max` decisions. Less than all are for tests: a decider may die between any two writes.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub async fn round(&mut self, writes_max: usize) -> Result<Round, Error> {
        let snapshot = self.directory.snapshot().await?;
        self.seen = snapshot.revision;
        let next = plan(&snapshot.status.view, now_ms());
        let mut written = 0;
        for decision in &next.decisions {
            if written == writes_max {
                return Ok(Round::Partly(written));
            }
            if !self.write(decision, &snapshot).await? {
                return Ok(if self.is_fenced().await? { Round::Fenced } else { Round::Partly(written) });
            }
            written += 1;
        }
        if next.shortages != snapshot.status.shortages {
            for shortage in next.shortages.iter().filter(|one| !snapshot.status.shortages.contains(one)) {
                tracing::warn!(service = %shortage.service, "{}", shortage.text);
            }
            let put = Put::new(self.directory.singular("shortages"), json(&next.shortages));
            self.directory.etcd().txn_guarded(&Txn::new().when(self.held.compare()).then(put)).await?;
        }
        Ok(Round::Done(written))
    }

    /// Whether the decision was written.
    async fn write(&mut self, decision: &Decision, snapshot: &Snapshot) -> Result<bool, Error> {
        let place = self.directory.place();
        let txn = Txn::new().when(self.held.compare());
        let txn = match &decision.change {
            Change::Place(one) => {
                let key = place.key("assigned", &format!("{}/{}", one.host, one.replica));
                let host = Compare::version(place.key("hosts", &one.host)).is_above(0);
                txn.when(Compare::absent(key.clone())).when(host).then(Put::new(key, json(one)))
            }
            Change::Remove(one) => {
                let key = place.key("assigned", &format!("{}/{}", one.host, one.replica));
                let known = snapshot.revisions.get(&one.replica).copied().unwrap_or(0);
                let known = Compare::mod_revision(key.clone()).equals(known);
                txn.when(known).then(dapple_etcd::Delete::new(key))
            }
        };
        let number = self.events + 1;
        let (done, reason) = (decision.done(), decision.reason.clone());
        let event = Event { number, time_ms: now_ms(), decider: self.name.clone(), done, reason };
        let changed = Put::new(place.key("changed", decision.service()), json(&now_ms()));
        let told = Put::new(place.key("events", &format!("{:03}", number % EVENTS_MAX)), json(&event));
        let (reply, _) = self.directory.etcd().txn_guarded(&txn.then(changed).then(told)).await?;
        if reply.succeeded {
            tracing::info!(reason = %event.reason, "{}", event.done);
            self.events = number;
        }
        // One that was sent twice may have been applied: the next round sees that, too.
        Ok(reply.succeeded)
    }

    async fn is_fenced(&self) -> Result<bool, Error> {
        let look = Txn::new().when(self.held.compare()).then(Get::new(self.directory.singular("deciding")));
        Ok(!self.directory.etcd().txn(&look).await?.succeeded)
    }

    /// Waits for a change of services, hosts or drains.
    async fn change(&self) -> Result<(), Error> {
        let etcd = self.directory.etcd();
        let place = self.directory.place();
        let watched = ["services", "hosts", "drains"].map(|kind| place.of(kind));
        let all = Keys::prefix(place.root());
        let mut watch = etcd.watch(Watching::new(all).since(self.seen + 1)).await?;
        loop {
            match watch.next().await {
                Ok(events)
                    if events
                        .iter()
                        .any(|event| watched.iter().any(|kind| event.key().starts_with(kind.as_bytes()))) =>
                {
                    // Others often change at the same moment.
                    sleep(GATHER).await;
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) if matches!(error.reason(), Some(Reason::Compacted { .. })) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends the term as if this host had died: the lock stays until the lease is over. For tests.
    #[doc(hidden)]
    pub async fn die(self) {
        self.lease.leave();
        // Dropped, it would give the lock up.
        std::mem::forget(self.held);
    }

    /// Lets the lease end as if this host had been frozen for longer than its time; the host goes on and does not know. For tests.
    #[doc(hidden)]
    pub async fn outlive_lease(&self) -> Result<(), Error> {
        self.directory.etcd().revoke(self.lease.id()).await
    }
}

/// How often the decider looks though no change was seen: some rules wait for time to pass.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long it waits for further changes.
const GATHER: Duration = Duration::from_millis(20);
const AFTER_ERROR: Duration = Duration::from_secs(1);
const LOCK_WAIT: Duration = Duration::from_secs(3600);
const AGAIN_MIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(5);
