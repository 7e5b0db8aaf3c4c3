//! The served directory, through Dapple's files: io_uring, or the blocking pool.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use dapple::fs::{self, Dir, File, OpenOptions};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::meta::{Meta, Stamp, State};
use super::path::is_directory;
use super::variants::Variants;

/// The directory that is served, held open: renaming it does not change what is served.
pub(crate) struct Root {
    pub(super) dir: Dir,
    /// Its name without symbolic links, to tell whether an absolute link leads out.
    path: PathBuf,
    /// Whether symbolic links may lead out (`--follow`).
    pub(super) follow: bool,
}

/// An open file with what is known about it: the papers' file handle.
pub(crate) struct FileHandle {
    pub(crate) file: File,
    pub(crate) state: State,
    /// What replies say of it, if it is sent piece by piece; what is read whole has that beside its content.
    meta: OnceLock<Meta>,
    /// The same with a coding.
    pub(crate) variants: Variants,
}

/// What a name in the site stands for.
#[derive(Clone)]
pub(crate) enum Resolved {
    /// A regular file, open for reading.
    File(Arc<FileHandle>),
    /// A directory named without its slash.
    Directory,
    /// A regular file whose content is in memory: it need not be open.
    Read,
    /// A directory without an index, of which a list is shown.
    Listed,
    /// Nothing that is served: no such name, no permission, a link that leads out, a pipe, a device.
    Nothing,
}

impl Root {
    /// Opens the directory. Blocks; for the start of the program.
    pub(crate) fn open(path: &Path, follow: bool) -> io::Result<Root> {
        let path = path.canonicalize()?;
        let dir = rustix::fs::openat(CWD, &path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // Otherwise every page would be missing, and nobody would know why.
        rustix::fs::accessat(CWD, &path, Access::EXEC_OK, AtFlags::EACCESS)?;
        Ok(Root { dir: Dir::from_fd(dir), path, follow })
    }

    /// Looks `key` up. Where the file is still the one of `known`, that handle is given back and nothing is opened.
    ///
    /// # Errors
    ///
    /// Only what is the server's trouble (out of descriptors, a disk error); a name that cannot be served is
    /// [`Resolved::Nothing`].
    pub(crate) async fn resolve(&self, key: &[u8], known: Option<Arc<FileHandle>>) -> io::Result<Resolved> {
        match self.resolve_name(&file_name(key), known).await {
            Ok(Resolved::Directory) if is_directory(key) => Ok(Resolved::Nothing),
            Err(error) if is_trouble(&error) => Err(error),
            Err(_) => Ok(Resolved::Nothing),
            Ok(resolved) => Ok(resolved),
        }
    }

    async fn resolve_name(&self, name: &[u8], known: Option<Arc<FileHandle>>) -> io::Result<Resolved> {
        let path = Path::new(OsStr::from_bytes(name));
        if let Some(known) = known.filter(|known| known.state.certain) {
            let seen = self.open_beneath(path, OpenOptions::new().read(true).path_only(true)).await?;
            if known.state.stamp == Stamp::of(&seen)? {
                return Ok(Resolved::File(known));
            }
        }
        // Opening a pipe or a device can have effects.
        let file = self.open_beneath(path, OpenOptions::new().read(true).regular_only(true)).await;
        let file = match file {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Ok(Resolved::Directory),
            file => file?,
        };
        let state = State::new(Stamp::of(&file)?, true);
        Ok(Resolved::File(Arc::new(FileHandle::new(file, state))))
    }

    /// Opens the directory `key` to read its names; `None` where there is none, or none that may be read.
    ///
    /// # Errors
    ///
    /// As [`resolve`](Self::resolve).
    pub(crate) async fn open_directory(&self, key: &[u8]) -> io::Result<Option<File>> {
        // The dot refuses what is no directory, before a pipe could make anybody wait.
        let name = [key, b"."].concat();
        match self.open_beneath(Path::new(OsStr::from_bytes(&name)), OpenOptions::new().read(true)).await {
            Err(error) if is_trouble(&error) => Err(error),
            opened => Ok(opened.ok()),
        }
    }

    /// The directory itself.
    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Whether links may lead out.
    pub(crate) fn follows(&self) -> bool {
        self.follow
    }

    /// Opens `name` so that nothing outside the directory can be reached, unless `--follow` allows it.
    ///
    /// The kernel checks every step, so there is no moment between a check and its use. It also refuses absolute links that lead
    /// back inside; those are resolved by hand and then opened by their plain name.
    async fn open_beneath(&self, name: &Path, options: &OpenOptions) -> io::Result<File> {
        if self.follow {
            return self.dir.open_file(name, options).await;
        }
        let result = self.dir.open_beneath(name, options).await;
        let Err(error) = result else { return result };
        match Errno::from_io_error(&error) {
            Some(Errno::XDEV) => self.dir.open_beneath(&self.plain_name(name).await?, options).await,
            // Before Linux 5.6, and where a sandbox hides the call: no link at all in the plain name, none followed.
            Some(Errno::NOSYS | Errno::PERM) => {
                let plain = self.plain_name(name).await?;
                self.dir.open_file(&plain, options.clone().follow_link(false)).await
            }
            _ => Err(error),
        }
    }

    /// `name` with every link resolved, relative to the directory; refused when it lies outside.
    async fn plain_name(&self, name: &Path) -> io::Result<PathBuf> {
        let full = fs::canonicalize(self.path.join(name)).await.map_err(|_| Errno::NOENT)?;
        Ok(full.strip_prefix(&self.path).map(Path::to_path_buf).map_err(|_| Errno::XDEV)?)
    }
}

impl FileHandle {
    fn new(file: File, state: State) -> FileHandle {
        FileHandle { file, state, meta: OnceLock::new(), variants: Variants::default() }
    }

    /// A regular file that was opened so that this did not wait.
    pub(super) fn of_opened(fd: OwnedFd, state: State) -> io::Result<FileHandle> {
        // With the flag, some file systems refuse to read what the kernel does not have.
        rustix::fs::fcntl_setfl(&fd, OFlags::empty())?;
        Ok(FileHandle::new(File::from_std(fd.into()), state))
    }

    /// What replies say of this file, which is sent piece by piece; `made` the first time.
    pub(crate) fn meta(&self, make: impl FnOnce() -> Meta) -> &Meta {
        self.meta.get_or_init(make)
    }

    /// Of the rules by which its fields were made; those that are still to be made will be by the latest.
    pub(crate) fn generation(&self) -> u64 {
        self.meta.get().map_or(u64::MAX, |meta| meta.generation)
    }

    /// Whether the file still is in the state in which it was opened.
    pub(crate) fn is_as_known(&self) -> bool {
        Stamp::of(&self.file).is_ok_and(|stamp| stamp == self.state.stamp)
    }

    /// What was made of it by [`meta`](Self::meta).
    pub(crate) fn known_meta(&self) -> &Meta {
        self.meta.get().expect("a file is given to be sent only when its fields are made")
    }

    /// Reads the whole file in one of its states, which may be later than the one of this handle. `None`: somebody writes to it
    /// all the time.
    pub(crate) async fn read_all(&self) -> io::Result<Option<(State, Bytes)>> {
        let mut before = self.state.stamp;
        for _ in 0..READS_MAX {
            let content = read_full(&self.file, 0, before.len as usize).await?;
            let after = Stamp::of(&self.file)?;
            if before == after && before.len == content.len() as u64 {
                return Ok(Some((State::new(after, true), Bytes::from(content))));
            }
            before = after;
        }
        Ok(None)
    }

    /// Reads up to [`CHUNK_LEN`] bytes from `at`, not past `end`.
    ///
    /// # Errors
    ///
    /// Also where the file is not any more what it was when it was opened: then these bytes do not go with those that were sent.
    pub(crate) async fn read_chunk(&self, at: u64, end: u64) -> io::Result<Vec<u8>> {
        let len = CHUNK_LEN.min(usize::try_from(end - at).unwrap_or(CHUNK_LEN));
        let chunk = read_full(&self.file, at, len).await?;
        if chunk.is_empty() {
            return Err(changed());
        }
        self.check().map(|()| chunk)
    }

    /// To be asked after every piece.
    ///
    /// # Errors
    ///
    /// As [`read_chunk`](Self::read_chunk).
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.is_as_known() { Ok(()) } else { Err(changed()) }
    }
}

fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file was changed while it was sent")
}

/// The name of the file that stands for `key`.
pub(crate) fn file_name(key: &[u8]) -> Cow<'_, [u8]> {
    match is_directory(key) {
        true => Cow::Owned([key, b"index.html"].concat()),
        false => Cow::Borrowed(key),
    }
}

/// Reads `len` bytes from `at`, fewer where the file ends.
async fn read_full(file: &File, at: u64, len: usize) -> io::Result<Vec<u8>> {
    match file.read_exact_at(at, len).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        result => return result,
    }
    let mut content = Vec::new();
    while content.len() < len {
        let part = file.read_at(at + content.len() as u64, len - content.len()).await?;
        if part.is_empty() {
            break;
        }
        content.extend_from_slice(&part);
    }
    Ok(content)
}

/// Whether there are no descriptors.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Whether it is the server that is in trouble, and not the name that is wrong.
fn is_trouble(error: &io::Error) -> bool {
    match Errno::from_io_error(error) {
        Some(errno) => matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO),
        // Of a name the kernel says what is wrong; this comes from the runtime, which is going.
        None => !matches!(error.kind(), io::ErrorKind::InvalidInput),
    }
}

/// How often a file that changes meanwhile is read again.
const READS_MAX: usize = 4;

/// How much of a streamed file is read at a time where the disk has to be waited for.
const CHUNK_LEN: usize = 64 * 1024;
