//! The files under [`Redb`](super::Redb): the system's, or others that a test supplies.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use redb::backends::FileBackend;
use redb::{DatabaseError, StorageBackend};

use super::Failure;
use super::redb::failure;

/// A place for the files of a [`Redb`](super::Redb) that is not the system's file system, such as a simulated disk.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Opens a file, and makes it if it is not there.
    ///
    /// # Errors
    /// Those of the system.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
}

/// An open file of a [`Disk`]. The methods are those of a random-access file.
pub trait DiskFile: fmt::Debug + Send + Sync + 'static {
    /// The length of the file, bytes.
    ///
    /// # Errors
    /// Those of the system.
    fn file_len(&self) -> io::Result<u64>;

    /// The `len` bytes from `offset` on.
    ///
    /// # Errors
    /// Those of the system; the file is shorter.
    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>>;

    /// Cuts the file or appends zeros to it.
    ///
    /// # Errors
    /// Those of the system; there is no room.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Returns when all that was written survives a power failure.
    ///
    /// # Errors
    /// Errors of the system; the written bytes may be lost then.
    fn sync(&self) -> io::Result<()>;

    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    /// Those of the system; there is no room.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
}

/// A file under redb.
#[derive(Debug)]
pub(super) struct Backend {
    file: Opened,
    syncs: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Opened {
    System(FileBackend),
    Other(Box<dyn DiskFile>),
}

impl Backend {
    /// Opens a file; it is synced as long as the flag is set.
    pub(super) fn open(disk: Option<&Arc<dyn Disk>>, path: &Path) -> Result<(Backend, Arc<AtomicBool>), Failure> {
        let failed = |error: DatabaseError| failure(path, error.into());
        let file = match disk {
            Some(disk) => Opened::Other(disk.open(path).map_err(|error| super::redb::io_failure(path, &error))?),
            None => {
                let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
                let file = file.map_err(|error| super::redb::io_failure(path, &error))?;
                Opened::System(FileBackend::new(file).map_err(failed)?)
            }
        };
        let syncs = Arc::new(AtomicBool::new(true));
        Ok((Backend { file, syncs: syncs.clone() }, syncs))
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        match &self.file {
            Opened::System(file) => file.len(),
            Opened::Other(file) => file.file_len(),
        }
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        match &self.file {
            Opened::System(file) => file.read(offset, len),
            Opened::Other(file) => file.read(offset, len),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let grows = len > self.len()?;
        match &self.file {
            Opened::System(file) => file.set_len(len)?,
            Opened::Other(file) => file.set_len(len)?,
        }
        // redb writes the new length into its header before it syncs. If a power failure kept the header but not the
        // length, redb could not open the file.
        if grows { self.sync_data(false) } else { Ok(()) }
    }

    fn sync_data(&self, eventual: bool) -> io::Result<()> {
        match &self.file {
            _ if !self.syncs.load(SeqCst) => Ok(()),
            Opened::System(file) => file.sync_data(eventual),
            Opened::Other(file) => file.sync(),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match &self.file {
            Opened::System(file) => file.write(offset, data),
            Opened::Other(file) => file.write(offset, data),
        }
    }
}

/// Makes the names of new files survive a power failure.
pub(super) fn sync_directory(directory: &Path) -> Result<(), Failure> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| super::redb::io_failure(directory, &error))
}
