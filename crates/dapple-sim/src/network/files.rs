//! The disk of one host, as its runtime sees it.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

use dapple_io::environment::{Disk, DiskMetadata, DiskOpen};

use crate::disk::DiskState;
use crate::network::sockets::Kernel;
use crate::random::Random;

impl Kernel {
    fn on_disk<R>(&self, call: impl FnOnce(&mut DiskState, &mut Random) -> io::Result<R>) -> io::Result<R> {
        self.with(|world| call(&mut world.hosts[self.host].disk, &mut world.random))
    }
}

impl Disk for Kernel {
    fn late(&self) -> Duration {
        self.on_disk(|disk, _| Ok(disk.late())).unwrap_or_default()
    }

    fn open(&self, path: &Path, how: DiskOpen) -> io::Result<u64> {
        self.on_disk(|disk, random| disk.open(path, how, random))
    }

    fn read_at(&self, file: u64, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.on_disk(|disk, random| disk.read_at(file, offset, len, random))
    }

    fn write_at(&self, file: u64, offset: Option<u64>, bytes: &[u8]) -> io::Result<()> {
        self.on_disk(|disk, random| disk.write_at(file, offset, bytes, random))
    }

    fn set_len(&self, file: u64, len: u64) -> io::Result<()> {
        self.on_disk(|disk, random| disk.set_len(file, len, random))
    }

    fn sync(&self, file: u64) -> io::Result<()> {
        self.on_disk(|disk, random| disk.sync(file, random))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.on_disk(|disk, random| disk.rename(from, to, random))
    }

    fn create_dir(&self, path: &Path, all: bool) -> io::Result<()> {
        self.on_disk(|disk, random| disk.create_dir(path, all, random))
    }

    fn metadata(&self, path: &Path) -> io::Result<DiskMetadata> {
        self.on_disk(|disk, random| disk.metadata(path, random))
    }

    fn metadata_of(&self, file: u64) -> io::Result<DiskMetadata> {
        self.on_disk(|disk, random| disk.metadata_of(file, random))
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<(OsString, bool)>> {
        self.on_disk(|disk, random| disk.read_dir(path, random))
    }

    fn remove(&self, path: &Path, is_dir: bool) -> io::Result<()> {
        self.on_disk(|disk, random| disk.remove(path, is_dir, random))
    }
}
