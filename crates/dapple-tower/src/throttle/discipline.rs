//! The interface of all throttles: which ticket goes next.

use std::collections::VecDeque;
use std::time::Instant;

/// Identifies a waiting caller.
pub(super) type Ticket = u64;

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This ticket goes, and has left the line. `put_back` needs the charge.
    Goes(Ticket, Charge),
    /// No ticket goes before this time.
    At(Instant),
    /// No ticket waits.
    Nobody,
}

/// The account that is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charge {
    /// The rate of all, and that of its class.
    Own,
    /// Only the rate of all.
    Borrowed,
}

/// One or several lines, and their rates. Without locks and clocks; the owner bounds the number of
/// tickets.
pub(super) trait Discipline<K>: Send {
    /// Adds a ticket. `Err` if the key is unknown.
    fn push(&mut self, ticket: Ticket, key: &K, cost: u64, now: Instant) -> Result<(), UnknownKey>;

    /// Removes a waiting ticket.
    fn cancel(&mut self, ticket: Ticket, key: &K);

    /// Gives back an unused grant.
    fn put_back(&mut self, key: &K, cost: u64, charge: Charge);

    fn next(&mut self, now: Instant) -> Next;

    /// The number of waiting tickets of this key.
    fn len_of(&self, key: &K) -> usize;

    /// The length of the longest line.
    fn longest_len(&self) -> usize;

    /// Removes the last ticket of the longest line.
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

    /// Returns whether it was there.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> bool {
        // Tickets are ascending.
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
