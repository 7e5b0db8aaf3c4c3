//! The served directory, through Dapple's files: io_uring, or the blocking pool.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use dapple::fs::{self, Dir, File, OpenOptions};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::content_type;
use super::meta::{Meta, Stamp};
use super::pages::Page;
use super::path::is_directory;

/// The directory that is served, held open: renaming it does not change what is served.
pub(crate) struct Root {
    dir: Dir,
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
        let mut name = key.to_vec();
        if is_directory(key) {
            name.extend_from_slice(b"index.html");
        }
        match self.resolve_name(&name, known).await {
            Ok(Resolved::Directory) if is_directory(key) => Ok(Resolved::Nothing),
            Err(error) if is_trouble(&error) => Err(error),
            Err(_) => Ok(Resolved::Nothing),
            Ok(resolved) => Ok(resolved),
        }
    }

    async fn resolve_name(&self, name: &[u8], known: Option<Arc<FileHandle>>) -> io::Result<Resolved> {
        let path = Path::new(OsStr::from_bytes(name));
        if let Some(known) = known.filter(|known| known.meta.certain) {
            let seen = self.open_beneath(path, OpenOptions::new().read(true).path_only(true)).await?;
            if known.meta.stamp == Stamp::of(&seen)? {
                return Ok(Resolved::File(known));
            }
        }
        // Opening a pipe or a device can have effects.
        let file = self.open_beneath(path, OpenOptions::new().read(true).regular_only(true)).await;
        let file = match file {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Ok(Resolved::Directory),
            file => file?,
        };
        let meta = Meta::new(content_type::of(name), Stamp::of(&file)?, true);
        Ok(Resolved::File(Arc::new(FileHandle { file, meta })))
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
    /// Reads the whole file as it is now, which may be later than what this handle says about it.
    pub(crate) async fn read_all(&self) -> io::Result<Page> {
        let before = self.meta.stamp;
        // A file that grew meanwhile is read again at the next check.
        let content = read_full(&self.file, 0, before.len as usize).await?;
        let after = Stamp::of(&self.file)?;
        let unchanged = before == after && before.len == content.len() as u64;
        let meta = Meta::new(self.meta.content_type.clone(), after, unchanged);
        Ok(Page { meta, body: Bytes::from(content) })
    }

    /// Reads up to [`CHUNK_LEN`] bytes from `at`, not past `end`. Empty at the end of the file.
    pub(crate) async fn read_chunk(&self, at: u64, end: u64) -> io::Result<Vec<u8>> {
        let len = CHUNK_LEN.min(usize::try_from(end - at).unwrap_or(CHUNK_LEN));
        read_full(&self.file, at, len).await
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

/// Whether it is the server that is in trouble, and not the name that is wrong.
fn is_trouble(error: &io::Error) -> bool {
    match Errno::from_io_error(error) {
        Some(errno) => matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO),
        // Of a name the kernel says what is wrong; this comes from the runtime, which is going.
        None => !matches!(error.kind(), io::ErrorKind::InvalidInput),
    }
}

/// How much of a streamed file is in memory at a time, per response.
pub(crate) const CHUNK_LEN: usize = 64 * 1024;
