//! An engine on etcd: the data is on several machines, and one process at a time has the store.
//!
//! # Why one process at a time
//!
//! The store answers reads from memory, numbers versions by partition, and commits to several partitions by holding them:
//! all of that needs one owner. Here the owner is known by a key with a lease. Every write to etcd names it as a condition, so a
//! process that has lost the store changes nothing more; and it answers nothing from memory once its lease may be over.
//! Another process takes over as soon as the owner has closed the store, or its lease has run out.
//!
//! The other design, in which any process may change any key by a condition on its version, needs a round trip for
//! each read, has no order of changes for watchers but etcd's own, and no transaction beyond 128 keys. Programs that want it
//! use the client (`dapple-etcd`) directly.
//!
//! # Keys below `/NAME//`
//!
//! No name of a store has two slashes in a row, so stores `a` and `a/b` do not meet.
//!
//! | key | value |
//! |---|---|
//! | `owner` | the process that has the store; its lease removes it |
//! | `place/PLACE` | the number of the partition's last commit, and of the parts of it that may not be applied yet; each write to the partition has its revision as a condition |
//! | `data/PLACE/` table key | a record; the table has 8 bytes |
//! | `redo/PLACE/COMMIT/` number | a part of a commit that is too large for one transaction of etcd |

mod changes;
mod owner;
mod partition;

use std::sync::{Arc, Mutex, PoisonError, Weak};

use dapple_etcd::{Error, Etcd as Client, EtcdUrl, Get, Keys, Reason};
use dapple_sched::Handle;

use super::{Engine, Failure, Place, Transactions};
use crate::Durability;
use owner::Owner;

pub use partition::EtcdPartition;

/// The engine of stores in etcd: they outlive a machine, and a process on another one can take over.
///
/// One process at a time has the store. Others get [`Failure::InUse`] until it has closed it, or has not renewed its
/// lease of 10 s; [`StoreOptions::in_use_limit`](crate::StoreOptions::in_use_limit) is how long they wait for that.
///
/// All tables are synced by a majority of etcd's members, also those with a weaker [`Durability`]. A value has 1 MiB at most; etcd
/// keeps up to 8 GiB, and each member has all of it.
///
/// It needs a runtime with the kernel's clock: simulations have no blocking calls that wait for tasks.
///
/// ```no_run
/// use dapple_store::{Etcd, Store, StoreOptions, Table, TableOptions};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = dapple_etcd::Etcd::new(["10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"])?;
/// let store = Store::open(Etcd::new(client, "shop"), StoreOptions::default()).await?;
/// let users: Table<String, u32, _> = store.table_or_create("users", TableOptions::default()).await?;
/// users.put(&"ann".to_owned(), &42).await?;
/// store.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Etcd {
    client: Client,
    name: String,
    owner: Mutex<Weak<Owner>>,
}

/// Room for the record's head and for the key in a request of 1.5 MiB.
const VALUE_LEN_MAX: usize = 1 << 20;

impl Etcd {
    /// The store `name`: its keys in etcd begin with `/NAME//`. Slashes around the name, and further ones in a row, do not count.
    #[must_use]
    pub fn new(client: Client, name: &str) -> Etcd {
        let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
        Etcd { client, name: format!("/{}/", parts.join("/")), owner: Mutex::new(Weak::new()) }
    }

    /// The store at this place.
    pub(crate) fn at(url: &EtcdUrl) -> Etcd {
        Etcd::new(url.client(), &url.root())
    }

    /// Whether there is a store, or what is left of one. Blocks.
    pub(crate) fn is_there(&self) -> Result<bool, Failure> {
        self.has("place/")
    }

    fn owner(&self) -> Option<Arc<Owner>> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Whether there is a key below this one. Blocks.
    fn has(&self, below: &str) -> Result<bool, Failure> {
        let get = Get::new(Keys::prefix(format!("{}/{below}", self.name))).keys_only().limit(1);
        let found = wait(&self.client, async move |client| client.find(get).await);
        Ok(!found.map_err(|error| failure(&self.name, &error))?.records.is_empty())
    }
}

impl Clone for Etcd {
    /// The same place: not the ownership of it.
    fn clone(&self) -> Etcd {
        Etcd::new(self.client.clone(), &self.name)
    }
}

impl Engine for Etcd {
    type Partition = EtcdPartition;

    const DURABILITIES: &'static [Durability] = &[Durability::Synced, Durability::Process];

    /// The catalog comes first, and brings the ownership.
    fn open(&self, place: Place) -> Result<EtcdPartition, Failure> {
        let owner = match self.owner() {
            Some(owner) => owner,
            None => {
                let owner = Arc::new(Owner::begin(&self.client, &self.name)?);
                *self.owner.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&owner);
                owner
            }
        };
        EtcdPartition::open(owner, &word(place))
    }

    fn check(&self, place: Place) -> Result<(), Failure> {
        let key = format!("place/{}", word(place));
        // The first open makes the catalog before it makes partitions.
        if self.has(&key)? || (place == Place::Catalog && !self.has("place/")?) {
            return Ok(());
        }
        Err(Failure::Missing { file: format!("etcd {}/{key}", self.name) })
    }

    fn remove(&self, place: Place) -> Result<(), Failure> {
        self.owner().map_or(Ok(()), |owner| EtcdPartition::remove(&owner, &word(place)))
    }

    fn value_len_max(&self) -> usize {
        VALUE_LEN_MAX
    }

    fn close(&self) {
        if let Some(owner) = self.owner() {
            owner.end();
        }
    }
}

impl Transactions for Etcd {}

fn word(place: Place) -> String {
    match place {
        Place::Catalog => "catalog".to_owned(),
        Place::Partition { durability: Durability::Synced, index } => format!("synced-{index}"),
        Place::Partition { index, .. } => format!("process-{index}"),
    }
}

/// Waits for a call of the client, in a thread that may block.
fn wait<T: Send + 'static>(client: &Client, call: impl AsyncFnOnce(Client) -> Result<T, Error>) -> Result<T, Error> {
    Handle::current().block_on(call(client.clone()))
}

fn failure(name: &str, error: &Error) -> Failure {
    let (file, detail) = (format!("etcd {name}"), error.to_string());
    match error.reason() {
        Some(Reason::NoSpace) => Failure::Full { file, detail },
        _ => Failure::Io { file, detail },
    }
}
