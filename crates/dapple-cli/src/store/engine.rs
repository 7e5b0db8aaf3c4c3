//! The engine that a URL names.

use std::path::Path;

use clap::ValueEnum;
use dapple::store::engine::{Change, Engine, Entry, Failure, KeyRange, Partition, Place, TableId, Transactions};
use dapple::store::engine::{FjallPartition, RedbPartition};
use dapple::store::{Durability, Fjall, Redb};

/// The engines that keep their files in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum EngineKind {
    Redb,
    Fjall,
}

/// An engine and its directory.
pub(super) enum FileEngine {
    Redb(Redb),
    Fjall(Fjall),
}

pub(super) enum FilePartition {
    Redb(RedbPartition),
    Fjall(FjallPartition),
}

impl EngineKind {
    /// Whether the directory holds a store of this engine.
    pub(super) fn is_in(self, directory: &Path) -> bool {
        let catalog = match self {
            EngineKind::Redb => "catalog.redb",
            EngineKind::Fjall => "catalog.fjall",
        };
        directory.join(catalog).exists()
    }

    pub(super) fn engine(self, directory: &Path) -> FileEngine {
        match self {
            EngineKind::Redb => FileEngine::Redb(Redb::new(directory)),
            EngineKind::Fjall => FileEngine::Fjall(Fjall::new(directory)),
        }
    }
}

impl Engine for FileEngine {
    type Partition = FilePartition;

    // Both engines have the same.
    const DURABILITIES: &'static [Durability] = Redb::DURABILITIES;

    fn open(&self, place: Place) -> Result<FilePartition, Failure> {
        Ok(match self {
            FileEngine::Redb(engine) => FilePartition::Redb(engine.open(place)?),
            FileEngine::Fjall(engine) => FilePartition::Fjall(engine.open(place)?),
        })
    }

    fn remove(&self, place: Place) -> Result<(), Failure> {
        match self {
            FileEngine::Redb(engine) => engine.remove(place),
            FileEngine::Fjall(engine) => engine.remove(place),
        }
    }
}

impl Transactions for FileEngine {}

/// Calls the engine's partition.
macro_rules! delegate {
    ($self:ident, $partition:ident => $call:expr) => {
        match $self {
            FilePartition::Redb($partition) => $call,
            FilePartition::Fjall($partition) => $call,
        }
    };
}

impl Partition for FilePartition {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        delegate!(self, partition => partition.get(table, key))
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

    fn name(&self) -> String {
        delegate!(self, partition => partition.name())
    }

    fn verify(&self) -> Result<(), Failure> {
        delegate!(self, partition => partition.verify())
    }
}
