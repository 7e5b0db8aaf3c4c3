//! An open directory.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, ResolveFlags, fstat};

use super::file::File;
use super::open_options::OpenOptions;
use super::place::PathRoot;

/// An open directory, for opening files by relative names: renaming the directory does not matter.
///
/// ```
/// use dapple_io::fs::{Dir, OpenOptions};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let path = std::env::temp_dir().join(format!("dapple-io-dir-{}", std::process::id()));
///     std::fs::create_dir(&path)?;
///     std::fs::write(path.join("page"), "hello")?;
///     std::os::unix::fs::symlink("/etc/passwd", path.join("trap"))?;
///     let dir = Dir::open(&path).await?;
///     let mut options = OpenOptions::new();
///     options.read(true);
///     assert_eq!(dir.open_beneath("page", &options).await?.read_at(0, 100).await?, b"hello");
///     assert!(dir.open_beneath("trap", &options).await.is_err());
///     assert!(dir.open_beneath("../other", &options).await.is_err());
///     std::fs::remove_dir_all(&path)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Dir(File);

impl Dir {
    /// Opens a directory. Cancel safe.
    ///
    /// # Errors
    ///
    /// Errors of the kernel, among them `NotADirectory`; there is no runtime here.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Dir> {
        crate::environment::refuse(super::FILE);
        let mut options = OpenOptions::new();
        options.read(true).path_only(true);
        let file = options.open(path).await?;
        // Does not wait: the directory was just opened.
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::Directory => Ok(Dir(file)),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// Takes over a descriptor of a directory, even one opened with `O_PATH`.
    pub fn from_fd(fd: impl Into<OwnedFd>) -> Dir {
        Dir(File::from_std(fd.into().into()))
    }

    /// Opens a file by a relative name, which may lead anywhere by links and `..`. Cancel safe as
    /// [`OpenOptions::open`].
    ///
    /// # Errors
    ///
    /// As [`OpenOptions::open`]; `InvalidInput` for options converted from those of the standard
    /// library, or options that it would refuse.
    pub async fn open_file(&self, name: impl AsRef<Path>, options: &OpenOptions) -> io::Result<File> {
        self.open_as(name.as_ref(), options, ResolveFlags::empty()).await
    }

    /// Opens a file by a relative name. At every step the kernel ensures that the name does not
    /// leave this directory: neither by `..`, nor by a link, nor by a concurrent rename. Absolute
    /// links are refused, even those that lead back inside.
    ///
    /// Cancel safe as [`OpenOptions::open`].
    ///
    /// # Errors
    ///
    /// `CrossesDevices` (`EXDEV`) for a name that leads out; `Unsupported` (`ENOSYS`) before Linux
    /// 5.6; `WouldBlock` if renames elsewhere disturb it repeatedly; otherwise as
    /// [`open_file`](Self::open_file).
    pub async fn open_beneath(&self, name: impl AsRef<Path>, options: &OpenOptions) -> io::Result<File> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut attempts = 1;
        loop {
            match self.open_as(name.as_ref(), options, resolve).await {
                // A rename elsewhere made the kernel unsure; it asks for another try.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && attempts < ATTEMPTS_MAX => attempts += 1,
                result => return result,
            }
        }
    }

    async fn open_as(&self, name: &Path, options: &OpenOptions, resolve: ResolveFlags) -> io::Result<File> {
        let flags = options.flags().ok_or_else(|| {
            let text = "these options cannot be used in a directory: set them with the methods of dapple's OpenOptions";
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let mode = if flags & libc::O_CREAT == 0 { 0 } else { 0o666 };
        let place = PathRoot { dir: Some(self.0.clone()), resolve: resolve.bits() };
        let opened = match options.is_regular_only() {
            true => place.open_regular(name, flags, mode).await,
            false => place.open(name, flags, mode).await,
        };
        options.finish(opened)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dir").field(&self.0).finish()
    }
}

/// The most tries of a look-up while renames elsewhere disturb it.
pub(super) const ATTEMPTS_MAX: usize = 8;
