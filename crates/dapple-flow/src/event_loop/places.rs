//! A number of places, and who waits for one: first come, first served. No lock: it is inside of one.

use dapple_sched::foreign::KeptWaker;
use std::collections::VecDeque;
use std::mem;

pub(super) struct Places {
    free: usize,
    /// Who waits, longest first. Whose number is gone was given a place.
    waiting: VecDeque<(u64, KeptWaker)>,
    next_number: u64,
}

impl Places {
    pub(super) fn new(free: usize) -> Self {
        Places { free, waiting: VecDeque::new(), next_number: 0 }
    }

    /// Takes a place, unless there is none or others wait for it.
    pub(super) fn try_take(&mut self) -> bool {
        let is_free = self.free > 0 && self.waiting.is_empty();
        self.free -= usize::from(is_free);
        is_free
    }

    /// Takes a place, or keeps the waker until there is one; `number` tells one who waits from the others. What was
    /// replaced is to be dropped after the lock.
    pub(super) fn take_or_wait(
        &mut self,
        number: &mut Option<u64>,
        waker: KeptWaker,
        replaced: &mut Option<KeptWaker>,
    ) -> bool {
        match *number {
            None if self.try_take() => {
                *replaced = Some(waker);
                true
            }
            None => {
                self.next_number += 1;
                *number = Some(self.next_number);
                self.waiting.push_back((self.next_number, waker));
                false
            }
            Some(own) => match self.waiting.iter_mut().find(|(kept, _)| *kept == own) {
                Some((_, kept)) => {
                    *replaced = Some(mem::replace(kept, waker));
                    false
                }
                None => {
                    *replaced = Some(waker);
                    *number = None;
                    true
                }
            },
        }
    }

    /// Gives a place back; who has waited longest for it is to be woken.
    #[must_use = "to be woken after the lock"]
    pub(super) fn give_back(&mut self) -> Option<KeptWaker> {
        let next = self.waiting.pop_front();
        self.free += usize::from(next.is_none());
        next.map(|(_, waker)| waker)
    }

    /// Waits no longer. Who had been given a place passes it on: the second waker, to be woken after the lock; the first
    /// is to be dropped then.
    pub(super) fn leave(&mut self, number: u64) -> (Option<KeptWaker>, Option<KeptWaker>) {
        match self.waiting.iter().position(|(kept, _)| *kept == number) {
            Some(position) => (self.waiting.remove(position).map(|(_, waker)| waker), None),
            None => (None, self.give_back()),
        }
    }

    /// All who wait, to be woken: there will be no more places.
    pub(super) fn close(&mut self) -> impl Iterator<Item = KeptWaker> + use<> {
        mem::take(&mut self.waiting).into_iter().map(|(_, waker)| waker)
    }
}
