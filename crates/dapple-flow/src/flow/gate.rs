//! Room under a limit, given out in order.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Poll;

use dapple_sched::foreign::KeptWaker;

/// Counts what is taken, and knows who waits. It lives under the lock of whoever has it; the wakers that it hands out are woken, or
/// dropped, when that is given back.
///
/// A waiter has one place at a time:
///
/// | state of a place | becomes | when |
/// |---|---|---|
/// | none | waiting | there is no room, or others wait already |
/// | waiting | granted | something is given back: this one counts as taken from now on, so that nobody overtakes |
/// | granted | none | the waiter polls, and has its room; or it is dropped, and gives it back |
/// | waiting, granted | none | `revoke`: what was granted is given back |
pub(super) struct Gate {
    count: usize,
    count_max: usize,
    /// Bytes, where somebody counts them.
    weight: usize,
    weight_max: usize,
    waiting: BTreeMap<u64, KeptWaker>,
    granted: BTreeSet<u64>,
    next_place: u64,
}

/// What is left to do after the lock.
#[must_use = "wake or drop these after the lock"]
#[derive(Default)]
pub(super) struct After {
    wake: Vec<KeptWaker>,
    dropped: Option<KeptWaker>,
}

impl Gate {
    pub(super) fn new(count_max: usize, weight_max: usize) -> Self {
        Gate {
            count: 0,
            count_max,
            weight: 0,
            weight_max,
            waiting: BTreeMap::new(),
            granted: BTreeSet::new(),
            next_place: 0,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn count_max(&self) -> usize {
        self.count_max
    }

    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    pub(super) fn set_max(&mut self, count_max: usize, weight_max: usize) -> After {
        (self.count_max, self.weight_max) = (count_max, weight_max);
        self.grant()
    }

    fn has_room(&self) -> bool {
        self.count < self.count_max && self.weight < self.weight_max
    }

    /// Takes room for one, unless somebody came before.
    pub(super) fn try_take(&mut self) -> bool {
        let taken = self.has_room() && self.waiting.is_empty();
        self.count += usize::from(taken);
        taken
    }

    /// Takes room for up to `max` more, as far as there is any.
    pub(super) fn take_more(&mut self, max: usize) -> usize {
        let mut taken = 0;
        while taken < max && self.try_take() {
            taken += 1;
        }
        taken
    }

    /// Takes room for one, or waits for it.
    pub(super) fn poll_take(&mut self, place: &mut Option<u64>, waker: KeptWaker) -> (Poll<()>, After) {
        let mut after = After::default();
        if let Some(id) = *place {
            if self.granted.remove(&id) {
                *place = None;
                return (Poll::Ready(()), After::dropping(Some(waker)));
            }
            if let Some(kept) = self.waiting.get_mut(&id) {
                after.dropped = Some(std::mem::replace(kept, waker));
                return (Poll::Pending, after);
            }
            // It was revoked.
            *place = None;
        }
        if self.try_take() {
            return (Poll::Ready(()), After::dropping(Some(waker)));
        }
        self.next_place += 1;
        self.waiting.insert(self.next_place, waker);
        *place = Some(self.next_place);
        (Poll::Pending, after)
    }

    /// A waiter goes.
    pub(super) fn forget(&mut self, place: &mut Option<u64>) -> After {
        let Some(id) = place.take() else { return After::default() };
        if self.granted.remove(&id) {
            return self.give_back(1, 0);
        }
        After { wake: Vec::new(), dropped: self.waiting.remove(&id) }
    }

    /// For what has been taken and is known by now to weigh this much.
    pub(super) fn add_weight(&mut self, weight: usize) {
        self.weight += weight;
    }

    /// Gives back what was taken.
    pub(super) fn give_back(&mut self, count: usize, weight: usize) -> After {
        debug_assert!(count <= self.count && weight <= self.weight, "gives back what it never took");
        self.count -= count;
        self.weight -= weight;
        self.grant()
    }

    /// All who wait are woken, and find no place. To be called when nothing will be given any more.
    pub(super) fn revoke(&mut self) -> After {
        self.count -= self.granted.len();
        self.granted.clear();
        After { wake: std::mem::take(&mut self.waiting).into_values().collect(), dropped: None }
    }

    fn grant(&mut self) -> After {
        let mut after = After::default();
        while self.has_room()
            && let Some((id, waker)) = self.waiting.pop_first()
        {
            self.count += 1;
            self.granted.insert(id);
            after.wake.push(waker);
        }
        after
    }
}

impl After {
    pub(super) fn waking(wakers: impl IntoIterator<Item = KeptWaker>) -> After {
        After { wake: wakers.into_iter().collect(), dropped: None }
    }

    pub(super) fn dropping(waker: Option<KeptWaker>) -> After {
        After { wake: Vec::new(), dropped: waker }
    }

    /// Both. At most one of them has a waker to drop.
    pub(super) fn and(mut self, other: After) -> After {
        debug_assert!(self.dropped.is_none() || other.dropped.is_none(), "two wakers to drop");
        self.wake.extend(other.wake);
        self.dropped = self.dropped.or(other.dropped);
        self
    }

    /// Wakes and drops. No lock is held.
    pub(super) fn run(self) {
        for waker in self.wake {
            waker.wake();
        }
        drop(self.dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ready(gate: &mut Gate, place: &mut Option<u64>) -> bool {
        let (poll, after) = gate.poll_take(place, std::task::Waker::noop().into());
        after.run();
        poll.is_ready()
    }

    #[test]
    fn nobody_overtakes_who_waits() {
        let mut gate = Gate::new(2, usize::MAX);
        assert_eq!(gate.take_more(5), 2);
        let (mut first, mut second) = (None, None);
        assert!(!is_ready(&mut gate, &mut first) && !is_ready(&mut gate, &mut second));
        gate.give_back(1, 0).run();
        assert!(!gate.try_take(), "it is the first one's");
        assert!(!is_ready(&mut gate, &mut second));
        assert!(is_ready(&mut gate, &mut first));
        assert_eq!(gate.count(), 2);
    }

    #[test]
    fn what_was_granted_goes_on_to_the_next() {
        let mut gate = Gate::new(1, usize::MAX);
        assert!(gate.try_take());
        let (mut first, mut second) = (None, None);
        assert!(!is_ready(&mut gate, &mut first) && !is_ready(&mut gate, &mut second));
        gate.give_back(1, 0).run();
        gate.forget(&mut first).run();
        assert!(is_ready(&mut gate, &mut second));
        gate.give_back(1, 0).run();
        assert_eq!(gate.count(), 0);
    }

    #[test]
    fn weight_closes_it_too() {
        let mut gate = Gate::new(10, 100);
        assert!(gate.try_take());
        gate.add_weight(150);
        assert!(!gate.try_take(), "150 of 100");
        gate.give_back(1, 150).run();
        assert!(gate.try_take());
    }

    #[test]
    fn revoked_places_are_none() {
        let mut gate = Gate::new(1, usize::MAX);
        assert!(gate.try_take());
        let (mut first, mut second) = (None, None);
        assert!(!is_ready(&mut gate, &mut first) && !is_ready(&mut gate, &mut second));
        gate.give_back(1, 0).run();
        gate.revoke().run();
        assert_eq!(gate.count(), 0);
        gate.forget(&mut first).run();
        gate.forget(&mut second).run();
        assert_eq!(gate.count(), 0);
    }
}
