//! A call of a mount, run on the tree with the rights of its user.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use dapple::sync::Limit;
use dapple_sched::environment::HashMap;
use rustix::io::Errno;

use super::locks::{Locks, Refusal};
use super::{FILES_OF_MOUNT_MAX, Mount, OpenFile};
use crate::dav::{Caller, PROPERTIES};
use crate::journal::End;
use crate::lease::Lease;
use crate::lock::lock;
use crate::path::TreePath;
use crate::ranges::Range;
use crate::rights::May;
use crate::tree::{Access, AttributeChange, Attributes, Entry, FileTime, NodeId, Tree, UNDECIDED, of_file, read_whole};
use crate::wire::{Action, Answer, DATA_MAX, FIRST_LEN, OpenHow, PIECES_MAX};

/// A call that is served.
pub(super) struct Served {
    pub(super) start: u64,
    pub(super) boot: u64,
    pub(super) trusts_owners: bool,
    pub(super) began: FileTime,
    pub(super) open_files: Limit,
    pub(super) locks: Arc<Locks>,
    pub(super) tree: Tree,
    pub(super) caller: Caller,
    pub(super) mount: Arc<Mount>,
}

impl Served {
    pub(super) async fn run(&self, action: Action, data: Bytes) -> (Answer, Vec<u8>) {
        match self.try_run(action, data).await {
            Ok(answered) => answered,
            Err(error) => (failed(error), Vec::new()),
        }
    }

    /// Answers a change that an earlier service made, or tried to make.
    pub(super) async fn run_again(&self, action: Action, data: Bytes, end: End) -> (Answer, Vec<u8>) {
        match self.try_run_again(action, data, end).await {
            Ok(answered) => answered,
            Err(error) => (failed(error), Vec::new()),
        }
    }

    async fn try_run_again(&self, action: Action, data: Bytes, end: End) -> io::Result<(Answer, Vec<u8>)> {
        let answer = match (end, action) {
            (End::Failed(errno), _) => Answer::Failed(errno),
            (End::Unknown, _) => return Err(UNDECIDED.into()),
            // Its file is there.
            (_, Action::Open { path, handle, how }) => {
                let how = OpenHow { create: None, only_new: false, truncate: false, ..how };
                return self.open(&path, handle, how).await;
            }
            (End::Made(made), Action::MakeDir(path, _) | Action::MakeNode(path, ..) | Action::Link(_, path)) => {
                self.found(&path, made).await?
            }
            (End::Made(made), Action::Symlink { path, .. }) => self.found(&path, made).await?,
            (End::Done | End::Partly(_), Action::Put { handle, delegation, pieces, change }) => {
                let Some(open) = self.file(handle, May::Write).await? else {
                    return Ok((Answer::UnknownHandle, Vec::new()));
                };
                let (pieces, data) = match end {
                    End::Partly(written) => rest(&pieces, data, written),
                    _ => (Vec::new(), Bytes::new()),
                };
                self.put(&open, delegation, &pieces, change, data).await?
            }
            // The file that it made was removed since.
            (_, Action::MakeDir(..) | Action::MakeNode(..) | Action::Link(..) | Action::Symlink { .. }) => {
                return Err(Errno::STALE.into());
            }
            _ => Answer::Done,
        };
        Ok((answer, Vec::new()))
    }

    async fn try_run(&self, action: Action, data: Bytes) -> io::Result<(Answer, Vec<u8>)> {
        let by = Some(self.mount.client_id());
        let answer = match action {
            Action::Hello => self.hello(),
            Action::Recalls { start, .. } if start != self.start => self.hello(),
            Action::Recalls { seconds, .. } => {
                let limit = Duration::from_secs(u64::from(seconds.min(60)));
                Answer::Recalls(self.mount.client.recalls(limit).await)
            }
            Action::LookUp(path) => self.look_up(&path).await?,
            Action::List { path, after } => self.list(&path, &after).await?,
            Action::ReadLink(path) => {
                self.check(&path, May::Read)?;
                Answer::Bytes(Some(self.tree.read_link(&path).await?))
            }
            Action::Space => Answer::Space(self.tree.space().await?),
            Action::Open { path, handle, how } => return self.open(&path, handle, how).await,
            Action::Close(handle) => {
                self.close(handle).await;
                Answer::Done
            }
            Action::Read { handle, offset, len } => {
                let Some(open) = self.file(handle, May::Read).await? else {
                    return Ok((Answer::UnknownHandle, Vec::new()));
                };
                let len = (len as usize).min(DATA_MAX);
                let read = self.tree.read(&open.file, open.node, offset, len, by).await?;
                return Ok((Answer::Data, read));
            }
            Action::Put { handle, delegation, pieces, change } => {
                let Some(open) = self.file(handle, May::Write).await? else {
                    return Ok((Answer::UnknownHandle, Vec::new()));
                };
                self.put(&open, delegation, &pieces, change, data).await?
            }
            Action::Sync(handle) => {
                let Some(open) = self.file(handle, May::Read).await? else {
                    return Ok((Answer::UnknownHandle, Vec::new()));
                };
                open.file.sync_all().await?;
                Answer::Done
            }
            Action::SyncDir(path) => {
                self.check(&path, May::Read)?;
                self.tree.sync(&path).await?;
                Answer::Done
            }
            locks @ (Action::Lock { .. }
            | Action::Unlock { .. }
            | Action::TestLock { .. }
            | Action::AwaitLock { .. }) => self.lock_or_unlock(locks).await?,
            other => return self.change(other).await.map(|answer| (answer, Vec::new())),
        };
        Ok((answer, Vec::new()))
    }

    async fn close(&self, handle: u64) {
        let closed = self.mount.files.with(|files| {
            let open = files.remove(&handle)?;
            let is_last = files.values().all(|other| other.node != open.node);
            Some((open.node, is_last))
        });
        if let Some((node, true)) = closed.await {
            self.locks.close(node, self.mount.client_id());
        }
    }

    async fn lock_or_unlock(&self, action: Action) -> io::Result<Answer> {
        let client = self.mount.client_id();
        match action {
            Action::Lock { handle, owner, range } => self.lock(handle, owner, range).await,
            Action::Unlock { handle, owner, start, end } => {
                let open = self.mount.files.read(|files| files.get(&handle).cloned()).await;
                let Some(open) = open else { return Ok(Answer::UnknownHandle) };
                self.locks.unlock(open.node, (client, owner), start, end);
                Ok(Answer::Done)
            }
            Action::TestLock { handle, owner, range } => {
                let Some(open) = self.file(handle, May::Read).await? else { return Ok(Answer::UnknownHandle) };
                let held = self.locks.in_the_way(open.node, (client, owner), &range);
                Ok(Answer::Locked(held.map(|(owner, held)| self.shown(owner, held))))
            }
            Action::AwaitLock { handle, owner, range, seconds } => {
                // The file may be closed meanwhile.
                let Some(node) = self.file(handle, May::Read).await?.map(|open| open.node) else {
                    return Ok(Answer::UnknownHandle);
                };
                let (limit, leases) = (Duration::from_secs(u64::from(seconds.min(60))), self.tree.leases());
                self.locks.wait(node, (client, owner), &range, limit, |client| leases.is_there(client)).await;
                Ok(Answer::Done)
            }
            _ => Err(Errno::NOSYS.into()),
        }
    }

    /// Locks bytes of an open file. A lock that keeps all others away needs the right to write.
    async fn lock(&self, handle: u64, owner: u64, range: Range) -> io::Result<Answer> {
        let needed = if range.is_exclusive { May::Write } else { May::Read };
        let Some(open) = self.file(handle, needed).await? else { return Ok(Answer::UnknownHandle) };
        if range.is_exclusive && !open.may_write {
            // `flock` needs no file that is open for writing.
            self.check(&open.path, needed)?;
        }
        let (client, leases) = (self.mount.client_id(), self.tree.leases());
        match self.locks.lock(open.node, (client, owner), range, |client| leases.is_there(client)) {
            Ok(()) => Ok(Answer::Done),
            Err(Refusal::Held(owner, held)) => Ok(Answer::Locked(Some(self.shown(owner, held)))),
            Err(Refusal::TooMany) => Err(Errno::NOLCK.into()),
        }
    }

    /// A lock as a mount sees it: processes of other machines are none of its own.
    fn shown(&self, (client, _): super::locks::Owner, held: Range) -> Range {
        Range { process: if client == self.mount.client_id() { held.process } else { 0 }, ..held }
    }

    fn hello(&self) -> Answer {
        Answer::Hello { start: self.start, boot: self.boot, lease_ms: self.tree.leases().duration().as_millis() as u32 }
    }

    /// Permissions that a client may give.
    fn mode(&self, mode: u32) -> u32 {
        if self.trusts_owners { mode } else { mode & 0o1777 }
    }

    /// A change of attributes that a client may make.
    fn checked(&self, mut change: AttributeChange) -> io::Result<AttributeChange> {
        if !self.trusts_owners && (change.user.is_some() || change.group.is_some()) {
            return Err(Errno::PERM.into());
        }
        change.mode = change.mode.map(|mode| self.mode(mode));
        Ok(change)
    }

    /// Writes pieces of a file.
    async fn put(
        &self,
        open: &OpenFile,
        delegation: Option<u64>,
        pieces: &[(u64, u32)],
        change: AttributeChange,
        mut data: Bytes,
    ) -> io::Result<Answer> {
        if !open.may_write {
            return Err(Errno::BADF.into());
        }
        if pieces.len() > PIECES_MAX {
            return Err(Errno::INVAL.into());
        }
        let mut split = Vec::with_capacity(pieces.len());
        for (offset, len) in pieces {
            if *len as usize > data.len() || offset.checked_add(u64::from(*len)).is_none_or(|end| end > i64::MAX as u64)
            {
                return Err(Errno::INVAL.into());
            }
            split.push((*offset, data.split_to(*len as usize)));
        }
        let change = self.checked(change)?;
        if self.locks.is_lost(open.node, self.mount.client_id()) {
            return Err(Errno::IO.into());
        }
        let (client, leases) = (&self.mount.client, self.tree.leases());
        let len = split.iter().map(|(_, data)| data.len() as u64).sum();
        // Noted changes run alone. A delegation's client is alone already.
        let is_noted = open.appends && len > 0 && self.tree.is_noted();
        let during = match delegation {
            // A delegation must last until the write begins: another client may read or change the file while this waits.
            Some(grant) if !leases.is_of_earlier_service(grant) => {
                leases.change_delegated(client.id(), open.node, grant).await.ok_or(Errno::STALE)?
            }
            _ if is_noted => leases.change_alone(Some(client.id()), &[open.node]).await,
            _ => leases.change(Some(client.id()), &[open.node]).await,
        };
        // A client that changed the file since this service started did not know of a delegation by an earlier one.
        if delegation.is_some_and(|grant| leases.is_of_earlier_service(grant))
            && of_file(&open.file)?.changed >= self.began
        {
            return Err(Errno::STALE.into());
        }
        let noted = if is_noted { self.tree.appends(&open.file, open.node, len).await? } else { None };
        let written = self.tree.write_pieces(during, &open.file, split, change).await;
        match noted {
            Some(noted) => noted.ended(written).await?,
            None => written?,
        }
        let lease = self.tree.leases().grant_writes(client, open.node).await;
        Ok(Answer::Found(of_file(&open.file)?, lease))
    }

    /// Changes names and attributes.
    async fn change(&self, action: Action) -> io::Result<Answer> {
        let by = Some(self.mount.client_id());
        match action {
            Action::MakeDir(path, mode) => {
                self.check(&path, May::Write)?;
                let made = self.tree.make_dir(&path, self.mode(mode), by).await?;
                self.new_dir(&path, made).await
            }
            Action::MakeNode(path, kind, mode) => {
                self.check(&path, May::Write)?;
                let made = self.tree.make_node(&path, kind, self.mode(mode), by).await?;
                self.found(&path, made).await
            }
            Action::RemoveFile(path) => {
                self.check(&path, May::Write)?;
                self.tree.remove_file(&path, by).await.map(|()| Answer::Done)
            }
            Action::RemoveDir(path) => {
                self.check(&path, May::Write)?;
                self.tree.remove_dir(&path, by).await.map(|()| Answer::Done)
            }
            Action::Rename { from, to, replace } => {
                self.check_all(&from)?;
                self.check_all(&to)?;
                self.tree.rename(&from, &to, replace, by).await.map(|()| Answer::Done)
            }
            Action::Link(from, to) => {
                self.check(&from, May::Write)?;
                self.check(&to, May::Write)?;
                let made = self.tree.link(&from, &to, by).await?;
                self.found(&to, made).await
            }
            Action::Symlink { path, target } => {
                self.check(&path, May::Write)?;
                let made = self.tree.symlink(&target, &path, by).await?;
                self.found(&path, made).await
            }
            Action::Set(path, change) => {
                self.check(&path, May::Write)?;
                let changed = self.tree.set_attributes(&path, self.checked(change)?, by).await?;
                self.found(&path, changed).await
            }
            Action::SetOpen(handle, change) => self.set_open(handle, change).await,
            Action::Extended(_, name) | Action::SetExtended(_, name, _) if name == PROPERTIES.as_bytes() => {
                Err(Errno::OPNOTSUPP.into())
            }
            Action::Extended(path, name) => {
                self.check(&path, May::Read)?;
                Ok(Answer::Bytes(self.tree.extended(&path, OsStr::from_bytes(&name)).await?))
            }
            Action::SetExtended(path, name, value) => {
                self.check(&path, May::Write)?;
                self.tree.set_extended(&path, OsStr::from_bytes(&name), value, by).await?;
                Ok(Answer::Done)
            }
            Action::ListExtended(path) => {
                self.check(&path, May::Read)?;
                let mut names = self.tree.list_extended(&path).await?;
                names.retain(|name| name != PROPERTIES);
                Ok(Answer::Names(names.into_iter().map(OsStringExt::into_vec).collect()))
            }
            _ => Err(Errno::NOSYS.into()),
        }
    }

    /// Changes the attributes of an open file, or only asks for them.
    async fn set_open(&self, handle: u64, change: AttributeChange) -> io::Result<Answer> {
        let by = Some(self.mount.client_id());
        let needed = if change == AttributeChange::default() { May::Read } else { May::Write };
        let Some(open) = self.file(handle, needed).await? else { return Ok(Answer::UnknownHandle) };
        // An empty change only asks for the attributes.
        if !open.may_write && change != AttributeChange::default() {
            return Err(Errno::BADF.into());
        }
        if change != AttributeChange::default() {
            self.tree.set_open(&open.file, open.node, self.checked(change)?, by).await?;
        }
        let lease = self.tree.leases().grant(&self.mount.client, open.node).await;
        Ok(Answer::Found(of_file(&open.file)?, lease))
    }

    /// The attributes of a file just made or changed, with a lease if it can be had: read again after the grant, since another client
    /// may have changed the file before it.
    async fn found(&self, path: &TreePath, made: Attributes) -> io::Result<Answer> {
        Ok(match self.tree.stat_granted(path, made.node, &self.mount.client).await {
            Ok((now, Some(lease))) => Answer::Found(now, Some(lease)),
            _ => Answer::Found(made, None),
        })
    }

    /// As [`found`](Self::found), of a directory, which is empty unless another client was quick.
    async fn new_dir(&self, path: &TreePath, made: Attributes) -> io::Result<Answer> {
        let by = Some(self.mount.client_id());
        let (page, found) = match self.found(path, made).await? {
            Answer::Found(now, Some(lease)) => (self.tree.page_by(path, b"", by).await, (now, lease)),
            other => return Ok(other),
        };
        let is_empty = page.is_ok_and(|page| page.entries.is_empty() && page.next.is_none());
        Ok(match is_empty {
            true => Answer::NewDir(found.0, found.1),
            false => Answer::Found(found.0, Some(found.1)),
        })
    }

    async fn look_up(&self, path: &TreePath) -> io::Result<Answer> {
        self.check(path, May::Read)?;
        match self.tree.stat_leased(path, &self.mount.client).await {
            Ok((attributes, lease)) => Ok(Answer::Found(attributes, lease)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let Some(parent) = path.parent() else { return Err(error) };
                let (directory, lease) = self.tree.stat_leased(&parent, &self.mount.client).await?;
                // It may have been made before the lease began.
                match self.tree.stat_leased(path, &self.mount.client).await {
                    Ok((attributes, lease)) => Ok(Answer::Found(attributes, lease)),
                    Err(_) => Ok(Answer::Missing(lease.map(|lease| (directory.node, lease)))),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// A page of a directory. Only the first one comes with leases, of the directory and of its files.
    async fn list(&self, path: &TreePath, after: &[u8]) -> io::Result<Answer> {
        self.check(path, May::Read)?;
        let mut leases = HashMap::<NodeId, Lease>::default();
        let by = Some(self.mount.client_id());
        let (page, lease) = match after {
            b"" => {
                let (page, lease) = self.tree.page_leased(path, &self.mount.client).await?;
                for entry in &page.entries {
                    if let Some(lease) = self.tree.leases().grant(&self.mount.client, entry.attributes.node).await {
                        leases.insert(entry.attributes.node, lease);
                    }
                }
                // The attributes are those after the grants.
                let again = self.tree.page_by(path, after, by).await?;
                let is_same = again.directory == page.directory;
                (again, lease.filter(|_| is_same))
            }
            after => (self.tree.page_by(path, after, by).await?, None),
        };
        let seen = page.entries.into_iter().filter(|entry| self.sees(path, entry));
        let with_leases = |entry: Entry| {
            let lease = leases.get(&entry.attributes.node).copied();
            (entry, lease)
        };
        let entries = seen.map(with_leases).collect();
        Ok(Answer::Entries { directory: page.directory, lease, entries, next: page.next })
    }

    fn sees(&self, path: &TreePath, entry: &Entry) -> bool {
        path.join(&entry.name).is_ok_and(|path| self.caller.may(&path) >= May::Read)
    }

    async fn open(&self, path: &TreePath, handle: u64, how: OpenHow) -> io::Result<(Answer, Vec<u8>)> {
        let writes = how.write || how.truncate || how.create.is_some();
        self.check(path, if writes { May::Write } else { May::Read })?;
        let own = self.caller.room.open_files.try_acquire().ok_or(Errno::MFILE)?;
        let room = [own, self.open_files.try_acquire().ok_or(Errno::NFILE)?];
        let access = Access {
            // Data can be read ahead, and a page be filled, whatever the program asked for.
            read: true,
            write: how.write,
            truncate: how.truncate,
            create: how.create.map(|mode| self.mode(mode)),
            only_new: how.only_new,
            append: how.append,
        };
        let by = Some(self.mount.client_id());
        let file = match self.tree.open_file(path, access, by).await {
            // A file that this user of the server may write and not read.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && how.write && !how.read => {
                self.tree.open_file(path, Access { read: false, ..access }, by).await?
            }
            opened => opened?,
        };
        let node = of_file(&file)?.node;
        let found = match how.write {
            true => self.tree.stat_delegated(path, node, &self.mount.client).await,
            false => self.tree.stat_granted(path, node, &self.mount.client).await,
        };
        let (attributes, lease) = match found {
            Ok((attributes, Some(lease))) => (attributes, Some(lease)),
            _ => (of_file(&file)?, None),
        };
        let first = match how.read && !how.write {
            true => read_whole(&file, 0, FIRST_LEN).await.unwrap_or_default(),
            false => Vec::new(),
        };
        let open = OpenFile {
            file,
            node,
            may_write: how.write,
            appends: how.append,
            path: path.clone(),
            checked: Mutex::new(self.caller.rules.clone()),
            is_recorded: AtomicBool::new(false),
            _room: room,
        };
        let kept = self.mount.files.with(|files| {
            if files.len() >= FILES_OF_MOUNT_MAX {
                return false;
            }
            files.insert(handle, Arc::new(open));
            true
        });
        match kept.await {
            true => Ok((Answer::Opened(attributes, lease), first)),
            false => Err(Errno::MFILE.into()),
        }
    }

    /// An open file, if its client may still use it so: rules may have become stricter since it was opened.
    async fn file(&self, handle: u64, needed: May) -> io::Result<Option<Arc<OpenFile>>> {
        let Some(open) = self.mount.files.read(|files| files.get(&handle).cloned()).await else { return Ok(None) };
        let rules = &self.caller.rules;
        if !Arc::ptr_eq(&lock(&open.checked), rules) {
            let path = self.tree.path_of(&open.file).await?.unwrap_or_else(|| open.path.clone());
            self.check(&path, needed)?;
            // The right to write includes the one to read.
            if needed == May::Write || !open.may_write {
                *lock(&open.checked) = rules.clone();
            }
        }
        Ok(Some(open))
    }

    fn check(&self, path: &TreePath, needed: May) -> io::Result<()> {
        refused(self.caller.may(path), needed)
    }

    fn check_all(&self, path: &TreePath) -> io::Result<()> {
        self.check(path, May::Write)?;
        refused(self.caller.may_all(path).max(May::Read), May::Write)
    }
}

/// The pieces of a write without the first bytes, which are written.
fn rest(pieces: &[(u64, u32)], mut data: Bytes, written: u64) -> (Vec<(u64, u32)>, Bytes) {
    let (mut rest, mut left) = (Vec::new(), written);
    for (offset, len) in pieces {
        let skipped = left.min(u64::from(*len));
        left -= skipped;
        if skipped < u64::from(*len) {
            rest.push((offset.saturating_add(skipped), *len - skipped as u32));
        }
    }
    let skipped = usize::try_from(written).unwrap_or(usize::MAX).min(data.len());
    (rest, data.split_off(skipped))
}

fn refused(may: May, needed: May) -> io::Result<()> {
    match may {
        may if may >= needed => Ok(()),
        May::Nothing => Err(Errno::NOENT.into()),
        _ => Err(Errno::ACCESS.into()),
    }
}

pub(super) fn failed(error: io::Error) -> Answer {
    if let Some(errno) = Errno::from_io_error(&error) {
        return Answer::Failed(errno.raw_os_error());
    }
    let errno = match error.kind() {
        io::ErrorKind::InvalidInput => Errno::INVAL,
        io::ErrorKind::FileTooLarge => Errno::OVERFLOW,
        _ => Errno::IO,
    };
    Answer::Failed(errno.raw_os_error())
}
