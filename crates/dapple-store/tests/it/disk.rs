//! A disk in memory that loses unsynced data, and that can be full.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use dapple_store::engine::{Disk, DiskFile};

/// The disk; clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Simulated(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    files: HashMap<PathBuf, Bytes>,
    /// Writes and syncs until the power fails; `None` for never.
    until_failure: Option<u64>,
    /// The most bytes in all files; `None` for no limit.
    capacity: Option<u64>,
    /// Syncs that do nothing: the planted bug.
    forgets_syncs: bool,
    /// Counts power failures. Files that were open before one are dead.
    power: u64,
}

#[derive(Debug, Default)]
struct Bytes {
    /// The content of the file for programs that have it open.
    now: Vec<u8>,
    durable: Vec<u8>,
    /// The writes since the last sync.
    unsynced: Vec<Write>,
}

#[derive(Clone, Debug)]
enum Write {
    At(u64, Vec<u8>),
    Len(u64),
}

#[derive(Debug)]
struct Handle {
    disk: Simulated,
    path: PathBuf,
    power: u64,
}

/// A power failure may keep one half of a write: disks write sectors.
const SECTOR: usize = 512;

impl Simulated {
    pub(crate) fn fail_after(&self, operations: u64) {
        self.contents().until_failure = Some(operations);
    }

    pub(crate) fn forget_syncs(&self) {
        self.contents().forgets_syncs = true;
    }

    pub(crate) fn set_capacity(&self, bytes: Option<u64>) {
        self.contents().capacity = bytes;
    }

    /// The content of the files for programs that have them open, sorted by their names.
    pub(crate) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let contents = self.contents();
        let mut files: Vec<_> = contents.files.iter().map(|(path, file)| (path.clone(), file.now.clone())).collect();
        files.sort();
        files
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.contents().files.values().map(|file| file.now.len() as u64).sum()
    }

    /// Brings the power back. Of the unsynced data, a part that `random` chooses survives.
    pub(crate) fn restart(&self, mut random: impl FnMut() -> u64) {
        let mut contents = self.contents();
        contents.power += 1;
        contents.until_failure = None;
        let mut paths: Vec<PathBuf> = contents.files.keys().cloned().collect();
        paths.sort();
        for path in paths {
            let in_order = contents.forgets_syncs;
            let Some(file) = contents.files.get_mut(&path) else { continue };
            let unsynced = std::mem::take(&mut file.unsynced);
            if in_order {
                // All that was written since the start is unsynced: the end of it is lost.
                let kept = random() as usize % (unsynced.len() + 1);
                unsynced[..kept].iter().for_each(|write| apply(&mut file.durable, write));
                file.now = file.durable.clone();
                continue;
            }
            for write in unsynced {
                match (random() % 4, write) {
                    (0, _) => {}
                    (1, Write::At(at, bytes)) => {
                        let len = bytes.len().min(random() as usize % (bytes.len() / SECTOR + 1) * SECTOR);
                        apply(&mut file.durable, &Write::At(at, bytes[..len].to_vec()));
                    }
                    (_, write) => apply(&mut file.durable, &write),
                }
            }
            file.now = file.durable.clone();
        }
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap()
    }
}

impl Disk for Simulated {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut contents = self.contents();
        contents.files.entry(path.to_owned()).or_default();
        Ok(Box::new(Handle { disk: self.clone(), path: path.to_owned(), power: contents.power }))
    }
}

impl Contents {
    /// Counts an operation that changes the disk.
    fn step(&mut self, power: u64) -> io::Result<()> {
        let is_off = power != self.power || self.until_failure == Some(0);
        if is_off {
            return Err(io::Error::other("the power has failed"));
        }
        self.until_failure = self.until_failure.map(|left| left - 1);
        Ok(())
    }
}

impl Handle {
    fn change(&self, write: Write) -> io::Result<()> {
        let mut contents = self.disk.contents();
        contents.step(self.power)?;
        let others: u64 =
            contents.files.iter().filter(|(path, _)| **path != self.path).map(|(_, file)| file.now.len() as u64).sum();
        let capacity = contents.capacity;
        let file = contents.files.get_mut(&self.path).unwrap();
        let len = match &write {
            Write::At(at, bytes) => (file.now.len() as u64).max(at + bytes.len() as u64),
            Write::Len(len) => *len,
        };
        if len > file.now.len() as u64 && capacity.is_some_and(|capacity| others + len > capacity) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        apply(&mut file.now, &write);
        file.unsynced.push(write);
        Ok(())
    }
}

impl DiskFile for Handle {
    fn file_len(&self) -> io::Result<u64> {
        Ok(self.disk.contents().files[&self.path].now.len() as u64)
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let contents = self.disk.contents();
        let bytes = &contents.files[&self.path].now;
        let found = bytes.get(offset as usize..offset as usize + len);
        found.map(<[u8]>::to_vec).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Write::Len(len))
    }

    fn sync(&self) -> io::Result<()> {
        let mut contents = self.disk.contents();
        contents.step(self.power)?;
        if !contents.forgets_syncs {
            let file = contents.files.get_mut(&self.path).unwrap();
            file.unsynced.clear();
            file.durable = file.now.clone();
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(Write::At(offset, bytes.to_vec()))
    }
}

fn apply(file: &mut Vec<u8>, write: &Write) {
    match write {
        Write::Len(len) => file.resize(*len as usize, 0),
        Write::At(at, bytes) => {
            let (from, to) = (*at as usize, *at as usize + bytes.len());
            if file.len() < to {
                file.resize(to, 0);
            }
            file[from..to].copy_from_slice(bytes);
        }
    }
}
