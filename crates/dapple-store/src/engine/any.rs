//! Any engine of this program, chosen while it runs.

use bytes::Bytes;

use super::{Change, Engine, Entry, Failure, KeyRange, Partition, Place, Redb, RedbPartition, TableId, Transactions};
#[cfg(feature = "etcd")]
use super::{Etcd, EtcdPartition};
#[cfg(feature = "fjall")]
use super::{Fjall, FjallPartition};
use crate::Durability;

/// One of the engines that outlive the process. A [`StoreUrl`](crate::StoreUrl) makes it.
///
/// A call costs a branch more than one of the engine itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyEngine {
    /// A tree in one file for each partition.
    Redb(Redb),
    /// A log and sorted files.
    #[cfg(feature = "fjall")]
    Fjall(Fjall),
    /// A cluster of etcd.
    #[cfg(feature = "etcd")]
    Etcd(Etcd),
}

/// A partition of [`AnyEngine`].
#[non_exhaustive]
pub enum AnyPartition {
    /// A partition of [`Redb`].
    Redb(RedbPartition),
    /// A partition of [`Fjall`].
    #[cfg(feature = "fjall")]
    Fjall(FjallPartition),
    /// A partition of [`Etcd`].
    #[cfg(feature = "etcd")]
    Etcd(EtcdPartition),
}

impl Engine for AnyEngine {
    type Partition = AnyPartition;

    // All of them have the same.
    const DURABILITIES: &'static [Durability] = Redb::DURABILITIES;

    fn open(&self, place: Place) -> Result<AnyPartition, Failure> {
        Ok(match self {
            AnyEngine::Redb(engine) => AnyPartition::Redb(engine.open(place)?),
            #[cfg(feature = "fjall")]
            AnyEngine::Fjall(engine) => AnyPartition::Fjall(engine.open(place)?),
            #[cfg(feature = "etcd")]
            AnyEngine::Etcd(engine) => AnyPartition::Etcd(engine.open(place)?),
        })
    }

    fn check(&self, place: Place) -> Result<(), Failure> {
        match self {
            AnyEngine::Redb(engine) => engine.check(place),
            #[cfg(feature = "fjall")]
            AnyEngine::Fjall(engine) => engine.check(place),
            #[cfg(feature = "etcd")]
            AnyEngine::Etcd(engine) => engine.check(place),
        }
    }

    fn remove_unfinished(&self, place: Place) -> Result<(), Failure> {
        match self {
            AnyEngine::Redb(engine) => engine.remove_unfinished(place),
            #[cfg(feature = "fjall")]
            AnyEngine::Fjall(engine) => engine.remove_unfinished(place),
            #[cfg(feature = "etcd")]
            AnyEngine::Etcd(engine) => engine.remove_unfinished(place),
        }
    }

    fn remove(&self, place: Place) -> Result<(), Failure> {
        match self {
            AnyEngine::Redb(engine) => engine.remove(place),
            #[cfg(feature = "fjall")]
            AnyEngine::Fjall(engine) => engine.remove(place),
            #[cfg(feature = "etcd")]
            AnyEngine::Etcd(engine) => engine.remove(place),
        }
    }

    fn value_len_max(&self) -> usize {
        match self {
            #[cfg(feature = "etcd")]
            AnyEngine::Etcd(engine) => engine.value_len_max(),
            _ => usize::MAX,
        }
    }

    fn close(&self) {
        #[cfg(feature = "etcd")]
        if let AnyEngine::Etcd(engine) = self {
            engine.close();
        }
    }
}

impl Transactions for AnyEngine {}

/// Calls the engine's partition.
macro_rules! delegate {
    ($self:ident, $partition:ident => $call:expr) => {
        match $self {
            AnyPartition::Redb($partition) => $call,
            #[cfg(feature = "fjall")]
            AnyPartition::Fjall($partition) => $call,
            #[cfg(feature = "etcd")]
            AnyPartition::Etcd($partition) => $call,
        }
    };
}

impl Partition for AnyPartition {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        delegate!(self, partition => partition.get(table, key))
    }

    fn get_many(&self, table: TableId, keys: &[Bytes]) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        delegate!(self, partition => partition.get_many(table, keys))
    }

    fn scan(&self, table: TableId, range: KeyRange<'_>, limit: usize) -> Result<Vec<Entry>, Failure> {
        delegate!(self, partition => partition.scan(table, range, limit))
    }

    fn len(&self, table: TableId) -> Result<u64, Failure> {
        delegate!(self, partition => partition.len(table))
    }

    fn tables(&self) -> Result<Vec<TableId>, Failure> {
        delegate!(self, partition => partition.tables())
    }

    fn commit(&self, changes: &[Change]) -> Result<(), Failure> {
        delegate!(self, partition => partition.commit(changes))
    }

    fn recover(&self) -> Result<(), Failure> {
        delegate!(self, partition => partition.recover())
    }

    fn check_owned(&self) -> Result<(), Failure> {
        delegate!(self, partition => partition.check_owned())
    }

    fn may_be_lost(&self) -> bool {
        delegate!(self, partition => partition.may_be_lost())
    }

    fn name(&self) -> String {
        delegate!(self, partition => partition.name())
    }

    fn verify(&self) -> Result<(), Failure> {
        delegate!(self, partition => partition.verify())
    }
}
