//! The state of a partition, which its color guards: queued writes, cached records, outcomes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use dapple_sync::sync::oneshot;
use dapple_tower::Reason;

use super::batch::{Action, Records, Reply, Uncommitted, Write};
use super::cache::Cache;
use crate::StoreOptions;
use crate::engine::{Failure, TableId};
use crate::error::{Error, OperationId, Outcome, Refusal, unavailable};
use crate::record::Record;

pub(super) struct State {
    queue: VecDeque<Waiting>,
    queue_bytes: usize,
    pub(super) combining: bool,
    in_flight: HashSet<u64>,
    /// Writes in flight whose callers gave up.
    abandoned: HashSet<u64>,
    /// Their outcomes, the oldest first.
    outcomes: VecDeque<(u64, Outcome)>,
    /// The error after which this partition takes no writes.
    stopped: Option<Failure>,
    next_number: u64,
    cache: Cache,
    /// By a hash of the key: the number of the last batch with such a key, or `FLYING` while it runs.
    touched: Vec<u64>,
    batches: u64,
}

struct Waiting {
    number: u64,
    write: Write,
    answer: Answer,
}

pub(super) type Answer = oneshot::Sender<Result<Reply, Error>>;

/// The writes of a batch and the callers that wait for them.
pub(super) struct Taken {
    pub(super) writes: Vec<Write>,
    pub(super) known: Records,
    pub(super) callers: Vec<(u64, Answer)>,
}

/// The place where a write is when its caller gives up.
pub(super) enum Abandoned {
    Queue,
    Flight,
    Answered,
}

const FLYING: u64 = u64::MAX;
const SLOTS: usize = 4096;
const OUTCOMES_MAX: usize = 4096;

impl State {
    pub(super) fn new(cache_bytes: usize) -> State {
        State {
            queue: VecDeque::new(),
            queue_bytes: 0,
            combining: false,
            in_flight: HashSet::new(),
            abandoned: HashSet::new(),
            outcomes: VecDeque::new(),
            stopped: None,
            next_number: 0,
            cache: Cache::new(cache_bytes),
            touched: vec![0; SLOTS],
            batches: 0,
        }
    }

    /// Queues a write and returns its number.
    pub(super) fn enqueue(&mut self, write: Write, answer: Answer, options: &StoreOptions) -> Result<u64, Error> {
        if let Some(failure) = &self.stopped {
            tracing::debug!(%failure, "a write was refused: its partition has stopped");
            return Err(unavailable(Reason::Unavailable, Duration::from_secs(60)));
        }
        let len = self.queue.len();
        // A drop adds nothing that grows, and must not fail once the catalog has forgotten the table.
        if !matches!(write.action, Action::Drop) {
            if len >= options.queue_len_max {
                return Err(unavailable(Reason::Full { len }, RETRY_AFTER));
            }
            if len > 0 && self.queue_bytes + write.len() > options.queue_bytes_max {
                return Err(unavailable(Reason::Memory, RETRY_AFTER));
            }
        }
        let number = self.next_number;
        self.next_number += 1;
        self.queue_bytes += write.len();
        self.queue.push_back(Waiting { number, write, answer });
        Ok(number)
    }

    /// Takes all that is queued, or ends the combining.
    pub(super) fn take_batch(&mut self) -> Option<Taken> {
        let mut taken = Taken { writes: Vec::new(), known: HashMap::new(), callers: Vec::new() };
        self.queue_bytes = 0;
        self.batches += 1;
        for Waiting { number, write, answer } in std::mem::take(&mut self.queue) {
            // The caller dropped its future. A drop of a table has to run nevertheless.
            if answer.is_closed() && !matches!(write.action, Action::Drop) {
                continue;
            }
            let table = write.table.id;
            match write.action {
                Action::Nothing => {}
                Action::Drop => self.cache.drop_table(table),
                _ => {
                    self.touched[slot(table, &write.key)] = FLYING;
                    if let Some(record) = self.cache.remove(table, &write.key) {
                        taken.known.insert((table, write.key.clone()), Some(record));
                    }
                }
            }
            self.in_flight.insert(number);
            taken.callers.push((number, answer));
            taken.writes.push(write);
        }
        self.combining = !taken.writes.is_empty();
        self.combining.then_some(taken)
    }

    /// Answers the callers of a batch.
    pub(super) fn finish(
        &mut self,
        partition: u32,
        taken: Vec<(u64, Answer)>,
        writes: &[Write],
        outcome: super::batch::Outcome,
    ) {
        self.batches += 1;
        for write in writes {
            self.touched[slot(write.table.id, &write.key)] = self.batches;
        }
        if outcome.committed.is_ok() {
            for ((table, key), record) in outcome.records {
                if let Some(record) = record {
                    self.cache.insert(table, key, record);
                }
            }
        }
        if let Err(Uncommitted::Unknown(failure)) = &outcome.committed {
            tracing::error!(%failure, partition, "a commit failed; this partition takes no writes until the store is reopened");
            self.stopped = Some(failure.clone());
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
                self.outcomes.push_back((number, known));
                if self.outcomes.len() > OUTCOMES_MAX {
                    self.outcomes.pop_front();
                }
            }
            // The caller may have gone.
            let _ = answer.send(reply);
        }
    }

    pub(super) fn abandon(&mut self, number: u64) -> Abandoned {
        if let Some(index) = self.queue.iter().position(|waiting| waiting.number == number) {
            let gone = self.queue.remove(index);
            self.queue_bytes -= gone.map_or(0, |waiting| waiting.write.len());
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

    /// The cached record, or the number of batches so far, which [`fill`](Self::fill) takes.
    pub(super) fn lookup(&self, table: TableId, key: &[u8]) -> Result<Record, u64> {
        self.cache.lookup(table, key).ok_or(self.batches)
    }

    /// Caches a record that was read from the engine, unless a batch with such a key has begun or ended meanwhile.
    pub(super) fn fill(&mut self, table: TableId, key: Bytes, record: Record, batches: u64) {
        // `FLYING` is greater than any number of batches.
        if self.touched[slot(table, &key)] <= batches {
            self.cache.insert(table, key, record);
        }
    }
}

fn slot(table: TableId, key: &[u8]) -> usize {
    (crc32fast::hash(key) as usize).wrapping_add(table.0 as usize) % SLOTS
}

/// The time after which a full queue may have room: a commit takes some milliseconds.
const RETRY_AFTER: Duration = Duration::from_millis(10);
