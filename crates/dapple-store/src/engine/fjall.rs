//! The engine for tables that are mostly written: one fjall database, a log and sorted files, for each partition.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use rustix::fs::FlockOperation;

use super::disk::sync_directory;
use super::redb::{io_failure, is_empty, make_directory, table_name};
use super::{Change, Engine, Entry, Failure, KeyRange, Partition, Place, TableId, Transactions};
use crate::Durability;

/// The engine that appends each commit to a log, by the library fjall: it writes faster than
/// [`Redb`](super::Redb), and reads slower if the data do not fit in memory. Counting a table reads
/// all of it.
///
/// A record that was changed on the disk is found, as in every engine. Opening cuts off a damaged
/// end of the log, so damage after the last sync looks like a crash.
///
/// ```
/// use dapple_store::Fjall;
/// use dapple_store::engine::{Change, Engine, Partition, Place, TableId};
///
/// let directory = tempfile::tempdir()?;
/// let partition = Fjall::new(directory.path()).open(Place::Catalog)?;
/// partition.commit(&[Change::Put(TableId(1), b"ann".to_vec(), b"42".to_vec())])?;
/// assert_eq!(partition.get(TableId(1), b"ann")?.as_deref(), Some(&b"42"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fjall {
    directory: PathBuf,
}

/// A partition of [`Fjall`]: a directory.
pub struct FjallPartition {
    path: PathBuf,
    persist: PersistMode,
    /// `None` after a failed [`recover`](Partition::recover).
    database: RwLock<Option<Database>>,
}

/// The memory for blocks of one partition, for new data of one table, and the room for the log; bytes.
const CACHE: u64 = 32 << 20;
const MEMTABLE: u64 = 16 << 20;
const LOG: u64 = 64 << 20;

/// fjall's file that says that a database is in use.
const LOCK: &str = "lock";

impl Fjall {
    /// Keeps the files in `directory`, which is made when the first partition is opened.
    pub fn new(directory: impl Into<PathBuf>) -> Fjall {
        Fjall { directory: directory.into() }
    }

    /// The directory of a partition, and how it is synced.
    fn place(&self, place: Place) -> (PathBuf, PersistMode) {
        let (name, persist) = match place {
            Place::Catalog => ("catalog.fjall".to_owned(), PersistMode::SyncAll),
            Place::Partition { durability: Durability::Synced, index } => {
                (format!("synced-{index}.fjall"), PersistMode::SyncAll)
            }
            Place::Partition { index, .. } => (format!("process-{index}.fjall"), PersistMode::Buffer),
        };
        (self.directory.join(name), persist)
    }
}

impl Engine for Fjall {
    type Partition = FjallPartition;

    const DURABILITIES: &'static [Durability] = &[Durability::Synced, Durability::Process];

    fn open(&self, place: Place) -> Result<FjallPartition, Failure> {
        make_directory(&self.directory)?;
        let (path, persist) = self.place(place);
        let database = RwLock::new(Some(open(&path)?));
        sync_directory(&self.directory)?;
        Ok(FjallPartition { path, persist, database })
    }

    fn check(&self, place: Place) -> Result<(), Failure> {
        // fjall writes this file when it makes a database, and makes a new one where it is missing.
        let is_there = |path: &Path| fs::metadata(path.join("version")).is_ok_and(|file| file.len() > 0);
        super::check(&self.directory, &self.place(place).0, place, ".fjall", is_there)
    }

    fn remove_unfinished(&self, place: Place) -> Result<(), Failure> {
        let path = self.place(place).0;
        // Partitions are made after the catalog, so a catalog beside any directory of one was whole.
        if !path.exists() || (place == Place::Catalog && super::has_partitions(&self.directory, ".fjall", |_| true)?) {
            return Ok(());
        }
        empty_unfinished(&path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Failure::InUse { file: path.display().to_string() },
            _ => io_failure(&path, &error),
        })
    }

    fn remove(&self, place: Place) -> Result<(), Failure> {
        let (path, _) = self.place(place);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_failure(&path, &error)),
            _ => Ok(()),
        }
    }
}

impl Transactions for Fjall {}

/// Empties the directory of a database that was not made to the end.
fn empty_unfinished(path: &Path) -> io::Result<()> {
    // fjall writes these bytes when the rest is there.
    const VERSION_LEN: u64 = 4;
    let is_finished = || fs::metadata(path.join("version")).is_ok_and(|file| file.len() >= VERSION_LEN);
    if is_finished() {
        return Ok(());
    }
    // Another process may be making it now. The lock file stays, because fjall locks it, too.
    let lock = File::create(path.join(LOCK))?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    if is_finished() {
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false if entry.file_name() == LOCK => {}
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

impl FjallPartition {
    fn with<T>(&self, f: impl FnOnce(&Database) -> fjall::Result<T>) -> Result<T, Failure> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = &*database else {
            let detail = "the database could not be reopened after an error".to_owned();
            return Err(Failure::Io { file: self.name(), detail });
        };
        f(database).map_err(|error| failure(&self.path, error))
    }

    /// Reads a table; `None` if it is not there.
    fn of_table<T>(&self, table: TableId, f: impl FnOnce(&Keyspace) -> fjall::Result<T>) -> Result<Option<T>, Failure> {
        let name = table_name(table);
        self.with(|database| {
            // Opening would make it.
            database.keyspace_exists(&name).then(|| f(&database.keyspace(&name, options)?)).transpose()
        })
    }
}

impl Partition for FjallPartition {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let found = self.of_table(table, |keyspace| keyspace.get(key))?;
        Ok(found.flatten().map(|bytes| bytes.to_vec()))
    }

    fn get_many(&self, table: TableId, keys: &[Bytes]) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        let get = |keyspace: &Keyspace, key| Ok(keyspace.get(key)?.map(|bytes| bytes.to_vec()));
        let found = self.of_table(table, |keyspace| keys.iter().map(|key| get(keyspace, key)).collect())?;
        Ok(found.unwrap_or_else(|| vec![None; keys.len()]))
    }

    fn scan(&self, table: TableId, range: KeyRange<'_>, limit: usize) -> Result<Vec<Entry>, Failure> {
        if is_empty(&range) {
            return Ok(Vec::new());
        }
        let found = self.of_table(table, |keyspace| {
            let entries = keyspace.range::<&[u8], _>(range).take(limit);
            entries.map(|entry| entry.into_inner().map(|(key, bytes)| (key.to_vec(), bytes.to_vec()))).collect()
        })?;
        Ok(found.unwrap_or_default())
    }

    fn len(&self, table: TableId) -> Result<u64, Failure> {
        Ok(self.of_table(table, Keyspace::len)?.unwrap_or(0) as u64)
    }

    fn tables(&self) -> Result<Vec<TableId>, Failure> {
        self.with(|database| {
            let names = database.list_keyspace_names();
            Ok(names.iter().filter_map(|name| name.strip_prefix('t')?.parse().ok().map(TableId)).collect())
        })
    }

    /// Tables are dropped first: no operation uses them any more, so a crash after this does no
    /// harm.
    fn commit(&self, changes: &[Change]) -> Result<(), Failure> {
        self.with(|database| {
            let mut batch = database.batch().durability(Some(self.persist));
            let mut last: Option<(TableId, Keyspace)> = None;
            for change in changes {
                let (Change::Put(id, ..) | Change::Remove(id, _) | Change::DropTable(id)) = change;
                let name = table_name(*id);
                if let Change::DropTable(_) = change {
                    if database.keyspace_exists(&name) {
                        database.delete_keyspace(database.keyspace(&name, options)?)?;
                    }
                    continue;
                }
                let keyspace = match &last {
                    Some((of, keyspace)) if of == id => keyspace,
                    _ => &last.insert((*id, database.keyspace(&name, options)?)).1,
                };
                match change {
                    Change::Put(_, key, bytes) => batch.insert(keyspace, &key[..], &bytes[..]),
                    Change::Remove(_, key) => batch.remove(keyspace, &key[..]),
                    Change::DropTable(_) => {}
                }
            }
            batch.commit()
        })
    }

    fn recover(&self) -> Result<(), Failure> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // fjall locks the directory, so the old database has to go first.
        *database = None;
        *database = Some(open(&self.path)?);
        Ok(())
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn verify(&self) -> Result<(), Failure> {
        // fjall checks each block that it reads.
        for table in self.tables()? {
            self.of_table(table, |keyspace| keyspace.iter().try_for_each(|entry| entry.into_inner().map(drop)))?;
        }
        Ok(())
    }
}

fn options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE)
}

fn open(path: &Path) -> Result<Database, Failure> {
    let builder = Database::builder(path).cache_size(CACHE).max_journaling_size(LOG).worker_threads(1);
    builder.open().map_err(|error| failure(path, error))
}

fn failure(path: &Path, error: fjall::Error) -> Failure {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if let Some(error) = inner.downcast_ref::<io::Error>() {
            return io_failure(path, error);
        }
        cause = inner.source();
    }
    let file = path.display().to_string();
    match error {
        fjall::Error::Locked => Failure::InUse { file },
        fjall::Error::InvalidVersion(found) => {
            Failure::Skew { file, found: found.map_or(0, |found| u64::from(u8::from(found))), known: 3 }
        }
        fjall::Error::Poisoned => io_failure(path, &io::Error::other("a write before this one failed")),
        fjall::Error::KeyspaceDeleted => Failure::Io { file, detail: "the table was dropped".to_owned() },
        error => Failure::Corrupt { file, detail: error.to_string() },
    }
}
