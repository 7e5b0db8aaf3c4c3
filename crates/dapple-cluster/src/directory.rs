//! The records of a cluster in etcd: reading all of them at one revision, and the writes of people.
//!
//! | key below the prefix | value |
//! |---|---|
//! | `services/NAME` | [`Service`] |
//! | `hosts/NAME` | [`HostReport`](crate::record::HostReport), under the host's lease |
//! | `drains/NAME` | empty: all replicas are to leave this host |
//! | `assigned/HOST/REPLICA` | [`Assignment`] |
//! | `changed/SERVICE` | when its replicas last changed, in milliseconds since 1970 |
//! | `events/NNN` | [`Event`]: a ring of [`EVENTS_MAX`] places |
//! | `shortages` | the wishes that cannot be met, a list of [`Shortage`] |
//! | `decider` | a lock of etcd; `deciding` has the name of its holder |
//! | `found/STAGE/ADDRESS` | the address, for clients; under the host's lease |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dapple_etcd::{Delete, Error, Etcd, Found, Get, Guard, Guarded, Keys, Put, Record, Txn};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::place::Place;
use crate::plan::{Shortage, View};
use crate::record::{Assignment, Event, Service};

/// The records of one cluster.
#[derive(Clone, Debug)]
pub struct Directory {
    place: Place,
    etcd: Etcd,
    /// Records that the log has been told of, with their revisions.
    told: Arc<Mutex<BTreeSet<(Bytes, i64)>>>,
}

/// All that a person sees of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Services, hosts and replicas.
    pub view: View,
    /// The wishes that cannot be met.
    pub shortages: Vec<Shortage>,
    /// The host that decides; none for a moment after it has gone.
    pub decider: Option<String>,
}

/// All records at one revision.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) status: Status,
    /// The revisions of the assignments, by name of the replica.
    pub(crate) revisions: BTreeMap<String, i64>,
    pub(crate) revision: i64,
}

/// The reason why a change by a person was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// There is no service of this name.
    #[error("there is no service {0:?}; `dapple cluster status` lists them")]
    NoService(String),
    /// The description makes no sense.
    #[error("the service {0:?}: {1}")]
    Invalid(String, String),
    /// Others change the same description all the time.
    #[error("the service {0:?} is being changed by others; try again")]
    Busy(String),
    /// etcd.
    #[error(transparent)]
    Etcd(#[from] Error),
}

impl Directory {
    /// The records at this place.
    #[must_use]
    pub fn new(place: Place) -> Directory {
        Directory { etcd: place.client(), place, told: Arc::default() }
    }

    /// The same, by another client of the same etcd.
    #[must_use]
    pub fn with_client(place: Place, etcd: Etcd) -> Directory {
        Directory { place, etcd, told: Arc::default() }
    }

    pub(crate) fn etcd(&self) -> &Etcd {
        &self.etcd
    }

    /// The place of the records.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Reads all records at one revision.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub async fn status(&self) -> Result<Status, Error> {
        Ok(self.snapshot().await?.status)
    }

    pub(crate) async fn snapshot(&self) -> Result<Snapshot, Error> {
        let kinds = ["services", "hosts", "assigned", "drains", "changed"];
        let all = kinds.iter().fold(Txn::new(), |txn, kind| txn.then(Get::new(Keys::prefix(self.place.of(kind)))));
        let reply = self
            .etcd
            .txn(&all.then(Get::new(self.singular("shortages"))).then(Get::new(self.singular("deciding"))))
            .await?;
        let mut parts =
            reply.replies.into_iter().map(|part| part.into_found().map_or_else(Vec::new, |found: Found| found.records));
        let mut next = || parts.next().unwrap_or_default();
        let mut snapshot = Snapshot { revision: reply.revision, ..Snapshot::default() };
        let view = &mut snapshot.status.view;
        view.revision = u64::try_from(reply.revision).unwrap_or(0);
        for record in next() {
            match self.decode::<Service>(&record).filter(|service| self.fits(service, &record)) {
                Some(service) => drop(view.services.insert(service.name.clone(), service)),
                None => drop(view.unreadable.insert(self.last_part(&record))),
            }
        }
        let hosts = next();
        view.hosts = hosts.iter().filter_map(|record| Some((self.last_part(record), self.decode(record)?))).collect();
        for record in next() {
            if let Some(one) = self.decode::<Assignment>(&record) {
                snapshot.revisions.insert(one.replica.clone(), record.mod_revision);
                view.assigned.insert(one.replica.clone(), one);
            }
        }
        view.draining = next().iter().map(|record| self.last_part(record)).collect();
        let changed = next();
        view.changed_ms =
            changed.iter().filter_map(|record| Some((self.last_part(record), self.decode(record)?))).collect();
        snapshot.status.shortages = next().first().and_then(|record| self.decode(record)).unwrap_or_default();
        snapshot.status.decider = next().first().map(|record| String::from_utf8_lossy(&record.value).into_owned());
        Ok(snapshot)
    }

    /// A key that is the only one of its kind.
    pub(crate) fn singular(&self, name: &str) -> String {
        let of = self.place.of(name);
        of.trim_end_matches('/').to_owned()
    }

    /// `None`, and a line in the log, if another program wrote what this one cannot read.
    fn decode<T: DeserializeOwned>(&self, record: &Record) -> Option<T> {
        let decoded = serde_json::from_slice(&record.value);
        decoded.inspect_err(|error| self.tell(record, &error.to_string())).ok()
    }

    /// Whether a description is one that `apply` would have written there.
    fn fits(&self, service: &Service, record: &Record) -> bool {
        let named = match service.name == self.last_part(record) {
            true => service.check(),
            false => Err("its name is not that of its key".to_owned()),
        };
        named.inspect_err(|error| self.tell(record, error)).is_ok()
    }

    /// Tells of a record once.
    fn tell(&self, record: &Record, error: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= TOLD_MAX {
            told.clear();
        }
        if told.insert((record.key.clone(), record.mod_revision)) {
            let key = String::from_utf8_lossy(&record.key);
            tracing::warn!(%key, error, "this record cannot be read, and has no effect");
        }
    }

    fn last_part(&self, record: &Record) -> String {
        let key = String::from_utf8_lossy(&record.key);
        key.rsplit('/').next().unwrap_or_default().to_owned()
    }

    /// Writes descriptions of services, new and known ones.
    ///
    /// # Errors
    ///
    /// [`ChangeError`]; those before the one in error are written.
    pub async fn apply(&self, services: &[Service]) -> Result<(), ChangeError> {
        for service in services {
            service.check().map_err(|error| ChangeError::Invalid(service.name.clone(), error))?;
        }
        for (at, service) in services.iter().enumerate() {
            if services[..at].iter().any(|earlier| earlier.name == service.name) {
                let twice = "it is described twice; give one of them another name".to_owned();
                return Err(ChangeError::Invalid(service.name.clone(), twice));
            }
        }
        for service in services {
            let new = service.clone();
            let apply = |known: Option<Service>| {
                // A roll that was asked for is not taken back.
                let epoch = known.map_or(new.epoch, |known| known.epoch.max(new.epoch));
                Some(Service { epoch, ..new.clone() })
            };
            self.change(&service.name, apply).await?;
        }
        Ok(())
    }

    /// Changes the bounds of the number of replicas.
    ///
    /// # Errors
    ///
    /// [`ChangeError`].
    pub async fn scale(&self, service: &str, min: u32, max: u32) -> Result<(), ChangeError> {
        self.change(service, |known| Some(Service { min, max, ..known? })).await
    }

    /// Replaces all replicas, by those of another version if it is given.
    ///
    /// # Errors
    ///
    /// [`ChangeError`].
    pub async fn roll(&self, service: &str, version: Option<&str>) -> Result<(), ChangeError> {
        self.change(service, |known| {
            let known = known?;
            let version = version.map_or(known.version.clone(), str::to_owned);
            Some(Service { version, epoch: known.epoch + 1, ..known })
        })
        .await
    }

    /// Removes a service; its replicas end.
    ///
    /// # Errors
    ///
    /// [`ChangeError`].
    pub async fn remove(&self, service: &str) -> Result<(), ChangeError> {
        let key = self.place.key("services", service);
        let removed = self.etcd.txn_guarded(&Txn::new().then(Delete::new(key).previous())).await?;
        let (reply, is_repeated) = removed;
        let count = reply.replies.into_iter().find_map(|part| match part {
            dapple_etcd::OpResult::Removed(removed) => Some(removed.count),
            _ => None,
        });
        match count {
            Some(0) if !is_repeated => Err(ChangeError::NoService(service.to_owned())),
            _ => Ok(()),
        }
    }

    /// Empties a host, or lets it be used again.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub async fn drain(&self, host: &str, is_on: bool) -> Result<(), Error> {
        let key = self.place.key("drains", host);
        let txn = match is_on {
            true => Txn::new().then(Put::new(key, "")),
            false => Txn::new().then(Delete::new(key)),
        };
        self.etcd.txn_guarded(&txn).await.map(drop)
    }

    /// The events that are kept, the oldest first.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub async fn events(&self) -> Result<Vec<Event>, Error> {
        let found = self.etcd.find(Get::new(Keys::prefix(self.place.of("events")))).await?;
        let mut events: Vec<Event> = found.records.iter().filter_map(|record| self.decode(record)).collect();
        events.sort_by_key(|event| event.number);
        Ok(events)
    }

    /// Reads, changes and writes a description, unless it was changed meanwhile: then again.
    async fn change(&self, name: &str, change: impl Fn(Option<Service>) -> Option<Service>) -> Result<(), ChangeError> {
        let key = self.place.key("services", name);
        for _ in 0..TRIES_MAX {
            let record = self.etcd.get(key.clone()).await?;
            let known = record.as_ref().and_then(|record| self.decode::<Service>(record));
            let changed = change(known).ok_or_else(|| ChangeError::NoService(name.to_owned()))?;
            changed.check().map_err(|error| ChangeError::Invalid(name.to_owned(), error))?;
            let guard = record.as_ref().map_or(Guard::Absent, |record| Guard::Revision(record.mod_revision));
            if let Guarded::Applied { .. } = self.etcd.put_guarded(Put::new(key.clone(), json(&changed)), guard).await?
            {
                return Ok(());
            }
        }
        Err(ChangeError::Busy(name.to_owned()))
    }
}

/// A record as it is written.
pub(crate) fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("records have text keys only").into()
}

/// How many events are kept.
pub const EVENTS_MAX: u64 = 500;

const TRIES_MAX: usize = 20;

/// The most records that are remembered as told.
const TOLD_MAX: usize = 1000;
