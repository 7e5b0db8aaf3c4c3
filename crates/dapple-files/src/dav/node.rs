//! Attributes and open files, as dav-server takes them.

use std::fmt;
use std::io;
use std::io::SeekFrom;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Buf, Bytes};
use dapple::fs::File;
use dav_server::fs::{DavDirEntry, DavFile, DavMetaData, FsError, FsFuture, FsResult};
use rustix::io::Errno;

use super::files::Caller;
use crate::path::TreePath;
use crate::rights::May;
use crate::tree::{Attributes, Entry, Kind, Needed, NodeId, Tree, Upload, whole};

/// The attributes of a file.
#[derive(Clone, Debug)]
pub(super) struct Metadata(pub(super) Attributes);

impl DavMetaData for Metadata {
    fn len(&self) -> u64 {
        if self.0.is_dir() { 0 } else { self.0.len }
    }

    fn modified(&self) -> FsResult<SystemTime> {
        Ok(self.0.modified.to_system_time())
    }

    fn is_dir(&self) -> bool {
        self.0.is_dir()
    }

    fn etag(&self) -> Option<String> {
        Some(self.0.tag())
    }

    fn is_file(&self) -> bool {
        self.0.kind == Kind::File
    }

    fn is_symlink(&self) -> bool {
        self.0.kind == Kind::Link
    }

    fn accessed(&self) -> FsResult<SystemTime> {
        Ok(self.0.accessed.to_system_time())
    }

    fn status_changed(&self) -> FsResult<SystemTime> {
        Ok(self.0.changed.to_system_time())
    }

    fn executable(&self) -> FsResult<bool> {
        match self.0.kind {
            Kind::File => Ok(self.0.mode & 0o100 != 0),
            _ => Err(FsError::NotImplemented),
        }
    }
}

impl DavDirEntry for Entry {
    fn name(&self) -> Vec<u8> {
        self.name.clone()
    }

    fn metadata(&self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        let metadata: Box<dyn DavMetaData> = Box::new(Metadata(self.attributes));
        Box::pin(std::future::ready(Ok(metadata)))
    }
}

/// A file that a request writes.
pub(super) struct Written {
    pub(super) tree: Tree,
    pub(super) caller: Caller,
    pub(super) path: TreePath,
    pub(super) target: Target,
    pub(super) position: u64,
    /// Whether it only grows: dav-server seeks to the start nonetheless.
    pub(super) is_append: bool,
    /// The bytes that the request announced.
    pub(super) expected: Option<u64>,
    pub(super) only_new: bool,
    pub(super) written: u64,
    /// The attributes after the end of the writing.
    pub(super) done: Option<Attributes>,
}

/// The file that takes the bytes.
pub(super) enum Target {
    /// New contents, which appear as a whole.
    Whole(Option<Upload>),
    /// A part of a file, which is written in place.
    Part(File, NodeId),
}

impl Written {
    async fn write(&mut self, data: Bytes) -> FsResult<()> {
        let len = data.len() as u64;
        self.written += len;
        if self.expected.is_some_and(|expected| self.written > expected) {
            return Err(FsError::TooLarge);
        }
        // A file without a name is checked before it gets one.
        if matches!(self.target, Target::Part(..)) {
            self.check().await?;
        }
        let result = match &self.target {
            Target::Whole(Some(upload)) => upload.file().write_all_at(self.position, data).await,
            Target::Whole(None) => Err(io::ErrorKind::BrokenPipe.into()),
            // The conditions hold until the first byte is written, which makes them false for others.
            Target::Part(file, _) if self.written == len && self.needed() != Needed::Any => {
                self.tree.write_if(self.needed(), &self.path, file, self.position, data).await
            }
            Target::Part(file, node) => {
                // Each goes on to its end if the client leaves, and may wait for leases until then.
                let room = self.caller.room.changes.acquire().await.map_err(|_| self.caller.asked.busy())?;
                let (tree, file, node, position) = (self.tree.clone(), file.clone(), *node, self.position);
                whole(async move {
                    let _room = room;
                    tree.write(&file, node, position, data, None).await
                })
                .await
            }
        };
        self.position += len;
        result.map_err(|error| self.caller.asked.failed(error))
    }

    /// The state that the file must be in; one that this request made has none.
    fn needed(&self) -> Needed {
        match self.caller.asked.needed(&self.path) {
            Needed::Same(None) => Needed::Any,
            needed => needed,
        }
    }

    /// An upload takes long, and rules may have become stricter meanwhile, for the name that the file has now.
    async fn check(&mut self) -> FsResult<()> {
        let rules = self.caller.asked.rules();
        if Arc::ptr_eq(&rules, &self.caller.rules) {
            return Ok(());
        }
        let now = match &self.target {
            Target::Part(file, _) => self.tree.path_of(file).await.map_err(failed)?,
            Target::Whole(_) => None,
        };
        if rules.may(&self.caller.user, now.as_ref().unwrap_or(&self.path)) < May::Write {
            return Err(FsError::Forbidden);
        }
        self.caller.rules = rules;
        Ok(())
    }

    async fn end(&mut self) -> FsResult<()> {
        if self.expected.is_some_and(|expected| self.written < expected) {
            // The client left in the middle: what was there stays.
            return Err(FsError::GeneralFailure);
        }
        self.check().await?;
        let attributes = match &mut self.target {
            Target::Whole(upload) => match upload.take() {
                Some(upload) => upload.commit_if(self.caller.asked.needed(&self.path), None, self.only_new, true).await,
                None => return Ok(()),
            },
            Target::Part(file, _) => match file.sync_data().await {
                Ok(()) => crate::tree::of_file(file),
                Err(error) => Err(error),
            },
        };
        self.done = Some(attributes.map_err(|error| self.caller.asked.failed(error))?);
        Ok(())
    }
}

impl DavFile for Written {
    fn metadata(&mut self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        let found: io::Result<Attributes> = match (&self.done, &self.target) {
            (Some(done), _) => Ok(*done),
            (None, Target::Whole(Some(upload))) => crate::tree::of_file(upload.file()),
            (None, Target::Part(file, _)) => crate::tree::of_file(file),
            (None, Target::Whole(None)) => Err(io::ErrorKind::BrokenPipe.into()),
        };
        let found = found.map(|found| Box::new(Metadata(found)) as Box<dyn DavMetaData>);
        Box::pin(std::future::ready(found.map_err(failed)))
    }

    fn write_buf(&mut self, mut buf: Box<dyn Buf + Send>) -> FsFuture<'_, ()> {
        Box::pin(async move {
            let data = buf.copy_to_bytes(buf.remaining());
            self.write(data).await
        })
    }

    fn write_bytes(&mut self, data: Bytes) -> FsFuture<'_, ()> {
        Box::pin(self.write(data))
    }

    /// Never called: this crate reads files itself.
    fn read_bytes(&mut self, _: usize) -> FsFuture<'_, Bytes> {
        Box::pin(std::future::ready(Err(FsError::NotImplemented)))
    }

    fn seek(&mut self, to: SeekFrom) -> FsFuture<'_, u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(_) => None,
        };
        if let Some(position) = position.filter(|_| !self.is_append) {
            self.position = position;
        }
        // Files end there (off_t).
        let position = position.filter(|position| *position <= i64::MAX as u64);
        Box::pin(std::future::ready(position.ok_or(FsError::TooLarge)))
    }

    fn flush(&mut self) -> FsFuture<'_, ()> {
        Box::pin(self.end())
    }
}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Written").field("position", &self.position).finish_non_exhaustive()
    }
}

/// The error of WebDAV for one of the kernel.
pub(super) fn failed(error: io::Error) -> FsError {
    let Some(errno) = Errno::from_io_error(&error) else {
        return match error.kind() {
            io::ErrorKind::FileTooLarge => FsError::TooLarge,
            io::ErrorKind::InvalidInput => FsError::Forbidden,
            _ => FsError::GeneralFailure,
        };
    };
    match errno {
        Errno::NOENT => FsError::NotFound,
        Errno::EXIST | Errno::NOTEMPTY => FsError::Exists,
        Errno::NOSPC | Errno::DQUOT | Errno::MLINK => FsError::InsufficientStorage,
        Errno::FBIG => FsError::TooLarge,
        Errno::NAMETOOLONG => FsError::PathTooLong,
        Errno::XDEV => FsError::IsRemote,
        // A link is not followed, whatever it points to.
        Errno::LOOP => FsError::Forbidden,
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOTDIR | Errno::ISDIR | Errno::BUSY | Errno::NXIO => {
            FsError::Forbidden
        }
        _ => {
            tracing::warn!(%error, "a file could not be used");
            FsError::GeneralFailure
        }
    }
}
