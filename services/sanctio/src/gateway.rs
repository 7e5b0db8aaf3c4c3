//! The conversations of the gateway, and how far their legs are.
//!
//! | store | key | value |
//! |---|---|---|
//! | table `conversations` | a name | its [`Legs`] |
//! | log `said in NAME` | a position | [`Said`] |
//! | table `cursors` | a name and a leg | the position up to which messages are claimed for the leg |

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dapple::store::{AnyEngine, Change, Entry, Error, OrderedTable, Store, StoreOptions, TableOptions};
use dapple::sync::Mutex as Lock;
use dapple::task::CancellationToken;
use serde_json::{Value, json};

use crate::archive::Archive;
use crate::said::{Legs, Said, now_ms};
use crate::translate::{Ask, Translator};

/// The conversations.
pub(crate) struct Gateway {
    store: Store<AnyEngine>,
    conversations: OrderedTable<String, Legs, AnyEngine>,
    cursors: OrderedTable<(String, String), u64, AnyEngine>,
    entries_max: u64,
    translator: Translator,
    open: Mutex<BTreeMap<String, Conversation>>,
    /// Held while conversations change.
    changing: Lock<()>,
    /// Cancelled when the program ends.
    pub(crate) ending: CancellationToken,
}

/// One conversation. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Conversation {
    pub(crate) archive: Archive,
    pub(crate) legs: Legs,
}

impl Gateway {
    /// Opens the conversations of a store.
    pub(crate) async fn open(engine: AnyEngine, entries_max: u64, translator: Translator) -> Result<Gateway, Error> {
        let store = Store::open(engine, StoreOptions::default()).await?;
        let conversations: OrderedTable<String, Legs, AnyEngine> =
            store.ordered_table_or_create("conversations", TableOptions::default()).await?;
        let cursors = store.ordered_table_or_create("cursors", TableOptions::default()).await?;
        let (mut open, mut all) = (BTreeMap::new(), conversations.range(..)?);
        while let Some((name, legs)) = all.next().await? {
            let archive = Archive::open(&store, &name, entries_max).await?;
            open.insert(name, Conversation { archive, legs: legs.value });
        }
        let (open, changing, ending) = (Mutex::new(open), Lock::new(()), CancellationToken::new());
        Ok(Gateway { store, conversations, cursors, entries_max, translator, open, changing, ending })
    }

    /// Gives a conversation these legs, or ends it, and says whether it is new.
    pub(crate) async fn change(&self, name: &String, legs: Option<Legs>) -> Result<bool, Error> {
        let _one_at_a_time = self.changing.lock().await;
        let old = self.conversation(name);
        let gone = old.iter().flat_map(|old| old.legs.keys());
        for leg in gone.filter(|leg| !legs.as_ref().is_some_and(|legs| legs.contains_key(*leg))) {
            // If it comes back, it begins anew.
            self.cursors.remove(&(name.clone(), leg.clone())).await?;
        }
        let Some(legs) = legs else {
            self.conversations.remove(name).await?;
            self.all().remove(name);
            return Ok(false);
        };
        self.conversations.put(name, &legs).await?;
        let archive = match &old {
            Some(old) => old.archive.clone(),
            None => Archive::open(&self.store, name, self.entries_max).await?,
        };
        self.all().insert(name.clone(), Conversation { archive, legs });
        Ok(old.is_none())
    }

    pub(crate) fn all(&self) -> MutexGuard<'_, BTreeMap<String, Conversation>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn conversation(&self, name: &str) -> Option<Conversation> {
        self.all().get(name).cloned()
    }

    /// The first message that a leg was not given. A new leg is given what is said from now on.
    pub(crate) async fn cursor(&self, name: &str, leg: &str, archive: &Archive) -> Result<u64, Error> {
        let end = archive.end().await?;
        // One that was away for long is not flooded, but one that is slow loses nothing when its connection ends.
        let oldest = archive.since(now_ms().saturating_sub(BACKLOG_MS)).await?.min(end.saturating_sub(BACKLOG_MAX));
        let begin = move |old: Option<Entry<u64>>| {
            old.map_or((Change::Put { value: end, expires: None }, end), |old| (Change::Keep, old.value))
        };
        Ok(self.cursors.modify(&(name.to_owned(), leg.to_owned()), begin).await?.max(oldest))
    }

    /// Gives the message at this position to a leg, unless it or a later one was given before. This is on the disk when the
    /// call returns.
    pub(crate) async fn claim(&self, name: &str, leg: &str, position: u64) -> Result<bool, Error> {
        let give = move |entry: Option<Entry<u64>>| match entry {
            Some(entry) if entry.value <= position => (Change::Put { value: position + 1, expires: None }, true),
            _ => (Change::Keep, false),
        };
        self.cursors.modify(&(name.to_owned(), leg.to_owned()), give).await
    }

    /// A text in the language of its reader; `None` if it stays as it is.
    pub(crate) async fn translated(&self, said: &Said, to: Option<&String>) -> Option<String> {
        let ask = Ask { from: said.language.clone()?, to: to?.clone(), text: said.text.clone() };
        // The original is better than nothing.
        let translated = if ask.from == ask.to { None } else { self.translator.ask(ask).await.ok() };
        translated.filter(|translated| *translated != said.text)
    }

    /// The ends of all conversations, and how far their legs are.
    pub(crate) async fn status(&self) -> Result<Value, Error> {
        let (all, mut status) = (self.all().clone(), json!({}));
        for (name, Conversation { archive, legs }) in all {
            status[&name] = json!({ "end": archive.end().await?, "legs": {} });
            for leg in legs.into_keys() {
                status[&name]["legs"][&leg] = json!(self.cursors.get(&(name.clone(), leg.clone())).await?);
            }
        }
        Ok(status)
    }
}

/// A leg that comes back is given this many of the last messages, and all of the last hour. The others are in the archive.
const BACKLOG_MAX: u64 = 1000;
const BACKLOG_MS: u64 = 60 * 60 * 1000;
