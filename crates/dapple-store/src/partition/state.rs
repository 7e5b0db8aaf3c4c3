//! The state of a partition, which its color guards: queued writes, cached records, outcomes.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use dapple_sched::environment::{HashMap, HashSet};
use dapple_sync::sync::oneshot;
use dapple_tower::Reason;

use super::batch::{Action, Changed, Records, Reply, Uncommitted, Write};
use super::cache::Cache;
use super::history::History;
use crate::StoreOptions;
use crate::engine::{Failure, TableId};
use crate::error::{Error, OperationId, Outcome, Refusal, unavailable};
use crate::record::Record;

pub(super) struct State {
    queue: VecDeque<Queued>,
    queue_bytes: usize,
    pub(super) combining: bool,
    /// A transaction has this partition: no other operation reads or writes until it is over.
    is_joined: bool,
    in_flight: HashSet<u64>,
    /// Writes in flight that their callers gave up.
    abandoned: HashSet<u64>,
    /// Their outcomes, the oldest first.
    outcomes: VecDeque<(u64, Outcome)>,
    /// The error after which this partition takes no writes.
    stopped: Option<Failure>,
    next_number: u64,
    cache: Cache,
    pub(super) history: History,
    /// By a hash of the key: the number of the last batch with such a key, or `FLYING` while it runs.
    touched: Vec<u64>,
    batches: u64,
}

enum Queued {
    Write(Waiting),
    Join(Join),
}

struct Waiting {
    number: u64,
    write: Write,
    answer: Answer,
}

/// A transaction that waits for its turn.
struct Join {
    number: u64,
    keys: Keys,
    granted: oneshot::Sender<Grant>,
}

pub(super) type Keys = Vec<(TableId, Bytes)>;

/// A partition in the hands of a transaction. Dropped, it is released unchanged.
pub(super) struct Grant {
    pub(super) number: u64,
    pub(super) known: Records,
    pub(super) done: oneshot::Sender<Joined>,
}

/// The end of a transaction in one partition.
pub(super) enum Joined {
    Unchanged,
    Changed(Changed),
    /// The partition takes no writes any more, and gives no reads.
    Stopped(Failure),
}

/// The next step of a combiner.
pub(super) enum Turn {
    Batch(Taken),
    /// Wait for the end of a transaction.
    Join {
        number: u64,
        keys: Keys,
        end: oneshot::Receiver<Joined>,
    },
}

pub(super) type Answer = oneshot::Sender<Result<Reply, Error>>;

/// The writes of a batch and the callers that wait for them.
pub(super) struct Taken {
    pub(super) writes: Vec<Write>,
    pub(super) known: Records,
    pub(super) callers: Vec<(u64, Answer)>,
}

/// The state of a write when its caller gives up.
pub(super) enum Abandoned {
    Queue,
    Flight,
    Answered,
}

const FLYING: u64 = u64::MAX;
const SLOTS: usize = 4096;
const OUTCOMES_MAX: usize = 4096;

impl State {
    pub(super) fn new(cache_bytes: usize, version: u64) -> State {
        State {
            queue: VecDeque::new(),
            queue_bytes: 0,
            combining: false,
            is_joined: false,
            in_flight: HashSet::default(),
            abandoned: HashSet::default(),
            outcomes: VecDeque::new(),
            stopped: None,
            next_number: 0,
            cache: Cache::new(cache_bytes),
            history: History::new(version),
            touched: vec![0; SLOTS],
            batches: 0,
        }
    }

    /// Queues a write and returns its number.
    pub(super) fn enqueue(&mut self, write: Write, answer: Answer, options: &StoreOptions) -> Result<u64, Error> {
        // Dropping a table adds nothing that grows, and must not fail after the catalog has
        // forgotten the table.
        self.check_room(write.len(), matches!(write.action, Action::Drop), options)?;
        self.queue_bytes += write.len();
        let number = self.number();
        self.queue.push_back(Queued::Write(Waiting { number, write, answer }));
        Ok(number)
    }

    /// Queues a transaction.
    pub(super) fn enqueue_join(
        &mut self,
        keys: Keys,
        granted: oneshot::Sender<Grant>,
        options: &StoreOptions,
    ) -> Result<u64, Error> {
        self.check_room(0, false, options)?;
        let number = self.number();
        self.queue.push_back(Queued::Join(Join { number, keys, granted }));
        Ok(number)
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn check_room(&self, write_len: usize, is_urgent: bool, options: &StoreOptions) -> Result<(), Error> {
        self.check_running()?;
        let len = self.queue.len();
        if !is_urgent {
            if len >= options.queue_len_max {
                return Err(unavailable(Reason::Full { len }, RETRY_AFTER));
            }
            if len > 0 && self.queue_bytes + write_len > options.queue_bytes_max {
                return Err(unavailable(Reason::Memory, RETRY_AFTER));
            }
        }
        Ok(())
    }

    /// Refuses if the partition stopped after an error.
    pub(super) fn check_running(&self) -> Result<(), Error> {
        let Some(failure) = &self.stopped else { return Ok(()) };
        tracing::debug!(%failure, "an operation was refused: its partition has stopped");
        Err(unavailable(Reason::Unavailable, Duration::from_secs(60)))
    }

    pub(super) fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// Takes all writes queued before the next transaction, or that transaction, or ends the
    /// combining.
    pub(super) fn take_turn(&mut self) -> Option<Turn> {
        // Abandoned writes in the queue need no further work.
        while !self.queue.is_empty() {
            if let Some(turn) = self.take_join().or_else(|| self.take_batch()) {
                return Some(turn);
            }
        }
        self.combining = false;
        None
    }

    fn take_join(&mut self) -> Option<Turn> {
        while let Some(Queued::Join(_)) = self.queue.front() {
            let Some(Queued::Join(Join { number, keys, granted })) = self.queue.pop_front() else { return None };
            let (done, end) = oneshot::channel();
            let mut known = HashMap::default();
            if granted.is_closed() {
                continue;
            }
            for (table, key) in &keys {
                self.touched[slot(*table, key)] = FLYING;
                if let Some(record) = self.cache.remove(*table, key) {
                    known.insert((*table, key.clone()), Some(record));
                }
            }
            self.is_joined = true;
            self.batches += 1;
            self.in_flight.insert(number);
            // If the caller leaves now, `done` is dropped with the grant, and that ends the
            // transaction.
            let _ = granted.send(Grant { number, known, done });
            return Some(Turn::Join { number, keys, end });
        }
        None
    }

    /// Releases the partition.
    pub(super) fn finish_join(&mut self, number: u64, keys: &Keys, end: Joined, options: &StoreOptions) {
        self.batches += 1;
        for (table, key) in keys {
            self.touched[slot(*table, key)] = self.batches;
        }
        let outcome = match &end {
            Joined::Unchanged => Outcome::NotApplied,
            Joined::Changed(_) => Outcome::Applied,
            Joined::Stopped(_) => Outcome::Unknown,
        };
        self.in_flight.remove(&number);
        self.keep_outcome(number, outcome);
        self.is_joined = matches!(end, Joined::Stopped(_));
        match end {
            Joined::Unchanged => {}
            Joined::Changed(changed) => self.publish(changed, options),
            Joined::Stopped(failure) => {
                tracing::error!(%failure, "a transaction could not be finished; its partitions are closed until the store is reopened");
                self.stop(failure);
            }
        }
    }

    fn stop(&mut self, failure: Failure) {
        self.stopped = Some(failure);
        // Watchers learn that there may be changes which they cannot see.
        self.history.wake();
    }

    /// Makes the changes of a commit visible to readers and watchers.
    fn publish(&mut self, changed: Changed, options: &StoreOptions) {
        self.cache_all(changed.records);
        self.history.publish(changed.events, changed.version, options);
    }

    fn take_batch(&mut self) -> Option<Turn> {
        let mut taken = Taken { writes: Vec::new(), known: HashMap::default(), callers: Vec::new() };
        self.batches += 1;
        while let Some(Queued::Write(_)) = self.queue.front() {
            let Some(Queued::Write(Waiting { number, write, answer })) = self.queue.pop_front() else { break };
            self.queue_bytes -= write.len();
            // The caller dropped its future. A drop of a table has to run nevertheless.
            if answer.is_closed() && !matches!(write.action, Action::Drop) {
                continue;
            }
            let table = write.table.id;
            match write.action {
                Action::Nothing => {}
                Action::Drop => self.cache.drop_table(table),
                Action::All(ref parts) | Action::Each(ref parts) => {
                    parts.iter().for_each(|part| self.touch(part, &mut taken.known))
                }
                _ => self.touch(&write, &mut taken.known),
            }
            self.in_flight.insert(number);
            taken.callers.push((number, answer));
            taken.writes.push(write);
        }
        if taken.writes.is_empty() { None } else { Some(Turn::Batch(taken)) }
    }

    /// Takes a key that is about to change out of the cache.
    fn touch(&mut self, write: &Write, known: &mut Records) {
        let table = write.table.id;
        self.touched[slot(table, &write.key)] = FLYING;
        if let Some(record) = self.cache.remove(table, &write.key) {
            known.insert((table, write.key.clone()), Some(record));
        }
    }

    /// Answers the callers of a batch.
    pub(super) fn finish(
        &mut self,
        partition: u32,
        taken: Vec<(u64, Answer)>,
        writes: &[Write],
        outcome: super::batch::Outcome,
        options: &StoreOptions,
    ) {
        self.batches += 1;
        for write in writes {
            let one = std::slice::from_ref(write);
            let parts = if let Action::All(parts) | Action::Each(parts) = &write.action { parts } else { one };
            for part in parts {
                self.touched[slot(part.table.id, &part.key)] = self.batches;
            }
        }
        if outcome.committed.is_ok() {
            self.publish(outcome.changed, options);
        }
        if let Err(Uncommitted::Unknown(failure)) = &outcome.committed {
            tracing::error!(%failure, partition, "a commit failed; this partition takes no writes until the store is reopened");
            self.stop(failure.clone());
        }
        for ((number, answer), reply) in taken.into_iter().zip(outcome.replies) {
            self.in_flight.remove(&number);
            let id = OperationId { partition, number };
            let (reply, known) = match (&outcome.committed, reply) {
                (_, Err(refusal)) => (Err(Error::NotApplied(refusal)), Outcome::NotApplied),
                (Ok(()), Ok(reply)) => (Ok(reply), Outcome::Applied),
                (Err(Uncommitted::NotApplied(failure)), Ok(_)) => {
                    (Err(Refusal::Engine(failure.clone()).into()), Outcome::NotApplied)
                }
                (Err(Uncommitted::Unknown(failure)), Ok(_)) => {
                    (Err(Error::Unknown { id, reason: failure.to_string() }), Outcome::Unknown)
                }
            };
            if self.abandoned.remove(&number) {
                self.keep_outcome(number, known);
            }
            // The caller may have left.
            let _ = answer.send(reply);
        }
    }

    fn cache_all(&mut self, records: Records) {
        for ((table, key), record) in records {
            if let Some(record) = record {
                self.cache.insert(table, key, record);
            }
        }
    }

    fn keep_outcome(&mut self, number: u64, outcome: Outcome) {
        self.outcomes.push_back((number, outcome));
        if self.outcomes.len() > OUTCOMES_MAX {
            self.outcomes.pop_front();
        }
    }

    pub(super) fn abandon(&mut self, number: u64) -> Abandoned {
        let is_it = |queued: &Queued| matches!(queued, Queued::Write(waiting) if waiting.number == number);
        if let Some(index) = self.queue.iter().position(is_it) {
            if let Some(Queued::Write(gone)) = self.queue.remove(index) {
                self.queue_bytes -= gone.write.len();
            }
            Abandoned::Queue
        } else if self.in_flight.contains(&number) {
            self.abandoned.insert(number);
            Abandoned::Flight
        } else {
            Abandoned::Answered
        }
    }

    pub(super) fn outcome(&self, number: u64) -> Outcome {
        self.outcomes.iter().find(|(known, _)| *known == number).map_or(Outcome::Unknown, |(_, outcome)| *outcome)
    }

    /// The cached record, or why there is none.
    pub(super) fn lookup(&self, table: TableId, key: &[u8]) -> Result<Record, Miss> {
        if self.is_joined {
            return Err(Miss::Joined);
        }
        self.cache.lookup(table, key).ok_or(Miss::Absent { batches: self.batches })
    }

    /// The cached records of several keys, and the number of batches for [`State::fill`]; `None` while a transaction has
    /// the partition.
    pub(super) fn lookup_many(&self, table: TableId, keys: &[Bytes]) -> Option<(Vec<Option<Record>>, u64)> {
        let records = || keys.iter().map(|key| self.cache.lookup(table, key)).collect();
        (!self.is_joined).then(|| (records(), self.batches))
    }

    /// Caches a record that was read from the engine, unless a batch with such a key has begun or ended meanwhile.
    pub(super) fn fill(&mut self, table: TableId, key: Bytes, record: Record, batches: u64) {
        // `FLYING` is greater than any number of batches.
        if self.touched[slot(table, &key)] <= batches {
            self.cache.insert(table, key, record);
        }
    }
}

/// Why a record is not in the cache.
pub(super) enum Miss {
    /// The engine must be asked; `batches` is for [`State::fill`].
    Absent { batches: u64 },
    /// A transaction has the partition.
    Joined,
}

fn slot(table: TableId, key: &[u8]) -> usize {
    (crc32fast::hash(key) as usize).wrapping_add(table.0 as usize) % SLOTS
}

/// The time after which a full queue may have room: a commit takes some milliseconds.
const RETRY_AFTER: Duration = Duration::from_millis(10);
