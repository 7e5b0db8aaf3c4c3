//! The archive of a conversation: a log of the store, which is also the queue of all deliveries.
//!
//! An id that a network gave to a message is in the entry itself, and the gateway reads the last entries when it starts.
//! So one append is the whole decision whether a message was received: there is no second record that a crash could
//! leave behind or ahead. A table of ids beside the log was rejected for that reason.

use std::collections::HashMap;
use std::sync::Arc;

use dapple::store::{AnyEngine, Error, Log, Store, TableOptions, Tail};
use dapple::sync::Mutex;
use serde::Deserialize;

use crate::said::{Said, now_ms};

/// The messages of a conversation. Clones are the same ones.
#[derive(Clone)]
pub(crate) struct Archive {
    log: Log<Said, AnyEngine>,
    recent: Arc<Mutex<Recent>>,
    entries_max: u64,
}

/// The end of the log, and the ids in its last entries.
#[derive(Default)]
struct Recent {
    /// The first entry that has not been looked at.
    next: u64,
    last_ms: u64,
    ids: HashMap<String, u64>,
}

/// A question to the archive.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Question {
    /// The time of the first entry, in milliseconds since 1970, and the time that all are before.
    pub(crate) from: u64,
    pub(crate) to: Option<u64>,
    /// Words that an entry has, all of them, in its text or its speaker's name.
    pub(crate) words: String,
    /// The position at which an earlier answer ended, instead of `from`.
    pub(crate) at: Option<u64>,
}

impl Archive {
    /// Opens the archive of this conversation, which is made if it is not there, and keeps its last entries.
    pub(crate) async fn open(store: &Store<AnyEngine>, name: &str, entries_max: u64) -> Result<Archive, Error> {
        let log = store.log_or_create(&format!("said in {name}"), TableOptions::default()).await?;
        let next = log.first().await?.max(log.end().await?.saturating_sub(IDS_MAX as u64));
        let mut recent = Recent { next, ..Recent::default() };
        recent.look(&log).await?;
        Ok(Archive { log, recent: Arc::new(Mutex::new(recent)), entries_max })
    }

    /// Keeps a message, and returns its position; that of the earlier one if it is a repetition.
    pub(crate) async fn keep(&self, said: Said) -> Result<u64, Error> {
        // One at a time, so that times grow with positions.
        let mut recent = self.recent.lock().await;
        // If the outcome of an earlier append is not known, the log says it now.
        recent.look(&self.log).await?;
        if let Some(known) = said.id.as_ref().and_then(|id| recent.ids.get(id)) {
            return Ok(*known);
        }
        let said = Said { at_ms: now_ms().max(recent.last_ms), ..said };
        let position = self.log.append(&said).await?;
        recent.note(position, &said);
        if position > self.entries_max && position % TRIM_EVERY == 0 {
            // If it fails, the next one removes more.
            let _ = self.log.trim(position - self.entries_max).await;
        }
        Ok(position)
    }

    /// The position that the next message will have.
    pub(crate) async fn end(&self) -> Result<u64, Error> {
        self.log.end().await
    }

    /// The position of the first message from this time on, in milliseconds since 1970.
    pub(crate) async fn since(&self, at_ms: u64) -> Result<u64, Error> {
        self.log.partition_point(|said| said.at_ms < at_ms).await
    }

    /// The messages from a position on, and those to come.
    pub(crate) fn tail(&self, position: u64) -> Tail<Said, AnyEngine> {
        self.log.tail(position)
    }

    /// The messages that answer a question, and where the next question goes on if there may be more.
    pub(crate) async fn find(&self, question: &Question) -> Result<(Vec<(u64, Said)>, Option<u64>), Error> {
        let begin = match question.at {
            Some(position) => position.max(self.log.first().await?),
            None => self.since(question.from).await?,
        };
        let words: Vec<String> = question.words.split_whitespace().map(str::to_lowercase).collect();
        let (mut entries, mut found) = (self.log.read(begin), Vec::new());
        while let Some((position, said)) = entries.next().await? {
            if question.to.is_some_and(|to| said.at_ms >= to) {
                break;
            }
            let text = format!("{} {}", said.speaker, said.text).to_lowercase();
            found.extend(words.iter().all(|word| text.contains(word)).then_some((position, said)));
            if found.len() == FOUND_MAX || position - begin > SCANNED_MAX {
                return Ok((found, Some(position + 1)));
            }
        }
        Ok((found, None))
    }
}

impl Recent {
    /// Notes the entries that were not looked at.
    async fn look(&mut self, log: &Log<Said, AnyEngine>) -> Result<(), Error> {
        let mut entries = log.read(self.next);
        while let Some((position, said)) = entries.next().await? {
            self.note(position, &said);
        }
        Ok(())
    }

    fn note(&mut self, position: u64, said: &Said) {
        self.next = position + 1;
        self.last_ms = said.at_ms;
        self.ids.extend(said.id.clone().map(|id| (id, position)));
        if self.ids.len() > 2 * IDS_MAX {
            self.ids.retain(|_, at| *at + IDS_MAX as u64 > position);
        }
    }
}

/// Repetitions are known for as many messages.
const IDS_MAX: usize = 4096;
const TRIM_EVERY: u64 = 1024;
/// The messages of one answer, and those that are looked at for it.
const FOUND_MAX: usize = 100;
const SCANNED_MAX: u64 = 20_000;
