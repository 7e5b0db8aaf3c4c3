//! A hierarchical timer wheel: insert and cancel in constant time, 32 bytes a timer.
//!
//! Time is counted in ticks. Level 0 has a bucket per tick, and a bucket of level `n` spans 64 to the power `n` ticks.
//! A timer sits in the lowest level on which its deadline and the wheel's time differ, so that it moves down at most
//! four times before it fires. Moving and firing are done one timer at a time, so a caller can stop after any of them
//! and a bucket with a million timers never holds the lock for long.
//!
//! Deadlines further away than [`HORIZON`] are clamped to it: the waker then runs early, sees that it did, and arms
//! again. This keeps an entry at 32 bytes.
//!
//! The wheel knows neither clock nor lock: `driver::timers` adds both.

use std::task::Waker;

/// Names a timer of one wheel; of no use once the timer has fired or was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// For timers that are not in a wheel, but have a number elsewhere.
    pub(crate) fn from_number(number: u64) -> Self {
        Key { index: number as u32, generation: (number >> 32) as u32 }
    }

    /// The number that the key was made from.
    pub(crate) fn number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }
}

/// The timers of one slot.
pub(crate) struct Wheel {
    /// No bucket that begins before this tick holds a timer, but the buckets being emptied.
    elapsed: u64,
    /// A bit per bucket that holds a timer.
    occupied: [u64; LEVELS],
    buckets: Box<[Bucket; LEVELS * SLOTS]>,
    /// In chunks, so that a million timers never are copied to a larger array under the lock.
    chunks: Vec<Box<[Entry]>>,
    /// Head of the list of free entries, linked through `next`.
    free: u32,
    len: usize,
}

/// First and last entry of a list in order of insertion.
#[derive(Clone, Copy)]
struct Bucket {
    head: u32,
    tail: u32,
}

struct Entry {
    /// `None` exactly while the entry is free.
    waker: Option<Waker>,
    /// The entry before, or `END | bucket` for the first, so that unlinking finds its bucket.
    prev: u32,
    /// The entry after, or `END | bucket` for the last.
    next: u32,
    /// The low half of the deadline in ticks; the rest follows from `elapsed`, as it is at most `HORIZON` away.
    deadline: u32,
    /// Raised when the entry is freed: an old key never meets a new timer.
    generation: u32,
}

const _: () = assert!(size_of::<Entry>() == 32);

impl Wheel {
    pub(crate) fn new() -> Self {
        let empty = Bucket { head: NONE, tail: NONE };
        Wheel {
            elapsed: 0,
            occupied: [0; LEVELS],
            buckets: Box::new([empty; LEVELS * SLOTS]),
            chunks: Vec::new(),
            free: NONE,
            len: 0,
        }
    }

    /// Timers that are armed.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Arms a timer. A deadline that has passed fires at the next `advance`.
    pub(crate) fn insert(&mut self, deadline: u64, waker: Waker) -> Key {
        let deadline = deadline.clamp(self.elapsed, self.elapsed + HORIZON);
        if self.free == NONE {
            self.grow();
        }
        let index = self.free;
        let entry = self.entry(index);
        let next_free = entry.next;
        entry.waker = Some(waker);
        entry.deadline = deadline as u32;
        let generation = entry.generation;
        self.free = next_free;
        self.len += 1;
        self.link(index, deadline);
        Key { index, generation }
    }

    /// Disarms a timer and returns its waker, to be dropped outside of the lock; `None` if it has fired.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Waker> {
        if self.entry(key.index).generation != key.generation {
            return None;
        }
        self.unlink(key.index);
        self.release(key.index)
    }

    /// The waker of a timer that is still armed.
    pub(crate) fn waker_mut(&mut self, key: Key) -> Option<&mut Waker> {
        let entry = self.entry(key.index);
        if entry.generation != key.generation {
            return None;
        }
        entry.waker.as_mut()
    }

    /// The tick at which `advance` has something to do: a timer that fires or a bucket that moves down.
    pub(crate) fn next_tick(&self) -> Option<u64> {
        self.next_bucket().map(|(_, at)| at)
    }

    /// Moves time to `now` and collects the wakers of timers that are due, in order of their deadlines, touching at
    /// most `budget` timers. Returns whether the budget ran out, with time left where the work stopped.
    pub(crate) fn advance(&mut self, now: u64, budget: usize, fired: &mut Vec<Waker>) -> bool {
        for _ in 0..budget {
            let (bucket, at) = match self.next_bucket() {
                Some((bucket, at)) if at <= now => (bucket, at),
                _ => {
                    self.elapsed = self.elapsed.max(now);
                    return false;
                }
            };
            self.elapsed = at;
            let index = self.buckets[bucket].head;
            self.unlink(index);
            let ahead = self.entry(index).deadline.wrapping_sub(at as u32) as i32;
            if ahead <= 0 {
                fired.extend(self.release(index));
            } else {
                self.link(index, at + ahead as u64);
            }
        }
        true
    }

    /// Disarms all timers and returns their wakers.
    pub(crate) fn drain(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::with_capacity(self.len);
        while let Some((bucket, _)) = self.next_bucket() {
            let index = self.buckets[bucket].head;
            self.unlink(index);
            wakers.extend(self.release(index));
        }
        wakers
    }

    /// The occupied bucket that begins first, and when. Among equals the one of the highest level: its timers move
    /// down before those of the same tick fire.
    fn next_bucket(&self) -> Option<(usize, u64)> {
        if self.len == 0 {
            return None;
        }
        let mut best: Option<(usize, u64)> = None;
        for level in (0..LEVELS).rev() {
            if self.occupied[level] == 0 {
                continue;
            }
            let shift = BITS * level as u32;
            let position = self.elapsed >> shift;
            let current = (position % SLOTS as u64) as u32;
            let distance = self.occupied[level].rotate_right(current).trailing_zeros();
            // A bucket that began before `elapsed` is one that is being emptied.
            let at = ((position + u64::from(distance)) << shift).max(self.elapsed);
            if best.is_none_or(|(_, earliest)| at < earliest) {
                let slot = (current + distance) as usize % SLOTS;
                best = Some((level * SLOTS + slot, at));
            }
        }
        best
    }

    /// Puts an entry at the end of the bucket for `deadline`.
    fn link(&mut self, index: u32, deadline: u64) {
        let differing = (self.elapsed ^ deadline) | (SLOTS as u64 - 1);
        let level = ((63 - differing.leading_zeros()) / BITS).min(LEVELS as u32 - 1);
        let slot = (deadline >> (BITS * level)) as usize % SLOTS;
        let bucket = level as usize * SLOTS + slot;
        let tail = self.buckets[bucket].tail;
        if tail == NONE {
            self.buckets[bucket].head = index;
            self.occupied[level as usize] |= 1 << slot;
        } else {
            self.entry(tail).next = index;
        }
        self.buckets[bucket].tail = index;
        let entry = self.entry(index);
        entry.prev = if tail == NONE { END | bucket as u32 } else { tail };
        entry.next = END | bucket as u32;
    }

    fn unlink(&mut self, index: u32) {
        let (prev, next) = {
            let entry = self.entry(index);
            (entry.prev, entry.next)
        };
        if prev & END == 0 {
            self.entry(prev).next = next;
        } else {
            self.buckets[(prev & !END) as usize].head = if next & END == 0 { next } else { NONE };
        }
        if next & END == 0 {
            self.entry(next).prev = prev;
        } else {
            self.buckets[(next & !END) as usize].tail = if prev & END == 0 { prev } else { NONE };
        }
        if prev & END != 0 && next & END != 0 {
            let bucket = (prev & !END) as usize;
            self.occupied[bucket / SLOTS] &= !(1 << (bucket % SLOTS));
        }
    }

    /// Makes an unlinked entry free.
    fn release(&mut self, index: u32) -> Option<Waker> {
        let free = self.free;
        let entry = self.entry(index);
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = free;
        let waker = entry.waker.take();
        self.free = index;
        self.len -= 1;
        waker
    }

    fn grow(&mut self) {
        let first = (self.chunks.len() * CHUNK) as u32;
        assert!(first < END - CHUNK as u32, "a wheel holds 2^31 timers");
        let chunk = (first..first + CHUNK as u32).map(|index| Entry {
            waker: None,
            prev: NONE,
            next: if index + 1 == first + CHUNK as u32 { NONE } else { index + 1 },
            deadline: 0,
            generation: 0,
        });
        self.chunks.push(chunk.collect());
        self.free = first;
    }

    fn entry(&mut self, index: u32) -> &mut Entry {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }
}

/// How far away a deadline may be, in ticks. Less than a turn of the highest level, so that its buckets never hold two
/// turns at once.
pub(crate) const HORIZON: u64 = 1 << 29;

/// Bits of a deadline that one level decides.
const BITS: u32 = 6;
/// Buckets of a level.
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 5;
/// Entries that are allocated together.
const CHUNK: usize = 512;
/// No entry.
const NONE: u32 = u32::MAX;
/// Marks the end of a list; the other bits name the bucket.
const END: u32 = 1 << 31;

#[cfg(test)]
mod tests;
