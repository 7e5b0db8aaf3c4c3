//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`: the commands between run as one batch of the store, or as several if commands about
//! all keys are among them.

use std::mem::take;

use bytes::{Bytes, BytesMut};
use dapple::store::{AnyEngine, Batch, Error, Expect, Refusal};

use super::commands::Answer;
use super::plan::{Database, Plan, Room, Value};
use super::reply::{OK, Reply};
use super::session::Session;

/// The commands since `MULTI`.
#[derive(Default)]
pub(super) struct Queue {
    commands: Vec<Queued>,
    /// The memory of the commands.
    pub(super) bytes: usize,
    /// The database of the commands to come, after a `SELECT`.
    pub(super) database: Option<u8>,
    /// Whether a command could not be queued, so that `EXEC` runs none, and none is kept.
    is_spoiled: bool,
}

/// The keys that must not change before `EXEC`.
#[derive(Default)]
pub(super) struct Watched {
    keys: Vec<(Database, Bytes, Expect<Value>)>,
    /// The memory of the keys.
    pub(super) bytes: usize,
}

/// A command that waits for `EXEC`.
pub(super) enum Queued {
    /// A command on keys of this database.
    Plan(Plan, u8),
    /// A command about no keys, or about all.
    Other(String, Vec<Bytes>),
    /// A command with a known reply: an error.
    Known(Reply),
}

const COMMANDS_MAX: usize = 65_536;
const BYTES_MAX: usize = 32 << 20;
const WATCHED_MAX: usize = 65_536;
/// The memory of a word, or of a watched key, apart from its bytes.
const OVERHEAD: usize = 128;

impl Queue {
    /// The number of commands.
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Keeps the command that these words have become.
    pub(super) fn push(&mut self, command: Queued, words: &[Bytes]) -> Result<(), Reply> {
        if self.is_spoiled {
            return Ok(());
        }
        let bytes: usize = words.iter().map(|word| word.len() + OVERHEAD).sum();
        if self.commands.len() >= COMMANDS_MAX || self.bytes + bytes > BYTES_MAX {
            let text = format!("ERR a transaction has at most {COMMANDS_MAX} commands and {BYTES_MAX} bytes");
            return Err(Reply::Error(text));
        }
        self.bytes += bytes;
        self.commands.push(command);
        Ok(())
    }

    /// `EXEC` will run nothing.
    pub(super) fn spoil(&mut self) {
        *self = Queue { is_spoiled: true, database: self.database, ..Queue::default() };
    }
}

/// A copy of words in memory of their own: they share that of all requests that arrived with them.
pub(super) fn copied(words: &[Bytes]) -> Vec<Bytes> {
    let mut whole = BytesMut::with_capacity(words.iter().map(Bytes::len).sum());
    let copy = |word: &Bytes| {
        whole.extend_from_slice(word);
        whole.split().freeze()
    };
    words.iter().map(copy).collect()
}

pub(super) async fn run(session: &mut Session<'_>, name: &str, args: &[Bytes]) -> Answer {
    let refused = |text: &str| Err(Reply::Error(format!("ERR {text}")));
    match (name, session.queue.take()) {
        ("MULTI", None) => {
            session.queue = Some(Queue::default());
            Ok(OK)
        }
        ("MULTI", queue) => {
            session.queue = queue;
            refused("MULTI calls can not be nested")
        }
        ("WATCH", None) => watch(session, args).await,
        ("WATCH", queue) => {
            session.queue = queue;
            refused("WATCH inside MULTI is not allowed")
        }
        ("DISCARD", Some(_)) => {
            session.watched = Watched::default();
            Ok(OK)
        }
        ("EXEC", Some(queue)) => exec(session, queue).await,
        (_, _) => refused(&format!("{name} without MULTI")),
    }
}

async fn watch(session: &mut Session<'_>, keys: &[Bytes]) -> Answer {
    let context = session.context;
    let database = context.database().await?;
    if session.watched.keys.len() + keys.len() > WATCHED_MAX {
        return Err(Reply::Error(format!("ERR a client watches at most {WATCHED_MAX} keys")));
    }
    for key in keys {
        let entry = database.entry(key).await?;
        let expect = entry.map_or(Expect::Absent, |entry| Expect::Version(entry.version));
        session.watched.bytes += key.len() + OVERHEAD;
        session.watched.keys.push((database.clone(), Bytes::copy_from_slice(key), expect));
    }
    Ok(OK)
}

async fn exec(session: &mut Session<'_>, queue: Queue) -> Answer {
    let watched = take(&mut session.watched);
    if queue.is_spoiled {
        return Err(Reply::Error("EXECABORT Transaction discarded because of previous errors.".to_owned()));
    }
    let store = &session.context.service.store;
    let mut batch = store.batch();
    for (database, key, expect) in watched.keys {
        batch.check(&database, &key, expect)?;
    }
    let count = queue.commands.len();
    let (mut replies, room) = (Vec::with_capacity(count), Room::new(session.context.service));
    for part in parts(queue.commands) {
        let is_first = replies.is_empty();
        match run_part(session, std::mem::replace(&mut batch, store.batch()), part, &room).await {
            Ok(of_part) => replies.extend(of_part),
            Err(Error::NotApplied(Refusal::Conflict { .. })) if is_first => return Ok(Reply::NullList),
            Err(error) if is_first => return Err(error.into()),
            // The parts before are done, so the client gets their replies.
            Err(error) => {
                replies.resize(count, error.into());
                break;
            }
        }
    }
    Ok(Reply::List(replies))
}

/// A command on keys after one of these sees what it did.
const OF_ALL_KEYS: &[&str] = &["DBSIZE", "FLUSHALL", "FLUSHDB", "INFO", "KEYS", "RANDOMKEY", "SCAN"];

/// Splits commands before each one on keys that comes after one about all keys: Redis runs one after the other.
fn parts(commands: Vec<Queued>) -> Vec<Vec<Queued>> {
    let (mut parts, mut part, mut has_all) = (Vec::new(), Vec::new(), false);
    for command in commands {
        if has_all && matches!(command, Queued::Plan(..)) {
            parts.push(take(&mut part));
            has_all = false;
        }
        has_all |= matches!(&command, Queued::Other(name, _) if OF_ALL_KEYS.contains(&&name[..]));
        part.push(command);
    }
    parts.push(part);
    parts
}

/// Runs commands on keys as one batch, then those about all keys or none. If the batch fails, none of them has run.
async fn run_part(
    session: &mut Session<'_>,
    mut batch: Batch<AnyEngine>,
    commands: Vec<Queued>,
    room: &Room,
) -> Result<Vec<Reply>, Error> {
    let mut replies = vec![Reply::Null; commands.len()];
    let (mut planned, mut others) = (Vec::new(), Vec::new());
    for (at, command) in commands.into_iter().enumerate() {
        match command {
            Queued::Plan(plan, database) => {
                let database = session.context.service.database(database).await?;
                planned.push((at, plan.add_to(&mut batch, database, room)?));
            }
            Queued::Other(name, words) => others.push((at, name, words)),
            Queued::Known(reply) => replies[at] = reply,
        }
    }
    batch.commit().await?;
    for (at, planned) in planned {
        replies[at] = planned.reply().unwrap_or_else(|reply| reply);
    }
    for (at, name, words) in others {
        // Boxed, because `EXEC` is one of the commands, though never one of these.
        replies[at] = Box::pin(session.run_now(&name, &words)).await;
    }
    Ok(replies)
}
