//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`: the commands between run as one batch of the store, or as several if commands about
//! all keys are among them.

use std::mem::take;

use bytes::Bytes;
use dapple::store::{AnyEngine, Batch, Error, Expect, Refusal};

use super::commands::Answer;
use super::plan::{Plan, Planned};
use super::reply::{OK, Reply};
use super::session::Session;

/// The commands since `MULTI`.
#[derive(Default)]
pub(super) struct Queue {
    commands: Vec<Queued>,
    bytes: usize,
    /// The database of the commands to come, after a `SELECT`.
    pub(super) database: Option<u8>,
    /// Whether a command could not be queued, so that `EXEC` runs none.
    pub(super) is_spoiled: bool,
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

impl Queue {
    /// The number of commands.
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    pub(super) fn push(&mut self, command: Queued, bytes: usize) -> Result<(), Reply> {
        if self.commands.len() >= COMMANDS_MAX || self.bytes + bytes > BYTES_MAX {
            let text = format!("ERR a transaction has at most {COMMANDS_MAX} commands and {BYTES_MAX} bytes");
            return Err(Reply::Error(text));
        }
        self.bytes += bytes;
        self.commands.push(command);
        Ok(())
    }
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
            session.watched.clear();
            Ok(OK)
        }
        ("EXEC", Some(queue)) => exec(session, queue).await,
        (_, _) => refused(&format!("{name} without MULTI")),
    }
}

async fn watch(session: &mut Session<'_>, keys: &[Bytes]) -> Answer {
    let context = session.context;
    let database = context.database().await?;
    if session.watched.len() + keys.len() > WATCHED_MAX {
        return Err(Reply::Error(format!("ERR a client watches at most {WATCHED_MAX} keys")));
    }
    for key in keys {
        let entry = database.entry(key).await?;
        let expect = entry.map_or(Expect::Absent, |entry| Expect::Version(entry.version));
        session.watched.push((database.clone(), key.clone(), expect));
    }
    Ok(OK)
}

async fn exec(session: &mut Session<'_>, queue: Queue) -> Answer {
    let watched = take(&mut session.watched);
    if queue.is_spoiled {
        return Err(Reply::Error("EXECABORT Transaction discarded because of previous errors.".to_owned()));
    }
    let service = session.context.service;
    let mut part = Part { batch: service.store.batch(), planned: Vec::new(), others: Vec::new() };
    for (database, key, expect) in watched {
        part.batch.check(&database, &key, expect)?;
    }
    let mut replies = vec![Reply::Null; queue.commands.len()];
    for (at, command) in queue.commands.into_iter().enumerate() {
        match command {
            Queued::Plan(plan, database) => {
                if part.others.iter().any(|(_, name, _)| OF_ALL_KEYS.contains(&&name[..])) {
                    // Redis runs one after the other.
                    let next = Part { batch: service.store.batch(), planned: Vec::new(), others: Vec::new() };
                    if !std::mem::replace(&mut part, next).run(session, &mut replies).await? {
                        return Ok(Reply::NullList);
                    }
                }
                part.planned.push((at, plan.add_to(&mut part.batch, service.database(database).await?)?));
            }
            Queued::Other(name, words) => part.others.push((at, name, words)),
            Queued::Known(reply) => replies[at] = reply,
        }
    }
    let is_done = part.run(session, &mut replies).await?;
    Ok(if is_done { Reply::List(replies) } else { Reply::NullList })
}

/// Commands on keys, which are one batch, and those about all keys or none that come after them.
struct Part {
    batch: Batch<AnyEngine>,
    /// With the place of the reply.
    planned: Vec<(usize, Planned)>,
    others: Vec<(usize, String, Vec<Bytes>)>,
}

/// A command on keys after one of these sees what it did.
const OF_ALL_KEYS: &[&str] = &["DBSIZE", "FLUSHALL", "FLUSHDB", "INFO", "KEYS", "RANDOMKEY", "SCAN"];

impl Part {
    /// Runs it; `false` if a watched key has changed.
    async fn run(self, session: &mut Session<'_>, replies: &mut [Reply]) -> Result<bool, Reply> {
        match self.batch.commit().await {
            Ok(_) => {}
            Err(Error::NotApplied(Refusal::Conflict { .. })) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        for (at, planned) in self.planned {
            replies[at] = planned.reply().unwrap_or_else(|reply| reply);
        }
        for (at, name, words) in self.others {
            // Boxed, because `EXEC` is one of the commands, though never one of these.
            replies[at] = Box::pin(session.run_now(&name, &words)).await;
        }
        Ok(true)
    }
}
