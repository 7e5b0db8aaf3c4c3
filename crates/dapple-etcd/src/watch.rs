//! Watches: changes in their order, also over lost connections.
//!
//! A watch remembers which change it returned last. After a lost connection it asks another member for the changes from there on, so none is
//! missed and none comes twice. etcd splits a long list of changes (`fragment`), perhaps in the middle of a revision; then the next question
//! begins with that revision again, and the watch leaves out as many of its changes as it returned.

use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dapple_client::Response;
use dapple_io::time::sleep;
use dapple_tower::Backoff;
use dapple_tower::random::Random;
use serde::Serialize;

use crate::answer::Failure;
use crate::call::Safety;
use crate::client::Etcd;
use crate::error::{Error, Reason};
use crate::keys::Keys;
use crate::op::Record;
use crate::wire::{Base64, Streamed, WatchReply, WireEvent, is_false, is_zero};

/// The keys to watch, and from when on; see [`Etcd::watch`].
#[derive(Clone, Debug, Serialize)]
pub struct Watching {
    key: Base64,
    #[serde(skip_serializing_if = "Option::is_none")]
    range_end: Option<Base64>,
    #[serde(skip_serializing_if = "is_zero")]
    start_revision: i64,
    #[serde(skip_serializing_if = "is_false")]
    prev_kv: bool,
    progress_notify: bool,
    fragment: bool,
}

impl Watching {
    /// The changes of these keys from now on.
    pub fn new(keys: impl Into<Keys>) -> Watching {
        let Keys { key, range_end } = keys.into();
        Watching { key, range_end, start_revision: 0, prev_kv: false, progress_notify: true, fragment: true }
    }

    /// The changes at this revision and later ones. After a read at revision `r`, `since(r + 1)` misses nothing.
    #[must_use]
    pub fn since(mut self, revision: i64) -> Watching {
        self.start_revision = revision.max(1);
        self
    }

    /// Returns with each change the record that it replaced or removed, unless etcd has forgotten it.
    #[must_use]
    pub fn previous(mut self) -> Watching {
        self.prev_kv = true;
        self
    }
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The key has this value now.
    Put {
        /// The record after the change.
        record: Record,
        /// The record before, if the watch requested it.
        previous: Option<Record>,
    },
    /// The key was removed, or its lease has ended.
    Delete {
        /// The key.
        key: Bytes,
        /// The revision of the removal.
        revision: i64,
        /// The record before, if the watch requested it.
        previous: Option<Record>,
    },
}

impl Event {
    /// The key.
    pub fn key(&self) -> &Bytes {
        match self {
            Event::Put { record, .. } => &record.key,
            Event::Delete { key, .. } => key,
        }
    }

    /// The revision of the change.
    pub fn revision(&self) -> i64 {
        match self {
            Event::Put { record, .. } => record.mod_revision,
            Event::Delete { revision, .. } => *revision,
        }
    }
}

impl From<WireEvent> for Event {
    fn from(event: WireEvent) -> Event {
        let previous = event.prev_kv.map(Record::from);
        match event.kind.as_str() {
            "DELETE" => Event::Delete { key: event.kv.key.0, revision: event.kv.mod_revision, previous },
            _ => Event::Put { record: event.kv.into(), previous },
        }
    }
}

/// Changes on their way, in the order of their revisions; see [`Etcd::watch`].
pub struct Watch {
    etcd: Etcd,
    place: Place,
    lines: Option<Lines>,
    failures: u32,
    random: Random,
}

impl Etcd {
    /// Watches keys. Resolves when etcd has taken the watch: it returns all changes from then on.
    ///
    /// ```no_run
    /// use dapple_etcd::{Etcd, Event, Get, Keys, Watching};
    ///
    /// # async fn follow(etcd: Etcd) -> Result<(), dapple_etcd::Error> {
    /// let users = Keys::prefix("users/");
    /// let found = etcd.find(Get::new(users.clone())).await?;
    /// let mut watch = etcd.watch(Watching::new(users).since(found.revision + 1)).await?;
    /// loop {
    ///     for event in watch.next().await? {
    ///         println!("{:?} at {}", event.key(), event.revision());
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Safe.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]: no member took it in time. [`Error::NotApplied`], with [`Reason::Compacted`]: etcd has forgotten the changes
    /// since that revision.
    pub async fn watch(&self, watching: Watching) -> Result<Watch, Error> {
        let deadline = dapple_io::time::Instant::now() + self.timeout.min(crate::client::TIMEOUT_MAX);
        let mut watch = Watch {
            etcd: self.clone(),
            place: Place { watching, returned: 0, seen: 0 },
            lines: None,
            failures: 0,
            random: Random::fresh(),
        };
        let beginning = async {
            loop {
                match watch.step().await {
                    Ok(Step::Created) => return Ok(()),
                    Ok(_) => {}
                    Err(Failure::Final(error)) => return Err(error),
                    Err(failure) => watch.rest(&failure).await,
                }
            }
        };
        match dapple_io::time::timeout_at(deadline, beginning).await {
            Ok(begun) => begun.map(|()| watch),
            Err(_) => Err(Error::Unavailable {
                message: "no member took the watch within the deadline".to_owned(),
                retry_after: REST_MIN,
            }),
        }
    }
}

/// The content of a message.
enum Step {
    Created,
    Events(Vec<Event>),
    Nothing,
}

impl Watch {
    /// The next changes, one at least, in the order of their revisions. Those of one revision come together, unless they are more than about
    /// 2 MiB. Waits through lost connections and outages for as long as it takes.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it resolves, it has taken nothing.
    ///
    /// # Errors
    ///
    /// [`Error::NotApplied`] only. With [`Reason::Compacted`], etcd has forgotten changes that this watch has not returned: read the present
    /// state, and watch from its revision on.
    pub async fn next(&mut self) -> Result<Vec<Event>, Error> {
        loop {
            match self.step().await {
                Ok(Step::Events(events)) => return Ok(events),
                Ok(Step::Created | Step::Nothing) => {}
                Err(Failure::Final(error)) => return Err(error),
                Err(failure) => self.rest(&failure).await,
            }
        }
    }

    /// The revision from which the watch continues: it has returned all changes before.
    pub fn revision(&self) -> i64 {
        self.place.watching.start_revision
    }

    /// Takes the next message; opens a stream first if there is none. Cancel safe.
    async fn step(&mut self) -> Result<Step, Failure> {
        let lines = match &mut self.lines {
            Some(lines) => lines,
            none => {
                let lines = Lines::open(&self.etcd, &self.place).await?;
                self.place.reopened();
                none.insert(lines)
            }
        };
        let message = match lines.next().await {
            Ok(message) => message,
            Err(failure) => {
                self.lines = None;
                return Err(failure);
            }
        };
        let step = self.place.take(message);
        match &step {
            Ok(_) => self.failures = 0,
            Err(failure) => {
                self.lines = None;
                if let (Failure::Token(_), Some(auth)) = (failure, &self.etcd.inner.auth) {
                    auth.forget_any();
                }
            }
        }
        step
    }

    /// Waits before the next attempt.
    async fn rest(&mut self, failure: &Failure) {
        tracing::debug!(?failure, revision = self.revision(), "a watch tries another member");
        let wait = Backoff::new(REST_MIN, REST_MAX).random_wait(self.failures, &mut self.random);
        self.failures = self.failures.saturating_add(1);
        sleep(wait).await;
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("place", &self.place)
            .field("is_open", &self.lines.is_some())
            .finish_non_exhaustive()
    }
}

/// Where a watch is in the history.
#[derive(Clone, Debug)]
struct Place {
    /// The request that continues from here. Its revision is the next one, or one that was returned
    /// in part.
    watching: Watching,
    /// The number of changes of that revision that were returned.
    returned: usize,
    /// The number of changes of that revision that the present stream brought.
    seen: usize,
}

#[derive(Serialize)]
struct Question<'a> {
    create_request: &'a Watching,
}

impl Place {
    /// Takes a message, and moves on.
    fn take(&mut self, message: Streamed<WatchReply>) -> Result<Step, Failure> {
        let Some(reply) = message.result else {
            return Err(Failure::of_json(&message.error.unwrap_or_default(), "etcd ended the watch"));
        };
        if reply.canceled {
            return Err(canceled(&reply));
        }
        let next = &mut self.watching.start_revision;
        if reply.created {
            // From now on: the watch has a place in the history.
            if *next == 0 {
                *next = reply.header.revision + 1;
            }
            return Ok(Step::Created);
        }
        if reply.events.is_empty() {
            // Progress: all changes up to this revision were sent.
            if !reply.fragment && self.returned == 0 {
                *next = (*next).max(reply.header.revision + 1);
            }
            return Ok(Step::Nothing);
        }
        let events = self.fresh(reply.events.into_iter().map(Event::from));
        if !reply.fragment {
            self.watching.start_revision += 1;
            (self.seen, self.returned) = (0, 0);
        }
        Ok(if events.is_empty() { Step::Nothing } else { Step::Events(events) })
    }

    /// Leaves out the returned part. Afterwards the place is the revision of the last change.
    fn fresh(&mut self, events: impl Iterator<Item = Event>) -> Vec<Event> {
        let mut fresh = Vec::new();
        for event in events {
            if event.revision() != self.watching.start_revision {
                self.watching.start_revision = event.revision();
                (self.seen, self.returned) = (0, 0);
            }
            self.seen += 1;
            if self.seen > self.returned {
                self.returned = self.seen;
                fresh.push(event);
            }
        }
        fresh
    }

    /// A new stream begins with the revision of the place.
    fn reopened(&mut self) {
        self.seen = 0;
    }
}

/// Why etcd canceled a watch.
fn canceled(reply: &WatchReply) -> Failure {
    let why = match reply.cancel_reason.as_str() {
        "" => "etcd canceled the watch",
        why => why,
    };
    if reply.compact_revision > 0 {
        let reason = Reason::Compacted { revision: reply.compact_revision };
        return Failure::Final(Error::not_applied(
            reason,
            format!("the changes before {} are forgotten", reply.compact_revision),
        ));
    }
    let denied = why.contains("permission denied");
    match Failure::of(if denied { PERMISSION_DENIED } else { UNKNOWN }, why) {
        Failure::Elsewhere { why, .. } => Failure::unsent(why),
        failure => failure,
    }
}

/// A streamed reply: one JSON value per line.
struct Lines {
    response: Response,
    rest: BytesMut,
    /// The bytes of `rest` that have no line end.
    searched: usize,
}

impl Lines {
    async fn open(etcd: &Etcd, place: &Place) -> Result<Lines, Failure> {
        let question = Question { create_request: &place.watching };
        let call = etcd.call("/v3/watch", &question, Safety::Read);
        match etcd.inner.open(call).await {
            Ok(response) => Ok(Lines { response, rest: BytesMut::new(), searched: 0 }),
            Err(error @ Error::NotApplied { .. }) => Err(Failure::Final(error)),
            Err(error) => Err(Failure::unsent(error.to_string())),
        }
    }

    /// The next value. Cancel safe.
    async fn next(&mut self) -> Result<Streamed<WatchReply>, Failure> {
        loop {
            if let Some(end) = self.rest[self.searched..].iter().position(|&byte| byte == b'\n') {
                let line = self.rest.split_to(self.searched + end + 1);
                self.searched = 0;
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return serde_json::from_slice(&line).map_err(|error| Failure::unsent(format!("no message: {error}")));
            }
            self.searched = self.rest.len();
            if self.rest.len() > LINE_LEN_MAX {
                return Err(Failure::unsent(format!("a message has more than {LINE_LEN_MAX} bytes")));
            }
            match self.response.chunk().await {
                Ok(Some(piece)) => self.rest.extend_from_slice(&piece),
                Ok(None) => return Err(Failure::unsent("the member ended the stream".to_owned())),
                Err(error) => return Err(Failure::unsent(error.to_string())),
            }
        }
    }
}

/// Codes of gRPC.
const PERMISSION_DENIED: i64 = 7;
const UNKNOWN: i64 = 2;

/// The longest message: etcd splits those above its limit for requests, 1.5 MiB by default, but not a single change.
const LINE_LEN_MAX: usize = 64 << 20;

/// The wait before a watch asks the next member.
const REST_MIN: Duration = Duration::from_millis(20);
const REST_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
