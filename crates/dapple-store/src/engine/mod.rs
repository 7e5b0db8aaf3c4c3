//! The traits that an engine implements, and the engines.
//!
//! An engine holds bytes. Versions, conditions, expiry, checksums, caching, queues and deadlines are the store's. All
//! methods may block: the store calls them in the blocking pool, never on a worker.

mod any;
mod disk;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "fjall")]
mod fjall;
mod memory;
mod redb;

use std::fs;
use std::io;
use std::ops::Bound;
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::Durability;

pub use any::{AnyEngine, AnyPartition};
pub use disk::{Disk, DiskFile};
#[cfg(feature = "etcd")]
pub use etcd::{Etcd, EtcdPartition};
#[cfg(feature = "fjall")]
pub use fjall::{Fjall, FjallPartition};
pub use memory::{Memory, MemoryPartition};
pub use redb::{Redb, RedbPartition};

/// The place where partitions are kept, such as a directory.
pub trait Engine: Send + Sync + 'static {
    /// An open partition of this engine.
    type Partition: Partition;

    /// The durabilities that tables may have, the strongest first. Others are refused when a table is created.
    const DURABILITIES: &'static [Durability];

    /// Opens a partition, and makes it if it is not there. The store opens each place once.
    ///
    /// # Errors
    /// [`Failure`], which names the file that is damaged, in use or cannot be read.
    fn open(&self, place: Place) -> Result<Self::Partition, Failure>;

    /// Checks that a partition that has been opened before is still there: [`open`](Self::open) would make an empty one in
    /// its place. For [`Place::Catalog`], checks that there are no partitions without it. The default finds no fault.
    ///
    /// # Errors
    /// [`Failure::Missing`] names the file.
    fn check(&self, place: Place) -> Result<(), Failure> {
        let _ = place;
        Ok(())
    }

    /// Removes what a kill in the first [`open`](Self::open) of a partition left, if that would look damaged. The store calls
    /// it where its catalog says nothing of its partitions yet, and for [`Place::Catalog`]; an engine removes nothing that
    /// was whole, and no catalog beside partitions. The default does nothing.
    ///
    /// # Errors
    /// [`Failure::InUse`]; the system's.
    fn remove_unfinished(&self, place: Place) -> Result<(), Failure> {
        let _ = place;
        Ok(())
    }

    /// Removes a partition, if it is there. The store does not use it any more; an enumeration that was begun before may
    /// still have it open.
    ///
    /// If an engine keeps it, that costs only disk space: the store empties a partition before it
    /// uses the place again.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, place: Place) -> Result<(), Failure> {
        let _ = place;
        Ok(())
    }

    /// The longest value that it takes, bytes; the store refuses a longer one. The default has no limit.
    fn value_len_max(&self) -> usize {
        usize::MAX
    }

    /// Gives the place free for another store, as [`Store::close`](crate::Store::close) asks; partitions that are open
    /// may fail from then on. The default leaves that to the drop of the partitions.
    fn close(&self) {}
}

/// A map from table and key to bytes, in the order of the keys, that changes by atomic commits.
///
/// At most one `commit` or `recover` runs at a time; the other methods may run at the same time,
/// and see a commit whole or not at all.
pub trait Partition: Send + Sync + 'static {
    /// The bytes of one key.
    ///
    /// # Errors
    /// The partition cannot be read.
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, Failure>;

    /// The bytes of several keys, in the order of `keys`. The default calls [`get`](Self::get) for each; an engine with
    /// a cost for each call, such as a message, has a way of its own.
    ///
    /// # Errors
    /// The partition cannot be read.
    fn get_many(&self, table: TableId, keys: &[Bytes]) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        keys.iter().map(|key| self.get(table, key)).collect()
    }

    /// The first `limit` entries of a range of keys, in order.
    ///
    /// # Errors
    /// The partition cannot be read.
    fn scan(&self, table: TableId, range: KeyRange<'_>, limit: usize) -> Result<Vec<Entry>, Failure>;

    /// The number of keys of a table.
    ///
    /// # Errors
    /// The partition cannot be read.
    fn len(&self, table: TableId) -> Result<u64, Failure>;

    /// The tables that have data here.
    ///
    /// # Errors
    /// The partition cannot be read.
    fn tables(&self) -> Result<Vec<TableId>, Failure>;

    /// Applies all changes or none. When it returns, they have the durability of the partition.
    ///
    /// # Errors
    /// [`Failure::Full`] if there was no room; the store then calls [`recover`](Self::recover). Any other failure stops
    /// the partition's writes.
    fn commit(&self, changes: &[Change]) -> Result<(), Failure>;

    /// Makes the partition usable after a failed commit, which is then in it as a whole or not at all.
    ///
    /// # Errors
    /// The partition stays unusable for now.
    fn recover(&self) -> Result<(), Failure>;

    /// Refuses once another process may have the place: then the store answers nothing from memory, either. Called on
    /// workers, before each read, so it must not block. The default is for engines with places that no other process can take.
    ///
    /// # Errors
    /// [`Failure::Lost`].
    fn check_owned(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether [`check_owned`](Self::check_owned) may ever refuse: then watchers that wait ask it each second.
    fn may_be_lost(&self) -> bool {
        false
    }

    /// The name of the file or other place, for messages.
    fn name(&self) -> String;

    /// The failure that this partition is damaged.
    fn corrupt(&self, detail: &str) -> Failure {
        Failure::Corrupt { file: self.name(), detail: detail.to_owned() }
    }

    /// Reads all that there is and checks it. Slow: the cost grows with the data.
    ///
    /// # Errors
    /// [`Failure::Corrupt`] names the file.
    fn verify(&self) -> Result<(), Failure>;
}

/// An engine that supports batches and transactions over several keys.
///
/// Commits of a [`Partition`] are atomic; the store does the rest.
pub trait Transactions: Engine {}

/// Checks a place of an engine with one file, or directory, for each partition, named `synced-N` or `process-N` with this
/// ending; `is_there` says whether a path holds a partition.
fn check(
    directory: &Path,
    path: &Path,
    place: Place,
    ending: &str,
    is_there: impl Fn(&Path) -> bool,
) -> Result<(), Failure> {
    // The first open makes the catalog before it makes partitions.
    if is_there(path) || (place == Place::Catalog && !has_partitions(directory, ending, is_there)?) {
        return Ok(());
    }
    Err(Failure::Missing { file: path.display().to_string() })
}

/// Whether a directory, which need not exist, has partitions with this ending.
fn has_partitions(directory: &Path, ending: &str, is_there: impl Fn(&Path) -> bool) -> Result<bool, Failure> {
    let is_partition =
        |name: &str| (name.starts_with("synced-") || name.starts_with("process-")) && name.ends_with(ending);
    let find = || -> io::Result<bool> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(is_partition) && is_there(&entry.path()) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    match find() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(redb::directory_failure(directory, &error)),
        Ok(found) => Ok(found),
    }
}

/// The bounds of a range of keys.
pub type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// A key and its bytes.
pub type Entry = (Vec<u8>, Vec<u8>);

/// The number of a table. The store never uses a number twice; 0 holds its own data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableId(pub u64);

/// The part of a store that a partition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The names and properties of the tables. It is as durable as the engine can make it.
    Catalog,
    /// One partition of the tables that have this durability.
    Partition {
        /// The durability of all its tables.
        durability: Durability,
        /// Its number. A store that changes the number of its partitions continues with unused
        /// numbers.
        index: u32,
    },
}

/// One part of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Sets the bytes of a key.
    Put(TableId, Vec<u8>, Vec<u8>),
    /// Removes a key, if it is there.
    Remove(TableId, Vec<u8>),
    /// Removes all of a table, if it is there.
    DropTable(TableId),
}

/// An error of an engine, with the file or other location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The file does not hold the bytes that were written there.
    #[error("{file} is damaged: {detail}")]
    Corrupt {
        /// The file.
        file: String,
        /// The finding.
        detail: String,
    },
    /// It was there, and is not there any more, or has become empty.
    #[error(
        "{file} is missing or empty, but the store has data in it: put the file back, or restore a copy of the store"
    )]
    Missing {
        /// The file.
        file: String,
    },
    /// Another process, or another store of this one, has it open.
    #[error("{file} is in use by another process, or by another store of this one: end that one first")]
    InUse {
        /// The file.
        file: String,
    },
    /// This store had it, and another process may have it now, or this one closed it.
    #[error(
        "{file}: this store does not have it any more, because it was closed, or was not heard of in time: open it again"
    )]
    Lost {
        /// The place.
        file: String,
    },
    /// Another version of the program wrote it.
    #[error("{file} has format {found}, and this program reads format {known}")]
    Skew {
        /// The file.
        file: String,
        /// The format of the file.
        found: u64,
        /// The format that this program reads and writes.
        known: u64,
    },
    /// There is no room for the commit.
    #[error("{file}: no room: {detail}; what is there can be read, and writes go on when there is room")]
    Full {
        /// The file.
        file: String,
        /// The error of the system.
        detail: String,
    },
    /// Any other error of the system.
    #[error("{file}: {detail}")]
    Io {
        /// The file.
        file: String,
        /// The error of the system.
        detail: String,
    },
}
