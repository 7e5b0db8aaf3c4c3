//! The shipped queue of a stage, with numbers as items, for the models in `tests/shuttle`.
//!
//! Compiled only with `--cfg dapple_shuttle`.

use std::task::{Context, Poll};
use std::time::Duration;

use crate::stage::queue::{Entry, Limits, QueueRank};
use crate::stage::shared_queue::SharedQueue;
use crate::{Reason, Refused};

/// A queue with its waiting line.
pub struct Queue {
    queue: SharedQueue<u32>,
}

/// A place in the queue or in its waiting line; see `stage/queue.rs`.
#[derive(Default)]
pub struct Ticket(Option<u64>);

/// The position of an item.
#[derive(Clone, Copy)]
pub struct Item(QueueRank);

impl Queue {
    /// A queue of this many places.
    pub fn new(len_max: usize) -> Queue {
        Queue { queue: SharedQueue::new(Limits { len_max, bytes_max: usize::MAX }) }
    }

    /// As in a handle's `poll_ready`.
    pub fn poll_place(&self, ticket: &mut Ticket, cx: &mut Context<'_>) -> Poll<()> {
        self.queue.poll_place(&mut ticket.0, cx, |len| Refused::new(Reason::Full { len }, Duration::ZERO))
    }

    /// As when a handle is dropped.
    pub fn release(&self, mut ticket: Ticket) {
        self.queue.release(&mut ticket.0);
    }

    /// As in a handle's `call`.
    pub fn push(&self, ticket: &mut Ticket, item: u32) -> Option<Item> {
        self.queue.push(&mut ticket.0, Entry { item, bytes: 0, rank: 0, deadline: None }).ok().map(Item)
    }

    /// As when the stage starts an item.
    pub fn take(&self) -> Option<u32> {
        let (mut taken, wakes) = self.queue.take(1, |_, _| true);
        wakes.call();
        taken.pop().map(|(_, entry)| entry.item)
    }

    /// As when a response is dropped.
    pub fn cancel(&self, item: Item) -> bool {
        self.queue.cancel(item.0).is_some()
    }

    /// As when a stage is stopped at once; returns the waiting items.
    pub fn shut(&self) -> Vec<u32> {
        self.queue.shut(Reason::Stopping, true).told().into_iter().map(|entry| entry.item).collect()
    }

    /// The waiting items, and the tickets in the waiting line.
    pub fn lengths(&self) -> (usize, usize) {
        let (len, _, line) = self.queue.lengths();
        (len, line)
    }
}
