//! The log of a node: an append-only file, compacted from time to time by writing a new one.
//!
//! ```text
//! header   magic, role, node, checksum                        32 bytes
//! frame    len u32, checksum u32, synced u64, record          the next begins where this ends
//! ...
//! zeros    room that the disk has given already
//! ```
//!
//! * A frame counts after `sync` has returned. The next start overwrites anything that a crash left
//!   after the last whole frame, and writes the frames again, in case that an earlier sync had failed.
//! * `synced` says how much of the file was certainly on disk when the frame was written; in a log
//!   that was written as a whole, the length of all of it, as it is synced before it gets its name. This
//!   tells a damaged frame that had been synced from one torn by a crash: the first is an error,
//!   because a promise would be forgotten.
//! * Disk space is reserved before it is needed, with two more frames for each open promise. A full
//!   disk refuses new work, but promised work can still be finished. (File systems that copy on
//!   overwrite can break this; then the node stops, and continues after a restart with free space. There
//!   a start needs as much free space as the log has, as it writes the frames again; without it, it is an
//!   error of the disk, and the log stays as it was.)

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::bytes::crc32c;
use super::files::{Files, LogFile};
use super::record::Record;
use super::{NodeId, Settings, TransactionId};

/// The storage of records.
#[doc(hidden)]
pub trait Storage: Send + 'static {
    /// Appends a record.
    fn append(&mut self, record: &Record) -> Result<(), WriteError>;
    /// Makes all appended records durable before it returns.
    fn sync(&mut self) -> io::Result<()>;
    /// Whether most of it is obsolete.
    fn is_long(&self) -> bool;
    /// Replaces all records. If this is [`WriteError::Full`], the old ones stay.
    fn replace(&mut self, records: &[Record]) -> Result<(), WriteError>;
}

/// Why records were not written.
#[derive(Debug)]
#[doc(hidden)]
pub enum WriteError {
    /// They are certainly not in the log, which is unchanged.
    Full(io::Error),
    /// The content of the log is unknown until it is read again.
    Broken(io::Error),
}

impl WriteError {
    pub(super) fn into_inner(self) -> io::Error {
        match self {
            WriteError::Full(error) | WriteError::Broken(error) => error,
        }
    }
}

/// The owner of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Coordinator,
    Participant,
}

/// A [`Storage`] in a file.
pub(super) struct Log {
    files: Files,
    file: LogFile,
    path: PathBuf,
    header: [u8; HEADER_LEN],
    end: u64,
    /// The length of the file.
    room: u64,
    synced: u64,
    len_max: u64,
    short_len: u64,
    /// `end` at the last compaction.
    kept: u64,
    promised: BTreeSet<TransactionId>,
    _lock: Option<File>,
}

impl Log {
    /// Opens or creates the log of a node, and reads it. No other process can open it meanwhile.
    ///
    /// # Errors
    /// If another process has it open, it belongs to another node, or it is damaged; and those of
    /// the disk.
    pub(super) fn open(path: &Path, owner: Owner, node: NodeId, settings: &Settings) -> io::Result<(Log, Vec<Record>)> {
        let files = Files::here();
        let lock = lock(&files, path)?;
        let header = header(owner, node);
        if !files.exists(path)? {
            drop(write_new(&files, path, &header, &[])?);
            files.rename(&with_suffix(path, NEW), path).map_err(|error| about(path, error))?;
            files.sync_name(path).map_err(|error| about(path, error))?;
        }
        let file = files.open(path)?;
        let bytes = files.read(path).map_err(|error| about(path, error))?;
        if bytes.len() < HEADER_LEN || bytes[..HEADER_LEN] != header {
            return Err(other_owner(path, &bytes, owner, node));
        }
        let (records, end) = read(&bytes).map_err(|at| {
            let text = format!(
                "{}: the record at byte {at} is damaged although it was on disk: restore the log from a copy, or the promises \
                 of this node are forgotten",
                path.display()
            );
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        let (path, promised) = (path.to_owned(), promises(&records));
        let (len_max, short_len) = (settings.log_len_max, settings.log_short_len);
        let (room, synced, kept) = (bytes.len() as u64, 0, end);
        let mut log =
            Log { files, file, path, header, end, room, synced, len_max, short_len, kept, promised, _lock: lock };
        log.rewrite(bytes)?;
        log.files.sync_name(&log.path).map_err(|error| about(&log.path, error))?;
        Ok((log, records))
    }

    /// Writes and syncs everything again, with zeros in place of what a crash left after the end, so that no later frame is followed by half an old
    /// one. After a sync that failed, the kernel's memory may have frames that no later sync would write.
    fn rewrite(&mut self, mut bytes: Vec<u8>) -> io::Result<()> {
        bytes[self.end as usize..].fill(0);
        let write = || self.file.write_all_at(&bytes, 0).and_then(|()| self.file.sync_all());
        write().map_err(|error| about(&self.path, error))?;
        self.synced = self.end;
        Ok(())
    }

    /// Reserves disk space, so that `end` is within the file.
    fn reserve(&mut self, end: u64) -> Result<(), WriteError> {
        if end <= self.room {
            return Ok(());
        }
        if end > self.len_max {
            let text = format!("{}: the log has reached its limit of {} bytes", self.path.display(), self.len_max);
            return Err(WriteError::Full(io::Error::new(io::ErrorKind::StorageFull, text)));
        }
        let room = end.next_multiple_of(ROOM_STEP).min(self.len_max.max(self.room));
        let zeros = vec![0; (room - self.room) as usize];
        let broken = |error| WriteError::Broken(about(&self.path, error));
        if let Err(error) = self.file.write_all_at(&zeros, self.room) {
            self.file.set_len(self.room).map_err(broken)?;
            return Err(WriteError::Full(about(&self.path, error)));
        }
        // If this fails, it may have lost frames that were appended earlier.
        self.file.sync_all().map_err(broken)?;
        self.room = room;
        Ok(())
    }
}

impl Storage for Log {
    fn append(&mut self, record: &Record) -> Result<(), WriteError> {
        let frame = frame(record, self.synced);
        let end = self.end + frame.len() as u64;
        let (promise, settles) = match record {
            Record::Prepared { id, .. } => (Some(*id), None),
            Record::Applied { id } | Record::Aborted { id } => (None, Some(*id)),
            _ => (None, None),
        };
        // Only records with reserved room may use that room.
        let open = self.promised.len() as u64 + u64::from(promise.is_some());
        let uses_room = matches!(record, Record::Committed { .. } | Record::Applied { .. } | Record::Aborted { .. })
            && self.promised.contains(&record_id(record));
        self.reserve(if uses_room { end } else { end + open * ROOM_OF_PROMISE })?;
        self.file.write_all_at(&frame, self.end).map_err(|error| WriteError::Broken(about(&self.path, error)))?;
        self.end = end;
        self.promised.extend(promise);
        if let Some(id) = settles {
            self.promised.remove(&id);
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data().map_err(|error| about(&self.path, error))?;
        self.synced = self.end;
        Ok(())
    }

    fn is_long(&self) -> bool {
        self.end > (self.kept * 4).max(self.short_len)
    }

    fn replace(&mut self, records: &[Record]) -> Result<(), WriteError> {
        self.kept = self.end;
        let (file, end) = write_new(&self.files, &self.path, &self.header, records).map_err(WriteError::Full)?;
        let broken = |error| WriteError::Broken(about(&self.path, error));
        self.files.rename(&with_suffix(&self.path, NEW), &self.path).map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => WriteError::Full(about(&self.path, error)),
            // The path may lead to either file.
            _ => broken(error),
        })?;
        (self.file, self.end, self.synced, self.kept, self.room) = (file, end, end, end, end);
        self.promised = promises(records);
        // If this fails, a crash may bring the old file back, without what would be appended here.
        self.files.sync_name(&self.path).map_err(broken)?;
        // Open promises need their room in the new file, too: reserve it now, before new work takes
        // it.
        match self.reserve(end + self.promised.len() as u64 * ROOM_OF_PROMISE) {
            Err(WriteError::Broken(error)) => Err(WriteError::Broken(error)),
            Ok(()) | Err(WriteError::Full(_)) => Ok(()),
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("path", &self.path).field("end", &self.end).finish_non_exhaustive()
    }
}

/// Writes a complete log to a new file beside the old one, which waits to be renamed.
fn write_new(files: &Files, path: &Path, header: &[u8; HEADER_LEN], records: &[Record]) -> io::Result<(LogFile, u64)> {
    let new = with_suffix(path, NEW);
    let len: usize = records.iter().map(|record| frame(record, 0).len()).sum();
    let mut bytes = header.to_vec();
    records.iter().for_each(|record| bytes.extend(frame(record, (HEADER_LEN + len) as u64)));
    let write = || {
        let file = files.create(&new)?;
        file.write_all_at(&bytes, 0)?;
        file.sync_all()?;
        Ok(file)
    };
    match write() {
        Ok(file) => Ok((file, bytes.len() as u64)),
        Err(error) => {
            let _may_not_exist = files.remove(&new);
            Err(about(path, error))
        }
    }
}

fn lock(files: &Files, path: &Path) -> io::Result<Option<File>> {
    files.lock(&with_suffix(path, ".lock")).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let why = "another process or node has this log open; each needs one of its own";
            io::Error::new(io::ErrorKind::WouldBlock, format!("{}: {why}", path.display()))
        }
        _ => about(path, error),
    })
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn about(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn header(owner: Owner, node: NodeId) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(MAGIC);
    header[8] = owner as u8;
    header[16..24].copy_from_slice(&node.0.to_le_bytes());
    let checksum = crc32c(&[&header[..24]]);
    header[24..28].copy_from_slice(&checksum.to_le_bytes());
    header
}

fn other_owner(path: &Path, bytes: &[u8], owner: Owner, node: NodeId) -> io::Error {
    let found = bytes.first_chunk::<HEADER_LEN>();
    let is = found.and_then(|found| {
        let node = NodeId(u64::from_le_bytes(*found[16..].first_chunk()?));
        [Owner::Coordinator, Owner::Participant]
            .into_iter()
            .find(|owner| header(*owner, node) == *found)
            .map(|owner| (owner, node))
    });
    let text = match is {
        Some((other, other_node)) => {
            format!("{}: this is the log of {other:?} {}, not of {owner:?} {}", path.display(), other_node.0, node.0)
        }
        None => format!("{}: this is not a log of two-phase commit", path.display()),
    };
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn frame(record: &Record, synced: u64) -> Vec<u8> {
    let body = record.to_bytes();
    let mut frame = Vec::with_capacity(FRAME_HEAD_LEN + body.len());
    frame.extend_from_slice(&u32::try_from(body.len()).expect("payloads are shorter than 4 GiB").to_le_bytes());
    frame.extend_from_slice(&crc32c(&[&synced.to_le_bytes(), &body]).to_le_bytes());
    frame.extend_from_slice(&synced.to_le_bytes());
    frame.extend_from_slice(&body);
    frame
}

/// The first frame: its record, its `synced` value, and its length.
fn parse(bytes: &[u8]) -> Option<(Record, u64, usize)> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (checksum, rest) = rest.split_first_chunk()?;
    let (synced, rest) = rest.split_first_chunk()?;
    let body = rest.get(..u32::from_le_bytes(*len) as usize).filter(|body| !body.is_empty())?;
    if crc32c(&[synced, body]) != u32::from_le_bytes(*checksum) {
        return None;
    }
    Some((Record::from_bytes(body)?, u64::from_le_bytes(*synced), FRAME_HEAD_LEN + body.len()))
}

/// The whole frames and their end, or the position of a damaged frame that had been synced.
fn read(bytes: &[u8]) -> Result<(Vec<Record>, u64), usize> {
    let (mut records, mut at, mut synced_max) = (Vec::new(), HEADER_LEN, 0);
    while let Some((record, synced, len)) = parse(&bytes[at..]) {
        records.push(record);
        at += len;
        synced_max = synced_max.max(synced);
    }
    if synced_max > at as u64 {
        return Err(at);
    }
    // After a torn frame there may be whole frames of the same sync; a frame of a later sync means
    // damage.
    let mut rest = at + 1;
    while rest < bytes.len() {
        let tail = &bytes[rest..];
        let is_blank = tail.first_chunk() == Some(&[0; 4]);
        if !is_blank && parse(tail).is_some_and(|(_, synced, _)| synced > at as u64) {
            return Err(at);
        }
        rest += 1;
    }
    Ok((records, at as u64))
}

fn record_id(record: &Record) -> TransactionId {
    match record {
        Record::Prepared { id, .. }
        | Record::Committed { id }
        | Record::Aborted { id }
        | Record::Applied { id }
        | Record::Decided { id, .. }
        | Record::Ended { id } => *id,
        Record::Floor { coordinator, oldest } => TransactionId { coordinator: *coordinator, position: *oldest },
        Record::Epoch { .. } => TransactionId { coordinator: NodeId(0), position: super::Position::default() },
    }
}

/// Promises that are neither applied nor aborted.
fn promises(records: &[Record]) -> BTreeSet<TransactionId> {
    let mut open = BTreeSet::new();
    for record in records {
        match record {
            Record::Prepared { id, .. } => drop(open.insert(*id)),
            Record::Applied { id } | Record::Aborted { id } => drop(open.remove(id)),
            _ => {}
        }
    }
    open
}

const MAGIC: &[u8; 8] = b"dapple2\n";
const HEADER_LEN: usize = 32;
const FRAME_HEAD_LEN: usize = 16;
/// A frame of `Committed` and one of `Applied`: each a head, a byte for the kind, and an id of 24
/// bytes.
const ROOM_OF_PROMISE: u64 = 2 * (FRAME_HEAD_LEN as u64 + 1 + 24);
/// The step in which disk space is reserved.
const ROOM_STEP: u64 = 64 * 1024;
/// The end of a new log's name, until it takes the name of the old one.
const NEW: &str = ".new";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Position;
    use proptest::prelude::*;

    fn id(number: u64) -> TransactionId {
        TransactionId { coordinator: NodeId(1), position: Position { epoch: 1, number } }
    }

    fn prepared(number: u64, len: usize) -> Record {
        Record::Prepared { id: id(number), participants: [NodeId(7)].into(), payload: vec![7; len].into() }
    }

    fn open(path: &Path, len_max: u64) -> io::Result<(Log, Vec<Record>)> {
        let settings = Settings { log_len_max: len_max, ..Settings::default() };
        Log::open(path, Owner::Participant, NodeId(7), &settings)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        // The part that was synced is always read, whatever a crash leaves after it, and perhaps
        // whole records after that part.
        #[test]
        fn a_torn_tail_is_cut_off(lens in prop::collection::vec(0_usize..200, 1..12), synced in 0_usize..12, cut in 0_usize..3000, junk in any::<[u8; 8]>()) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            let (mut log, _) = open(&path, 1 << 20).unwrap();
            let mut safe = 0;
            for (number, len) in lens.iter().enumerate() {
                log.append(&prepared(number as u64, *len)).unwrap();
                if number < synced {
                    log.sync().unwrap();
                    safe = number + 1;
                }
            }
            let (synced_len, end) = (log.synced as usize, log.end as usize);
            drop(log);
            let mut bytes = fs::read(&path).unwrap();
            let cut = synced_len + cut % (end - synced_len + 1);
            bytes.truncate(cut);
            bytes.extend(junk);
            fs::write(&path, &bytes).unwrap();
            let (mut log, records) = open(&path, 1 << 20).unwrap();
            prop_assert!(records.len() >= safe);
            for (number, record) in records.iter().enumerate() {
                prop_assert_eq!(record, &prepared(number as u64, lens[number]));
            }
            let mut expected = records;
            expected.push(prepared(99, 3));
            log.append(&expected[expected.len() - 1]).unwrap();
            log.sync().unwrap();
            drop(log);
            prop_assert_eq!(open(&path, 1 << 20).unwrap().1, expected);
        }
    }

    #[test]
    fn damage_in_what_was_synced_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (mut log, _) = open(&path, 1 << 20).unwrap();
        for number in 0..3 {
            log.append(&prepared(number, 50)).unwrap();
            log.sync().unwrap();
        }
        drop(log);
        let mut bytes = fs::read(&path).unwrap();
        bytes[HEADER_LEN + 40] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let error = open(&path, 1 << 20).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }

    #[test]
    fn a_full_log_refuses_promises_and_keeps_those_it_has_given() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (mut log, _) = open(&path, 4096).unwrap();
        let mut given = 0;
        let error = loop {
            match log.append(&prepared(given, 100)) {
                Ok(()) => given += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(&error, WriteError::Full(error) if error.kind() == io::ErrorKind::StorageFull), "{error:?}");
        assert!(given > 10);
        for number in 0..given {
            log.append(&Record::Committed { id: id(number) }).unwrap();
            log.append(&Record::Applied { id: id(number) }).unwrap();
        }
        log.sync().unwrap();
        drop(log);
        assert_eq!(open(&path, 4096).unwrap().1.len() as u64, 3 * given);
    }

    #[test]
    fn one_log_has_one_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (log, _) = open(&path, 1 << 20).unwrap();
        assert_eq!(open(&path, 1 << 20).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(log);
        let error = Log::open(&path, Owner::Coordinator, NodeId(3), &Settings::default()).unwrap_err().to_string();
        assert!(error.contains("this is the log of Participant 7, not of Coordinator 3"), "{error}");
        fs::write(&path, "text").unwrap();
        assert!(open(&path, 1 << 20).unwrap_err().to_string().contains("not a log"));
    }

    #[test]
    fn a_log_that_was_replaced_holds_what_is_new() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (mut log, _) = open(&path, 1 << 20).unwrap();
        (0..9).for_each(|number| log.append(&prepared(number, 50)).unwrap());
        log.replace(&[prepared(8, 50)]).unwrap();
        log.append(&Record::Committed { id: id(8) }).unwrap();
        log.sync().unwrap();
        drop(log);
        assert_eq!(open(&path, 1 << 20).unwrap().1, [prepared(8, 50), Record::Committed { id: id(8) }]);
    }

    #[test]
    fn damage_anywhere_in_a_log_that_was_replaced_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (mut log, _) = open(&path, 1 << 20).unwrap();
        let records = [0, 1, 2].map(|number| prepared(number, 50));
        log.replace(&records).unwrap();
        let end = log.end as usize;
        drop(log);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(read(&bytes), Ok((records.to_vec(), end as u64)));
        for at in HEADER_LEN..end {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert!(read(&bytes).is_err(), "damage at {at}");
        }
        let second = HEADER_LEN + frame(&records[0], 0).len();
        assert!(read(&bytes[..second]).is_err(), "the end is missing");
    }
}
