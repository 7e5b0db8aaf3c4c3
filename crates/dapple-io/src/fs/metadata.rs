//! Facts about files and entries of directories.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::Permissions;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::environment::{self, DiskMetadata};

/// Size, kind and times of a file when they were asked for.
#[derive(Clone)]
pub struct Metadata(Origin);

#[derive(Clone)]
enum Origin {
    Kernel(std::fs::Metadata),
    Simulated(DiskMetadata),
}

impl Metadata {
    /// The size of a file, in bytes.
    #[expect(clippy::len_without_is_empty, reason = "as of the standard library's type")]
    pub fn len(&self) -> u64 {
        match &self.0 {
            Origin::Kernel(metadata) => metadata.len(),
            Origin::Simulated(metadata) => metadata.len,
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        match &self.0 {
            Origin::Kernel(metadata) => metadata.is_dir(),
            Origin::Simulated(metadata) => metadata.is_dir,
        }
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        match &self.0 {
            Origin::Kernel(metadata) => metadata.is_file(),
            Origin::Simulated(metadata) => !metadata.is_dir,
        }
    }

    /// Whether it is a symbolic link, which only [`symlink_metadata`](super::symlink_metadata) tells. A simulated disk has none.
    pub fn is_symlink(&self) -> bool {
        match &self.0 {
            Origin::Kernel(metadata) => metadata.is_symlink(),
            Origin::Simulated(_) => false,
        }
    }

    /// The time of the last change of its contents; in a simulation by the clock of its machine.
    ///
    /// # Errors
    ///
    /// As [`std::fs::Metadata::modified`].
    pub fn modified(&self) -> io::Result<SystemTime> {
        match &self.0 {
            Origin::Kernel(metadata) => metadata.modified(),
            Origin::Simulated(metadata) => Ok(metadata.modified),
        }
    }

    /// Its permissions.
    ///
    /// # Panics
    ///
    /// In a simulation, as [`as_std`](Self::as_std).
    pub fn permissions(&self) -> Permissions {
        self.as_std().permissions()
    }

    /// The standard library's type, which tells more, such as the owner and the number of the inode.
    ///
    /// # Panics
    ///
    /// In a simulation: only the kernel has these.
    pub fn as_std(&self) -> &std::fs::Metadata {
        match &self.0 {
            Origin::Kernel(metadata) => metadata,
            Origin::Simulated(_) => environment::refuse_on_disk(super::FILE),
        }
    }
}

impl From<std::fs::Metadata> for Metadata {
    fn from(metadata: std::fs::Metadata) -> Metadata {
        Metadata(Origin::Kernel(metadata))
    }
}

impl From<DiskMetadata> for Metadata {
    fn from(metadata: DiskMetadata) -> Metadata {
        Metadata(Origin::Simulated(metadata))
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Origin::Kernel(metadata) => metadata.fmt(f),
            Origin::Simulated(metadata) => metadata.fmt(f),
        }
    }
}

/// An entry of a directory, by [`read_dir`](super::read_dir).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Dir,
    File,
    Symlink,
    Other,
}

impl DirEntry {
    pub(super) fn on_disk(dir: &Path, (name, is_dir): (OsString, bool)) -> DirEntry {
        DirEntry { path: dir.join(name), kind: if is_dir { Kind::Dir } else { Kind::File } }
    }

    /// The path of the directory as it was given, and the name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name without the directory.
    pub fn file_name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// Whether it is a directory. A link to one is not.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Dir
    }

    /// Whether it is a regular file. A link to one is not.
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.kind == Kind::Symlink
    }

    /// Size, kind and times, of a link itself; as [`symlink_metadata`](super::symlink_metadata). Cancel safe.
    ///
    /// # Errors
    ///
    /// As [`std::fs::DirEntry::metadata`].
    pub async fn metadata(&self) -> io::Result<Metadata> {
        super::symlink_metadata(&self.path).await
    }
}

impl TryFrom<std::fs::DirEntry> for DirEntry {
    type Error = io::Error;

    /// May ask the kernel for the kind, which blocks, where its file system does not tell it with the names.
    fn try_from(entry: std::fs::DirEntry) -> io::Result<DirEntry> {
        let kind = match entry.file_type()? {
            kind if kind.is_dir() => Kind::Dir,
            kind if kind.is_file() => Kind::File,
            kind if kind.is_symlink() => Kind::Symlink,
            _ => Kind::Other,
        };
        Ok(DirEntry { path: entry.path(), kind })
    }
}
