//! The kernel's calls.

use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use dapple::time::Instant;
use dapple_sched::environment::HashSet;
use fuser::{
    BsdFileFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLock, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::Shared;
use super::answers::{NOW, errno, new_time};
use super::calls::{HANDLES, NO_OWNER, Outcome};
use crate::lock::lock;
use crate::path::TreePath;
use crate::ranges::Range;
use crate::tree::{AttributeChange, Kind};
use crate::wire::{Action, Answer, DATA_MAX, OpenHow};

/// The files of a mount. Each call is a task with a color of its own.
pub(super) struct MountedFiles(pub(super) Arc<Shared>);

impl MountedFiles {
    fn spawn<F: Future<Output = ()> + Send + 'static>(&self, call: impl FnOnce(Arc<Shared>) -> F) {
        drop(self.0.handle.spawn(call(self.0.clone())));
    }

    /// Makes something under a name, with an action of its path.
    fn make(
        &self,
        parent: INodeNo,
        name: &OsStr,
        owner: (u32, u32),
        reply: ReplyEntry,
        action: impl FnOnce(TreePath) -> Action + Send + 'static,
    ) {
        let name = name.to_owned();
        self.spawn(|shared| async move {
            let made = async {
                let path = shared.path_to_take(parent.0, &name)?;
                let asked = Instant::now();
                let (found, is_empty) = match shared.remote.call(action(path.clone()), &[]).await? {
                    (Answer::Found(attributes, lease), _) => ((attributes, lease, asked), false),
                    (Answer::NewDir(attributes, lease), _) => ((attributes, Some(lease), asked), true),
                    _ => return Err(Errno::PROTO.raw_os_error()),
                };
                Ok((shared.owned(path, owner, found).await, is_empty))
            };
            match made.await {
                Ok((found, is_empty)) => {
                    let (attr, left) = shared.entry(parent.0, &name, found);
                    if is_empty && !left.is_zero() {
                        lock(&shared.inodes).note_all(attr.ino.0, HashSet::default());
                    }
                    reply.entry(&left, &attr, GENERATION);
                }
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn empty<F>(&self, reply: ReplyEmpty, call: impl FnOnce(Arc<Shared>) -> F)
    where
        F: Future<Output = Outcome<()>> + Send + 'static,
    {
        let outcome = call(self.0.clone());
        self.spawn(|_| async move {
            match outcome.await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(error)),
            }
        });
    }
}

impl Filesystem for MountedFiles {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(DATA_MAX as u32);
        let _ = config.set_max_readahead(DATA_MAX as u32);
        let _ = config.set_max_background(64);
        // A kernel without one of them works as well, with more calls.
        for wish in [
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_POSIX_LOCKS,
            InitFlags::FUSE_FLOCK_LOCKS,
        ] {
            let _ = config.add_capabilities(wish);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        self.spawn(|shared| async move {
            match shared.look_up(parent.0, &name).await {
                Ok((attr, left)) => reply.entry(&left, &attr, GENERATION),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        lock(&self.0.inodes).forget(ino.0, nlookup);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.spawn(|shared| async move {
            match shared.attributes(ino.0).await {
                Ok((attr, left)) => reply.attr(&left, &attr),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        fh: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let shows_own = self.0.owner;
        // The one owner that is shown cannot be changed; setting it again is no change.
        let is_refused = |(own_uid, own_gid): (u32, u32)| {
            uid.is_some_and(|uid| uid != own_uid) || gid.is_some_and(|gid| gid != own_gid)
        };
        if shows_own.is_some_and(is_refused) {
            return reply.error(errno(Errno::PERM.raw_os_error()));
        }
        let change = AttributeChange {
            len: size,
            mode: mode.map(|mode| mode & 0o7777),
            user: uid.filter(|_| shows_own.is_none()),
            group: gid.filter(|_| shows_own.is_none()),
            accessed: atime.map(new_time),
            modified: mtime.map(new_time),
        };
        if let Some(attributes) = self.0.keep_change(ino.0, &change) {
            return reply.attr(&NOW, &self.0.attr(ino.0, &attributes));
        }
        self.spawn(|shared| async move {
            shared.settle(ino.0).await;
            match shared.set(ino.0, fh.map(|fh| fh.0), change).await {
                Ok((attr, left)) => reply.attr(&left, &attr),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.spawn(|shared| async move {
            let read = async {
                match shared.remote.call(Action::ReadLink(shared.path(ino.0)?), &[]).await? {
                    (Answer::Bytes(Some(target)), _) => Ok(target),
                    _ => Err(Errno::PROTO.raw_os_error()),
                }
            };
            match read.await {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        self.make(parent, name, owner(request), reply, move |path| Action::MakeDir(path, mode & !umask));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes().to_vec();
        self.make(parent, link_name, owner(request), reply, |path| Action::Symlink { path, target });
    }

    fn link(&self, _: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        match self.0.path(ino.0) {
            Ok(from) => self.make(newparent, newname, NO_OWNER, reply, |to| Action::Link(from, to)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let kind = match FileType::from_raw_mode(mode) {
            FileType::RegularFile => None,
            FileType::Fifo => Some(Kind::Pipe),
            FileType::Socket => Some(Kind::Socket),
            _ => return reply.error(errno(Errno::PERM.raw_os_error())),
        };
        if let Some(kind) = kind {
            return self.make(parent, name, owner(request), reply, move |path| {
                Action::MakeNode(path, kind, mode & 0o7777 & !umask)
            });
        }
        let owner = owner(request);
        let name = name.to_owned();
        self.spawn(|shared| async move {
            let made = async {
                let path = shared.path_to_take(parent.0, &name)?;
                let how = OpenHow {
                    read: false,
                    write: true,
                    truncate: false,
                    create: Some(mode & 0o7777 & !umask),
                    only_new: true,
                    append: false,
                };
                let (handle, attributes, lease, asked) = shared.open(0, path, how).await?;
                lock(&shared.open).remove(&handle);
                shared.done(Action::Close(handle)).await?;
                Ok(shared.owned(shared.path_in(parent.0, &name)?, owner, (attributes, lease, asked)).await)
            };
            match made.await {
                Ok(found) => {
                    let (attr, left) = shared.entry(parent.0, &name, found);
                    reply.entry(&left, &attr, GENERATION);
                }
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.empty(reply, |shared| async move {
            shared.done(Action::RemoveFile(shared.path_in(parent.0, &name)?)).await?;
            lock(&shared.inodes).removed(parent.0, &name);
            Ok(())
        });
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.empty(reply, |shared| async move {
            shared.done(Action::RemoveDir(shared.path_in(parent.0, &name)?)).await?;
            lock(&shared.inodes).removed(parent.0, &name);
            Ok(())
        });
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            return reply.error(errno(Errno::INVAL.raw_os_error()));
        }
        let replace = !flags.contains(RenameFlags::RENAME_NOREPLACE);
        let (name, newname) = (name.to_owned(), newname.to_owned());
        self.empty(reply, |shared| async move {
            let from = shared.path_in(parent.0, &name)?;
            let to = shared.path_to_take(newparent.0, &newname)?;
            shared.done(Action::Rename { from, to, replace }).await?;
            lock(&shared.inodes).renamed((parent.0, &name), (newparent.0, &newname));
            Ok(())
        });
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let how = how(flags.0, None);
        self.spawn(|shared| async move {
            let opened = async { shared.open(ino.0, shared.path(ino.0)?, how).await };
            match opened.await {
                Ok((handle, attributes, lease, asked)) => {
                    let Some((keeps, left)) = shared.opened(ino.0, &attributes, lease, asked) else {
                        lock(&shared.open).remove(&handle);
                        let _ = shared.done(Action::Close(handle)).await;
                        return reply.error(errno(Errno::STALE.raw_os_error()));
                    };
                    if let Some(open) = lock(&shared.open).get_mut(&handle) {
                        open.first_until = asked + left;
                    }
                    if how.write {
                        shared.may_keep(ino.0, handle, &(attributes, lease, asked), false);
                    }
                    let flags = if keeps { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
                    reply.opened(FileHandle(handle), flags);
                }
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let how = how(flags, Some(mode & 0o7777 & !umask));
        let owner = owner(request);
        let name = name.to_owned();
        self.spawn(|shared| async move {
            let made = async { shared.open(0, shared.path_to_take(parent.0, &name)?, how).await };
            match made.await {
                Ok((handle, attributes, lease, asked)) => {
                    let mut found = (attributes, lease, asked);
                    if let Ok(path) = shared.path_in(parent.0, &name) {
                        found = shared.owned(path, owner, found).await;
                    }
                    let (attr, left) = shared.entry(parent.0, &name, found);
                    if let Some(open) = lock(&shared.open).get_mut(&handle) {
                        open.inode = attr.ino.0;
                    }
                    shared.may_keep(attr.ino.0, handle, &found, how.only_new);
                    reply.created(&left, &attr, GENERATION, FileHandle(handle), FopenFlags::empty());
                }
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.spawn(|shared| async move {
            shared.settle(ino.0).await;
            match shared.read(fh.0, offset, size).await {
                Ok(data) => reply.data(&data),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.0.keep_write(ino.0, fh.0, offset, data) {
            Ok(true) => return reply.written(data.len() as u32),
            Ok(false) => {}
            Err(error) => return reply.error(errno(error)),
        }
        let data = data.to_vec();
        self.spawn(|shared| async move {
            match shared.write(ino.0, fh.0, offset, &data).await {
                Ok(()) => reply.written(data.len() as u32),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    /// A program closes the file: it hears of the outcome of all its writes.
    fn flush(&self, _: &Request, ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, reply: ReplyEmpty) {
        if !self.0.keeps(ino.0) && !self.0.has_locks(ino.0, lock_owner.0) {
            return reply.ok();
        }
        self.empty(reply, |shared| async move {
            let sent = shared.send_kept(ino.0).await.map(drop);
            shared.unlock_all(ino.0, fh.0, lock_owner.0).await?;
            sent
        });
    }

    fn getlk(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let _ = ino;
        let range = Range { start, end, is_exclusive: typ == WRITE_LOCK, process: pid };
        self.spawn(|shared| async move {
            match shared.test_range(fh.0, lock_owner.0, range).await {
                Ok(Some(held)) => {
                    let typ = if held.is_exclusive { WRITE_LOCK } else { READ_LOCK };
                    reply.locked(held.start, held.end, typ, held.process);
                }
                Ok(None) => reply.locked(start, end, UNLOCK, 0),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn setlk(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let (at, thread) = ((ino.0, fh.0, lock_owner.0), request.pid());
        if typ == UNLOCK {
            // The next owner's mount reads what was written, also if this one ends.
            return self.empty(reply, |shared| async move {
                let sent = shared.send_kept(ino.0).await.map(drop);
                shared.unlock_range(at, start, end).await?;
                sent
            });
        }
        let range = Range { start, end, is_exclusive: typ == WRITE_LOCK, process: pid };
        let waits = sleep.then_some(thread);
        self.empty(reply, |shared| async move { shared.lock_range(at, range, waits).await });
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        lock_owner: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        // Before the kernel sends the next call.
        let closing = self.0.closing(ino.0);
        reply.ok();
        self.spawn(|shared| async move {
            if let Some(owner) = lock_owner {
                let _ = shared.unlock_all(ino.0, fh.0, owner.0).await;
            }
            shared.settle(ino.0).await;
            shared.stop_keeping(ino.0, fh.0);
            let is_last = {
                let mut open = lock(&shared.open);
                open.remove(&fh.0);
                open.values().all(|open| open.inode != ino.0)
            };
            let _ = shared.done(Action::Close(fh.0)).await;
            if is_last && closing.is_some() {
                shared.forget_locks(ino.0);
            }
            drop(closing);
        });
    }

    fn fsync(&self, _: &Request, ino: INodeNo, fh: FileHandle, _: bool, reply: ReplyEmpty) {
        self.empty(reply, |shared| async move {
            shared.send_kept(ino.0).await?;
            shared.with_handle(fh.0, Action::Sync(fh.0), &[]).await.map(drop)
        });
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.empty(reply, |shared| async move { shared.done(Action::SyncDir(shared.path(ino.0)?)).await });
    }

    /// The kernel keeps the listing while the directory's lease lasts.
    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let is_leased = !lock(&self.0.inodes).left(ino.0).is_zero();
        let flags = match is_leased {
            true => FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE,
            false => FopenFlags::FOPEN_CACHE_DIR,
        };
        reply.opened(FileHandle(HANDLES.fetch_add(1, Ordering::Relaxed)), flags);
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        lock(&self.0.listings).remove(&fh.0);
        reply.ok();
    }

    fn readdir(&self, _: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.spawn(|shared| async move {
            let page = match shared.page(ino.0, fh.0, offset).await {
                Ok(page) => page,
                Err(error) => return reply.error(errno(error)),
            };
            for (at, (entry, _)) in page.from(offset) {
                let attr = shared.attr(entry.attributes.node.inode, &entry.attributes);
                if reply.add(attr.ino, at + 1, attr.kind, OsStr::from_bytes(&entry.name)) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn readdirplus(&self, _: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        self.spawn(|shared| async move {
            let page = match shared.page(ino.0, fh.0, offset).await {
                Ok(page) => page,
                Err(error) => return reply.error(errno(error)),
            };
            for (at, (entry, lease)) in page.from(offset) {
                let name = OsStr::from_bytes(&entry.name);
                let (attr, left) = shared.entry(ino.0, name, (entry.attributes, *lease, page.asked));
                if reply.add(attr.ino, at + 1, name, &left, &attr, GENERATION) {
                    // The kernel was not told of the last one.
                    lock(&shared.inodes).forget(attr.ino.0, 1);
                    break;
                }
            }
            reply.ok();
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.spawn(|shared| async move {
            match shared.remote.call(Action::Space, &[]).await {
                Ok((Answer::Space(space), _)) => reply.statfs(
                    space.total / BLOCK,
                    space.free / BLOCK,
                    space.available / BLOCK,
                    space.files,
                    space.files_free,
                    BLOCK as u32,
                    space.name_len_max,
                    BLOCK as u32,
                ),
                Ok(_) => reply.error(errno(Errno::PROTO.raw_os_error())),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn setxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, value: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        let (name, value) = (name.as_bytes().to_vec(), value.to_vec());
        self.empty(reply, |shared| async move {
            shared.done(Action::SetExtended(shared.path(ino.0)?, name, Some(value))).await
        });
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.empty(
            reply,
            |shared| async move { shared.done(Action::SetExtended(shared.path(ino.0)?, name, None)).await },
        );
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.as_bytes().to_vec();
        // Others are refused by the server; the kernel asks for this one before every write.
        if !name.starts_with(b"user.") {
            return reply.error(errno(Errno::OPNOTSUPP.raw_os_error()));
        }
        self.spawn(|shared| async move {
            let read = async {
                match shared.remote.call(Action::Extended(shared.path(ino.0)?, name), &[]).await? {
                    (Answer::Bytes(value), _) => value.ok_or(Errno::NODATA.raw_os_error()),
                    _ => Err(Errno::PROTO.raw_os_error()),
                }
            };
            extended(reply, size, read.await);
        });
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.spawn(|shared| async move {
            let read = async {
                match shared.remote.call(Action::ListExtended(shared.path(ino.0)?), &[]).await? {
                    (Answer::Names(names), _) => {
                        Ok(names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect())
                    }
                    _ => Err(Errno::PROTO.raw_os_error()),
                }
            };
            extended(reply, size, read.await);
        });
    }
}

/// Answers with a value, or with its length if the caller has no room yet.
fn extended(reply: ReplyXattr, size: u32, value: Outcome<Vec<u8>>) {
    match value {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(errno(Errno::RANGE.raw_os_error())),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(errno(error)),
    }
}

/// The kinds of locks, by their numbers in Linux.
const READ_LOCK: i32 = 0;
const WRITE_LOCK: i32 = 1;
const UNLOCK: i32 = 2;

/// How the kernel wants a file opened.
fn how(flags: i32, create: Option<u32>) -> OpenHow {
    let set = rustix::fs::OFlags::from_bits_retain(flags as u32);
    let mode = OpenFlags(flags).acc_mode();
    OpenHow {
        read: mode != OpenAccMode::O_WRONLY,
        write: mode != OpenAccMode::O_RDONLY,
        truncate: set.contains(rustix::fs::OFlags::TRUNC),
        create,
        only_new: set.contains(rustix::fs::OFlags::EXCL),
        append: set.contains(rustix::fs::OFlags::APPEND),
    }
}

/// User and group of the program that calls.
fn owner(request: &Request) -> (u32, u32) {
    (request.uid(), request.gid())
}

/// A number is never used for another file while the kernel knows it.
const GENERATION: Generation = Generation(0);

const BLOCK: u64 = 4096;
