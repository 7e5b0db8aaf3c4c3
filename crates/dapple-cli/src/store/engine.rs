//! The engine that a URL names.

use std::path::Path;

#[cfg(feature = "fjall")]
use dapple::store::Fjall;
#[cfg(feature = "fjall")]
use dapple::store::engine::FjallPartition;
use dapple::store::engine::{
    Change, Engine, Entry, Failure, KeyRange, Partition, Place, RedbPartition, TableId, Transactions,
};
use dapple::store::{Durability, Redb};

/// The engines of this program. Each keeps its files in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineKind {
    Redb,
    #[cfg(feature = "fjall")]
    Fjall,
}

/// An engine and its directory.
pub(super) enum FileEngine {
    Redb(Redb),
    #[cfg(feature = "fjall")]
    Fjall(Fjall),
}

pub(super) enum FilePartition {
    Redb(RedbPartition),
    #[cfg(feature = "fjall")]
    Fjall(FjallPartition),
}

impl EngineKind {
    /// The engine with this name in URLs.
    ///
    /// # Errors
    ///
    /// There is no such engine, or this program was built without it.
    pub(super) fn named(name: &str) -> Result<EngineKind, String> {
        match name {
            "redb" => Ok(EngineKind::Redb),
            #[cfg(feature = "fjall")]
            "fjall" => Ok(EngineKind::Fjall),
            #[cfg(not(feature = "fjall"))]
            "fjall" => Err("this program was built without fjall; build it with `--features fjall`".to_owned()),
            _ => Err(format!("there is no engine `{name}`; {KNOWN}")),
        }
    }

    /// Whether the directory holds a store of this engine.
    pub(super) fn is_in(self, directory: &Path) -> bool {
        let catalog = match self {
            EngineKind::Redb => REDB_CATALOG,
            #[cfg(feature = "fjall")]
            EngineKind::Fjall => FJALL_CATALOG,
        };
        directory.join(catalog).exists()
    }

    /// The name of another engine, in this program or not, with a store in the directory.
    pub(super) fn other_in(name: &str, directory: &Path) -> Option<&'static str> {
        let mut others = CATALOGS.iter().filter(|(engine, _)| *engine != name);
        others.find(|(_, catalog)| directory.join(catalog).exists()).map(|(engine, _)| *engine)
    }

    pub(super) fn engine(self, directory: &Path) -> FileEngine {
        match self {
            EngineKind::Redb => FileEngine::Redb(Redb::new(directory)),
            #[cfg(feature = "fjall")]
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
            #[cfg(feature = "fjall")]
            FileEngine::Fjall(engine) => FilePartition::Fjall(engine.open(place)?),
        })
    }

    fn remove(&self, place: Place) -> Result<(), Failure> {
        match self {
            FileEngine::Redb(engine) => engine.remove(place),
            #[cfg(feature = "fjall")]
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
            #[cfg(feature = "fjall")]
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

/// The form of a URL of a store, for messages.
pub(super) const KNOWN: &str = "a store is `redb:DIR` or `fjall:DIR`, where DIR is the directory with its files";

/// The file that each engine has in the directory of a store, also those that this program lacks.
const CATALOGS: [(&str, &str); 2] = [("redb", REDB_CATALOG), ("fjall", FJALL_CATALOG)];
const REDB_CATALOG: &str = "catalog.redb";
const FJALL_CATALOG: &str = "catalog.fjall";
