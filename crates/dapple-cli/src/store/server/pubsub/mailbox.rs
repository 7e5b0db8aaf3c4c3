//! Messages that wait for one subscriber.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use dapple::sync::mpsc;
use dapple::task::{CancellationToken, First, race};

use super::super::memory::{Memory, SMALL};
use super::super::reply::Reply;

/// A published message, as a subscriber gets it.
#[derive(Clone)]
pub(in super::super) struct Message {
    /// The pattern of the subscription, if it has one.
    pub(super) pattern: Option<Bytes>,
    pub(super) channel: Bytes,
    pub(super) payload: Bytes,
}

/// The sending end: the broker puts messages in. A subscriber that has too many is cut.
pub(super) struct Mailbox {
    tx: mpsc::Sender<(Message, Waiting)>,
    sums: Arc<Sums>,
    bytes_max: usize,
    cut: CancellationToken,
}

/// The receiving end, of the subscriber's connection.
pub(super) struct Inbox {
    rx: mpsc::Receiver<(Message, Waiting)>,
    cut: CancellationToken,
}

/// The bytes of waiting messages: of this subscriber, and of all.
struct Sums {
    own: AtomicUsize,
    all: Arc<Memory>,
}

/// The bytes of one message that waits; they count until this is dropped.
struct Waiting {
    sums: Arc<Sums>,
    bytes: usize,
}

/// The memory of a waiting message apart from its bytes.
const OVERHEAD: usize = 128;

/// Makes a mailbox for at most `bytes_max` waiting bytes.
pub(super) fn mailbox(bytes_max: usize, memory: Arc<Memory>) -> (Mailbox, Inbox) {
    // The bytes are the limit: each message has more than the overhead.
    let (tx, rx) = mpsc::channel(bytes_max / OVERHEAD + 1);
    let (sums, cut) = (Arc::new(Sums { own: AtomicUsize::new(0), all: memory }), CancellationToken::new());
    (Mailbox { tx, sums, bytes_max, cut: cut.clone() }, Inbox { rx, cut })
}

impl Message {
    fn len(&self) -> usize {
        self.pattern.as_ref().map_or(0, Bytes::len) + self.channel.len() + self.payload.len() + OVERHEAD
    }

    pub(in super::super) fn into_reply(self) -> Reply {
        let words = match self.pattern {
            None => vec![Reply::text("message"), Reply::Bulk(self.channel), Reply::Bulk(self.payload)],
            Some(pattern) => {
                let (channel, payload) = (Reply::Bulk(self.channel), Reply::Bulk(self.payload));
                vec![Reply::text("pmessage"), Reply::Bulk(pattern), channel, payload]
            }
        };
        Reply::Push(words)
    }
}

impl Mailbox {
    /// Puts a message in. Cuts the subscriber if that would be more than it, or all subscribers
    /// together, may have; `false` if the subscriber is gone or has just been cut.
    pub(super) fn put(&self, message: &Message) -> bool {
        if self.cut.is_cancelled() {
            return false;
        }
        let bytes = message.len();
        let own = self.sums.own.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let fits_all = self.sums.all.add(bytes) || own <= SMALL;
        let waiting = Waiting { sums: self.sums.clone(), bytes };
        let is_put = own <= self.bytes_max && fits_all && self.tx.try_send((message.clone(), waiting)).is_ok();
        if !is_put {
            self.cut.cancel();
        }
        is_put
    }
}

impl Inbox {
    /// Returns the next message; `None` once the subscriber is cut. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Message> {
        match race(self.cut.cancelled(), self.rx.recv()).await {
            First::Left(()) => None,
            First::Right(next) => next.map(|(message, _)| message),
        }
    }

    /// Returns the next message if one waits.
    pub(super) fn try_next(&mut self) -> Option<Message> {
        self.rx.try_recv().ok().map(|(message, _)| message)
    }

    /// The token that is cancelled when the subscriber is cut.
    pub(super) fn cut(&self) -> &CancellationToken {
        &self.cut
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.sums.own.fetch_sub(self.bytes, Ordering::Relaxed);
        self.sums.all.remove(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::super::memory::Memory;
    use super::{Message, OVERHEAD, mailbox};

    fn message(len: usize) -> Message {
        Message { pattern: None, channel: Bytes::new(), payload: vec![0; len].into() }
    }

    #[test]
    fn a_subscriber_with_too_many_bytes_is_cut_and_its_messages_stop_counting() {
        let memory = Memory::new(1 << 20);
        let (mailbox, mut inbox) = mailbox(1000, memory.clone());
        assert!(mailbox.put(&message(300)) && mailbox.put(&message(300)));
        assert_eq!(memory.used(), 2 * (300 + OVERHEAD));
        assert!(inbox.try_next().is_some());
        assert!(mailbox.put(&message(300)) && !inbox.cut().is_cancelled());
        assert!(!mailbox.put(&message(300)) && inbox.cut().is_cancelled());
        assert!(inbox.try_next().is_some());
        assert!(!mailbox.put(&message(1)), "a subscriber that was cut gets no more");
        drop(inbox);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn all_subscribers_together_have_a_limit() {
        let memory = Memory::new(40 << 10);
        let [(first, _kept), (second, inbox)] = [(); 2].map(|()| mailbox(1 << 20, memory.clone()));
        assert!(first.put(&message(30 << 10)));
        assert!(second.put(&message(14 << 10)), "a small mailbox is always allowed");
        assert!(!second.put(&message(14 << 10)));
        assert!(inbox.cut().is_cancelled());
    }
}
