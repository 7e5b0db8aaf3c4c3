//! The mounts of a service: their open files, and the calls that they sent last.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dapple::Colored;
use dapple::fs::File;
use dapple::sync::{Limit, oneshot};
use dapple::time::Instant;
use dapple_sched::environment::{HashMap, random, system_now};
use rustix::io::Errno;

use crate::audit::{self, Audit, Audited, By, Outcome};
use crate::dav::{Caller, PROPERTIES};
use crate::lease::{Client, ClientId, Lease};
use crate::path::TreePath;
use crate::rights::{May, Rules};
use crate::tree::{Access, AttributeChange, Attributes, Entry, FileTime, NodeId, Tree, of_file, read_whole};
use crate::wire::{Action, Answer, Call, DATA_MAX, FIRST_LEN, OpenHow, PIECES_MAX};

/// All mounts.
#[derive(Debug)]
pub(crate) struct Mounts {
    /// The service's start: a random number, and the time.
    start: u64,
    /// The machine's start.
    boot: u64,
    began: FileTime,
    mounts: Mutex<HashMap<ClientId, Arc<Mount>>>,
    last_sweep: Mutex<Instant>,
    trusts_owners: AtomicBool,
    open_files: Arc<AtomicUsize>,
    /// The large calls of all mounts that run, or wait for leases.
    large: Limit,
}

/// One mount.
#[derive(Debug)]
struct Mount {
    user: Arc<str>,
    client: Arc<Client>,
    last_seen: Mutex<Instant>,
    files: Colored<HashMap<u64, Arc<OpenFile>>>,
    recent: Colored<Recent>,
    /// Its large calls that run, or wait for leases.
    large: Limit,
}

/// An open file of a mount.
#[derive(Debug)]
struct OpenFile {
    file: File,
    node: NodeId,
    may_write: bool,
    /// The name that it was opened by.
    path: TreePath,
    /// The rules under which its client may use it, once it was asked.
    checked: Mutex<Arc<Rules>>,
    /// Whether an audit has a write of it.
    is_recorded: AtomicBool,
    count: Arc<AtomicUsize>,
}

/// The last calls that changed something, so that one that is sent again happens once.
#[derive(Debug, Default)]
struct Recent {
    /// By their numbers, which grow; without an answer those that run.
    calls: BTreeMap<u64, Option<Answer>>,
    waiters: Vec<(u64, oneshot::Sender<Answer>)>,
}

/// The state of a call that arrives.
enum Before {
    New,
    Answered(Answer),
    Running(oneshot::Receiver<Answer>),
}

impl Mounts {
    pub(crate) fn new() -> Mounts {
        Mounts {
            start: random(),
            boot: boot(),
            began: FileTime::from_system_time(system_now()),
            mounts: Mutex::default(),
            last_sweep: Mutex::new(Instant::now()),
            trusts_owners: AtomicBool::new(false),
            open_files: Arc::default(),
            large: Limit::new(LARGE_MAX),
        }
    }

    /// From now on clients may change owners and set the bits setuid and setgid.
    pub(crate) fn trust_owners(&self) {
        self.trusts_owners.store(true, Ordering::Relaxed);
    }

    /// The mounts, and the files that they have open.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (lock(&self.mounts).len(), self.open_files.load(Ordering::Relaxed))
    }

    /// Answers a call, and the data after the answer; `None` to a large call while too many others run, or wait for leases: its client
    /// sends it again.
    pub(crate) async fn answer(
        &self,
        tree: &Tree,
        caller: &Caller,
        by: By<'_>,
        call: Call,
        data: Bytes,
        is_large: bool,
    ) -> Option<(Answer, Vec<u8>)> {
        let mount = match self.mount(tree, caller, call.client) {
            Ok(mount) => mount,
            Err(error) => return Some((failed(error), Vec::new())),
        };
        tree.leases().release(&mount.client, &call.released).await;
        let room = is_large.then(|| (mount.large.try_acquire(), self.large.try_acquire()));
        if matches!(room, Some((None, _) | (_, None))) {
            return None;
        }
        Some(self.answer_of(tree, caller, by, (call, data), mount, room).await)
    }

    async fn answer_of(
        &self,
        tree: &Tree,
        caller: &Caller,
        by: By<'_>,
        (call, data): (Call, Bytes),
        mount: Arc<Mount>,
        room: impl Send + 'static,
    ) -> (Answer, Vec<u8>) {
        let trusts_owners = self.trusts_owners.load(Ordering::Relaxed);
        let served = Served {
            start: self.start,
            boot: self.boot,
            trusts_owners,
            began: self.began,
            open_files: &self.open_files,
            tree,
            caller,
            mount: &mount,
        };
        if !call.action.changes() {
            return served.run(call.action, data).await;
        }
        let number = call.number;
        // The change happens as a whole, and its answer is kept, even if the connection ends meanwhile. A call that is known to run runs.
        let (tree, caller) = (tree.clone(), caller.clone());
        let (start, boot, began, open_files) = (self.start, self.boot, self.began, self.open_files.clone());
        let (audit, address) = (by.audit.clone(), by.address);
        let running = dapple::spawn(async move {
            let _room = room;
            let failed = Answer::Failed(Errno::IO.raw_os_error());
            match mount.recent.with(|recent| recent.begin(number)).await {
                Before::Answered(answer) => return (answer, Vec::new()),
                Before::Running(answer) => return (answer.await.unwrap_or(failed), Vec::new()),
                Before::New => {}
            }
            let change = mount.audited(&audit, &caller, address, &call.action).await;
            let served = Served {
                start,
                boot,
                trusts_owners,
                began,
                open_files: &open_files,
                tree: &tree,
                caller: &caller,
                mount: &mount,
            };
            let (answer, data) = served.run(call.action, data).await;
            change.end(match answer {
                Answer::Failed(errno) => Outcome::Failed(errno),
                Answer::UnknownHandle => Outcome::Failed(Errno::STALE.raw_os_error()),
                _ => Outcome::Done,
            });
            let kept = answer.clone();
            mount.recent.with(|recent| recent.end(number, kept)).await;
            (answer, data)
        });
        running.await.unwrap_or((Answer::Failed(Errno::IO.raw_os_error()), Vec::new()))
    }

    fn mount(&self, tree: &Tree, caller: &Caller, id: ClientId) -> io::Result<Arc<Mount>> {
        let now = Instant::now();
        let mut mounts = lock(&self.mounts);
        // A mount that has gone keeps files open, which may have been removed.
        let mut last_sweep = lock(&self.last_sweep);
        if now.saturating_duration_since(*last_sweep) > SWEEP_EVERY {
            *last_sweep = now;
            let keep = MOUNT_KEPT.max(4 * tree.leases().duration());
            mounts.retain(|_, mount| now.saturating_duration_since(*lock(&mount.last_seen)) < keep);
            tree.leases().sweep(now);
        }
        drop(last_sweep);
        if let Some(mount) = mounts.get(&id) {
            // The number of a mount is no login: another user cannot use its handles.
            if mount.user != caller.user {
                tracing::warn!(user = %caller.user, owner = %mount.user, "a mount's number was used by another user");
                return Err(Errno::ACCESS.into());
            }
            *lock(&mount.last_seen) = now;
            mount.client.seen(now);
            return Ok(mount.clone());
        }
        let own = mounts.values().filter(|mount| mount.user == caller.user).count();
        if own >= MOUNTS_OF_USER_MAX {
            tracing::warn!(user = %caller.user, "a user has too many mounts");
            return Err(Errno::USERS.into());
        }
        let client = tree.leases().client(id).filter(|_| mounts.len() < crate::lease::CLIENTS_MAX);
        let mount = Arc::new(Mount {
            user: caller.user.clone(),
            client: client.ok_or(Errno::USERS)?,
            last_seen: Mutex::new(now),
            files: Colored::new(HashMap::default()),
            recent: Colored::new(Recent::default()),
            large: Limit::new(LARGE_OF_MOUNT_MAX),
        });
        mounts.insert(id, mount.clone());
        Ok(mount)
    }
}

/// A call that is served.
struct Served<'a> {
    start: u64,
    boot: u64,
    trusts_owners: bool,
    began: FileTime,
    open_files: &'a Arc<AtomicUsize>,
    tree: &'a Tree,
    caller: &'a Caller,
    mount: &'a Arc<Mount>,
}

impl Served<'_> {
    async fn run(&self, action: Action, data: Bytes) -> (Answer, Vec<u8>) {
        match self.try_run(action, data).await {
            Ok(answered) => answered,
            Err(error) => (failed(error), Vec::new()),
        }
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
            Action::List(path) => self.list(&path).await?,
            Action::ReadLink(path) => {
                self.check(&path, May::Read)?;
                Answer::Bytes(Some(self.tree.read_link(&path).await?))
            }
            Action::Space => Answer::Space(self.tree.space().await?),
            Action::Open { path, handle, how } => return self.open(&path, handle, how).await,
            Action::Close(handle) => {
                self.mount.files.with(|files| files.remove(&handle)).await;
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
            other => return self.change(other).await.map(|answer| (answer, Vec::new())),
        };
        Ok((answer, Vec::new()))
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
        let (client, leases) = (&self.mount.client, self.tree.leases());
        let during = match delegation {
            // A delegation must last until the write begins: another client may read or change the file while this waits.
            Some(grant) if !leases.is_of_earlier_service(grant) => {
                leases.change_delegated(client.id(), open.node, grant).await.ok_or(Errno::STALE)?
            }
            _ => leases.change(Some(client.id()), &[open.node]).await,
        };
        // A client that changed the file since this service started did not know of a delegation by an earlier one.
        if delegation.is_some_and(|grant| leases.is_of_earlier_service(grant))
            && of_file(&open.file)?.changed >= self.began
        {
            return Err(Errno::STALE.into());
        }
        self.tree.write_pieces(during, &open.file, split, change).await?;
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
        let (entries, found) = match self.found(path, made).await? {
            Answer::Found(now, Some(lease)) => (self.tree.list_by(path, by).await, (now, lease)),
            other => return Ok(other),
        };
        let is_empty = entries.is_ok_and(|entries| entries.is_empty());
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

    async fn list(&self, path: &TreePath) -> io::Result<Answer> {
        self.check(path, May::Read)?;
        let (entries, lease) = self.tree.list_leased(path, &self.mount.client).await?;
        let directory = self.tree.stat(path).await?.node;
        let mut leases: HashMap<NodeId, Lease> = HashMap::default();
        for entry in entries.iter().take(LEASED_ENTRIES) {
            if let Some(lease) = self.tree.leases().grant(&self.mount.client, entry.attributes.node).await {
                leases.insert(entry.attributes.node, lease);
            }
        }
        // The attributes are those after the grants.
        let mut entries = self.tree.list_by(path, Some(self.mount.client_id())).await?;
        entries.retain(|entry| self.sees(path, entry));
        let with_leases = |entry: Entry| {
            let lease = leases.get(&entry.attributes.node).copied();
            (entry, lease)
        };
        Ok(Answer::Entries { directory, lease, entries: entries.into_iter().map(with_leases).collect() })
    }

    fn sees(&self, path: &TreePath, entry: &Entry) -> bool {
        path.join(&entry.name).is_ok_and(|path| self.caller.may(&path) >= May::Read)
    }

    async fn open(&self, path: &TreePath, handle: u64, how: OpenHow) -> io::Result<(Answer, Vec<u8>)> {
        let writes = how.write || how.truncate || how.create.is_some();
        self.check(path, if writes { May::Write } else { May::Read })?;
        if self.open_files.load(Ordering::Relaxed) >= OPEN_FILES_MAX {
            return Err(Errno::NFILE.into());
        }
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
        self.open_files.fetch_add(1, Ordering::Relaxed);
        let open = OpenFile {
            file,
            node,
            may_write: how.write,
            path: path.clone(),
            checked: Mutex::new(self.caller.rules.clone()),
            is_recorded: AtomicBool::new(false),
            count: self.open_files.clone(),
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

/// A number that every start of the machine changes; 0 if the system has none.
fn boot() -> u64 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

fn refused(may: May, needed: May) -> io::Result<()> {
    match may {
        may if may >= needed => Ok(()),
        May::Nothing => Err(Errno::NOENT.into()),
        _ => Err(Errno::ACCESS.into()),
    }
}

impl Mount {
    fn client_id(&self) -> ClientId {
        self.client.id()
    }

    /// Begins the record of a change.
    async fn audited(
        &self,
        audit: &Audit,
        caller: &Caller,
        address: Option<IpAddr>,
        action: &Action,
    ) -> audit::Running {
        if !audit.is_on() {
            return audit.begin(|| None);
        }
        let open = match action {
            Action::Put { handle, .. } | Action::SetOpen(handle, _) => {
                self.files.read(|files| files.get(handle).cloned()).await
            }
            _ => None,
        };
        // The first write of an open file counts for all.
        let is_write = matches!(action, Action::Put { .. });
        let open = open.filter(|open| !is_write || !open.is_recorded.swap(true, Ordering::Relaxed));
        let of_handle = open.map(|open| open.path.clone());
        audit.begin(|| {
            let (call, path, to) = action.described(of_handle)?;
            Some(Audited { user: caller.user.clone(), address, call, path, to, result: Outcome::Left })
        })
    }
}

impl Action {
    /// The name and the files of a change, for an audit; `None` for what changes nothing.
    fn described(&self, of_handle: Option<TreePath>) -> Option<(&'static str, TreePath, Option<TreePath>)> {
        let (call, path, to) = match self {
            Action::Open { path, how, .. } if how.create.is_some() && how.only_new => ("create", path, None),
            Action::Open { path, how, .. } if how.create.is_some() || how.truncate => ("open", path, None),
            Action::Put { .. } => return of_handle.map(|path| ("write", path, None)),
            Action::SetOpen(_, change) if *change == AttributeChange::default() => return None,
            Action::SetOpen(..) => return of_handle.map(|path| ("set", path, None)),
            Action::MakeDir(path, _) => ("mkdir", path, None),
            Action::MakeNode(path, ..) => ("mknod", path, None),
            Action::RemoveFile(path) => ("unlink", path, None),
            Action::RemoveDir(path) => ("rmdir", path, None),
            Action::Rename { from, to, .. } => ("rename", from, Some(to)),
            Action::Link(from, to) => ("link", from, Some(to)),
            Action::Symlink { path, .. } => ("symlink", path, None),
            Action::Set(path, _) => ("set", path, None),
            Action::SetExtended(path, ..) => ("setxattr", path, None),
            _ => return None,
        };
        Some((call, path.clone(), to.cloned()))
    }

    /// Whether it may happen only once. Opening and closing may happen twice, and writing the same bytes again is no harm, but for the
    /// changes of others in between.
    fn changes(&self) -> bool {
        !matches!(
            self,
            Action::Hello
                | Action::Recalls { .. }
                | Action::LookUp(_)
                | Action::List(_)
                | Action::ReadLink(_)
                | Action::Space
                | Action::Read { .. }
                | Action::Sync(_)
                | Action::SyncDir(_)
                | Action::Extended(..)
                | Action::ListExtended(_)
        )
    }
}

impl Recent {
    fn begin(&mut self, number: u64) -> Before {
        match self.calls.get(&number) {
            Some(Some(answer)) => Before::Answered(answer.clone()),
            Some(None) => {
                let (waiter, answer) = oneshot::channel();
                self.waiters.push((number, waiter));
                Before::Running(answer)
            }
            None => {
                if self.calls.len() >= CALLS_KEPT {
                    // A call that still runs stays known.
                    let oldest = self.calls.iter().find(|(_, answer)| answer.is_some()).map(|(number, _)| *number);
                    let Some(oldest) = oldest else {
                        return Before::Answered(Answer::Failed(Errno::NOBUFS.raw_os_error()));
                    };
                    self.calls.remove(&oldest);
                }
                self.calls.insert(number, None);
                Before::New
            }
        }
    }

    fn end(&mut self, number: u64, answer: Answer) {
        for (_, waiter) in self.waiters.extract_if(.., |(waits_for, _)| *waits_for == number) {
            let _ = waiter.send(answer.clone());
        }
        self.calls.insert(number, Some(answer));
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

fn failed(error: io::Error) -> Answer {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most mounts of one user at a time.
const MOUNTS_OF_USER_MAX: usize = 2_000;

/// The entries of a listing that come with leases of their own.
const LEASED_ENTRIES: usize = 4096;

/// The most files that one mount, and all mounts, have open.
const FILES_OF_MOUNT_MAX: usize = 4096;
const OPEN_FILES_MAX: usize = 16_384;

/// The most large calls of one mount, and of all, that run or wait for leases, with two MB at most each.
const LARGE_OF_MOUNT_MAX: usize = 64;
const LARGE_MAX: usize = 256;

/// The answers that are kept for calls that come again; a mount has fewer calls in flight.
const CALLS_KEPT: usize = 4096;

/// How long a mount that sends nothing is known.
const MOUNT_KEPT: Duration = Duration::from_secs(600);

/// How often mounts that have gone are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::sync::{Arc, LazyLock, Mutex};
    use std::time::Duration;

    use bytes::Bytes;
    use dapple::time::sleep;
    use http::{HeaderMap, Method};
    use rustix::io::Errno;

    use super::{Before, CALLS_KEPT, LARGE_OF_MOUNT_MAX, Mounts, Recent};
    use crate::audit::{Audit, By};
    use crate::dav::{Asked, Caller};
    use crate::lease::{ClientId, Leases};
    use crate::path::TreePath;
    use crate::rights::{May, Rules};
    use crate::tree::{AttributeChange, Tree};
    use crate::wire::{Action, Answer, Call, OpenHow};

    fn caller(may: May) -> Caller {
        let rules = Arc::new(Rules::all(may));
        let current = Arc::new(Mutex::new(rules.clone()));
        let asked = Asked::new(&Method::POST, &TreePath::root(), &HeaderMap::new(), current);
        Caller { user: "ann".into(), rules, asked: Arc::new(asked) }
    }

    /// No audit.
    fn nowhere() -> By<'static> {
        static AUDIT: LazyLock<Audit> = LazyLock::new(Audit::default);
        By { audit: &AUDIT, address: None }
    }

    fn path(text: &str) -> TreePath {
        TreePath::parse(text).expect("a path")
    }

    fn open(name: &str) -> Action {
        let how = OpenHow { read: true, write: true, truncate: false, create: None, only_new: false, append: false };
        Action::Open { path: path(name), handle: 1, how }
    }

    fn put() -> Action {
        Action::Put { handle: 1, delegation: None, pieces: vec![(0, 3)], change: AttributeChange::default() }
    }

    /// A call of a mount, with the data of a write.
    fn call(client: u128, number: u64, action: Action) -> (Call, Bytes) {
        let call = Call { client: ClientId(client), number, released: Vec::new(), action };
        (call, Bytes::from_static(b"new"))
    }

    #[test]
    fn the_right_to_an_open_file_ends_with_the_rules() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("f"), "old").expect("a file");
        dapple::builder().workers(1).build().expect("a runtime").block_on(async {
            let (tree, mounts) = (Tree::open(dir.path()).await.expect("a tree"), Mounts::new());
            let mut number = 0;
            let mut ask = async |caller: &Caller, action: Action| {
                number += 1;
                let (call, data) = call(1, number, action);
                mounts.answer(&tree, caller, nowhere(), call, data, false).await.expect("an answer").0
            };
            let read = || Action::Read { handle: 1, offset: 0, len: 10 };
            let [writer, reader, stranger] = [May::Write, May::Read, May::Nothing].map(caller);
            assert!(matches!(ask(&writer, open("f")).await, Answer::Opened(..)));
            assert!(matches!(ask(&writer, put()).await, Answer::Found(..)));
            let (access, none) =
                (Answer::Failed(Errno::ACCESS.raw_os_error()), Answer::Failed(Errno::NOENT.raw_os_error()));
            assert_eq!(ask(&reader, put()).await, access);
            assert_eq!(ask(&reader, read()).await, Answer::Data);
            assert_eq!(ask(&reader, put()).await, access, "the right to read is none to write");
            let longer = AttributeChange { len: Some(100), ..AttributeChange::default() };
            assert_eq!(ask(&reader, Action::SetOpen(1, longer)).await, access);
            // Another program renames it: the name that it has now counts.
            std::fs::rename(dir.path().join("f"), dir.path().join("g")).expect("renamed");
            assert_eq!(ask(&stranger, read()).await, none);
            std::fs::remove_file(dir.path().join("g")).expect("removed");
            assert_eq!(ask(&stranger, read()).await, none, "a removed file has the name that it was opened by");
            assert!(matches!(ask(&caller(May::Write), put()).await, Answer::Found(..)));
        });
    }

    #[test]
    fn large_calls_that_wait_for_a_silent_client_hold_up_no_other_mount() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["held", "free"] {
            std::fs::write(dir.path().join(name), "").expect("a file");
        }
        dapple::builder().workers(1).build().expect("a runtime").block_on(async {
            let tree = Tree::with_leases(dir.path(), Leases::new(Duration::from_secs(3600))).await.expect("a tree");
            let (mounts, caller) = (Arc::new(Mounts::new()), caller(May::Write));
            let silent = tree.leases().client(ClientId(9)).expect("a client");
            let (found, lease) = tree.stat_leased(&path("held"), &silent).await.expect("attributes");
            assert!(lease.is_some());
            for (client, name) in [(1, "held"), (2, "free")] {
                let (call, data) = call(client, 1, open(name));
                mounts.answer(&tree, &caller, nowhere(), call, data, false).await.expect("an answer");
            }
            for number in 0..LARGE_OF_MOUNT_MAX as u64 {
                let (mounts, tree, caller) = (mounts.clone(), tree.clone(), caller.clone());
                let (call, data) = call(1, 2 + number, put());
                drop(dapple::spawn(async move { mounts.answer(&tree, &caller, nowhere(), call, data, true).await }));
            }
            while tree.leases().counts().waiting < LARGE_OF_MOUNT_MAX {
                sleep(Duration::from_millis(1)).await;
            }
            let ask = async |client, number| {
                let (call, data) = call(client, number, put());
                mounts.answer(&tree, &caller, nowhere(), call, data, true).await
            };
            assert!(ask(1, 1000).await.is_none(), "it is sent again");
            assert!(matches!(ask(2, 2).await, Some((Answer::Found(..), _))));
            tree.leases().release(&silent, &[(found.node, u64::MAX)]).await;
            while tree.leases().counts().waiting > 0 {
                sleep(Duration::from_millis(1)).await;
            }
            while ask(1, 1000).await.is_none() {
                sleep(Duration::from_millis(1)).await;
            }
        });
    }

    #[test]
    fn a_call_happens_once_however_many_others_come_meanwhile() {
        let mut recent = Recent::default();
        assert!(matches!(recent.begin(1), Before::New));
        let last = 3 * CALLS_KEPT as u64;
        for number in 2..=last {
            assert!(matches!(recent.begin(number), Before::New));
            recent.end(number, Answer::Names(vec![number.to_le_bytes().to_vec()]));
        }
        let Before::Running(waits) = recent.begin(1) else { panic!("it still runs") };
        recent.end(1, Answer::Done);
        assert_eq!(dapple_sched::block_on(waits), Ok(Answer::Done));
        let answered =
            matches!(recent.begin(last), Before::Answered(Answer::Names(names)) if names == [last.to_le_bytes()]);
        assert!(answered && recent.calls.len() <= CALLS_KEPT);
    }

    #[test]
    fn there_is_no_room_for_more_calls_that_run() {
        let mut recent = Recent::default();
        assert!((0..CALLS_KEPT as u64).all(|number| matches!(recent.begin(number), Before::New)));
        assert!(matches!(recent.begin(u64::MAX), Before::Answered(Answer::Failed(_))));
    }
}
