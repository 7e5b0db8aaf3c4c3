//! The tree, as dav-server's file system.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use dav_server::davpath::DavPath;
use dav_server::fs::{
    DavDirEntry, DavFile, DavMetaData, DavProp, FsError, FsFuture, FsResult, FsStream, GuardedFileSystem, OpenOptions,
    ReadDirMeta,
};
use futures_util::{TryStreamExt as _, stream};
use http::StatusCode;

use super::node::{Metadata, Target, Written, failed};
use super::properties;
use super::request::Asked;
use crate::path::{PathError, TreePath};
use crate::rights::{May, Rules};
use crate::room::Room;
use crate::tree::{Access, AttributeChange, FileTime, Kind, Needed, NewTime, Page, Tree, is_changed};

/// The user of a request, with the rules of that moment.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) user: Arc<str>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) asked: Arc<Asked>,
    pub(crate) room: Arc<Room>,
}

/// The tree for dav-server.
#[derive(Clone, Debug)]
pub(crate) struct DavTree(pub(crate) Tree);

impl Caller {
    pub(crate) fn may(&self, path: &TreePath) -> May {
        self.rules.may(&self.user, path)
    }

    pub(crate) fn may_all(&self, path: &TreePath) -> May {
        self.rules.may_all(&self.user, path)
    }

    /// # Errors
    ///
    /// `NotFound` for what the user may not see, `Forbidden` for what it may see but not do.
    pub(super) fn check(&self, path: &TreePath, needed: May) -> FsResult<()> {
        refused(self.may(path), needed)
    }

    pub(super) fn check_all(&self, path: &TreePath, needed: May) -> FsResult<()> {
        refused(self.may(path), needed)?;
        refused(self.may_all(path).max(May::Read), needed)
    }
}

/// The next page of a directory, or the name before it.
enum Next {
    Page(Page),
    After(Vec<u8>),
}

fn refused(may: May, needed: May) -> FsResult<()> {
    match may {
        may if may >= needed => Ok(()),
        May::Nothing => Err(FsError::NotFound),
        _ => Err(FsError::Forbidden),
    }
}

/// The path in the tree.
pub(super) fn tree_path(path: &DavPath) -> FsResult<TreePath> {
    TreePath::parse(path.as_bytes()).map_err(|error| match error {
        PathError::TooLong => FsError::PathTooLong,
        _ => FsError::Forbidden,
    })
}

impl DavTree {
    async fn metadata(&self, path: &DavPath, caller: &Caller) -> FsResult<Box<dyn DavMetaData>> {
        let path = tree_path(path)?;
        caller.check(&path, May::Read)?;
        let found = self.0.stat(&path).await;
        caller.asked.saw(&path, found.as_ref().ok().copied());
        let found = found.map_err(failed)?;
        match found.kind {
            Kind::File | Kind::Directory => Ok(Box::new(Metadata(found))),
            // WebDAV has neither links nor devices.
            _ => Err(FsError::NotFound),
        }
    }

    async fn open(&self, path: &DavPath, options: OpenOptions, caller: &Caller) -> FsResult<Box<dyn DavFile>> {
        let path = tree_path(path)?;
        caller.check(&path, May::Write)?;
        let (target, position) = match options.truncate || options.create_new {
            true => (Target::Whole(Some(self.0.upload(&path, FILE_MODE).await.map_err(failed)?)), 0),
            false => {
                let needed = caller.asked.needed(&path);
                let is_missing = needed == Needed::Same(None);
                // A file that must be there is not made, and one that must be missing is no other.
                let create = Some(FILE_MODE).filter(|_| options.create && (is_missing || needed == Needed::Any));
                let access = Access {
                    read: true,
                    write: true,
                    create,
                    only_new: is_missing,
                    append: options.append,
                    ..Access::default()
                };
                let opened = self.0.open_file(&path, access, None).await.map_err(|error| needed.refused(error));
                let file = opened.map_err(|error| caller.asked.failed(error))?;
                let found = crate::tree::of_file(&file).map_err(failed)?;
                let position = if options.append { found.len } else { 0 };
                (Target::Part(file, found.node), position)
            }
        };
        Ok(Box::new(Written {
            tree: self.0.clone(),
            caller: caller.clone(),
            path,
            target,
            position,
            is_append: options.append,
            expected: options.size,
            only_new: options.create_new,
            written: 0,
            done: None,
        }))
    }

    async fn read_dir(&self, path: &DavPath, caller: &Caller) -> FsResult<FsStream<Box<dyn DavDirEntry>>> {
        let path = tree_path(path)?;
        caller.check(&path, May::Read)?;
        if caller.asked.replaces(&path) {
            // Asked for to be removed: it stays until the copy or the move takes its place.
            return Ok(Box::pin(stream::empty()));
        }
        // The first page is here before the answer begins, so that an error has a status.
        let first = self.0.page(&path, b"").await.map_err(failed)?;
        let (tree, caller) = (self.0.clone(), caller.clone());
        let pages = stream::try_unfold(Some(Next::Page(first)), move |next| {
            let (tree, caller, path) = (tree.clone(), caller.clone(), path.clone());
            async move {
                let page = match next {
                    None => return Ok(None),
                    Some(Next::Page(page)) => page,
                    Some(Next::After(name)) => tree.page(&path, &name).await.map_err(failed)?,
                };
                let mut entries = page.entries;
                entries.retain(|entry| {
                    matches!(entry.attributes.kind, Kind::File | Kind::Directory)
                        && path.join(&entry.name).is_ok_and(|path| caller.may(&path) >= May::Read)
                });
                let entries = entries.into_iter().map(|entry| Ok(Box::new(entry) as Box<dyn DavDirEntry>));
                Ok(Some((stream::iter(entries), page.next.map(Next::After))))
            }
        });
        Ok(Box::pin(pages.try_flatten()))
    }

    async fn create_dir(&self, path: &DavPath, caller: &Caller) -> FsResult<()> {
        let path = tree_path(path)?;
        caller.check(&path, May::Write)?;
        // WebDAV shows no links, so none is replaced.
        if caller.asked.replaces(&path)
            && let Ok(found) = self.0.stat(&path).await
            && matches!(found.kind, Kind::File | Kind::Directory)
        {
            if found.is_dir() && caller.asked.is_shallow() {
                return Err(FsError::Exists);
            }
            caller.asked.put_aside(self.0.aside(&path, DIR_MODE).await.map_err(failed)?);
            return Ok(());
        }
        let place = caller.asked.place(&path);
        let made = self.0.make_dir(&place, DIR_MODE, None).await;
        made.map(drop).map_err(|error| caller.asked.failed_at(&path, error))
    }

    async fn remove(&self, path: &DavPath, caller: &Caller, is_dir: bool) -> FsResult<()> {
        let path = tree_path(path)?;
        caller.check_all(&path, May::Write)?;
        if caller.asked.replaces(&path) {
            return Ok(());
        }
        let removed = match is_dir {
            true => self.0.remove_dir(&path, None).await,
            false => self.0.remove_file_if(&caller.asked.needed(&path), &path, None).await,
        };
        removed.map_err(|error| caller.asked.failed(error))
    }

    async fn rename(&self, from: &DavPath, to: &DavPath, caller: &Caller) -> FsResult<()> {
        let (from, to) = (tree_path(from)?, tree_path(to)?);
        caller.check_all(&from, May::Write)?;
        caller.check_all(&to, May::Write)?;
        let needed = caller.asked.needed(&from);
        let replaces = caller.asked.replaces(&to)
            && self.0.stat(&to).await.is_ok_and(|found| matches!(found.kind, Kind::File | Kind::Directory));
        let renamed = match replaces {
            true => self.0.replace(&needed, &from, &to).await,
            false => self.0.rename_if(&needed, &from, &to, false, None).await,
        };
        renamed.map_err(|error| caller.asked.failed_at(&to, error))
    }

    /// Copies data, permissions of execution and properties of a file.
    async fn copy(&self, from: &DavPath, to: &DavPath, caller: &Caller) -> FsResult<()> {
        let (from, to) = (tree_path(from)?, tree_path(to)?);
        caller.check(&from, May::Read)?;
        caller.check(&to, May::Write)?;
        let copied = self.copy_file(&from, &to, caller).await;
        copied.map_err(|error| caller.asked.failed_at(&to, error))
    }

    async fn copy_file(&self, from: &TreePath, to: &TreePath, caller: &Caller) -> io::Result<()> {
        let place = caller.asked.place(to);
        let is_dir = caller.asked.replaces(to) && self.0.stat(to).await.is_ok_and(|found| found.is_dir());
        let source = self.0.open_file(from, Access { read: true, ..Access::default() }, None).await?;
        let found = crate::tree::of_file(&source)?;
        caller.asked.needed(from).check_found(&found)?;
        // A file gets a hidden name until it takes the place of a directory.
        let hidden = is_dir.then(|| self.0.hidden_beside(&place));
        let upload = self.0.upload_new(hidden.as_ref().unwrap_or(&place), found.mode & 0o777).await?;
        crate::tree::copy(&source, upload.file()).await?;
        // Before anyone sees the copy.
        upload.copy_extended(&source, OsStr::new(properties::NAME)).await?;
        let aside = hidden.map(|hidden| self.0.aside_file(&hidden, to, upload.file())).transpose()?;
        let only_new = !caller.asked.overwrites();
        upload.commit(None, only_new, true).await?;
        match aside {
            Some(aside) => aside.commit().await,
            None => Ok(()),
        }
    }

    async fn set_modified(&self, path: &DavPath, time: SystemTime, caller: &Caller) -> FsResult<()> {
        let path = tree_path(path)?;
        caller.check(&path, May::Write)?;
        let modified = Some(NewTime::At(FileTime::from_system_time(time)));
        let change = AttributeChange { modified, ..AttributeChange::default() };
        self.0.set_attributes(&path, change, None).await.map(drop).map_err(failed)
    }

    async fn properties(&self, path: &DavPath, caller: &Caller) -> FsResult<Vec<DavProp>> {
        let path = tree_path(path)?;
        caller.check(&path, May::Read)?;
        properties::read(&self.0, &path).await.map_err(failed)
    }

    async fn patch(
        &self,
        path: &DavPath,
        patch: Vec<(bool, DavProp)>,
        caller: &Caller,
    ) -> FsResult<Vec<(StatusCode, DavProp)>> {
        let path = tree_path(path)?;
        caller.check(&path, May::Write)?;
        let changed = properties::patch(&self.0, &caller.asked.needed(&path), &path, patch.clone()).await;
        let status = match changed {
            Ok(()) => StatusCode::OK,
            Err(error) if is_changed(&error) => return Err(caller.asked.failed(error)),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => StatusCode::INSUFFICIENT_STORAGE,
            Err(_) => StatusCode::FORBIDDEN,
        };
        Ok(patch.into_iter().map(|(_, property)| (status, property)).collect())
    }

    async fn quota(&self) -> FsResult<(u64, Option<u64>)> {
        let space = self.0.space().await.map_err(failed)?;
        // Both count, so that a client shows what may still be written.
        let used = space.total.saturating_sub(space.free);
        Ok((used, Some(used.saturating_add(space.available))))
    }
}

impl GuardedFileSystem<Caller> for DavTree {
    fn open<'a>(
        &'a self,
        path: &'a DavPath,
        options: OpenOptions,
        caller: &'a Caller,
    ) -> FsFuture<'a, Box<dyn DavFile>> {
        Box::pin(self.open(path, options, caller))
    }

    fn read_dir<'a>(
        &'a self,
        path: &'a DavPath,
        _: ReadDirMeta,
        caller: &'a Caller,
    ) -> FsFuture<'a, FsStream<Box<dyn DavDirEntry>>> {
        Box::pin(self.read_dir(path, caller))
    }

    fn metadata<'a>(&'a self, path: &'a DavPath, caller: &'a Caller) -> FsFuture<'a, Box<dyn DavMetaData>> {
        Box::pin(self.metadata(path, caller))
    }

    fn create_dir<'a>(&'a self, path: &'a DavPath, caller: &'a Caller) -> FsFuture<'a, ()> {
        Box::pin(self.create_dir(path, caller))
    }

    fn remove_dir<'a>(&'a self, path: &'a DavPath, caller: &'a Caller) -> FsFuture<'a, ()> {
        Box::pin(self.remove(path, caller, true))
    }

    fn remove_file<'a>(&'a self, path: &'a DavPath, caller: &'a Caller) -> FsFuture<'a, ()> {
        Box::pin(self.remove(path, caller, false))
    }

    fn rename<'a>(&'a self, from: &'a DavPath, to: &'a DavPath, caller: &'a Caller) -> FsFuture<'a, ()> {
        Box::pin(self.rename(from, to, caller))
    }

    fn copy<'a>(&'a self, from: &'a DavPath, to: &'a DavPath, caller: &'a Caller) -> FsFuture<'a, ()> {
        Box::pin(self.copy(from, to, caller))
    }

    fn set_modified<'a>(&'a self, path: &'a DavPath, time: SystemTime, caller: &'a Caller) -> FsFuture<'a, ()> {
        Box::pin(self.set_modified(path, time, caller))
    }

    fn have_props<'a>(
        &'a self,
        _: &'a DavPath,
        _: &'a Caller,
    ) -> std::pin::Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(std::future::ready(true))
    }

    fn patch_props<'a>(
        &'a self,
        path: &'a DavPath,
        patch: Vec<(bool, DavProp)>,
        caller: &'a Caller,
    ) -> FsFuture<'a, Vec<(StatusCode, DavProp)>> {
        Box::pin(self.patch(path, patch, caller))
    }

    fn get_props<'a>(&'a self, path: &'a DavPath, _: bool, caller: &'a Caller) -> FsFuture<'a, Vec<DavProp>> {
        Box::pin(self.properties(path, caller))
    }

    fn get_prop<'a>(&'a self, path: &'a DavPath, wanted: DavProp, caller: &'a Caller) -> FsFuture<'a, Vec<u8>> {
        Box::pin(async move {
            let found = self.properties(path, caller).await?;
            let found = found.into_iter().find(|one| one.name == wanted.name && one.namespace == wanted.namespace);
            found.and_then(|found| found.xml).ok_or(FsError::NotFound)
        })
    }

    fn get_quota<'a>(&'a self, _: &'a Caller) -> FsFuture<'a, (u64, Option<u64>)> {
        Box::pin(self.quota())
    }
}

/// The permissions of what clients make; the process's mask takes some away.
const FILE_MODE: u32 = 0o644;
const DIR_MODE: u32 = 0o755;

#[cfg(test)]
mod tests;
