//! One commit in several partitions.
//!
//! ```text
//!   each partition, in the order of their indices:   enqueue a join ──▶ its combiner comes to it ──▶ granted
//!   all granted:   evaluate; a refusal releases all, nothing is changed
//!                  commit in the first one: its changes, and a record of those of the others    ◀── the commit point
//!                  commit in the others: their changes
//!                  release all
//! ```
//!
//! A partition that serves no other reads or writes until it is released, so no reader sees half of
//! a transaction. If a process ends after the commit point, the record stays; opening the store
//! applies those parts of it that a partition lacks. The versions show this: the record has the
//! version that each part gives to its partition, and nothing else gets that version.

use std::ops::Bound::{Excluded, Included};
use std::sync::MutexGuard;

use dapple_io::blocking::spawn_blocking;
use dapple_io::time::{Instant, timeout_at};
use dapple_sched::Color;
use dapple_sync::sync::oneshot;
use serde::{Deserialize, Serialize};

use super::batch::{self, Batch, Changed, Progress, Records, Reply, Uncommitted, Write};
use super::state::Joined;
use super::{Inner, OWN, PartitionHandle, lost};
use crate::codec;
use crate::engine::{Change, Failure, Partition, TableId};
use crate::error::{Error, OperationId, Refusal};
use crate::record::{NEVER, Record};

/// Applies all writes or none. Each is for the partition with that index in `partitions`, which is
/// sorted.
pub(crate) async fn commit_all<P: Partition>(
    partitions: Vec<PartitionHandle<P>>,
    writes: Vec<(usize, Write)>,
    deadline: Instant,
) -> Result<Vec<Reply>, Error> {
    let mut grants = Vec::with_capacity(partitions.len());
    for (place, partition) in partitions.iter().enumerate() {
        let keys = writes.iter().filter(|(of, _)| *of == place);
        let keys: Vec<_> = keys.map(|(_, write)| (write.table.id, write.key.clone())).collect();
        // Dropped grants release their partitions.
        grants.push(partition.join(keys, deadline).await?);
    }
    let Some(id) = grants.first().map(|grant| OperationId { partition: partitions[0].index(), number: grant.number })
    else {
        return Ok(Vec::new());
    };
    let (answer, reply) = oneshot::channel();
    // A separate task: from here on the transaction has to be finished, even if the caller goes
    // away.
    drop(Color::new().spawn(async move {
        let known: Vec<Records> = grants.iter_mut().map(|grant| std::mem::take(&mut grant.known)).collect();
        let of_call = partitions.clone();
        let call = spawn_blocking(move || run(&of_call, &writes, known, id)).await;
        let (ends, result) = call.unwrap_or_else(|error| {
            let failure = partitions[0].failure_of(error);
            let ends = partitions.iter().map(|_| Joined::Stopped(failure.clone())).collect();
            (ends, Err(Error::Unknown { id, reason: failure.to_string() }))
        });
        for (grant, joined) in grants.into_iter().zip(ends) {
            // Only a runtime that shuts down has dropped the combiner.
            let _ = grant.done.send(joined);
        }
        let _ = answer.send(result);
    }));
    match timeout_at(deadline, reply).await {
        Ok(reply) => reply.unwrap_or_else(|_| Err(lost(id))),
        Err(_) => Err(Error::Unknown { id, reason: "its deadline passed during the commit".to_owned() }),
    }
}

/// How each partition ends the transaction, and the result that its caller gets.
type Ended = (Vec<Joined>, Result<Vec<Reply>, Error>);

/// Evaluates and commits. Blocks.
fn run<P: Partition>(
    partitions: &[PartitionHandle<P>],
    writes: &[(usize, Write)],
    known: Vec<Records>,
    id: OperationId,
) -> Ended {
    let inners: Vec<&Inner<P>> = partitions.iter().map(|partition| &*partition.inner).collect();
    let mut progress: Vec<MutexGuard<'_, Progress>> = inners.iter().map(|inner| inner.progress()).collect();
    let starts = inners.iter().zip(&progress).zip(known);
    let mut batches: Vec<_> =
        starts.map(|((inner, progress), known)| Batch::new(&**inner.engine(), progress, known)).collect();
    let replies: Result<Vec<Reply>, Refusal> = writes.iter().map(|(at, write)| batches[*at].apply(write)).collect();
    let unchanged = || inners.iter().map(|_| Joined::Unchanged).collect();
    let replies = match replies {
        Ok(replies) => replies,
        Err(refusal) => return (unchanged(), Err(refusal.into())),
    };
    let unknown = |failure: &Failure| Err(Error::Unknown { id, reason: failure.to_string() });
    let mut changing: Vec<usize> = (0..batches.len()).filter(|at| !batches[*at].is_empty()).collect();
    let Some(first) = (!changing.is_empty()).then(|| changing.remove(0)) else { return (unchanged(), Ok(replies)) };
    let record = match commit_record(&inners, &batches, first, &changing) {
        Ok(record) => record,
        Err(refusal) => return (unchanged(), Err(refusal.into())),
    };
    match batches[first].commit(&mut progress[first], record.as_slice()) {
        Ok(()) => {}
        Err(Uncommitted::NotApplied(failure)) => return (unchanged(), Err(Refusal::Engine(failure).into())),
        Err(Uncommitted::Unknown(failure)) => {
            // If the record is in the file, the next open applies all of it, and nothing may be
            // written in between.
            return (inners.iter().map(|_| Joined::Stopped(failure.clone())).collect(), unknown(&failure));
        }
    }
    let mut result = Ok(replies);
    // Partitions that were only read have the outcome of all.
    let mut ends: Vec<Joined> = inners.iter().map(|_| Joined::Changed(Changed::default())).collect();
    ends[first] = Joined::Changed(batches[first].changed());
    for at in changing {
        ends[at] = match batches[at].commit(&mut progress[at], &[]) {
            Ok(()) => Joined::Changed(batches[at].changed()),
            Err(Uncommitted::NotApplied(failure) | Uncommitted::Unknown(failure)) => {
                result = unknown(&failure);
                Joined::Stopped(failure)
            }
        };
    }
    if result.is_ok() {
        let keys = record.into_iter().filter_map(|change| match change {
            Change::Put(_, key, _) => Some(key),
            _ => None,
        });
        progress[first].finished.extend(keys);
    }
    (ends, result)
}

/// The part of a transaction in one partition that is not the first.
#[derive(Serialize, Deserialize)]
struct Part {
    partition: u32,
    /// The version that it gives to the partition.
    version: u64,
    /// Tables, keys, and new bytes if any.
    changes: Vec<(u64, Vec<u8>, Option<Vec<u8>>)>,
}

/// The changes that write the record with the parts of `others`; none if there are none. It has several keys where it is
/// longer than the values that each engine takes.
fn commit_record<P: Partition>(
    inners: &[&Inner<P>],
    batches: &[Batch<'_, P>],
    first: usize,
    others: &[usize],
) -> Result<Vec<Change>, Refusal> {
    if others.is_empty() {
        return Ok(Vec::new());
    }
    let parts = others.iter().map(|at| {
        let (changes, version) = batches[*at].changes();
        let changes = changes.into_iter().filter_map(|change| match change {
            Change::Put(table, key, bytes) => Some((table.0, key, Some(bytes))),
            Change::Remove(table, key) => Some((table.0, key, None)),
            // Transactions drop no tables.
            Change::DropTable(_) => None,
        });
        Part { partition: inners[*at].index, version, changes: changes.collect() }
    });
    let value = codec::encode(&parts.collect::<Vec<Part>>())?;
    let (_, version) = batches[first].changes();
    let pieces = (0u32..).zip(value.chunks(PIECE_LEN)).map(|(number, piece)| {
        let suffix = number.to_be_bytes();
        // The first piece has none, and sorts before the others.
        let suffix = if number == 0 { &[][..] } else { &suffix };
        let key = [RECORDS, &version.to_be_bytes(), suffix].concat();
        let record = Record { version, expires_ms: NEVER, value: value.slice_ref(piece) };
        Change::Put(OWN, key.clone(), record.encode(OWN, &key))
    });
    Ok(pieces.collect())
}

/// Applies the transactions that an ended process has left unfinished. Blocks.
pub(crate) fn finish_transactions<P: Partition>(partitions: &[(u32, &P)]) -> Result<(), Refusal> {
    for (_, first) in partitions {
        let end = [RECORDS, &[0xff; 13]].concat();
        let mut done = Vec::new();
        let pieces = first.scan(OWN, (Included(RECORDS), Excluded(&end)), usize::MAX)?;
        let version_len = RECORDS.len() + size_of::<u64>();
        for pieces in pieces.chunk_by(|(one, _), (other, _)| one.get(..version_len) == other.get(..version_len)) {
            let mut value = Vec::new();
            for (key, bytes) in pieces {
                let record = Record::decode(OWN, key, bytes.clone());
                let record = record.ok_or_else(|| first.corrupt("a commit record does not have its checksum"))?;
                value.extend_from_slice(&record.value);
                done.push(Change::Remove(OWN, key.clone()));
            }
            for part in codec::decode::<Vec<Part>>(&value)? {
                let Some((_, engine)) = partitions.iter().find(|(index, _)| *index == part.partition) else { continue };
                finish(*engine, part)?;
            }
        }
        if !done.is_empty() {
            first.commit(&done)?;
        }
    }
    Ok(())
}

fn finish<P: Partition>(engine: &P, part: Part) -> Result<(), Failure> {
    if batch::stored_version(engine)? >= part.version {
        return Ok(());
    }
    let changes = part.changes.into_iter().map(|(table, key, bytes)| match bytes {
        Some(bytes) => Change::Put(TableId(table), key, bytes),
        None => Change::Remove(TableId(table), key),
    });
    let changes: Vec<Change> = changes.chain([batch::put_version(part.version)]).collect();
    engine.commit(&changes)
}

/// The keys of commit records begin so.
const RECORDS: &[u8] = b"transaction";
/// The bytes of a commit record under one key.
const PIECE_LEN: usize = 1 << 20;
