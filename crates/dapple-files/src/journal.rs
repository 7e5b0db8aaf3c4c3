//! The log of the changes that must happen once, also if the server ends in the middle of one.
//!
//! Before a change of a mount that would fail or do harm if it happened twice, the log notes what the change is about to find: the identity
//! of a file that gets another name, the length of one that grows. After it, the log notes the outcome. A server that starts anew finds
//! changes without an outcome by comparing the tree with what was noted, before it answers any client; a mount that sends such a change
//! again gets the answer of the first time.
//!
//! | noted before | found at the start | it |
//! |---|---|---|
//! | a name is free | taken | happened |
//! | | free | did not; not known if the directory has gone, too |
//! | a name, to be removed, is of file `n` | of `n` | did not happen |
//! | | free, or of another file | happened |
//! | a name, to be renamed, is of file `n` | the old one is of `n` | did not happen |
//! | | the new one is of `n` | happened; not known if neither is |
//! | a file has `l` bytes, to which `k` are appended | `l` | did not happen |
//! | | `l + k` or more | happened; in between, the rest is written when the change comes again |
//!
//! Changes of one file or directory that are noted run alone, so at most one of them has no outcome. Records are in the kernel before the
//! change, and not on the disk: after a crash of the machine the tree is compared for changes with an outcome, too, since neither the log
//! nor the change may have reached the disk.
//!
//! The log is two files. Once the newer one is full, the older one is removed: that is the bound of what is remembered.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use dapple_sched::environment::HashMap;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::lease::ClientId;
use crate::lock::lock;
use crate::path::TreePath;
use crate::tree::{Attributes, FileTime, NodeId};

/// The log of a service.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: PathBuf,
    /// Its lock shows that a service has the directory.
    _held: File,
    boot: u64,
    newer: Mutex<Newer>,
    /// The outcomes of changes of earlier services, for mounts that send them again.
    earlier: Mutex<HashMap<ClientId, Ends>>,
    has_failed: AtomicBool,
}

/// The outcomes of the changes of one mount, by their numbers, with its user.
type Ends = BTreeMap<u64, (String, End)>;

#[derive(Debug)]
struct Newer {
    file: File,
    len: u64,
}

/// A change, by the call that asked for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct CallId {
    pub(crate) client: ClientId,
    pub(crate) number: u64,
    pub(crate) user: String,
}

/// The facts that a change is about to find.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Facts {
    /// The name is free.
    Makes(TreePath),
    Removes(TreePath, Identity),
    Renames {
        from: TreePath,
        to: TreePath,
        file: Identity,
    },
    /// The length of a file, and how many bytes are appended.
    Appends {
        path: TreePath,
        file: Identity,
        len: u64,
        more: u64,
    },
}

/// A file, also if another one gets its number later.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    /// `None` if the file system does not know it.
    pub(crate) born: Option<FileTime>,
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum End {
    Done,
    /// It made this file.
    Made(Attributes),
    /// So many bytes of those that it appends are written.
    Partly(u64),
    /// With the kernel's number of the error.
    Failed(i32),
    /// Others changed the same names meanwhile.
    Unknown,
}

#[derive(Debug, Serialize, Deserialize)]
enum Record {
    /// The start of the machine, first in each file.
    Boot(u64),
    Begins(CallId, Facts),
    Ended(CallId, End),
}

/// A change of an earlier service, as the log has it.
struct Found {
    facts: Option<Facts>,
    end: Option<End>,
    boot: u64,
}

impl Journal {
    /// Opens the log in a directory, which is made if it is missing. Of a change without a known outcome, `decide` says what became of it:
    /// `None` if it did not happen. Blocks.
    ///
    /// # Errors
    ///
    /// Errors of the kernel; `WouldBlock` if another service has the log.
    pub(crate) fn open(dir: &Path, boot: u64, decide: impl Fn(&Facts, bool) -> Option<End>) -> io::Result<Journal> {
        std::fs::create_dir_all(dir)?;
        let held = private().write(true).create(true).truncate(false).open(dir.join("lock"))?;
        rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive)?;
        let mut found = BTreeMap::<CallId, Found>::new();
        for name in [OLDER, NEWER] {
            match std::fs::read(dir.join(name)) {
                Ok(bytes) => read(&bytes, &mut found),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let mut earlier = HashMap::<ClientId, Ends>::default();
        let mut bytes = encode(&Record::Boot(boot));
        for (call, found) in found {
            let is_same_boot = found.boot == boot;
            let end = match (found.end, &found.facts) {
                (Some(End::Done), Some(facts)) if is_same_boot => {
                    decide(facts, true).filter(|end| matches!(end, End::Made(_))).or(Some(End::Done))
                }
                (None | Some(End::Done), Some(facts)) => decide(facts, is_same_boot),
                (end, _) => end,
            };
            let Some(end) = end else { continue };
            if bytes.len() as u64 <= LEN_MAX {
                bytes.extend(encode(&Record::Ended(call.clone(), end)));
                earlier.entry(call.client).or_default().insert(call.number, (call.user, end));
            }
        }
        let aside = Newer::aside(dir, &bytes)?;
        aside.file.sync_all()?;
        let newer = Mutex::new(aside.put_in_place(dir)?);
        let _ = std::fs::remove_file(dir.join(OLDER));
        let (earlier, has_failed) = (Mutex::new(earlier), AtomicBool::new(false));
        Ok(Journal { dir: dir.to_owned(), _held: held, boot, newer, earlier, has_failed })
    }

    /// The outcome of a change of an earlier service.
    pub(crate) fn earlier(&self, call: &CallId) -> Option<End> {
        let earlier = lock(&self.earlier);
        let (user, end) = earlier.get(&call.client)?.get(&call.number)?;
        // The number of a mount is no login.
        (*user == call.user).then_some(*end)
    }

    /// Forgets the changes of a mount before a number, which are answered.
    pub(crate) fn forget_before(&self, client: ClientId, number: u64) {
        let mut earlier = lock(&self.earlier);
        if let Some(calls) = earlier.get_mut(&client) {
            *calls = calls.split_off(&number);
            if calls.is_empty() {
                earlier.remove(&client);
            }
        }
    }

    /// Notes that a change begins. Blocks.
    pub(crate) fn begins(&self, call: &CallId, facts: Facts) {
        self.append(&Record::Begins(call.clone(), facts));
    }

    /// Notes the outcome. Blocks.
    pub(crate) fn ended<T>(&self, call: &CallId, outcome: &io::Result<T>) {
        let end = match outcome {
            Ok(_) => End::Done,
            Err(error) => End::Failed(error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error())),
        };
        self.append(&Record::Ended(call.clone(), end));
    }

    /// A log that cannot be written, because its disk is full, stops no change.
    fn append(&self, record: &Record) {
        let mut newer = lock(&self.newer);
        match self.try_append(&mut newer, record) {
            Ok(()) => self.has_failed.store(false, Ordering::Relaxed),
            Err(error) => {
                // The part of it that was written would hide later records.
                let _ = newer.file.set_len(newer.len);
                if !self.has_failed.swap(true, Ordering::Relaxed) {
                    tracing::error!(%error, "changes cannot be noted: if the server ends now, those in flight may happen twice");
                }
            }
        }
    }

    fn try_append(&self, newer: &mut Newer, record: &Record) -> io::Result<()> {
        if newer.len > LEN_MAX {
            let next = Newer::aside(&self.dir, &encode(&Record::Boot(self.boot)))?;
            match std::fs::rename(self.dir.join(NEWER), self.dir.join(OLDER)) {
                // An earlier try has moved it, and failed then.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => moved?,
            }
            *newer = next.put_in_place(&self.dir)?;
        }
        let bytes = encode(record);
        std::os::unix::fs::FileExt::write_all_at(&newer.file, &bytes, newer.len)?;
        newer.len += bytes.len() as u64;
        Ok(())
    }
}

impl Newer {
    /// A file with these bytes beside those of the log, which stay as they are until it is put in place.
    fn aside(dir: &Path, bytes: &[u8]) -> io::Result<Newer> {
        let mut file = private().write(true).create(true).truncate(true).open(dir.join(ASIDE))?;
        file.write_all(bytes)?;
        Ok(Newer { file, len: bytes.len() as u64 })
    }

    fn put_in_place(self, dir: &Path) -> io::Result<Newer> {
        std::fs::rename(dir.join(ASIDE), dir.join(NEWER))?;
        Ok(self)
    }
}

/// The length of a record, its checksum, and the record.
fn encode(record: &Record) -> Vec<u8> {
    // Writing to a vector does not fail.
    let body = postcard::to_stdvec(record).unwrap_or_default();
    let mut bytes = Vec::with_capacity(8 + body.len());
    bytes.extend((body.len() as u32).to_le_bytes());
    bytes.extend(crc32fast::hash(&body).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// Reads records up to the first one that is not whole.
fn read(mut bytes: &[u8], found: &mut BTreeMap<CallId, Found>) {
    let mut boot = 0;
    while let Some((head, rest)) = bytes.split_first_chunk::<8>() {
        let [len, sum] = [0, 4].map(|at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
        let Some((body, rest)) = rest.split_at_checked(len as usize) else { return };
        if body.is_empty() || crc32fast::hash(body) != sum {
            return;
        }
        match postcard::from_bytes(body) {
            Ok(Record::Boot(number)) => boot = number,
            Ok(Record::Begins(call, facts)) => {
                found.insert(call, Found { facts: Some(facts), end: None, boot });
            }
            Ok(Record::Ended(call, end)) => {
                found.entry(call).or_insert(Found { facts: None, end: None, boot }).end = Some(end);
            }
            Err(_) => return,
        }
        bytes = rest;
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

const NEWER: &str = "newer";
const OLDER: &str = "older";
const ASIDE: &str = "new";

/// The length at which the newer file becomes the older one: 15,000 changes and more.
const LEN_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::{CallId, End, Facts, Journal, LEN_MAX, NEWER, OLDER};
    use crate::lease::ClientId;
    use crate::path::TreePath;

    fn call(number: u64) -> CallId {
        CallId { client: ClientId(1), number, user: "ann".to_owned() }
    }

    fn makes() -> Facts {
        Facts::Makes(TreePath::parse("a").expect("a path"))
    }

    #[test]
    fn outcomes_are_found_again_and_torn_records_end_the_log() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = |boot, happened| Journal::open(dir.path(), boot, |_, _| happened);
        let journal = open(7, None).expect("a log");
        assert!(open(7, None).is_err(), "one service at a time");
        for number in 1..4 {
            journal.begins(&call(number), makes());
        }
        journal.ended(&call(1), &Ok(()));
        journal.ended::<()>(&call(2), &Err(rustix::io::Errno::EXIST.into()));
        drop(journal);
        let newer = dir.path().join(NEWER);
        let mut torn = std::fs::read(&newer).expect("the log");
        torn.extend([9, 0, 0, 0, 1, 2]);
        std::fs::write(&newer, torn).expect("written");
        // The third one did not happen, as the tree shows.
        let journal = open(7, None).expect("a log");
        let ends = |journal: &Journal| [1, 2, 3].map(|number| journal.earlier(&call(number)));
        assert_eq!(ends(&journal), [Some(End::Done), Some(End::Failed(17)), None]);
        assert_eq!(journal.earlier(&CallId { user: "bob".to_owned(), ..call(1) }), None);
        journal.begins(&call(3), makes());
        drop(journal);
        // And now it did.
        let journal = open(7, Some(End::Partly(5))).expect("a log");
        assert_eq!(ends(&journal), [Some(End::Done), Some(End::Failed(17)), Some(End::Partly(5))]);
        journal.forget_before(ClientId(1), 3);
        assert_eq!(ends(&journal), [None, None, Some(End::Partly(5))]);
    }

    #[test]
    fn after_a_crash_of_the_machine_the_tree_counts() {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = Journal::open(dir.path(), 7, |_, _| None).expect("a log");
        journal.begins(&call(1), makes());
        journal.ended(&call(1), &Ok(()));
        drop(journal);
        let journal = Journal::open(dir.path(), 8, |_, is_same_boot| is_same_boot.then_some(End::Done));
        assert_eq!(journal.expect("a log").earlier(&call(1)), None, "it was lost");
    }

    #[test]
    fn the_log_has_a_bound() {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = Journal::open(dir.path(), 7, |_, _| None).expect("a log");
        let last = 3 * LEN_MAX / 40;
        for number in 0..last {
            journal.begins(&call(number), makes());
            journal.ended(&call(number), &Ok(()));
        }
        drop(journal);
        let len = |name| std::fs::metadata(dir.path().join(name)).map_or(0, |found| found.len());
        assert!(len(OLDER) > LEN_MAX && len(OLDER) + len(NEWER) < 2 * LEN_MAX + 1000);
        let journal = Journal::open(dir.path(), 7, |_, _| None).expect("a log");
        assert_eq!(journal.earlier(&call(last - 1)), Some(End::Done));
        assert_eq!((journal.earlier(&call(0)), len(OLDER)), (None, 0));
        assert!(len(NEWER) <= LEN_MAX + 100);
    }

    #[test]
    fn the_log_goes_on_after_a_file_could_not_be_begun() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = || Journal::open(dir.path(), 7, |_, _| None).expect("it opens");
        let journal = open();
        let begin = |number| journal.begins(&call(number), makes());
        let len = || std::fs::metadata(dir.path().join(NEWER)).map_or(0, |newer| newer.len());
        let mut number = 0;
        while len() <= LEN_MAX {
            begin(number);
            number += 1;
        }
        // As after a failure between the two renames. Then no file can be made: a directory has its name.
        std::fs::rename(dir.path().join(NEWER), dir.path().join(OLDER)).expect("it is there");
        std::fs::create_dir(dir.path().join(super::ASIDE)).expect("a directory");
        begin(number);
        std::fs::remove_dir(dir.path().join(super::ASIDE)).expect("it is empty");
        journal.ended(&call(number + 1), &Ok(()));
        assert!((1..200).contains(&len()), "a new file was begun");
        drop(journal);
        assert_eq!(open().earlier(&call(number + 1)), Some(End::Done));
    }
}
