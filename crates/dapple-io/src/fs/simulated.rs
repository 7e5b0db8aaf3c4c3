//! Files on the disk of a simulated machine.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::blocking::run;
pub(super) use crate::environment::disk;
use crate::environment::{Disk, DiskMetadata, DiskOpen};

/// One call of the disk.
pub(super) async fn call<T: Send + 'static>(
    disk: Arc<dyn Disk>,
    call: impl FnOnce(&dyn Disk) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let late = disk.late();
    if !late.is_zero() {
        crate::time::sleep(late).await;
    }
    run(move || call(&*disk)).await
}

/// An open file.
#[derive(Clone)]
pub(super) struct OnDisk {
    disk: Arc<dyn Disk>,
    file: u64,
    access: Access,
}

/// The operations that a file was opened for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) reads: bool,
    pub(super) writes: bool,
    pub(super) appends: bool,
}

impl OnDisk {
    pub(super) async fn open(disk: Arc<dyn Disk>, path: &Path, how: DiskOpen, access: Access) -> io::Result<OnDisk> {
        let path = path.to_owned();
        let file = call(disk.clone(), move |disk| disk.open(&path, how)).await?;
        Ok(OnDisk { disk, file, access })
    }

    pub(super) async fn read_at(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        allowed(self.access.reads)?;
        let file = self.file;
        call(self.disk.clone(), move |disk| disk.read_at(file, offset, len)).await
    }

    pub(super) async fn write_all_at(&self, offset: u64, bytes: Vec<u8>) -> io::Result<()> {
        allowed(self.access.writes)?;
        let (file, offset) = (self.file, if self.access.appends { None } else { Some(offset) });
        call(self.disk.clone(), move |disk| disk.write_at(file, offset, &bytes)).await
    }

    pub(super) async fn set_len(&self, len: u64) -> io::Result<()> {
        allowed(self.access.writes)?;
        let file = self.file;
        call(self.disk.clone(), move |disk| disk.set_len(file, len)).await
    }

    pub(super) async fn metadata(&self) -> io::Result<DiskMetadata> {
        let file = self.file;
        call(self.disk.clone(), move |disk| disk.metadata_of(file)).await
    }

    pub(super) async fn sync(&self) -> io::Result<()> {
        let file = self.file;
        call(self.disk.clone(), move |disk| disk.sync(file)).await
    }
}

/// Removes a directory with all in it: a crash or an error in the middle leaves the rest.
pub(super) async fn remove_all(disk: Arc<dyn Disk>, path: &Path) -> io::Result<()> {
    // Directories in the order in which they are found: each after the one that it is in.
    let mut dirs = vec![path.to_owned()];
    let mut at = 0;
    while let Some(dir) = dirs.get(at).cloned() {
        let of = dir.clone();
        for (name, is_dir) in call(disk.clone(), move |disk| disk.read_dir(&of)).await? {
            let path = dir.join(name);
            match is_dir {
                true => dirs.push(path),
                false => call(disk.clone(), move |disk| disk.remove(&path, false)).await?,
            }
        }
        at += 1;
    }
    for dir in dirs.into_iter().rev() {
        call(disk.clone(), move |disk| disk.remove(&dir, true)).await?;
    }
    Ok(())
}

fn allowed(is: bool) -> io::Result<()> {
    if is { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EBADF)) }
}
