//! The embedded engine: one redb file for each partition.

use std::fs;
use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use redb::{Database, ReadableTableMetadata, StorageBackend, TableDefinition, TableError, TableHandle};

use super::disk::{Backend, Disk, sync_directory};
use super::{Change, Engine, Entry, Failure, KeyRange, Partition, Place, TableId, Transactions};
use crate::Durability;

/// The engine that keeps tables in files of one directory, by the library redb.
///
/// ```
/// use dapple_store::Redb;
/// use dapple_store::engine::{Change, Engine, Partition, Place, TableId, Transactions};
///
/// let directory = tempfile::tempdir()?;
/// let partition = Redb::new(directory.path()).open(Place::Catalog)?;
/// partition.commit(&[Change::Put(TableId(1), b"ann".to_vec(), b"42".to_vec())])?;
/// assert_eq!(partition.get(TableId(1), b"ann")?.as_deref(), Some(&b"42"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Redb {
    directory: PathBuf,
    page_cache_bytes: usize,
    /// `None` for the system's files.
    disk: Option<Arc<dyn Disk>>,
}

/// A partition of [`Redb`]: one file.
pub struct RedbPartition {
    path: PathBuf,
    synced: bool,
    page_cache_bytes: usize,
    disk: Option<Arc<dyn Disk>>,
    /// `None` after a failed [`recover`](Partition::recover).
    database: RwLock<Option<Database>>,
}

type Definition<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;

impl Redb {
    /// Keeps the files in `directory`, which is made when the first partition is opened.
    pub fn new(directory: impl Into<PathBuf>) -> Redb {
        Redb { directory: directory.into(), page_cache_bytes: 64 << 20, disk: None }
    }

    /// Keeps the files on another disk than the system's, such as one that a test simulates.
    #[must_use]
    pub fn on_disk(mut self, disk: Arc<dyn Disk>) -> Redb {
        self.disk = Some(disk);
        self
    }

    /// Sets the memory that redb may use for pages of one partition, bytes; 64 MiB if not set.
    #[must_use]
    pub fn page_cache_bytes(mut self, bytes: usize) -> Redb {
        self.page_cache_bytes = bytes;
        self
    }
}

impl Redb {
    /// The file of a partition, and whether it is synced.
    fn place(&self, place: Place) -> (PathBuf, bool) {
        let (name, synced) = match place {
            Place::Catalog => ("catalog.redb".to_owned(), true),
            Place::Partition { durability: Durability::Synced, index } => (format!("synced-{index}.redb"), true),
            Place::Partition { index, .. } => (format!("process-{index}.redb"), false),
        };
        (self.directory.join(name), synced)
    }
}

impl Engine for Redb {
    type Partition = RedbPartition;

    const DURABILITIES: &'static [Durability] = &[Durability::Synced, Durability::Process];

    fn open(&self, place: Place) -> Result<RedbPartition, Failure> {
        if self.disk.is_none() {
            make_directory(&self.directory)?;
        }
        let (path, synced) = self.place(place);
        let page_cache_bytes = self.page_cache_bytes;
        let database = open(self.disk.as_ref(), &path, synced, page_cache_bytes)?;
        if self.disk.is_none() {
            sync_directory(&self.directory)?;
        }
        let (disk, database) = (self.disk.clone(), RwLock::new(Some(database)));
        Ok(RedbPartition { path, synced, page_cache_bytes, disk, database })
    }

    fn check(&self, place: Place) -> Result<(), Failure> {
        if self.disk.is_some() {
            return Ok(());
        }
        let is_there = |path: &Path| fs::metadata(path).is_ok_and(|file| file.len() > 0);
        super::check(&self.directory, &self.place(place).0, place, ".redb", is_there)
    }

    fn remove_unfinished(&self, place: Place) -> Result<(), Failure> {
        let path = self.place(place).0;
        if self.disk.is_some() || !path.exists() {
            return Ok(());
        }
        // Partitions are made after the catalog, so a catalog beside any file of one was whole.
        if place == Place::Catalog && super::has_partitions(&self.directory, ".redb", |_| true)? {
            return Ok(());
        }
        // Locks it: another process may be making it now. Emptied, because one that waits for the lock has the same file.
        let (file, _) = Backend::open(None, &path)?;
        let empty = || if is_unfinished(&file)? { file.set_len(0) } else { Ok(()) };
        empty().map_err(|error| io_failure(&path, &error))
    }

    fn remove(&self, place: Place) -> Result<(), Failure> {
        if self.disk.is_some() {
            return Ok(());
        }
        let (path, _) = self.place(place);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_failure(&path, &error)),
            _ => Ok(()),
        }
    }
}

impl Transactions for Redb {}

impl RedbPartition {
    fn with<T>(&self, f: impl FnOnce(&Database) -> Result<T, RedbError>) -> Result<T, Failure> {
        let database: RwLockReadGuard<'_, _> = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = &*database else { return Err(self.closed()) };
        guarded(&self.path, || f(database).map_err(|error| failure(&self.path, *error.0)))
    }

    fn closed(&self) -> Failure {
        Failure::Io { file: self.name(), detail: "the file could not be reopened after an error".to_owned() }
    }
}

impl Partition for RedbPartition {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        self.with(|database| {
            let name = table_name(table);
            let transaction = database.begin_read()?;
            let Some(table) = present(transaction.open_table(Definition::new(&name)))? else { return Ok(None) };
            Ok(table.get(key)?.map(|bytes| bytes.value().to_vec()))
        })
    }

    fn get_many(&self, table: TableId, keys: &[Bytes]) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        self.with(|database| {
            let name = table_name(table);
            let transaction = database.begin_read()?;
            let Some(table) = present(transaction.open_table(Definition::new(&name)))? else {
                return Ok(vec![None; keys.len()]);
            };
            let get = |key: &Bytes| Ok(table.get(&key[..])?.map(|bytes| bytes.value().to_vec()));
            keys.iter().map(get).collect()
        })
    }

    fn scan(&self, table: TableId, range: KeyRange<'_>, limit: usize) -> Result<Vec<Entry>, Failure> {
        if is_empty(&range) {
            return Ok(Vec::new());
        }
        self.with(|database| {
            let name = table_name(table);
            let transaction = database.begin_read()?;
            let Some(table) = present(transaction.open_table(Definition::new(&name)))? else { return Ok(Vec::new()) };
            let mut entries = Vec::new();
            for entry in table.range::<&[u8]>(range)?.take(limit) {
                let (key, bytes) = entry?;
                entries.push((key.value().to_vec(), bytes.value().to_vec()));
            }
            Ok(entries)
        })
    }

    fn len(&self, table: TableId) -> Result<u64, Failure> {
        self.with(|database| {
            let name = table_name(table);
            let transaction = database.begin_read()?;
            let table = present(transaction.open_table(Definition::new(&name)))?;
            Ok(table.map_or(Ok(0), |table| table.len())?)
        })
    }

    fn tables(&self) -> Result<Vec<TableId>, Failure> {
        self.with(|database| {
            let transaction = database.begin_read()?;
            let names = transaction.list_tables()?;
            Ok(names.filter_map(|table| table.name().strip_prefix('t')?.parse().ok().map(TableId)).collect())
        })
    }

    fn commit(&self, changes: &[Change]) -> Result<(), Failure> {
        self.with(|database| {
            let transaction = database.begin_write()?;
            let mut changes = changes.iter().peekable();
            while let Some(change) = changes.next() {
                let (Change::Put(id, ..) | Change::Remove(id, _) | Change::DropTable(id)) = change;
                let name = table_name(*id);
                if let Change::DropTable(_) = change {
                    transaction.delete_table(Definition::new(&name))?;
                    continue;
                }
                // A table is opened once for all of its adjacent changes.
                let mut table = transaction.open_table(Definition::new(&name))?;
                apply(&mut table, change)?;
                while let Some(change) = changes.next_if(|change| is_of(change, *id)) {
                    apply(&mut table, change)?;
                }
            }
            Ok(transaction.commit()?)
        })
    }

    fn recover(&self) -> Result<(), Failure> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // redb locks the file, so the old database has to go first.
        *database = None;
        *database = Some(open(self.disk.as_ref(), &self.path, self.synced, self.page_cache_bytes)?);
        Ok(())
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn verify(&self) -> Result<(), Failure> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = &mut *database else { return Err(self.closed()) };
        guarded(&self.path, || match database.check_integrity() {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.corrupt("the checksums of its pages do not hold")),
            Err(error) => Err(failure(&self.path, error.into())),
        })
    }
}

/// An error of redb, in a box because it is large.
struct RedbError(Box<redb::Error>);

impl<E: Into<redb::Error>> From<E> for RedbError {
    fn from(error: E) -> RedbError {
        RedbError(Box::new(error.into()))
    }
}

fn apply(table: &mut redb::Table<'_, &'static [u8], &'static [u8]>, change: &Change) -> Result<(), RedbError> {
    match change {
        Change::Put(_, key, bytes) => drop(table.insert(&key[..], &bytes[..])?),
        Change::Remove(_, key) => drop(table.remove(&key[..])?),
        Change::DropTable(_) => {}
    }
    Ok(())
}

fn is_of(change: &Change, table: TableId) -> bool {
    matches!(change, Change::Put(of, ..) | Change::Remove(of, _) if *of == table)
}

pub(super) fn is_empty((from, to): &KeyRange<'_>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
    }
}

pub(super) fn table_name(table: TableId) -> String {
    format!("t{}", table.0)
}

fn present<T>(opened: Result<T, TableError>) -> Result<Option<T>, RedbError> {
    match opened {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn open(disk: Option<&Arc<dyn Disk>>, path: &Path, synced: bool, page_cache_bytes: usize) -> Result<Database, Failure> {
    let (backend, syncs) = Backend::open(disk, path)?;
    let is_new = backend.len().is_ok_and(|len| len == 0);
    let mut builder = Database::builder();
    builder.set_cache_size(page_cache_bytes);
    let opened = guarded(path, || builder.create_with_backend(backend).map_err(|error| failure(path, error.into())));
    // Tables that promise to survive only a kill of the process need no syncs. Opening syncs
    // nevertheless: a power failure then costs only the files written since, and never the new file
    // of a store without such a table.
    syncs.store(synced, SeqCst);
    if opened.is_err() && is_new && disk.is_none() {
        // A new file that did not get whole, as on a full disk, would look damaged later.
        let _ = fs::remove_file(path);
    }
    opened
}

/// Whether a file lacks the first bytes of a file of redb, which writes them last when it makes one, over zeros.
fn is_unfinished(file: &Backend) -> io::Result<bool> {
    const MAGIC_LEN: u64 = 9;
    let first = file.read(0, file.len()?.min(MAGIC_LEN) as usize)?;
    Ok(first.iter().all(|byte| *byte == 0))
}

/// Calls redb, which panics at some kinds of damage. The message of the panic goes to the panic
/// hook.
fn guarded<T>(path: &Path, call: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // redb poisons values that it leaves half changed, so later calls fail, too.
    let result = catch_unwind(AssertUnwindSafe(call));
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("without a message");
        let detail = format!("its parts contradict each other, so restore a copy of the store (redb: {text})");
        Err(Failure::Corrupt { file: path.display().to_string(), detail })
    })
}

/// Makes the directory of a store.
pub(super) fn make_directory(directory: &Path) -> Result<(), Failure> {
    fs::create_dir_all(directory).map_err(|error| directory_failure(directory, &error))
}

pub(super) fn directory_failure(directory: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => Failure::Io {
            file: directory.display().to_string(),
            detail: "a store is a directory, and this is a file, or in one".to_owned(),
        },
        _ => io_failure(directory, error),
    }
}

pub(super) fn failure(path: &Path, error: redb::Error) -> Failure {
    let file = path.display().to_string();
    match error {
        redb::Error::Corrupted(detail) => Failure::Corrupt { file, detail },
        redb::Error::RepairAborted => Failure::Corrupt { file, detail: error.to_string() },
        redb::Error::DatabaseAlreadyOpen => Failure::InUse { file },
        redb::Error::UpgradeRequired(found) => Failure::Skew { file, found: found.into(), known: 3 },
        redb::Error::Io(error) => io_failure(path, &error),
        error => Failure::Io { file, detail: error.to_string() },
    }
}

pub(super) fn io_failure(path: &Path, error: &io::Error) -> Failure {
    let file = path.display().to_string();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Failure::Full { file, detail: error.to_string() },
        // redb reads beyond the end of a file that was cut off; in other files it finds that the
        // first bytes are wrong.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
            Failure::Corrupt { file, detail: error.to_string() }
        }
        _ => Failure::Io { file, detail: error.to_string() },
    }
}
