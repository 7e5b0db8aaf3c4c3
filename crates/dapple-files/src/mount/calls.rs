//! Calls of the kernel, as calls of the server.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dapple::time::Instant;
use rustix::io::Errno;

use super::answers::{NOW, no_attr};
use super::inodes::Inodes;
use super::{Listing, Open, Page, Shared};
use crate::lease::Lease;
use crate::lock::lock;
use crate::path::TreePath;
use crate::tree::{AttributeChange, Attributes, Entry};
use crate::wire::{Action, Answer, OpenHow};

pub(super) type Outcome<T> = Result<T, i32>;

/// Attributes, their lease, and when they were asked for.
pub(super) type Found = (Attributes, Option<Lease>, Instant);

impl Shared {
    /// Makes a call that is answered with attributes.
    pub(super) async fn found(&self, action: Action) -> Outcome<Found> {
        let asked = Instant::now();
        match self.remote.call(action, &[]).await? {
            (Answer::Found(attributes, lease), _) => Ok((attributes, lease, asked)),
            _ => Err(Errno::PROTO.raw_os_error()),
        }
    }

    pub(super) async fn done(&self, action: Action) -> Outcome<()> {
        self.remote.call(action, &[]).await.map(drop)
    }

    pub(super) fn path(&self, number: u64) -> Outcome<TreePath> {
        lock(&self.inodes).path(number).ok_or(Errno::STALE.raw_os_error())
    }

    pub(super) fn path_in(&self, directory: u64, name: &OsStr) -> Outcome<TreePath> {
        lock(&self.inodes).path_in(directory, name)
    }

    /// The path of a name that a call is about to take.
    pub(super) fn path_to_take(&self, directory: u64, name: &OsStr) -> Outcome<TreePath> {
        let mut inodes = lock(&self.inodes);
        inodes.take_free(directory, name);
        inodes.path_in(directory, name)
    }

    /// Notes a file that the kernel will know, and how long it may rely on the attributes.
    pub(super) fn entry(&self, directory: u64, name: &OsStr, found: Found) -> (fuser::FileAttr, Duration) {
        let (attributes, lease, asked) = found;
        let mut inodes = lock(&self.inodes);
        let number = inodes.note(directory, name, &attributes, true);
        let left = inodes.lease(attributes.node, lease, asked);
        (self.attr(number, &attributes), left)
    }

    /// Attributes of a file that the kernel knows.
    pub(super) fn known(&self, number: u64, found: Found) -> Outcome<(fuser::FileAttr, Duration)> {
        let (attributes, lease, asked) = found;
        let mut inodes = lock(&self.inodes);
        if inodes.node(number) != Some(attributes.node) {
            // Another file has its name now.
            return Err(Errno::STALE.raw_os_error());
        }
        let left = inodes.lease(attributes.node, lease, asked);
        Ok((self.attr(number, &attributes), left))
    }

    pub(super) async fn look_up(&self, directory: u64, name: &OsStr) -> Outcome<(fuser::FileAttr, Duration)> {
        // First, since a name that is too long is not free.
        let path = self.path_in(directory, name)?;
        {
            let mut inodes = lock(&self.inodes);
            if let Some(left) = inodes.is_free(directory, name) {
                return free(&mut inodes, directory, name, left);
            }
        }
        let known = lock(&self.inodes).number_of(directory, name);
        if let Some(number) = known {
            self.settle(number).await;
        }
        let asked = Instant::now();
        match self.remote.call(Action::LookUp(path), &[]).await? {
            (Answer::Found(attributes, lease), _) => Ok(self.entry(directory, name, (attributes, lease, asked))),
            (Answer::Missing(Some((node, lease))), _) => {
                let mut inodes = lock(&self.inodes);
                let left = match inodes.node(directory) == Some(node) {
                    true => inodes.lease(node, Some(lease), asked),
                    false => NOW,
                };
                free(&mut inodes, directory, name, left)
            }
            (Answer::Missing(None), _) => Err(Errno::NOENT.raw_os_error()),
            _ => Err(Errno::PROTO.raw_os_error()),
        }
    }

    /// The attributes of a file, by a handle if it is open and has no name any more.
    pub(super) async fn attributes(&self, number: u64) -> Outcome<(fuser::FileAttr, Duration)> {
        if let Some(sent) = self.settle(number).await {
            return self.known(number, sent);
        }
        let path = lock(&self.inodes).path(number);
        if let Some(path) = path {
            match self.found(Action::LookUp(path)).await {
                Ok(found) => match self.known(number, found) {
                    Err(_) if self.handle_of(number).is_some() => {}
                    known => return known,
                },
                Err(error) if self.handle_of(number).is_none() => return Err(error),
                Err(_) => {}
            }
        }
        let handle = self.handle_of(number).ok_or(Errno::STALE.raw_os_error())?;
        let found = self.found(Action::SetOpen(handle, AttributeChange::default())).await?;
        self.known(number, found)
    }

    pub(super) fn handle_of(&self, number: u64) -> Option<u64> {
        lock(&self.open).iter().find(|(_, open)| open.inode == number).map(|(handle, _)| *handle)
    }

    pub(super) async fn open(
        &self,
        number: u64,
        path: TreePath,
        how: OpenHow,
    ) -> Outcome<(u64, Attributes, Option<Lease>, Instant)> {
        self.settle(number).await;
        let handle = HANDLES.fetch_add(1, Ordering::Relaxed);
        let asked = Instant::now();
        let action = Action::Open { path, handle, how };
        let (answer, first) = self.remote.call(action, &[]).await?;
        let Answer::Opened(attributes, lease) = answer else { return Err(Errno::PROTO.raw_os_error()) };
        let again = OpenHow { truncate: false, create: None, only_new: false, ..how };
        let is_whole = first.len() as u64 == attributes.len && !first.is_empty();
        let boot = self.remote.boot();
        let open = Open { inode: number, how: again, boot, first, is_whole, first_until: asked };
        lock(&self.open).insert(handle, open);
        Ok((handle, attributes, lease, asked))
    }

    /// Gives what was just made to the user and group that made it, where the mount shows the server's owners, and the server can.
    pub(super) async fn owned(&self, path: TreePath, owner: (u32, u32), found: Found) -> Found {
        let (attributes, ..) = &found;
        let is_theirs = (attributes.user, attributes.group) == owner;
        if self.owner.is_some() || owner == NO_OWNER || is_theirs {
            return found;
        }
        let change = AttributeChange { user: Some(owner.0), group: Some(owner.1), ..AttributeChange::default() };
        self.found(Action::Set(path, change)).await.unwrap_or(found)
    }

    /// Whether the kernel may keep its pages of a file just opened, and how long its lease lasts; `None` if another file has its name.
    pub(super) fn opened(
        &self,
        number: u64,
        attributes: &Attributes,
        lease: Option<Lease>,
        asked: Instant,
    ) -> Option<(bool, Duration)> {
        let mut inodes = lock(&self.inodes);
        if inodes.node(number) != Some(attributes.node) {
            return None;
        }
        let left = inodes.lease(attributes.node, lease, asked);
        Some((inodes.has_same_data(number, attributes) && !left.is_zero(), left))
    }

    /// Whether the server's machine runs since the file was opened. If it started anew, writes that were not synced may be lost, which
    /// each program that writes the file hears once, as from a disk.
    async fn is_same_boot(&self, handle: u64, open: &Open) -> Outcome<()> {
        if let (Answer::Hello { boot, .. }, _) = self.remote.call(Action::Hello, &[]).await? {
            self.remote.set_boot(boot);
            if let Some(open) = lock(&self.open).get_mut(&handle) {
                open.boot = boot;
            }
            if open.how.write && open.boot != boot {
                tracing::warn!("the server's machine started anew: writes before that may be lost");
                return Err(Errno::IO.raw_os_error());
            }
        }
        Ok(())
    }

    /// Makes a call with a handle; opens the file again if the server does not know the handle any more.
    pub(super) async fn with_handle(&self, handle: u64, action: Action, data: &[u8]) -> Outcome<(Answer, Bytes)> {
        let is_write = matches!(action, Action::Put { .. });
        let number = lock(&self.open).get(&handle).map(|open| open.inode);
        if is_write && number.is_some_and(|number| self.has_lost_lock(number)) {
            return Err(Errno::IO.raw_os_error());
        }
        // The server may have started anew after it made the change, and knows the call by its number.
        let number = self.remote.number(&action);
        match self.remote.call_as(&number, action.clone(), data).await? {
            (Answer::UnknownHandle, _) => {
                let open = lock(&self.open).get(&handle).cloned().ok_or(Errno::BADF.raw_os_error())?;
                self.is_same_boot(handle, &open).await?;
                let path = self.path(open.inode)?;
                let how = open.how;
                match self.remote.call(Action::Open { path, handle, how }, &[]).await? {
                    (Answer::Opened(found, _), _) if lock(&self.inodes).node(open.inode) == Some(found.node) => {}
                    _ => return Err(Errno::STALE.raw_os_error()),
                }
                self.lock_again(open.inode, handle).await;
                if is_write && self.has_lost_lock(open.inode) {
                    return Err(Errno::IO.raw_os_error());
                }
                self.remote.call_as(&number, action, data).await
            }
            answer => Ok(answer),
        }
    }

    pub(super) async fn read(&self, handle: u64, offset: u64, len: u32) -> Outcome<Bytes> {
        let first = lock(&self.open).get(&handle).and_then(|open| open.read_first(offset, len as usize));
        if let Some(bytes) = first {
            return Ok(bytes);
        }
        match self.with_handle(handle, Action::Read { handle, offset, len }, &[]).await? {
            (Answer::Data, data) => Ok(data),
            _ => Err(Errno::PROTO.raw_os_error()),
        }
    }

    /// Writes at once, after what was kept.
    pub(super) async fn write(self: &Arc<Self>, number: u64, handle: u64, offset: u64, data: &[u8]) -> Outcome<()> {
        self.send_kept(number).await?;
        let pieces = vec![(offset, data.len() as u32)];
        let action = Action::Put { handle, delegation: None, pieces, change: AttributeChange::default() };
        let asked = Instant::now();
        match self.with_handle(handle, action, data).await? {
            (Answer::Found(attributes, lease), _) => {
                self.may_keep(number, handle, &(attributes, lease, asked), false);
                Ok(())
            }
            _ => Err(Errno::PROTO.raw_os_error()),
        }
    }

    pub(super) async fn set(
        &self,
        number: u64,
        handle: Option<u64>,
        change: AttributeChange,
    ) -> Outcome<(fuser::FileAttr, Duration)> {
        let is_writing = handle.filter(|handle| lock(&self.open).get(handle).is_some_and(|open| open.how.write));
        let found = match is_writing {
            Some(handle) => {
                let asked = Instant::now();
                match self.with_handle(handle, Action::SetOpen(handle, change), &[]).await? {
                    (Answer::Found(attributes, lease), _) => (attributes, lease, asked),
                    _ => return Err(Errno::PROTO.raw_os_error()),
                }
            }
            None => self.found(Action::Set(self.path(number)?, change)).await?,
        };
        self.known(number, found)
    }

    /// The page of an open directory with the entry at a position, or after the last one. A program that begins to read gets a new first
    /// page; one page is kept.
    pub(super) async fn page(&self, number: u64, handle: u64, position: u64) -> Outcome<Arc<Page>> {
        let known = lock(&self.listings).remove(&handle).filter(|_| position > 0);
        let mut listing = match known {
            Some(listing) => listing,
            None => {
                self.settle_all().await;
                Listing { starts: Vec::new(), page: Arc::new(self.list(number, 0, Vec::new()).await?) }
            }
        };
        while let Some((start, after)) = listing.other(position) {
            listing.page = Arc::new(self.list(number, start, after).await?);
        }
        let page = listing.page.clone();
        lock(&self.listings).insert(handle, listing);
        Ok(page)
    }

    /// The entries of a directory after a name, `.` and `..` not among them, with the time to rely on each.
    async fn list(&self, number: u64, start: u64, after: Vec<u8>) -> Outcome<Page> {
        let path = self.path(number)?;
        let asked = Instant::now();
        match self.remote.call(Action::List { path, after: after.clone() }, &[]).await? {
            (Answer::Entries { directory, lease, entries, next }, _) => {
                let mut inodes = lock(&self.inodes);
                let is_leased =
                    inodes.node(number) == Some(directory) && !inodes.lease(directory, lease, asked).is_zero();
                // Only of a directory that one page holds are all names known.
                if is_leased && after.is_empty() && next.is_none() {
                    inodes.note_all(number, entries.iter().map(|(entry, _)| entry.name.clone()).collect());
                }
                Ok(Page { start, entries, asked, next })
            }
            _ => Err(Errno::PROTO.raw_os_error()),
        }
    }
}

impl Page {
    /// The entries from a position on, each with its own.
    pub(super) fn from(&self, position: u64) -> impl Iterator<Item = (u64, &(Entry, Option<Lease>))> {
        (self.start..).zip(&self.entries).skip(position.saturating_sub(self.start) as usize)
    }
}

impl Listing {
    /// The start of the page that is needed, if the present one neither has the entry at a position nor ends the directory before it.
    fn other(&mut self, position: u64) -> Option<(u64, Vec<u8>)> {
        let Page { start, entries, next, .. } = &*self.page;
        if position < *start {
            // A program goes back. Names that came or went since then may move others from one place to another within that page.
            while let Some((start, after)) = self.starts.pop() {
                if start <= position {
                    self.starts.push((start, after.clone()));
                    return Some((start, after));
                }
            }
            return Some((0, Vec::new()));
        }
        let end = start + entries.len() as u64;
        let next = next.clone().filter(|_| position >= end)?;
        self.starts.push((end, next.clone()));
        Some((end, next))
    }
}

/// Answers that a name is free, for a time.
fn free(inodes: &mut Inodes, directory: u64, name: &OsStr, left: Duration) -> Outcome<(fuser::FileAttr, Duration)> {
    if left.is_zero() || !inodes.has_room_for_free(directory) {
        return Err(Errno::NOENT.raw_os_error());
    }
    inodes.note_free(directory, name);
    Ok((no_attr(), left))
}

/// Numbers of open files and directories.
pub(super) static HANDLES: AtomicU64 = AtomicU64::new(1);

/// Keeps the owner that the server chose.
pub(super) const NO_OWNER: (u32, u32) = (u32::MAX, u32::MAX);
