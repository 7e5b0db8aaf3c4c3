//! Commands on keys, as steps that run alone or in a transaction.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use dapple::store::{AnyEngine, Batch, BatchRead, Change, Entry, Error, OrderedTable};
use serde::{Deserialize, Serialize};

use super::Service;
use super::commands::Answer;
use super::memory::Share;
use super::reply::{OK, Reply};

/// A database of the protocol: a table with values of the protocol's types.
pub(super) type Database = OrderedTable<Bytes, Value, AnyEngine>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Value {
    Text(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
}

/// A command on keys.
pub(super) struct Plan {
    steps: Vec<Step>,
    join: Join,
}

/// The effect of a command on one key.
pub(super) struct Step {
    key: Bytes,
    is_read: bool,
    run: Box<Run>,
}

type Run = dyn FnOnce(Kept<'_>) -> Result<(Next, Reply), Reply> + Send;

/// The value of a key before a step.
pub(super) type Kept<'a> = Option<&'a Entry<Value>>;

/// The value of a key after a step.
pub(super) enum Next {
    Keep,
    Put(Value, Option<SystemTime>),
    Remove,
}

/// How the replies of the steps become the reply of the command.
pub(super) enum Join {
    /// The first step's reply.
    First,
    /// The reply of the step at this position, unless the first one failed.
    FirstErrorOr(usize),
    List,
    Sum,
    Ok,
}

/// Larger values are refused here, before the store would refuse the whole transaction.
const VALUE_LEN_MAX: usize = (16 << 20) - 64;
/// The keys of the first read of a command, the bytes that a further one is to have, and the most keys of it.
const READ_FIRST: usize = 8;
const READ_BYTES: usize = 16 << 20;
const READ_MAX: usize = 4096;
/// The length of a field's head in a value.
const FIELD_OVERHEAD: usize = 8;

impl Value {
    fn len(&self) -> usize {
        match self {
            Value::Text(text) => text.len(),
            Value::Hash(fields) => fields.iter().map(|(name, value)| name.len() + value.len() + FIELD_OVERHEAD).sum(),
        }
    }
}

impl Next {
    /// The value, keeping the key's expiry.
    pub(super) fn text(value: impl Into<Bytes>, kept: Kept<'_>) -> Next {
        Next::Put(Value::Text(value.into()), kept.and_then(|entry| entry.expires))
    }
}

impl Step {
    pub(super) fn read(key: &Bytes, run: impl FnOnce(Kept<'_>) -> Answer + Send + 'static) -> Step {
        Step { key: key.clone(), is_read: true, run: Box::new(|kept| Ok((Next::Keep, run(kept)?))) }
    }

    pub(super) fn write(
        key: &Bytes,
        run: impl FnOnce(Kept<'_>) -> Result<(Next, Reply), Reply> + Send + 'static,
    ) -> Step {
        Step { key: key.clone(), is_read: false, run: Box::new(run) }
    }

    fn apply(self, entry: Option<Entry<Value>>) -> (Change<Value>, Answer) {
        match (self.run)(entry.as_ref()) {
            Ok((Next::Put(value, _), _)) if value.len() > VALUE_LEN_MAX => {
                let text = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
                (Change::Keep, Err(Reply::Error(text.to_owned())))
            }
            Ok((Next::Put(value, expires), reply)) => (Change::Put { value, expires }, Ok(reply)),
            Ok((Next::Keep, reply)) => (Change::Keep, Ok(reply)),
            Ok((Next::Remove, reply)) => (Change::Remove, Ok(reply)),
            Err(reply) => (Change::Keep, Err(reply)),
        }
    }
}

impl Join {
    fn reply(&self, replies: Vec<Answer>) -> Answer {
        let mut replies = replies.into_iter();
        match self {
            Join::First => replies.next().unwrap_or(Ok(OK)),
            Join::FirstErrorOr(place) => {
                replies.next().unwrap_or(Ok(OK))?;
                replies.nth(place - 1).unwrap_or(Ok(OK))
            }
            Join::List => Ok(Reply::List(replies.collect::<Result<_, _>>()?)),
            Join::Ok => replies.try_fold(OK, |ok, reply| reply.map(|_| ok)),
            Join::Sum => replies.try_fold(Reply::Number(0), |sum, reply| match (sum, reply?) {
                (Reply::Number(sum), Reply::Number(one)) => Ok(Reply::Number(sum + one)),
                (_, other) => Ok(other),
            }),
        }
    }
}

impl Plan {
    pub(super) fn one(step: Step) -> Result<Plan, Reply> {
        Ok(Plan { steps: vec![step], join: Join::First })
    }

    pub(super) fn many(steps: impl IntoIterator<Item = Step>, join: Join) -> Result<Plan, Reply> {
        Ok(Plan { steps: steps.into_iter().collect(), join })
    }

    /// The key of a write that changes only this key, in any order with writes of other keys.
    pub(super) fn single_write(&self) -> Option<&Bytes> {
        match &self.steps[..] {
            [step] if !step.is_read => Some(&step.key),
            _ => None,
        }
    }

    /// Runs the plan alone; several writes are one batch.
    pub(super) async fn run(mut self, service: &Service, database: &Database) -> Answer {
        let store = &service.store;
        if self.steps.iter().all(|step| step.is_read) {
            return self.read(&mut Share::new(&service.memory), database).await;
        }
        if self.steps.len() == 1 {
            let Some(step) = self.steps.pop() else { return Ok(OK) };
            let key = step.key.clone();
            return database.modify(&key, move |entry| step.apply(entry)).await?;
        }
        let mut batch = store.batch();
        let room = Room::new(service);
        let planned = self.add_to(&mut batch, database, &room)?;
        batch.commit().await?;
        planned.reply()
    }

    /// Reads keys, as many at a time as have room: a client may ask for more than there is memory.
    async fn read(self, held: &mut Share, database: &Database) -> Answer {
        let mut replies = Vec::with_capacity(self.steps.len());
        let (mut steps, mut count, mut len) = (self.steps.into_iter(), READ_FIRST, 0);
        loop {
            let some: Vec<Step> = steps.by_ref().take(count).collect();
            if some.is_empty() {
                return self.join.reply(replies);
            }
            let keys: Vec<Bytes> = some.iter().map(|step| step.key.clone()).collect();
            let entries = database.entry_many(&keys).await?;
            let values = entries.iter().flatten().map(|entry| entry.value.len());
            let read: usize = values.sum();
            len += read;
            if !held.set(len) {
                return Err(Reply::no_memory());
            }
            replies.extend(some.into_iter().zip(entries).map(|(step, entry)| step.apply(entry).1));
            count = (READ_BYTES * count / read.max(1)).clamp(1, READ_MAX);
        }
    }

    /// Runs plans of one write each, at the same time.
    pub(super) async fn run_each(
        plans: impl Iterator<Item = Plan>,
        service: &Service,
        database: &Database,
    ) -> Vec<Answer> {
        let (mut batch, room) = (service.store.batch(), Room::new(service));
        let planned: Vec<_> = plans.map(|plan| plan.add_to(&mut batch, database, &room)).collect();
        let mut results = batch.commit_each().await.into_iter();
        let reply = |planned: Result<Planned, Error>| {
            let planned = planned?;
            results.next().transpose()?;
            planned.reply()
        };
        planned.into_iter().map(reply).collect()
    }

    /// Adds the steps to a batch. Their replies are held in this room.
    pub(super) fn add_to(
        self,
        batch: &mut Batch<AnyEngine>,
        database: &Database,
        room: &Room,
    ) -> Result<Planned, Error> {
        let mut slots = Vec::with_capacity(self.steps.len());
        for step in self.steps {
            if step.is_read {
                slots.push(Slot::Read(batch.read(database, &step.key)?, step));
                continue;
            }
            let (answered, room, key) = (Arc::new(Mutex::new(None)), room.clone(), step.key.clone());
            slots.push(Slot::Write(answered.clone()));
            batch.modify(database, &key, move |entry| {
                let (change, answer) = step.apply(entry);
                *answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(room.hold(answer));
                change
            })?;
        }
        Ok(Planned { slots, join: self.join, room: room.clone() })
    }
}

/// A step of a batch.
enum Slot {
    /// Its value stays in the form of the store, which many reads of one key share.
    Read(BatchRead<Value>, Step),
    /// The place in which it leaves its reply.
    Write(Arc<Mutex<Option<Answer>>>),
}

/// The memory of the replies of one batch, which may be more than a client's value a thousand times.
#[derive(Clone)]
pub(super) struct Room(Arc<Mutex<(Share, usize)>>);

impl Room {
    pub(super) fn new(service: &Service) -> Room {
        Room(Arc::new(Mutex::new((Share::new(&service.memory), 0))))
    }

    fn take(&self, len: usize) -> bool {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (share, held) = &mut *guard;
        let has_room = share.set(*held + len);
        if has_room {
            *held += len;
        } else {
            share.set(*held);
        }
        has_room
    }

    fn give(&self, len: usize) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (share, held) = &mut *guard;
        *held -= len;
        share.set(*held);
    }

    /// The answer, or in place of one that does not fit an error.
    fn hold(&self, answer: Answer) -> Answer {
        let len = answer.as_ref().map_or(0, Reply::len);
        if self.take(len) { answer } else { Err(Reply::no_memory()) }
    }
}

/// A command in a batch; its reply is available after the commit.
pub(super) struct Planned {
    slots: Vec<Slot>,
    join: Join,
    room: Room,
}

impl Planned {
    pub(super) fn reply(self) -> Answer {
        let room = self.room;
        self.join.reply(self.slots.into_iter().map(|slot| slot.answer(&room)).collect())
    }
}

impl Slot {
    fn answer(self, room: &Room) -> Answer {
        match self {
            Slot::Read(read, step) => {
                // It takes memory of its own, of which the reply may need little.
                let len = read.len();
                if !room.take(len) {
                    return Err(Reply::no_memory());
                }
                let (_, answer) = step.apply(read.entry()?);
                room.give(len);
                room.hold(answer)
            }
            Slot::Write(answered) => {
                let answer = answered.lock().unwrap_or_else(PoisonError::into_inner).take();
                answer.unwrap_or_else(|| Err(Reply::Error("ERR the command gave no reply".to_owned())))
            }
        }
    }
}

pub(super) fn wrong_type() -> Reply {
    Reply::Error("WRONGTYPE Operation against a key holding the wrong kind of value".to_owned())
}

/// The text of a key, if there is one.
pub(super) fn text(kept: Kept<'_>) -> Result<Option<&Bytes>, Reply> {
    match kept.map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text)),
        Some(Value::Hash(_)) => Err(wrong_type()),
    }
}

/// The fields of a hash, if there is one.
pub(super) fn hash(kept: Kept<'_>) -> Result<Option<&BTreeMap<Bytes, Bytes>>, Reply> {
    match kept.map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::Hash(fields)) => Ok(Some(fields)),
        Some(Value::Text(_)) => Err(wrong_type()),
    }
}
