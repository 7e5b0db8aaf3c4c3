//! The served directory, accessed through Dapple's files: io_uring, or the blocking pool.

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

/// The served directory, held open: renaming it does not change what is served.
pub(crate) struct Root {
    pub(super) dir: Dir,
    /// Its path without symbolic links, to tell whether an absolute link leads out.
    path: PathBuf,
    /// Whether symbolic links may lead out (`--follow`).
    pub(super) follow: bool,
}

/// An open file and its metadata: the papers' file handle.
pub(crate) struct FileHandle {
    pub(crate) file: File,
    pub(crate) state: State,
    /// The fields of replies, if the file is sent piece by piece; if a file is read completely, its
    /// content has them.
    meta: OnceLock<Meta>,
    /// The encoded variants of the content.
    pub(crate) variants: Variants,
}

/// The meaning of a name in the site.
#[derive(Clone)]
pub(crate) enum Resolved {
    /// A regular file, open for reading.
    File(Arc<FileHandle>),
    /// A directory, named without its slash.
    Directory,
    /// A regular file with its content in memory, so it need not be open.
    Read,
    /// A directory without an index, shown as a list.
    Listed,
    /// Nothing that can be served: no such name, no permission, a link that leads out, a pipe, a
    /// device.
    Nothing,
}

impl Root {
    /// Opens the directory. Blocks; for the start of the program.
    pub(crate) fn open(path: &Path, follow: bool) -> io::Result<Root> {
        let path = path.canonicalize()?;
        let dir = rustix::fs::openat(CWD, &path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // Otherwise every page would be missing, without an explanation.
        rustix::fs::accessat(CWD, &path, Access::EXEC_OK, AtFlags::EACCESS)?;
        Ok(Root { dir: Dir::from_fd(dir), path, follow })
    }

    /// Looks `key` up. If the file is still that of `known`, returns that handle and opens nothing.
    ///
    /// # Errors
    ///
    /// Only failures of the server (out of descriptors, a disk error); a name that cannot be served
    /// is [`Resolved::Nothing`].
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

    /// Opens the directory `key` to read its names; `None` if there is no readable directory.
    ///
    /// # Errors
    ///
    /// As [`resolve`](Self::resolve).
    pub(crate) async fn open_directory(&self, key: &[u8]) -> io::Result<Option<File>> {
        // The dot makes the kernel refuse other files, so that opening a pipe cannot wait.
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

    /// Opens `name` so that nothing outside the directory can be reached, unless `--follow` allows
    /// it.
    ///
    /// The kernel checks every step, so nothing can change between a check and its use. It also
    /// refuses absolute links that lead back inside; this function resolves those itself and then
    /// opens their plain name.
    async fn open_beneath(&self, name: &Path, options: &OpenOptions) -> io::Result<File> {
        if self.follow {
            return self.dir.open_file(name, options).await;
        }
        let result = self.dir.open_beneath(name, options).await;
        let Err(error) = result else { return result };
        match Errno::from_io_error(&error) {
            Some(Errno::XDEV) => self.dir.open_beneath(&self.plain_name(name).await?, options).await,
            // Before Linux 5.6, and if a sandbox hides the call: use a plain name without links,
            // and follow none.
            Some(Errno::NOSYS | Errno::PERM) => {
                let plain = self.plain_name(name).await?;
                self.dir.open_file(&plain, options.clone().follow_link(false)).await
            }
            _ => Err(error),
        }
    }

    /// `name` with every link resolved, relative to the directory; an error if it lies outside.
    async fn plain_name(&self, name: &Path) -> io::Result<PathBuf> {
        let full = fs::canonicalize(self.path.join(name)).await.map_err(|_| Errno::NOENT)?;
        Ok(full.strip_prefix(&self.path).map(Path::to_path_buf).map_err(|_| Errno::XDEV)?)
    }
}

impl FileHandle {
    fn new(file: File, state: State) -> FileHandle {
        FileHandle { file, state, meta: OnceLock::new(), variants: Variants::default() }
    }

    /// A handle of a regular file that was opened without waiting.
    pub(super) fn of_opened(fd: OwnedFd, state: State) -> io::Result<FileHandle> {
        // With the flag, some file systems refuse to read content that is not in memory.
        rustix::fs::fcntl_setfl(&fd, OFlags::empty())?;
        Ok(FileHandle::new(File::from_std(fd.into()), state))
    }

    /// The fields of replies for this file, which is sent piece by piece; calls `make` the first
    /// time.
    pub(crate) fn meta(&self, make: impl FnOnce() -> Meta) -> &Meta {
        self.meta.get_or_init(make)
    }

    /// The generation of the rules for its fields; fields not made yet will use the latest.
    pub(crate) fn generation(&self) -> u64 {
        self.meta.get().map_or(u64::MAX, |meta| meta.generation)
    }

    /// Whether the file is still in the state in which it was opened.
    pub(crate) fn is_as_known(&self) -> bool {
        Stamp::of(&self.file).is_ok_and(|stamp| stamp == self.state.stamp)
    }

    /// The fields made by [`meta`](Self::meta).
    pub(crate) fn known_meta(&self) -> &Meta {
        self.meta.get().expect("a file is sent only when its fields are made")
    }

    /// Reads the whole file in one of its states, which may be later than the state that this
    /// handle has seen. `None` if the file keeps changing.
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
    /// Includes a file that has changed since it was opened: then these bytes do not fit the bytes
    /// already sent.
    pub(crate) async fn read_chunk(&self, at: u64, end: u64) -> io::Result<Vec<u8>> {
        let len = CHUNK_LEN.min(usize::try_from(end - at).unwrap_or(CHUNK_LEN));
        let chunk = read_full(&self.file, at, len).await?;
        if chunk.is_empty() {
            return Err(changed());
        }
        self.check().map(|()| chunk)
    }

    /// Checks that the file has not changed; call it after every piece.
    ///
    /// # Errors
    ///
    /// As [`read_chunk`](Self::read_chunk).
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.is_as_known() { Ok(()) } else { Err(changed()) }
    }
}

fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file changed while it was sent")
}

/// The name of the file for `key`.
pub(crate) fn file_name(key: &[u8]) -> Cow<'_, [u8]> {
    match is_directory(key) {
        true => Cow::Owned([key, b"index.html"].concat()),
        false => Cow::Borrowed(key),
    }
}

/// Reads `len` bytes from `at`, fewer if the file ends.
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

/// Whether descriptors have run out.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Whether the server has failed, as opposed to a wrong name.
fn is_trouble(error: &io::Error) -> bool {
    match Errno::from_io_error(error) {
        Some(errno) => matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO),
        // For a name the kernel reports an errno; this error comes from the runtime, which is
        // ending.
        None => !matches!(error.kind(), io::ErrorKind::InvalidInput),
    }
}

/// How often a changing file is read again.
const READS_MAX: usize = 4;

/// How much of a streamed file is read at a time if the read waits for the disk.
const CHUNK_LEN: usize = 64 * 1024;
