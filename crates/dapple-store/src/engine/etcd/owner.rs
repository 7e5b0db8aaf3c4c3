//! The ownership of a store: a key with a lease, and the conditions that name it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, process, thread};

use dapple_etcd::{Compare, Error, Etcd as Client, Guard, Guarded, Lease, OpResult, Put, Record, Txn, TxnReply};

use super::{failure, wait};
use crate::engine::Failure;

/// The right of a process to change a store. Dropped, it gives the store free in the background.
#[derive(Debug)]
pub(super) struct Owner {
    client: Client,
    pub(super) name: String,
    /// `None` after the store was closed.
    lease: Mutex<Option<Lease>>,
    /// The revision at which the owner's key was created: no other owner's key has it.
    pub(super) revision: i64,
}

/// The lease of an owner.
const TTL: Duration = Duration::from_secs(10);
/// The pause before a call is repeated.
const PAUSE: Duration = Duration::from_millis(50);
/// How long one attempt of a call may take; calls are repeated while the lease lasts.
const CALL_MAX: Duration = Duration::from_secs(3);

impl Owner {
    /// Takes the store, if no other process has it. Blocks.
    pub(super) fn begin(client: &Client, name: &str) -> Result<Owner, Failure> {
        let client = client.clone().timeout(CALL_MAX);
        let key = format!("{name}/owner");
        let taken = wait(&client, async move |client| {
            // A lease for each attempt would only load etcd while another process has the store.
            if let Some(other) = client.get(key.clone()).await? {
                return Ok(Err(other.value));
            }
            let lease = client.lease(TTL).await?;
            let id = lease.id();
            // Two stores of one process, or of two with the same number and host, have different leases.
            let me = format!("{} (lease {id})", process_name());
            let current = match client.put_guarded(Put::new(key.clone(), me).lease(id), Guard::Absent).await {
                Ok(Guarded::Applied { revision }) => return Ok(Ok((lease, revision))),
                Ok(Guarded::Refused { current }) => current,
                // A reply was lost, and another process was faster, or this one. If none was, its lease ends what is left.
                Err(unknown @ Error::Unknown { .. }) => Some(client.get(key).await?.ok_or(unknown)?),
                Err(error) => return Err(error),
            };
            match current {
                Some(own) if own.lease == Some(id) => Ok(Ok((lease, own.create_revision))),
                current => Ok(Err(current.map_or_else(Default::default, |other| other.value))),
            }
        });
        match taken.map_err(|error| failure(name, &error))? {
            Ok((lease, revision)) => {
                Ok(Owner { client, name: name.to_owned(), lease: Mutex::new(Some(lease)), revision })
            }
            Err(other) => Err(Failure::InUse { file: format!("etcd {name} ({})", String::from_utf8_lossy(&other)) }),
        }
    }

    fn lease(&self) -> MutexGuard<'_, Option<Lease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses once another process may have the store.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match &*self.lease() {
            Some(lease) if !lease.is_lost() => Ok(()),
            _ => Err(Failure::Lost { file: format!("etcd {}", self.name) }),
        }
    }

    /// Gives the store free. Blocks for as long as etcd takes to answer, two seconds at most.
    pub(super) fn end(&self) {
        let lease = self.lease().take();
        if let Some(lease) = lease {
            let _ = wait(&self.client, async move |_| {
                lease.revoke().await;
                Ok(())
            });
        }
    }

    /// Reads, again and again until it succeeds or the store is lost. Blocks.
    pub(super) fn read<T: Send + 'static>(
        &self,
        call: impl AsyncFn(Client) -> Result<T, Error>,
    ) -> Result<Result<T, Error>, Failure> {
        loop {
            let found = wait(&self.client, &call);
            self.check()?;
            match found {
                Err(Error::Unavailable { .. } | Error::Unknown { .. }) => thread::sleep(PAUSE),
                found => return Ok(found),
            }
        }
    }

    /// Runs a transaction that may be applied twice, while this process has the store. Blocks.
    pub(super) fn change(&self, txn: Txn) -> Result<(), Failure> {
        let reply = self.attempt(&txn)?;
        if reply.succeeded { Ok(()) } else { Err(self.lost()) }
    }

    /// Runs a transaction once, and returns its revision. One that is refused reads a key: from the record, `proof` gives
    /// the revision of an attempt that was applied before. Blocks.
    pub(super) fn change_once(&self, txn: Txn, proof: impl Fn(Option<&Record>) -> Option<i64>) -> Result<i64, Failure> {
        let reply = self.attempt(&txn)?;
        if reply.succeeded {
            return Ok(reply.revision);
        }
        let found = reply.replies.into_iter().find_map(OpResult::into_found);
        let applied = found.and_then(|found| proof(found.records.first()));
        applied.ok_or_else(|| self.lost())
    }

    fn attempt(&self, txn: &Txn) -> Result<TxnReply, Failure> {
        let txn = txn.clone().when(Compare::create_revision(format!("{}/owner", self.name)).equals(self.revision));
        let mut is_open = false;
        loop {
            self.check()?;
            let txn = txn.clone();
            match wait(&self.client, async move |client| client.txn_guarded(&txn).await) {
                Ok((reply, _)) => return Ok(reply),
                Err(Error::Unavailable { .. }) => thread::sleep(PAUSE),
                Err(Error::Unknown { .. }) => is_open = true,
                // An attempt before may still come to etcd.
                Err(error) if is_open => {
                    return Err(Failure::Io { file: format!("etcd {}", self.name), detail: error.to_string() });
                }
                Err(error) => return Err(failure(&self.name, &error)),
            }
        }
    }

    /// Another process has the store, whatever the clock says.
    fn lost(&self) -> Failure {
        drop(self.lease().take());
        Failure::Lost { file: format!("etcd {}", self.name) }
    }
}

/// For the message of a process that finds the store in use.
fn process_name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("process {} of {}", process::id(), host.trim_end())
}
