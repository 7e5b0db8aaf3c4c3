//! A gate: room for requests and their bytes, granted in order.

use std::task::Poll;

use dapple_sched::foreign::KeptWaker;
use dapple_sync::sync::limit::{Turn, Turns, Wakers};

/// A count of requests with a waiting line for room, and a weight that also closes it. It lives
/// under the lock of its queue or sink; see [`Turns`] for the states of a wait.
pub(super) struct Gate {
    turns: Turns,
    /// Bytes, if they are counted.
    weight: usize,
    weight_max: usize,
}

impl Gate {
    pub(super) fn new(count_max: usize, weight_max: usize) -> Self {
        Gate { turns: Turns::new(count_max), weight: 0, weight_max }
    }

    pub(super) fn count(&self) -> usize {
        self.turns.used()
    }

    pub(super) fn count_max(&self) -> usize {
        self.turns.max()
    }

    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    pub(super) fn set_max(&mut self, count_max: usize, weight_max: usize) -> Wakers {
        self.weight_max = weight_max;
        // Grant nothing by one limit that the other one refuses.
        let wakers = self.turns.set_paused(true).and(self.turns.set_max(count_max));
        wakers.and(self.weigh())
    }

    /// Takes room for one, unless another waits for it.
    pub(super) fn try_take(&mut self) -> bool {
        self.turns.try_take()
    }

    /// Takes room for up to `max` more, as far as available.
    pub(super) fn take_more(&mut self, max: usize) -> usize {
        self.turns.take_more(max)
    }

    /// Takes room for one, or waits for it. An error: the gate is closed.
    pub(super) fn poll_take(&mut self, turn: &mut Turn, waker: KeptWaker) -> (Poll<Result<(), ()>>, Wakers) {
        let (poll, wakers) = self.turns.poll_take(turn, waker);
        (poll.map_err(drop), wakers)
    }

    /// Removes a waiter.
    pub(super) fn leave(&mut self, turn: &mut Turn) -> Wakers {
        self.turns.leave(turn)
    }

    /// Adds the weight of requests taken earlier.
    pub(super) fn add_weight(&mut self, weight: usize) -> Wakers {
        self.weight += weight;
        self.weigh()
    }

    /// Gives back count and weight.
    pub(super) fn give_back(&mut self, count: usize, weight: usize) -> Wakers {
        debug_assert!(weight <= self.weight, "releases capacity that it never took");
        self.weight -= weight;
        let wakers = self.turns.give_back(count);
        wakers.and(self.weigh())
    }

    /// Grants no more room: all waiters are woken, and find none.
    pub(super) fn close(&mut self) -> Wakers {
        self.turns.close()
    }

    fn weigh(&mut self) -> Wakers {
        self.turns.set_paused(self.weight >= self.weight_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_closes_it_too() {
        let mut gate = Gate::new(10, 100);
        assert!(gate.try_take());
        gate.add_weight(150).run();
        assert!(!gate.try_take(), "150 of 100");
        let mut turn = Turn::default();
        let (poll, wakers) = gate.poll_take(&mut turn, std::task::Waker::noop().into());
        wakers.run();
        assert!(poll.is_pending());
        gate.give_back(1, 150).run();
        let (poll, wakers) = gate.poll_take(&mut turn, std::task::Waker::noop().into());
        wakers.run();
        assert!(poll.is_ready());
    }
}
