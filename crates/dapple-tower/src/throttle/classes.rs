//! Classes with guaranteed shares.

use std::hash::Hash;
use std::time::Instant;

use dapple_sched::environment::HashMap;

use super::discipline::{Charge, Discipline, Line, Next, Ticket, UnknownKey};
use super::rate::{Bucket, Rate};

/// One class of traffic: its name, its share of the rate relative to the other classes, and whether
/// it may borrow.
///
/// ```
/// use dapple_tower::throttle::{Class, Rate, Throttle};
///
/// // Paid traffic has three quarters of the rate plus what free traffic leaves; that has one quarter and no more.
/// let throttle = Throttle::classes(Rate::per_second(100), [Class::new("paid", 3), Class::new("free", 1).bounded()]);
/// assert!(throttle.try_take(&"paid", 1).is_ok());
/// assert!(throttle.try_take(&"unknown", 1).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class<K> {
    key: K,
    share: u64,
    may_borrow: bool,
}

impl<K> Class<K> {
    /// A class that may borrow unused shares. A share of 0 has no guarantee, and only borrows.
    pub const fn new(key: K, share: u32) -> Class<K> {
        Class { key, share: share as u64, may_borrow: true }
    }

    /// Never gets more than its share; with a share of 0, nothing.
    pub fn bounded(self) -> Class<K> {
        Class { may_borrow: false, ..self }
    }
}

/// Link sharing (S. Floyd, V. Jacobson, *Link-sharing and Resource Management Models for Packet
/// Networks*, 1995), with two levels: a bucket for all, and one for each class, its guarantee. A
/// class within its guarantee goes before all borrowers; among those, the class that has borrowed
/// least for its share goes first.
pub(super) struct Classes<K> {
    total: Bucket,
    classes: Vec<State>,
    places: HashMap<K, usize>,
}

struct State {
    line: Line,
    own: Option<Bucket>,
    share: u64,
    may_borrow: bool,
    /// The borrowed amount, divided by its share.
    borrowed: u128,
}

impl<K: Clone + Eq + Hash> Classes<K> {
    pub(super) fn new(rate: Rate, burst: u64, classes: impl IntoIterator<Item = Class<K>>, now: Instant) -> Classes<K> {
        let classes: HashMap<K, Class<K>> = classes.into_iter().map(|class| (class.key.clone(), class)).collect();
        let shares = classes.values().map(|class| class.share).sum::<u64>().max(1);
        let mut all =
            Classes { total: Bucket::new(rate, burst, (1, 1), now), classes: Vec::new(), places: HashMap::default() };
        for (key, class) in classes {
            all.places.insert(key, all.classes.len());
            let own = (class.share > 0).then(|| Bucket::new(rate, burst, (class.share, shares), now));
            let Class { share, may_borrow, .. } = class;
            all.classes.push(State { line: Line::default(), own, share, may_borrow, borrowed: 0 });
        }
        all
    }

    /// The ticket that goes first at `now`, or when the first one can go.
    fn choose(&mut self, now: Instant) -> Choice {
        let mut within: Option<(Ticket, usize)> = None;
        let mut borrower: Option<(u128, Ticket, usize)> = None;
        let mut soonest: Option<Instant> = None;
        for (place, class) in self.classes.iter_mut().enumerate() {
            let Some((ticket, cost)) = class.line.first() else { continue };
            let total_at = self.total.ready_at(cost, now);
            let own_at = class.own.as_mut().map(|own| own.ready_at(cost, now));
            let at = match own_at {
                _ if class.may_borrow => total_at,
                Some(own_at) => own_at.max(total_at),
                None => continue,
            };
            if at > now {
                soonest = Some(soonest.map_or(at, |before| before.min(at)));
            } else if own_at.is_some_and(|own_at| own_at <= now) {
                within = within.min_or((ticket, place));
            } else {
                borrower = borrower.min_or((class.borrowed, ticket, place));
            }
        }
        match (within, borrower) {
            // Wait for the guaranteed class: a borrower would take its part now.
            (Some((ticket, place)), _) => Choice::Goes { ticket, place, charge: Charge::Own },
            (None, Some((_, ticket, place))) => Choice::Goes { ticket, place, charge: Charge::Borrowed },
            (None, None) => soonest.map_or(Choice::Nobody, Choice::At),
        }
    }
}

enum Choice {
    Goes { ticket: Ticket, place: usize, charge: Charge },
    At(Instant),
    Nobody,
}

trait MinOr<T> {
    fn min_or(self, other: T) -> Option<T>;
}

impl<T: Ord> MinOr<T> for Option<T> {
    fn min_or(self, other: T) -> Option<T> {
        Some(match self {
            Some(one) => one.min(other),
            None => other,
        })
    }
}

impl<K: Clone + Eq + Hash + Send> Discipline<K> for Classes<K> {
    fn push(&mut self, ticket: Ticket, key: &K, cost: u64, _: Instant) -> Result<(), UnknownKey> {
        let place = *self.places.get(key).ok_or(UnknownKey)?;
        if self.classes[place].own.is_none() && !self.classes[place].may_borrow {
            return Err(UnknownKey);
        }
        if self.classes[place].line.len() == 0 {
            // A class that becomes active again has no credit for shares that others borrowed
            // meanwhile.
            let waiting = self.classes.iter().filter(|class| class.line.len() > 0);
            let least = waiting.map(|class| class.borrowed).min().unwrap_or(0);
            let class = &mut self.classes[place];
            class.borrowed = class.borrowed.max(least);
        }
        self.classes[place].line.push(ticket, cost);
        Ok(())
    }

    fn cancel(&mut self, ticket: Ticket, key: &K) {
        if let Some(place) = self.places.get(key) {
            self.classes[*place].line.cancel(ticket);
        }
    }

    fn put_back(&mut self, key: &K, cost: u64, charge: Charge) {
        self.total.put_back(cost);
        if charge == Charge::Borrowed {
            return;
        }
        if let Some(own) = self.places.get(key).and_then(|place| self.classes[*place].own.as_mut()) {
            own.put_back(cost);
        }
    }

    fn next(&mut self, now: Instant) -> Next {
        let (ticket, place, charge) = match self.choose(now) {
            Choice::Goes { ticket, place, charge } => (ticket, place, charge),
            Choice::At(at) => return Next::At(at),
            Choice::Nobody => return Next::Nobody,
        };
        let class = &mut self.classes[place];
        let cost = class.line.first().map_or(0, |(_, cost)| cost);
        class.line.pop();
        self.total.take(cost);
        match (charge, &mut class.own) {
            (Charge::Own, Some(own)) => own.take(cost),
            _ => class.borrowed += u128::from(cost) * BORROWED_UNIT / u128::from(class.share.max(1)),
        }
        Next::Goes(ticket, charge)
    }

    fn len_of(&self, key: &K) -> usize {
        self.places.get(key).map_or(0, |place| self.classes[*place].line.len())
    }

    fn longest_len(&self) -> usize {
        self.classes.iter().map(|class| class.line.len()).max().unwrap_or(0)
    }

    fn cut_longest(&mut self) -> Option<Ticket> {
        self.classes.iter_mut().max_by_key(|class| class.line.len())?.line.cut()
    }
}

/// A scale at which small costs of large shares still count.
const BORROWED_UNIT: u128 = 1 << 32;
