//! Who goes next: what the kinds of throttles have in common.

use std::collections::VecDeque;
use std::time::Instant;

/// Names one who waits.
pub(super) type Ticket = u64;

/// What is to happen now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This one goes, and is out of the line. What it is charged to is for `put_back`.
    Goes(Ticket, Charge),
    /// Nobody goes before this time.
    At(Instant),
    /// Nobody waits.
    Nobody,
}

/// What somebody who goes is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charge {
    /// The rate of all, and that of its class.
    Own,
    /// The rate of all alone.
    Borrowed,
}

/// A line, or several, and what they wait for. Without locks and clocks; its owner bounds how many wait.
pub(super) trait Discipline<K>: Send {
    /// Puts somebody in line. `Err` if the key means nothing here.
    fn push(&mut self, ticket: Ticket, key: &K, cost: u64, now: Instant) -> Result<(), UnknownKey>;

    /// Takes somebody out of the line who waits there.
    fn cancel(&mut self, ticket: Ticket, key: &K);

    /// Gives back what somebody was let go with and has not used.
    fn put_back(&mut self, key: &K, cost: u64, charge: Charge);

    fn next(&mut self, now: Instant) -> Next;

    /// How many of this key wait.
    fn len_of(&self, key: &K) -> usize;

    /// How many wait in the longest line.
    fn longest_len(&self) -> usize;

    /// Takes the last one out of the longest line.
    fn cut_longest(&mut self) -> Option<Ticket>;
}

/// There is no class of that name.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnknownKey;

/// One line, in order.
#[derive(Debug, Default)]
pub(super) struct Line(VecDeque<(Ticket, u64)>);

impl Line {
    pub(super) fn push(&mut self, ticket: Ticket, cost: u64) {
        self.0.push_back((ticket, cost));
    }

    /// True if it was there.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> bool {
        // Tickets rise.
        let at = self.0.binary_search_by_key(&ticket, |(ticket, _)| *ticket);
        at.is_ok_and(|at| self.0.remove(at).is_some())
    }

    pub(super) fn first(&self) -> Option<(Ticket, u64)> {
        self.0.front().copied()
    }

    pub(super) fn cut(&mut self) -> Option<Ticket> {
        self.0.pop_back().map(|(ticket, _)| ticket)
    }

    pub(super) fn pop(&mut self) {
        self.0.pop_front();
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
