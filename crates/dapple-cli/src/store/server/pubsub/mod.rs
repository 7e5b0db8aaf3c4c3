//! Channels: what one client publishes goes to all clients that have subscribed.
//!
//! The broker has a color of its own and keeps the subscriptions of all clients. It puts messages into the
//! subscribers' mailboxes; each subscriber's connection sends them.

mod commands;
mod mailbox;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use dapple::Colored;

use super::glob;
use super::memory::{Memory, Share};
pub(super) use commands::{about, publish, run};
pub(super) use mailbox::Message;
use mailbox::{Inbox, Mailbox, mailbox};

/// Passes published messages on.
pub(super) struct Broker {
    book: Colored<Book>,
    counters: Arc<Counters>,
    memory: Arc<Memory>,
    waiting_max: usize,
}

/// Totals since the start.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) published: AtomicU64,
    pub(super) delivered: AtomicU64,
    /// Subscribers that were disconnected because they did not read.
    pub(super) cut: AtomicU64,
}

/// The subscriptions of all clients.
#[derive(Default)]
struct Book {
    channels: Names,
    patterns: Names,
}

/// The clients of each channel or pattern. A name without clients is not there.
type Names = HashMap<Bytes, HashMap<u64, Arc<Mailbox>>>;

/// Whether names of subscriptions are channels or patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Channel,
    Pattern,
}

/// The subscriptions of one client. They end when this is dropped.
pub(super) struct Subscriber {
    id: u64,
    book: Colored<Book>,
    mailbox: Arc<Mailbox>,
    inbox: Inbox,
    channels: BTreeSet<Bytes>,
    patterns: BTreeSet<Bytes>,
    /// The memory of the names.
    names: Share,
}

impl Broker {
    /// `waiting_max` is the most bytes that wait for one subscriber.
    pub(super) fn new(waiting_max: usize, memory: Arc<Memory>) -> Broker {
        Broker { book: Colored::new(Book::default()), counters: Arc::default(), memory, waiting_max }
    }

    /// The totals since the start.
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts a subscriber that was disconnected because it did not read.
    pub(super) fn count_cut(&self) {
        self.counters.cut.fetch_add(1, Ordering::Relaxed);
    }

    /// The most bytes that wait for one subscriber.
    fn waiting_max(&self) -> usize {
        self.waiting_max
    }

    fn subscriber(&self, id: u64) -> Subscriber {
        let (mailbox, inbox) = mailbox(self.waiting_max, self.memory.clone());
        let (book, mailbox, names) = (self.book.clone(), Arc::new(mailbox), Share::new(&self.memory));
        Subscriber { id, book, mailbox, inbox, channels: BTreeSet::new(), patterns: BTreeSet::new(), names }
    }

    /// Puts a message into the mailboxes of the channel's subscribers and returns their number. The
    /// time is proportional to the number of receivers and of all patterns.
    async fn publish(&self, channel: &[u8], payload: &[u8]) -> u64 {
        // A part of the request would keep all of it in memory.
        let (channel, payload) = (Bytes::copy_from_slice(channel), Bytes::copy_from_slice(payload));
        let counters = self.counters.clone();
        let put = move |book: &mut Book| {
            let mut message = Message { pattern: None, channel, payload };
            let mut delivered = book.channels.get(&message.channel).map_or(0, |clients| put_all(clients, &message));
            for (pattern, clients) in &book.patterns {
                if glob::matches(pattern, &message.channel) {
                    message.pattern = Some(pattern.clone());
                    delivered += put_all(clients, &message);
                }
            }
            counters.published.fetch_add(1, Ordering::Relaxed);
            counters.delivered.fetch_add(delivered, Ordering::Relaxed);
            delivered
        };
        self.book.with(put).await
    }

    /// The channels with subscribers that match `pattern`.
    async fn channels(&self, pattern: Option<Bytes>) -> Vec<Bytes> {
        let is_wanted = |name: &Bytes| pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, name));
        self.book.read(|book| book.channels.keys().filter(|name| is_wanted(name)).cloned().collect()).await
    }

    /// The number of subscribers of each channel.
    async fn subscribers(&self, channels: &[Bytes]) -> Vec<usize> {
        let count = |book: &Book, name: &Bytes| book.channels.get(name).map_or(0, HashMap::len);
        self.book.read(|book| channels.iter().map(|name| count(book, name)).collect()).await
    }

    /// The numbers of channels and of patterns that have subscribers.
    pub(super) async fn names(&self) -> (usize, usize) {
        self.book.read(|book| (book.channels.len(), book.patterns.len())).await
    }
}

/// Puts a message into all mailboxes and returns the number of those that took it.
fn put_all(clients: &HashMap<u64, Arc<Mailbox>>, message: &Message) -> u64 {
    clients.values().filter(|mailbox| mailbox.put(message)).count() as u64
}

impl Book {
    fn names(&mut self, kind: Kind) -> &mut Names {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
        }
    }

    fn remove(&mut self, kind: Kind, names: impl IntoIterator<Item = Bytes>, id: u64) {
        let all = self.names(kind);
        for name in names {
            if let Some(clients) = all.get_mut(&name) {
                clients.remove(&id);
                if clients.is_empty() {
                    all.remove(&name);
                }
            }
        }
    }
}

impl Subscriber {
    /// The numbers of channels and of patterns.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.channels.len(), self.patterns.len())
    }

    /// The number of subscriptions.
    pub(super) fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Returns the next message; `None` if the client must be disconnected because it does not read. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Message> {
        self.inbox.next().await
    }

    /// Returns the next message if one waits.
    pub(super) fn try_next(&mut self) -> Option<Message> {
        self.inbox.try_next()
    }

    /// Waits until the client must be disconnected because it does not read. Cancel safe.
    pub(super) async fn cut(&mut self) {
        self.inbox.cut().cancelled().await;
    }

    fn own(&mut self, kind: Kind) -> &mut BTreeSet<Bytes> {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
        }
    }

    /// Whether there is memory for these names, too.
    fn may_keep(&mut self, more: &[Bytes]) -> bool {
        const OVERHEAD: usize = 256;
        let size = |name: &Bytes| name.len() + OVERHEAD;
        let now: usize = self.channels.iter().chain(&self.patterns).map(size).sum();
        let fits = self.names.set(now + more.iter().map(size).sum::<usize>());
        if !fits {
            self.names.set(now);
        }
        fits
    }

    async fn add(&mut self, kind: Kind, names: Vec<Bytes>) {
        let (id, mailbox) = (self.id, self.mailbox.clone());
        let add = |book: &mut Book| {
            for name in names {
                book.names(kind).entry(name).or_default().insert(id, mailbox.clone());
            }
        };
        self.book.with(add).await;
    }

    async fn remove(&mut self, kind: Kind, names: Vec<Bytes>) {
        let id = self.id;
        self.book.with(|book| book.remove(kind, names, id)).await;
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let (id, channels, patterns) =
            (self.id, std::mem::take(&mut self.channels), std::mem::take(&mut self.patterns));
        if channels.is_empty() && patterns.is_empty() {
            return;
        }
        self.book.post(move |book| {
            book.remove(Kind::Channel, channels, id);
            book.remove(Kind::Pattern, patterns, id);
        });
    }
}
