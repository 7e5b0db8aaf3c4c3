//! A worker's queue of runnable colors: one list per priority, first in first out.
//!
//! Lives under the worker's lock. Lists are doubly linked through the cells, so that a color can leave from the middle:
//! when a higher priority arrives in it, when it is stolen, or when a waiter's turn runs it in line.

use std::ptr::{self, NonNull};

use crate::cell::{ColorCell, State};

/// Runnable colors, ranked by the highest priority that waits in each.
pub(crate) struct RunQueue {
    lists: [List; LEVELS],
    /// Bit `n` is set where list `n` is not empty.
    occupied: u8,
    len: usize,
    /// Counts picks, for the share of the lower levels.
    picks: u32,
    /// The worker has stopped for good: nothing may be queued here again.
    pub(crate) closed: bool,
}

#[derive(Clone, Copy)]
struct List {
    head: *mut ColorCell,
    tail: *mut ColorCell,
}

// SAFETY: the lists are intrusive; their cells are `Sync` and are linked and unlinked under this queue's lock.
unsafe impl Send for RunQueue {}

impl RunQueue {
    pub(crate) fn new() -> RunQueue {
        let empty = List { head: ptr::null_mut(), tail: ptr::null_mut() };
        RunQueue { lists: [empty; LEVELS], occupied: 0, len: 0, picks: 0, closed: false }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Queues a color at the end of its level.
    ///
    /// # Safety
    /// The color's home is this queue's worker, and it is in no queue.
    #[inline]
    pub(crate) unsafe fn push(&mut self, color: NonNull<ColorCell>) {
        debug_assert!(!self.closed);
        // SAFETY: `&mut self` is the home lock (see the struct), which owns the fifo and the links.
        unsafe {
            let cell = color.as_ref();
            let level = cell.fifo(|fifo| fifo.priority);
            let list = &mut self.lists[usize::from(level) & (LEVELS - 1)];
            cell.links(|links| {
                links.state = State::Queued;
                links.queued_priority = level;
                links.prev = list.tail;
                links.next = ptr::null_mut();
            });
            match NonNull::new(list.tail) {
                Some(tail) => tail.as_ref().links(|links| links.next = color.as_ptr()),
                None => list.head = color.as_ptr(),
            }
            list.tail = color.as_ptr();
            self.occupied |= 1 << level;
        }
        self.len += 1;
    }

    /// Takes a color out of its list; the caller gives it its next state.
    ///
    /// # Safety
    /// The color is in this queue.
    #[inline]
    pub(crate) unsafe fn remove(&mut self, color: NonNull<ColorCell>) {
        // SAFETY: as in `push`; neighbors are in this queue too.
        unsafe {
            let (level, prev, next) = color.as_ref().links(|links| (links.queued_priority, links.prev, links.next));
            let list = &mut self.lists[usize::from(level) & (LEVELS - 1)];
            match NonNull::new(prev) {
                Some(prev) => prev.as_ref().links(|links| links.next = next),
                None => list.head = next,
            }
            match NonNull::new(next) {
                Some(next) => next.as_ref().links(|links| links.prev = prev),
                None => list.tail = prev,
            }
            if list.head.is_null() {
                self.occupied &= !(1 << level);
            }
        }
        self.len -= 1;
    }

    /// Moves a queued color up if a higher priority waits in it than the one it is queued under.
    ///
    /// # Safety
    /// The color is in this queue.
    #[inline]
    pub(crate) unsafe fn raise(&mut self, color: NonNull<ColorCell>) {
        // SAFETY: promised by the caller; `&mut self` is the home lock.
        unsafe {
            let cell = color.as_ref();
            if cell.fifo(|fifo| fifo.priority) > cell.links(|links| links.queued_priority) {
                self.remove(color);
                self.push(color);
            }
        }
    }

    /// Takes the next color: the oldest of the highest level, but every [`FAIR_PICK`]-th time that of another level
    /// in turn, so that a priority never starves anybody.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<NonNull<ColorCell>> {
        if self.occupied == 0 {
            return None;
        }
        let level = if self.occupied == 1 { 0 } else { self.pick_level() };
        let list = &mut self.lists[level & (LEVELS - 1)];
        let color = NonNull::new(list.head)?;
        // SAFETY: it is the head of one of our lists, and its neighbor the next.
        unsafe {
            list.head = color.as_ref().links(|links| links.next);
            match NonNull::new(list.head) {
                Some(next) => next.as_ref().links(|links| links.prev = ptr::null_mut()),
                None => {
                    list.tail = ptr::null_mut();
                    self.occupied &= !(1 << level);
                }
            }
        }
        self.len -= 1;
        Some(color)
    }

    fn pick_level(&mut self) -> usize {
        self.picks = self.picks.wrapping_add(1);
        let highest = self.occupied.ilog2() as usize;
        if !self.picks.is_multiple_of(FAIR_PICK) {
            return highest;
        }
        let start = (self.picks / FAIR_PICK) as usize % LEVELS;
        let turned = self.occupied.rotate_right(start as u32);
        (start + turned.trailing_zeros() as usize) % LEVELS
    }

    /// Visits the queued colors, lowest level and oldest first, until `visit` returns false. `visit` may remove the
    /// color that it is given, and no other.
    pub(crate) fn each(&mut self, mut visit: impl FnMut(&mut RunQueue, NonNull<ColorCell>) -> bool) {
        for level in 0..LEVELS {
            let mut at = self.lists[level].head;
            while let Some(color) = NonNull::new(at) {
                // SAFETY: the color is in this queue, and `&mut self` is its home lock.
                at = unsafe { color.as_ref().links(|links| links.next) };
                if !visit(self, color) {
                    return;
                }
            }
        }
    }
}

/// Priorities from 0 to 7.
pub(crate) const LEVELS: usize = 8;

/// One pick in so many goes to a lower level.
const FAIR_PICK: u32 = 32;
