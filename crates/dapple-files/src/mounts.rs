//! The mounts of a service: their open files, and the calls that they sent last.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use dapple::Colored;
use dapple::fs::File;
use dapple::sync::Limit;
use dapple::sync::limit::Permit;
use dapple::time::Instant;
use dapple_sched::environment::{HashMap, random, system_now};
use rustix::io::Errno;

use crate::audit::{self, Audit, Audited, By, Outcome};
use crate::dav::Caller;
use crate::journal::{CallId, Journal};
use crate::lease::{Client, ClientId};
use crate::lock::lock;
use crate::path::TreePath;
use crate::rights::Rules;
use crate::shares::{Share, Shares};
use crate::tree::{AttributeChange, FileTime, NodeId, Once, Tree};
use crate::wire::{Action, Answer, Call, SMALL_CALL};
use locks::Locks;
use recent::{Before, Begun, Recent};
use served::{Served, failed};

mod locks;
mod recent;
mod served;

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
    /// The log that outlasts this service.
    journal: OnceLock<Arc<Journal>>,
    locks: Arc<Locks>,
    /// The files that all mounts have open, or are opening.
    open_files: Limit,
    /// The large calls of all mounts that run, or wait for leases; but for writes that they kept.
    large: Shares<Arc<str>>,
    large_kept: Shares<Arc<str>>,
    /// Large reads and pages of directories, until their answers are sent.
    reads: Shares<Arc<str>>,
}

/// The data after an answer.
#[derive(Debug, Default)]
pub(crate) struct Data {
    pub(crate) bytes: Vec<u8>,
    room: Option<ReadRoom>,
}

/// The room of a large read: of its user's mounts, and of all users.
type ReadRoom = (Share<ClientId>, Share<Arc<str>>);

/// One mount.
#[derive(Debug)]
struct Mount {
    user: Arc<str>,
    client: Arc<Client>,
    last_seen: Mutex<Instant>,
    files: Colored<HashMap<u64, Arc<OpenFile>>>,
    recent: Colored<Recent>,
    /// Its changes before this one are answered.
    oldest: AtomicU64,
    /// Its large calls that run, or wait for leases; but for writes that it kept.
    large: Limit,
    large_kept: Limit,
}

/// An open file of a mount.
#[derive(Debug)]
struct OpenFile {
    file: File,
    node: NodeId,
    may_write: bool,
    appends: bool,
    /// The name that it was opened by.
    path: TreePath,
    /// The rules under which its client may use it, once it was asked.
    checked: Mutex<Arc<Rules>>,
    /// Whether an audit has a write of it that succeeded.
    is_recorded: AtomicBool,
    /// Of its user, and of all.
    _room: [Permit; 2],
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
            journal: OnceLock::new(),
            locks: Arc::default(),
            open_files: Limit::new(OPEN_FILES_MAX),
            large: Shares::new(LARGE_MAX, 0),
            large_kept: Shares::new(LARGE_MAX, 0),
            reads: Shares::new(READS_MAX, READS_WAITING_MAX),
        }
    }

    /// From now on clients may change owners and set the bits setuid and setgid.
    pub(crate) fn trust_owners(&self) {
        self.trusts_owners.store(true, Ordering::Relaxed);
    }

    /// Keeps a log of changes in a directory, so that they happen once across a restart.
    pub(crate) async fn remember_changes(&self, tree: &Tree, dir: PathBuf) -> io::Result<()> {
        let journal = tree.journal(dir, self.boot).await?;
        let _ = self.journal.set(Arc::new(journal));
        Ok(())
    }

    /// The mounts, and the files that they have open.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (lock(&self.mounts).len(), self.open_files.used())
    }

    /// Answers a call, and the data after the answer; `None` while too many others of the mount or of its user run, or wait for leases:
    /// its client sends it again.
    pub(crate) async fn answer(
        &self,
        tree: &Tree,
        caller: &Caller,
        by: By<'_>,
        call: Call,
        data: Bytes,
        is_large: bool,
    ) -> Option<(Answer, Data)> {
        let mount = match self.mount(tree, caller, call.client) {
            Ok(mount) => mount,
            Err(error) => {
                let answer = failed(error);
                begin_record(by.audit, caller, by.address, call.action.described(None)).end(outcome(&answer));
                return Some((answer, Data::default()));
            }
        };
        tree.leases().release(&mount.client, &call.released).await;
        let room = &caller.room;
        let is_kept = call.action.is_kept_write(tree);
        let (own, all) = match is_kept {
            true => (&mount.large_kept, &self.large_kept),
            false => (&mount.large, &self.large),
        };
        let large = match is_large {
            true => Some((own.try_acquire()?, all.try_acquire(&caller.user)?)),
            false => None,
        };
        let change = match &call.action {
            action if !action.changes() => None,
            _ if is_kept => Some(room.kept_writes.acquire().await.ok()?),
            _ => Some(room.changes.acquire().await.ok()?),
        };
        let room = match call.action {
            Action::Read { handle, len, .. } if len as usize > SMALL_CALL => {
                // Without the room: this may last as long as another client's lease.
                mount.await_kept_writes(tree, handle).await;
                Some(self.read_room(caller, &mount).await?)
            }
            Action::List { ref path, ref after } => {
                let _ = tree.settle_page(path, after, Some(mount.client_id())).await;
                Some(self.read_room(caller, &mount).await?)
            }
            _ => None,
        };
        let (answer, bytes) = self.answer_of(tree, caller, by, (call, data), mount, (large, change)).await;
        Some((answer, Data { bytes, room }))
    }

    async fn read_room(&self, caller: &Caller, mount: &Mount) -> Option<ReadRoom> {
        let own = caller.room.reads.acquire(&mount.client_id()).await.ok()?;
        Some((own, self.reads.acquire(&caller.user).await.ok()?))
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
        let served = Served {
            start: self.start,
            boot: self.boot,
            began: self.began,
            trusts_owners: self.trusts_owners.load(Ordering::Relaxed),
            open_files: self.open_files.clone(),
            locks: self.locks.clone(),
            tree: tree.clone(),
            caller: caller.clone(),
            mount,
        };
        let oldest = call.oldest;
        if served.mount.oldest.fetch_max(oldest, Ordering::Relaxed) < oldest {
            served.mount.recent.post(move |recent| recent.forget_before(oldest));
            if let Some(journal) = self.journal.get() {
                journal.forget_before(call.client, oldest);
            }
        }
        if !call.action.changes() {
            return served.run(call.action, data).await;
        }
        let number = call.number;
        let once = self.journal.get().map(|journal| {
            let call = CallId { client: call.client, number, user: caller.user.to_string() };
            Once { journal: journal.clone(), call: Arc::new(call) }
        });
        let earlier = once.as_ref().and_then(|once| once.journal.earlier(&once.call));
        let served = Served { tree: tree.once(once), ..served };
        let (audit, address) = (by.audit.clone(), by.address);
        // The change happens as a whole, and its answer is kept, even if the connection ends meanwhile. A call that is known to run runs.
        let running = dapple::spawn(async move {
            let _room = room;
            let mount = &served.mount;
            let failed = Answer::Failed(Errno::IO.raw_os_error());
            match mount.recent.with(|recent| recent.begin(number)).await {
                Before::Answered(answer) => return (answer, Vec::new()),
                Before::Running(answer) => return (answer.await.unwrap_or(failed), Vec::new()),
                Before::New => {}
            }
            let begun = Begun::new(&mount.recent, number);
            let records = mount.audited(&audit, &served.caller, address, &call.action).await;
            let (answer, data) = match earlier {
                Some(end) => served.run_again(call.action, data, end).await,
                None => served.run(call.action, data).await,
            };
            records.end(outcome(&answer));
            begun.end(answer.clone()).await;
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
            tree.leases().sweep(now, keep);
            self.locks.forget(|client| mounts.contains_key(&client));
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
            oldest: AtomicU64::new(0),
            large: Limit::new(LARGE_OF_MOUNT_MAX),
            large_kept: Limit::new(LARGE_OF_MOUNT_MAX),
        });
        mounts.insert(id, mount.clone());
        Ok(mount)
    }
}

impl Data {
    /// The body with an answer and these data, which keeps their room until it is sent.
    pub(crate) fn sent_as(self, body: Bytes) -> Bytes {
        match self.room {
            Some(room) => Bytes::from_owner(Sent { body, _room: room }),
            None => body,
        }
    }
}

struct Sent {
    body: Bytes,
    _room: ReadRoom,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// A number that every start of the machine changes; 0 if the system has none.
fn boot() -> u64 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

impl Mount {
    fn client_id(&self) -> ClientId {
        self.client.id()
    }

    /// Waits until other clients have sent the writes to an open file that they keep.
    async fn await_kept_writes(&self, tree: &Tree, handle: u64) {
        if let Some(open) = self.files.read(|files| files.get(&handle).cloned()).await {
            tree.settle(&[open.node], Some(self.client_id())).await;
        }
    }

    /// Begins the records of a call.
    async fn audited(&self, audit: &Audit, caller: &Caller, address: Option<IpAddr>, action: &Action) -> Records {
        let begin = |described| begin_record(audit, caller, address, described);
        let open = match action {
            Action::Put { handle, .. } | Action::SetOpen(handle, _) if audit.is_on() => {
                self.files.read(|files| files.get(handle).cloned()).await
            }
            _ => None,
        };
        let of_handle = open.as_ref().map(|open| open.path.clone());
        let written = open.filter(|_| matches!(action, Action::Put { pieces, .. } if !pieces.is_empty()));
        Records {
            write: written.map(|open| (begin(Some(("write", open.path.clone(), None))), open)),
            change: begin(if audit.is_on() { action.described(of_handle) } else { None }),
        }
    }
}

/// The name of a change, and its files.
type Described = (&'static str, TreePath, Option<TreePath>);

fn begin_record(
    audit: &Audit,
    caller: &Caller,
    address: Option<IpAddr>,
    described: Option<Described>,
) -> audit::Running {
    audit.begin(|| {
        let (call, path, to) = described?;
        Some(Audited { user: caller.user.clone(), address, call, path, to, result: Outcome::Left })
    })
}

fn outcome(answer: &Answer) -> Outcome {
    match answer {
        Answer::Failed(errno) => Outcome::Failed(*errno),
        Answer::UnknownHandle => Outcome::Failed(Errno::STALE.raw_os_error()),
        _ => Outcome::Done,
    }
}

/// The records of a call that runs.
struct Records {
    /// Of the bytes that it writes to an open file.
    write: Option<(audit::Running, Arc<OpenFile>)>,
    /// Of its other change.
    change: audit::Running,
}

impl Records {
    fn end(self, result: Outcome) {
        if let Some((record, open)) = self.write {
            // The first write that succeeds counts for all that do.
            match result == Outcome::Done && open.is_recorded.swap(true, Ordering::Relaxed) {
                true => record.forget(),
                false => record.end(result),
            }
        }
        self.change.end(result);
    }
}

impl Action {
    /// The name and the files of a change, for an audit; `None` for what changes nothing but the bytes of an open file.
    fn described(&self, of_handle: Option<TreePath>) -> Option<Described> {
        let (call, path, to) = match self {
            Action::Open { path, how, .. } if how.create.is_some() && how.only_new => ("create", path, None),
            Action::Open { path, how, .. } if how.create.is_some() || how.truncate => ("open", path, None),
            Action::Put { change, .. } | Action::SetOpen(_, change) if *change == AttributeChange::default() => {
                return None;
            }
            Action::Put { .. } | Action::SetOpen(..) => return of_handle.map(|path| ("set", path, None)),
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

    /// Whether it is a write that a mount kept. Other changes may wait for it, and it waits for no lease: so it has limits of its own.
    pub(crate) fn is_kept_write(&self, tree: &Tree) -> bool {
        matches!(self, Action::Put { delegation: Some(grant), .. } if !tree.leases().is_of_earlier_service(*grant))
    }

    /// Whether it may happen only once. Opening and closing may happen twice, and writing the same bytes again is no harm, but for the
    /// changes of others in between.
    pub(crate) fn changes(&self) -> bool {
        !matches!(
            self,
            Action::Hello
                | Action::Recalls { .. }
                | Action::LookUp(_)
                | Action::List { .. }
                | Action::ReadLink(_)
                | Action::Space
                | Action::Read { .. }
                | Action::Sync(_)
                | Action::SyncDir(_)
                | Action::Extended(..)
                | Action::ListExtended(_)
                | Action::TestLock { .. }
                | Action::AwaitLock { .. }
        )
    }
}

/// The most mounts of one user at a time.
const MOUNTS_OF_USER_MAX: usize = 2_000;

/// The most files that one mount, and all mounts, have open.
const FILES_OF_MOUNT_MAX: usize = 4096;
const OPEN_FILES_MAX: usize = 16_384;

/// The most large calls of one mount, and of all, that run or wait for leases, with two MB at most each; and as many kept writes.
const LARGE_OF_MOUNT_MAX: usize = 64;
const LARGE_MAX: usize = 256;

/// The most large reads and pages of directories of all mounts, with two MB at most each, until their answers are sent; and how many of one user wait.
const READS_MAX: usize = 64;
const READS_WAITING_MAX: usize = 2048;

/// How long a mount that sends nothing is known.
const MOUNT_KEPT: Duration = Duration::from_secs(600);

/// How often mounts that have gone are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
