//! One line for all.

use std::time::Instant;

use super::discipline::{Charge, Discipline, Line, Next, Ticket, UnknownKey};
use super::rate::{Bucket, Rate};

/// A token bucket with one line: first come, first served, at any cost.
pub(super) struct Plain {
    bucket: Bucket,
    line: Line,
}

impl Plain {
    pub(super) fn new(rate: Rate, burst: u64, now: Instant) -> Plain {
        Plain { bucket: Bucket::new(rate, burst, (1, 1), now), line: Line::default() }
    }
}

impl<K> Discipline<K> for Plain {
    fn push(&mut self, ticket: Ticket, _: &K, cost: u64, _: Instant) -> Result<(), UnknownKey> {
        self.line.push(ticket, cost);
        Ok(())
    }

    fn cancel(&mut self, ticket: Ticket, _: &K) {
        self.line.cancel(ticket);
    }

    fn put_back(&mut self, _: &K, cost: u64, _: Charge) {
        self.bucket.put_back(cost);
    }

    fn next(&mut self, now: Instant) -> Next {
        let Some((ticket, cost)) = self.line.first() else { return Next::Nobody };
        let ready = self.bucket.ready_at(cost, now);
        if ready > now {
            return Next::At(ready);
        }
        self.bucket.take(cost);
        self.line.pop();
        Next::Goes(ticket, Charge::Own)
    }

    fn len_of(&self, _: &K) -> usize {
        self.line.len()
    }

    fn longest_len(&self) -> usize {
        self.line.len()
    }

    fn cut_longest(&mut self) -> Option<Ticket> {
        self.line.cut()
    }
}
