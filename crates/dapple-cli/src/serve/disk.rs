//! The served directory. Everything here blocks and runs on the blocking pool, never on a worker.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::content_type;
use super::meta::{Meta, Stamp};
use super::pages::Page;
use super::path::is_directory;

/// The directory that is served, held open: renaming it does not change what is served.
pub(crate) struct Root {
    dir: OwnedFd,
    /// Its name without symbolic links, to tell whether an absolute link leads out.
    path: PathBuf,
    /// Whether symbolic links may lead out (`--follow`).
    follow: bool,
}

/// An open file with what is known about it: the papers' file handle.
pub(crate) struct FileHandle {
    pub(crate) file: File,
    pub(crate) meta: Meta,
}

/// What a name in the site stands for.
#[derive(Clone)]
pub(crate) enum Resolved {
    /// A regular file, open for reading.
    File(Arc<FileHandle>),
    /// A directory named without its slash.
    Directory,
    /// Nothing that is served: no such name, no permission, a link that leads out, a pipe, a device.
    Nothing,
}

impl Root {
    /// Opens the directory.
    pub(crate) fn open(path: &Path, follow: bool) -> io::Result<Root> {
        let path = path.canonicalize()?;
        let dir = rustix::fs::openat(CWD, &path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // Otherwise every page would be missing, and nobody would know why.
        rustix::fs::accessat(CWD, &path, Access::EXEC_OK, AtFlags::EACCESS)?;
        Ok(Root { dir, path, follow })
    }

    /// Looks `key` up. Where the file is still the one of `known`, that handle is given back and nothing is opened.
    ///
    /// # Errors
    ///
    /// Only what is the server's trouble (out of descriptors, a disk error); a name that cannot be served is
    /// [`Resolved::Nothing`].
    pub(crate) fn resolve(&self, key: &[u8], known: Option<Arc<FileHandle>>) -> io::Result<Resolved> {
        let mut name = key.to_vec();
        if is_directory(key) {
            name.extend_from_slice(b"index.html");
        }
        match self.resolve_name(&name, known) {
            Ok(Resolved::Directory) if is_directory(key) => Ok(Resolved::Nothing),
            Err(trouble @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO)) => Err(trouble.into()),
            Err(_) => Ok(Resolved::Nothing),
            Ok(resolved) => Ok(resolved),
        }
    }

    fn resolve_name(&self, name: &[u8], known: Option<Arc<FileHandle>>) -> Result<Resolved, Errno> {
        // Opening a pipe or a device can have effects; `PATH` only looks.
        let look = self.open_beneath(Path::new(std::ffi::OsStr::from_bytes(name)), OFlags::PATH)?;
        let seen = rustix::fs::fstat(&look)?;
        match FileType::from_raw_mode(seen.st_mode) {
            FileType::Directory => return Ok(Resolved::Directory),
            FileType::RegularFile => {}
            _ => return Ok(Resolved::Nothing),
        }
        if let Some(known) = known.filter(|known| known.meta.certain && known.meta.stamp == Stamp::of(&seen)) {
            return Ok(Resolved::File(known));
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.open_beneath(Path::new(std::ffi::OsStr::from_bytes(name)), flags)?;
        let stat = rustix::fs::fstat(&file)?;
        if !same_file(&seen, &stat) || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            // Somebody swapped the file between the two looks; the next request sees what is there then.
            return Ok(Resolved::Nothing);
        }
        let meta = Meta::new(content_type::of(name), &stat, true);
        Ok(Resolved::File(Arc::new(FileHandle { file: File::from(file), meta })))
    }

    /// Opens `name` so that nothing outside the directory can be reached, unless `--follow` allows it.
    ///
    /// The kernel checks every step (`RESOLVE_BENEATH`), so there is no moment between a check and its use. It also
    /// refuses absolute links that lead back inside; those are resolved by hand and then opened by their plain name.
    fn open_beneath(&self, name: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        if self.follow {
            return rustix::fs::openat(self.dir.as_fd(), name, flags, Mode::empty());
        }
        match self.open_checked(name, flags) {
            Err(Errno::XDEV) => self.open_checked(&self.plain_name(name)?, flags),
            // Before Linux 5.6, and where a sandbox hides the call: no link at all in the plain name, none followed.
            Err(Errno::NOSYS | Errno::PERM) => {
                let plain = self.plain_name(name)?;
                rustix::fs::openat(self.dir.as_fd(), &plain, flags | OFlags::NOFOLLOW, Mode::empty())
            }
            result => result,
        }
    }

    fn open_checked(&self, name: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 1..ATTEMPTS_MAX {
            match rustix::fs::openat2(self.dir.as_fd(), name, flags, Mode::empty(), resolve) {
                // A rename elsewhere made the kernel unsure; it asks for another try.
                Err(Errno::AGAIN) => {}
                result => return result,
            }
        }
        rustix::fs::openat2(self.dir.as_fd(), name, flags, Mode::empty(), resolve)
    }

    /// `name` with every link resolved, relative to the directory; refused when it lies outside.
    fn plain_name(&self, name: &Path) -> Result<PathBuf, Errno> {
        let full = self.path.join(name).canonicalize().map_err(|_| Errno::NOENT)?;
        full.strip_prefix(&self.path).map(Path::to_path_buf).map_err(|_| Errno::XDEV)
    }
}

impl FileHandle {
    /// Reads the whole file as it is now, which may be later than what this handle says about it.
    pub(crate) fn read_all(&self) -> io::Result<Page> {
        let before = self.meta.stamp;
        let mut content = Vec::with_capacity(before.len as usize);
        while content.len() < before.len as usize {
            let at = content.len() as u64;
            match rustix::io::pread(&self.file, rustix::buffer::spare_capacity(&mut content), at) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Capacity may be more than was asked for; a file that grew meanwhile is read again at the next check.
        content.truncate(before.len as usize);
        let stat = rustix::fs::fstat(&self.file)?;
        let unchanged = before == Stamp::of(&stat) && before.len == content.len() as u64;
        let meta = Meta::new(self.meta.content_type.clone(), &stat, unchanged);
        Ok(Page { meta, body: Bytes::from(content) })
    }

    /// Reads up to [`CHUNK_LEN`] bytes from `at`, not past `end`. Empty at the end of the file.
    pub(crate) fn read_chunk(&self, at: u64, end: u64) -> io::Result<Vec<u8>> {
        let len = CHUNK_LEN.min(usize::try_from(end - at).unwrap_or(CHUNK_LEN));
        let mut chunk = Vec::with_capacity(len);
        while chunk.len() < len {
            let from = at + chunk.len() as u64;
            match rustix::io::pread(&self.file, rustix::buffer::spare_capacity(&mut chunk), from) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        chunk.truncate(len);
        Ok(chunk)
    }
}

fn same_file(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// How much of a streamed file is in memory at a time, per response.
pub(crate) const CHUNK_LEN: usize = 64 * 1024;

/// How often a look-up is tried again when renames elsewhere disturb it.
const ATTEMPTS_MAX: usize = 8;
