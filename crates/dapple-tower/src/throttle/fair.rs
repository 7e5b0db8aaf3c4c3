//! A line for each key, served in turns.

use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Instant;

use dapple_sched::environment::HashMap;

use super::discipline::{Charge, Discipline, Line, Next, Ticket, UnknownKey};
use super::rate::{Bucket, Rate};

/// Deficit round robin (M. Shreedhar, G. Varghese, *Efficient Fair Queuing Using Deficit Round
/// Robin*, SIGCOMM 1995) in front of a token bucket: each waiting key gets the same share of the
/// rate, measured in cost, whatever the others ask for.
pub(super) struct Fair<K> {
    bucket: Bucket,
    lines: HashMap<K, Turns>,
    /// Waiting keys, in the order of their turns; the first one is being served.
    turns: VecDeque<K>,
    /// The first key has got the credit of its turn.
    is_credited: bool,
}

#[derive(Default)]
struct Turns {
    line: Line,
    /// The amount it may still spend.
    deficit: u64,
}

impl<K: Clone + Eq + Hash> Fair<K> {
    pub(super) fn new(rate: Rate, burst: u64, now: Instant) -> Fair<K> {
        let bucket = Bucket::new(rate, burst, (1, 1), now);
        Fair { bucket, lines: HashMap::default(), turns: VecDeque::new(), is_credited: false }
    }

    /// The ticket at its turn, after the necessary rounds.
    fn turn(&mut self) -> Option<(K, Ticket, u64)> {
        let mut looked_at = 0;
        loop {
            let key = self.turns.front()?.clone();
            let turns = self.lines.get_mut(&key).expect(WAITS);
            let (ticket, cost) = turns.line.first().expect(WAITS);
            if !self.is_credited {
                turns.deficit = turns.deficit.saturating_add(QUANTUM);
                self.is_credited = true;
            }
            if turns.deficit >= cost {
                return Some((key, ticket, cost));
            }
            self.pass();
            looked_at += 1;
            if looked_at == self.turns.len() {
                self.skip_rounds();
                looked_at = 0;
            }
        }
    }

    fn pass(&mut self) {
        self.turns.rotate_left(1);
        self.is_credited = false;
    }

    /// Skips all rounds in which no key can spend anything, at once.
    fn skip_rounds(&mut self) {
        let missing = |turns: &Turns| turns.line.first().map(|(_, cost)| cost.saturating_sub(turns.deficit));
        let fewest = self.lines.values().filter_map(missing).min().unwrap_or(0);
        let rounds = fewest.div_ceil(QUANTUM).saturating_sub(1);
        for turns in self.lines.values_mut() {
            turns.deficit = turns.deficit.saturating_add(rounds.saturating_mul(QUANTUM));
        }
    }

    /// The first key does not wait any more: its credit is lost.
    fn leave(&mut self, key: &K) {
        self.lines.remove(key);
        if self.turns.front() == Some(key) {
            self.is_credited = false;
        }
        self.turns.retain(|other| other != key);
    }
}

impl<K: Clone + Eq + Hash + Send> Discipline<K> for Fair<K> {
    fn push(&mut self, ticket: Ticket, key: &K, cost: u64, _: Instant) -> Result<(), UnknownKey> {
        let turns = self.lines.entry(key.clone()).or_insert_with(|| {
            self.turns.push_back(key.clone());
            Turns::default()
        });
        turns.line.push(ticket, cost);
        Ok(())
    }

    fn cancel(&mut self, ticket: Ticket, key: &K) {
        let Some(turns) = self.lines.get_mut(key) else { return };
        turns.line.cancel(ticket);
        if turns.line.len() == 0 {
            self.leave(key);
        }
    }

    fn put_back(&mut self, _: &K, cost: u64, _: Charge) {
        self.bucket.put_back(cost);
    }

    fn next(&mut self, now: Instant) -> Next {
        let Some((key, ticket, cost)) = self.turn() else { return Next::Nobody };
        let ready = self.bucket.ready_at(cost, now);
        if ready > now {
            return Next::At(ready);
        }
        self.bucket.take(cost);
        let turns = self.lines.get_mut(&key).expect(WAITS);
        turns.line.pop();
        turns.deficit -= cost;
        if turns.line.len() == 0 {
            self.leave(&key);
        } else if turns.deficit == 0 {
            self.pass();
        }
        Next::Goes(ticket, Charge::Own)
    }

    fn len_of(&self, key: &K) -> usize {
        self.lines.get(key).map_or(0, |turns| turns.line.len())
    }

    fn longest_len(&self) -> usize {
        self.lines.values().map(|turns| turns.line.len()).max().unwrap_or(0)
    }

    fn cut_longest(&mut self) -> Option<Ticket> {
        let (key, turns) = self.lines.iter_mut().max_by_key(|(_, turns)| turns.line.len())?;
        let (key, ticket) = (key.clone(), turns.line.cut());
        if turns.line.len() == 0 {
            self.leave(&key);
        }
        ticket
    }
}

const WAITS: &str = "a key with a turn has a ticket";
/// The credit of a turn: one, so that requests of cost one alternate.
const QUANTUM: u64 = 1;
