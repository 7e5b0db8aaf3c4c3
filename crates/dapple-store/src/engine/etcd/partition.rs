//! A partition in etcd.

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use dapple_etcd::{Compare, Delete, Error, Found, Get, Keys, Put, Reason, Record, Txn};

use super::changes::{Writes, data_key};
use super::failure;
use super::owner::Owner;
use crate::engine::{Change, Entry, Failure, KeyRange, Partition, TableId};

/// A partition of [`Etcd`](super::Etcd).
#[derive(Debug)]
pub struct EtcdPartition {
    owner: Arc<Owner>,
    place: String,
    /// `NAME/data/PLACE/`.
    data: String,
    mark: Mutex<Mark>,
    /// The greatest number that a commit was to have: those of failed ones are not used again.
    tried: AtomicU64,
    /// Written while a commit is applied in several steps, so that no caller reads half of it.
    applying: RwLock<()>,
}

/// The value of a partition's key. All that is written into a partition has its revision as a condition: so a request that
/// comes late, after its repetition was answered, changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// The number of the last commit.
    commits: u64,
    /// That commit has this many parts below `redo/`, which are perhaps not applied yet.
    parts: usize,
    /// The owner that made it: so another owner's commit of the same number is another mark.
    owner: i64,
    /// Not in the value: the revision of its last change, 0 before it is there.
    revision: i64,
}

/// The values of keys, and the revision at which they were read.
#[derive(Default)]
struct Values {
    revision: Option<i64>,
    values: Vec<Option<Vec<u8>>>,
}

/// Keys of one read: within etcd's limit for the operations of a transaction.
const KEYS_MAX: usize = 100;
/// The first page of an enumeration, and the bytes that later ones are to have.
const PAGE_LEN: usize = 64;
const PAGE_BYTES: usize = 1 << 20;
const PART_BYTES: usize = 1 << 20;

impl EtcdPartition {
    /// Opens a partition, makes it if it is not there, and finishes its last commit.
    pub(super) fn open(owner: Arc<Owner>, place: &str) -> Result<EtcdPartition, Failure> {
        let found = read_mark(&owner, place)?;
        let mark = found.unwrap_or_else(|| Mark { owner: owner.revision, ..Mark::default() });
        let data = format!("{}/data/{place}/", owner.name);
        let partition = EtcdPartition {
            owner,
            place: place.to_owned(),
            data,
            mark: Mutex::new(mark),
            tried: AtomicU64::new(mark.commits),
            applying: RwLock::new(()),
        };
        match mark.parts {
            0 if found.is_none() => partition.commit_once(Txn::new(), mark, mark)?,
            // There may be parts of a commit that was not to be.
            0 => partition.commit_once(partition.forget_parts(), mark, partition.next_mark(0))?,
            _ => partition.apply(&partition.parts(mark)?)?,
        }
        Ok(partition)
    }

    /// Removes all of a partition.
    pub(super) fn remove(owner: &Owner, place: &str) -> Result<(), Failure> {
        let Some(mark) = read_mark(owner, place)? else { return Ok(()) };
        let key = mark_key(owner, place);
        let below = |kind: &str| Delete::new(Keys::prefix(format!("{}/{kind}/{place}/", owner.name)));
        let txn = Txn::new()
            .when(Compare::mod_revision(key.clone()).equals(mark.revision))
            .then(below("data"))
            .then(below("redo"))
            .then(Delete::new(key.clone()))
            .otherwise(Get::new(key));
        // Only this process removes it.
        owner.change_once(txn, |found| found.is_none().then_some(0)).map(drop)
    }

    fn mark(&self) -> MutexGuard<'_, Mark> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_mark(&self, parts: usize) -> Mark {
        let commits = self.tried.fetch_add(1, SeqCst) + 1;
        Mark { commits, parts, owner: self.owner.revision, revision: 0 }
    }

    /// Keeps a commit in several steps from being applied meanwhile, or refuses if one is half applied.
    fn reading(&self) -> Result<RwLockReadGuard<'_, ()>, Failure> {
        let guard = self.applying.read().unwrap_or_else(PoisonError::into_inner);
        match self.mark().parts {
            0 => Ok(guard),
            _ => Err(Failure::Io { file: self.name(), detail: "its last commit is not applied yet".to_owned() }),
        }
    }

    fn part_key(&self, commit: u64, number: usize) -> String {
        format!("{}/redo/{}/{commit:020}/{number:08}", self.owner.name, self.place)
    }

    /// Applies a transaction and sets the mark, once.
    fn commit_once(&self, txn: Txn, before: Mark, after: Mark) -> Result<(), Failure> {
        let key = mark_key(&self.owner, &self.place);
        let value = after.to_string();
        let txn = txn
            .when(Compare::mod_revision(key.clone()).equals(before.revision))
            .then(Put::new(key.clone(), value.clone()))
            .otherwise(Get::new(key));
        // The mark of this commit is proof: only this process writes it.
        let proof = |found: Option<&Record>| found.filter(|mark| mark.value == value).map(|mark| mark.mod_revision);
        let revision = match self.owner.change_once(txn, proof) {
            // etcd applies a write that crosses its quota, and says that it has no room.
            Err(full @ Failure::Full { .. }) => match read_mark(&self.owner, &self.place)? {
                Some(mark) if mark.to_string() == value && mark.revision > before.revision => mark.revision,
                _ => return Err(full),
            },
            committed => committed?,
        };
        *self.mark() = Mark { revision, ..after };
        Ok(())
    }

    /// One of the steps between two marks. It may be applied twice.
    fn step(&self, txn: Txn) -> Result<(), Failure> {
        let mark = mark_key(&self.owner, &self.place);
        self.owner.change(txn.when(Compare::mod_revision(mark).equals(self.mark().revision)))
    }

    /// Writes the parts of a commit that is too large for one transaction; when the mark says so, they are the commit.
    fn commit_in_parts(&self, writes: &Writes) -> Result<(), Failure> {
        let bytes = postcard::to_allocvec(writes).map_err(|error| self.corrupt(&error.to_string()))?;
        let parts: Vec<_> = bytes.chunks(PART_BYTES).collect();
        let after = self.next_mark(parts.len());
        for (number, part) in parts.iter().enumerate() {
            self.step(Txn::new().then(Put::new(self.part_key(after.commits, number), part.to_vec())))?;
        }
        let _readers_wait = self.applying.write().unwrap_or_else(PoisonError::into_inner);
        let before = *self.mark();
        self.commit_once(Txn::new(), before, after)?;
        self.apply(writes)
    }

    /// Applies what the mark says is committed.
    fn apply(&self, writes: &Writes) -> Result<(), Failure> {
        writes.txns(&self.data).into_iter().try_for_each(|txn| self.step(txn))?;
        let before = *self.mark();
        self.commit_once(self.forget_parts(), before, self.next_mark(0))
    }

    fn parts(&self, mark: Mark) -> Result<Writes, Failure> {
        let mut bytes = Vec::new();
        for number in 0..mark.parts {
            let key = self.part_key(mark.commits, number);
            let found = self.owner.read(async move |client| client.get(key.clone()).await)?;
            let part = found.map_err(|error| self.failure(&error))?;
            bytes.extend_from_slice(&part.ok_or_else(|| self.corrupt("a part of its last commit is missing"))?.value);
        }
        postcard::from_bytes(&bytes).map_err(|error| self.corrupt(&error.to_string()))
    }

    fn forget_parts(&self) -> Txn {
        Txn::new().then(Delete::new(Keys::prefix(format!("{}/redo/{}/", self.owner.name, self.place))))
    }

    fn find(&self, get: &Get) -> Result<Result<Found, Error>, Failure> {
        let get = get.clone();
        self.owner.read(async move |client| client.find(get.clone()).await)
    }

    fn failure(&self, error: &Error) -> Failure {
        failure(&format!("{} {}", self.owner.name, self.place), error)
    }

    /// The values of at most [`KEYS_MAX`] keys, all at one revision. Where they are too large for one reply, it asks twice.
    /// `false` if etcd forgot that revision meanwhile.
    fn read_keys(&self, table: TableId, keys: &[Bytes], read: &mut Values) -> Result<bool, Failure> {
        let get = |key: &Bytes| {
            let get = Get::new(Keys::one(data_key(&self.data, table, key)));
            read.revision.map_or(get.clone(), |revision| get.at(revision))
        };
        let txn = keys.iter().map(get).fold(Txn::new(), Txn::then);
        match self.owner.read(async move |client| client.txn(&txn).await)? {
            Ok(reply) => {
                read.revision.get_or_insert(reply.revision);
                let found = reply.replies.into_iter().map(|reply| reply.into_found()?.records.pop());
                read.values.extend(found.map(|record| record.map(|record| record.value.to_vec())));
                Ok(true)
            }
            Err(error) if matches!(error.reason(), Some(Reason::Compacted { .. })) => Ok(false),
            Err(error) if error.reason() == Some(Reason::TooLarge) && keys.len() > 1 => {
                let (first, rest) = keys.split_at(keys.len() / 2);
                Ok(self.read_keys(table, first, read)? && self.read_keys(table, rest, read)?)
            }
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// The entries of a range as they were at one moment; `None` if etcd forgot that moment meanwhile.
    fn scan_once(&self, from: Vec<u8>, to: &[u8], limit: usize) -> Result<Option<Vec<Entry>>, Failure> {
        let prefix_len = self.data.len() + size_of::<TableId>();
        let (mut from, mut page, mut revision) = (from, PAGE_LEN, None);
        let mut entries: Vec<Entry> = Vec::new();
        while entries.len() < limit && *from < *to {
            let get = Get::new(Keys::range(from.clone(), to.to_vec())).limit(page.min(limit - entries.len()));
            let get = revision.map_or(get.clone(), |revision| get.at(revision));
            let found = match self.find(&get)? {
                Ok(found) => found,
                Err(error) if error.reason() == Some(Reason::TooLarge) && page > 1 => {
                    page /= 2;
                    continue;
                }
                Err(error) if matches!(error.reason(), Some(Reason::Compacted { .. })) => return Ok(None),
                Err(error) => return Err(self.failure(&error)),
            };
            revision.get_or_insert(found.revision);
            let bytes: usize = found.records.iter().map(|record| record.value.len()).sum();
            page = (PAGE_BYTES * found.records.len() / bytes.max(1)).clamp(1, 16 * PAGE_LEN);
            if let Some(last) = found.records.last() {
                from = [&last.key[..], &[0]].concat();
            }
            entries.extend(found.records.into_iter().map(|r| (r.key[prefix_len..].to_vec(), r.value.to_vec())));
            if !found.has_more {
                break;
            }
        }
        Ok(Some(entries))
    }
}

impl Partition for EtcdPartition {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.get_many(table, &[Bytes::copy_from_slice(key)])?.pop().flatten())
    }

    fn get_many(&self, table: TableId, keys: &[Bytes]) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        let _whole_commits = self.reading()?;
        loop {
            let (mut read, mut is_whole) = (Values::default(), true);
            for keys in keys.chunks(KEYS_MAX) {
                is_whole = is_whole && self.read_keys(table, keys, &mut read)?;
            }
            if is_whole {
                return Ok(read.values);
            }
        }
    }

    fn scan(&self, table: TableId, range: KeyRange<'_>, limit: usize) -> Result<Vec<Entry>, Failure> {
        let _whole_commits = self.reading()?;
        let key = |key: &[u8]| data_key(&self.data, table, key);
        let after = |key: Vec<u8>| [&key[..], &[0]].concat();
        let from = match range.0 {
            Bound::Included(from) => key(from),
            Bound::Excluded(from) => after(key(from)),
            Bound::Unbounded => key(b""),
        };
        let to = match range.1 {
            Bound::Included(to) => after(key(to)),
            Bound::Excluded(to) => key(to),
            Bound::Unbounded => self.end_of(table),
        };
        loop {
            if let Some(entries) = self.scan_once(from.clone(), &to, limit)? {
                return Ok(entries);
            }
        }
    }

    fn len(&self, table: TableId) -> Result<u64, Failure> {
        let _whole_commits = self.reading()?;
        let get = Get::new(Keys::prefix(data_key(&self.data, table, b""))).count_only();
        let found = self.find(&get)?.map_err(|error| self.failure(&error))?;
        Ok(u64::try_from(found.count).unwrap_or_default())
    }

    fn tables(&self) -> Result<Vec<TableId>, Failure> {
        let _whole_commits = self.reading()?;
        let end = self.end_of(TableId(u64::MAX));
        let mut from = data_key(&self.data, TableId(0), b"");
        let mut tables = Vec::new();
        while from < end {
            let get = Get::new(Keys::range(from.clone(), end.clone())).keys_only().limit(1);
            let found = self.find(&get)?.map_err(|error| self.failure(&error))?;
            let first = found.records.first().and_then(|record| record.key[self.data.len()..].first_chunk());
            let Some(table) = first.map(|bytes| TableId(u64::from_be_bytes(*bytes))) else { break };
            tables.push(table);
            from = self.end_of(table);
        }
        Ok(tables)
    }

    fn commit(&self, changes: &[Change]) -> Result<(), Failure> {
        let writes = Writes::of(changes);
        let mut txns = writes.txns(&self.data);
        let (Some(txn), true) = (txns.pop(), txns.is_empty()) else { return self.commit_in_parts(&writes) };
        let before = *self.mark();
        self.commit_once(txn, before, self.next_mark(0))
    }

    fn recover(&self) -> Result<(), Failure> {
        let mark = *self.mark();
        if mark.parts > 0 {
            let _readers_wait = self.applying.write().unwrap_or_else(PoisonError::into_inner);
            return self.apply(&self.parts(mark)?);
        }
        // Later parts have another number, so this may be late, too.
        let tried = format!("{}/redo/{}/{:020}/", self.owner.name, self.place, self.tried.load(SeqCst));
        self.step(Txn::new().then(Delete::new(Keys::prefix(tried))))
    }

    fn check_owned(&self) -> Result<(), Failure> {
        self.owner.check()
    }

    fn may_be_lost(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        format!("etcd {} {}", self.owner.name, self.place)
    }

    /// etcd checks its own files; the store checks each record.
    fn verify(&self) -> Result<(), Failure> {
        self.get(TableId(0), b"").map(drop)
    }
}

impl EtcdPartition {
    /// The end of a table's keys.
    fn end_of(&self, table: TableId) -> Vec<u8> {
        match table.0.checked_add(1) {
            Some(next) => data_key(&self.data, TableId(next), b""),
            // The data end with a slash; `0` follows it.
            None => [&self.data.as_bytes()[..self.data.len() - 1], b"0"].concat(),
        }
    }
}

fn mark_key(owner: &Owner, place: &str) -> String {
    format!("{}/place/{place}", owner.name)
}

fn read_mark(owner: &Owner, place: &str) -> Result<Option<Mark>, Failure> {
    let key = mark_key(owner, place);
    let wanted = key.clone();
    let found = owner.read(async move |client| client.get(wanted.clone()).await)?;
    let read = |record: Record| {
        Mark::read(&record).ok_or_else(|| Failure::Corrupt {
            file: format!("etcd {key}"),
            detail: "it is no number of commits".to_owned(),
        })
    };
    found.map_err(|error| failure(&owner.name, &error))?.map(read).transpose()
}

impl Mark {
    fn read(record: &Record) -> Option<Mark> {
        let mut words = std::str::from_utf8(&record.value).ok()?.split(' ');
        let mark = Mark {
            commits: words.next()?.parse().ok()?,
            parts: words.next()?.parse().ok()?,
            owner: words.next()?.parse().ok()?,
            revision: record.mod_revision,
        };
        words.next().is_none().then_some(mark)
    }
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.commits, self.parts, self.owner)
    }
}
