//! The files of a log: the kernel's, or those of a simulated machine.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use dapple_io::environment::{self, Disk, DiskOpen};
use rustix::fs::FlockOperation;

/// Where files are.
#[derive(Clone)]
pub(super) enum Files {
    Kernel,
    Simulated(Arc<dyn Disk>),
}

/// An open file.
pub(super) enum LogFile {
    Kernel(File),
    Simulated(Arc<dyn Disk>, u64),
}

impl Files {
    /// Those of this machine.
    pub(super) fn here() -> Files {
        environment::disk().map_or(Files::Kernel, Files::Simulated)
    }

    /// Opens a file that exists.
    pub(super) fn open(&self, path: &Path) -> io::Result<LogFile> {
        match self {
            Files::Kernel => OpenOptions::new().read(true).write(true).open(path).map(LogFile::Kernel),
            Files::Simulated(disk) => {
                let file = disk.open(path, DiskOpen { writes: true, ..DiskOpen::default() })?;
                Ok(LogFile::Simulated(disk.clone(), file))
            }
        }
    }

    /// Makes a file, or empties it.
    pub(super) fn create(&self, path: &Path) -> io::Result<LogFile> {
        match self {
            Files::Kernel => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(true).open(path).map(LogFile::Kernel)
            }
            Files::Simulated(disk) => {
                let how = DiskOpen { writes: true, create: true, truncate: true, ..DiskOpen::default() };
                Ok(LogFile::Simulated(disk.clone(), disk.open(path, how)?))
            }
        }
    }

    pub(super) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match self {
            Files::Kernel => fs::read(path),
            Files::Simulated(disk) => disk.read_at(disk.open(path, DiskOpen::default())?, 0, usize::MAX),
        }
    }

    pub(super) fn exists(&self, path: &Path) -> io::Result<bool> {
        match self {
            Files::Kernel => path.try_exists(),
            Files::Simulated(disk) => match disk.open(path, DiskOpen::default()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                opened => opened.map(|_| true),
            },
        }
    }

    /// Replaces a file. Until `sync_name` has returned, a crash keeps the new one or the old one.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self {
            Files::Kernel => fs::rename(from, to),
            Files::Simulated(disk) => disk.rename(from, to),
        }
    }

    /// Waits until a crash keeps what this path names.
    pub(super) fn sync_name(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match self {
            Files::Kernel => File::open(folder)?.sync_all(),
            Files::Simulated(disk) => disk.sync(disk.open(folder, DiskOpen::default())?),
        }
    }

    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        match self {
            Files::Kernel => fs::remove_file(path),
            Files::Simulated(disk) => disk.remove(path, false),
        }
    }

    /// Locks a file until it is dropped, and makes it if it does not exist. A simulated machine has one process, which needs no lock.
    pub(super) fn lock(&self, path: &Path) -> io::Result<Option<File>> {
        match self {
            Files::Kernel => {
                let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
                rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
                    .map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))?;
                Ok(Some(file))
            }
            Files::Simulated(_) => Ok(None),
        }
    }
}

impl LogFile {
    pub(super) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self {
            LogFile::Kernel(file) => file.write_all_at(bytes, offset),
            LogFile::Simulated(disk, file) => disk.write_at(*file, Some(offset), bytes),
        }
    }

    pub(super) fn sync_all(&self) -> io::Result<()> {
        match self {
            LogFile::Kernel(file) => file.sync_all(),
            LogFile::Simulated(disk, file) => disk.sync(*file),
        }
    }

    pub(super) fn sync_data(&self) -> io::Result<()> {
        match self {
            LogFile::Kernel(file) => file.sync_data(),
            LogFile::Simulated(disk, file) => disk.sync(*file),
        }
    }

    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        match self {
            LogFile::Kernel(file) => file.set_len(len),
            LogFile::Simulated(disk, file) => disk.set_len(*file, len),
        }
    }
}
