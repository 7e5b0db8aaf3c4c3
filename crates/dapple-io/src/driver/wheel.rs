//! A hierarchical timer wheel: insert, move and cancel in constant time, 24 bytes a timer.
//!
//! Time is counted in ticks. Level 0 has a bucket per tick, and a bucket of level `n` spans 64 to
//! the power `n` ticks. A timer is in the lowest level on which its deadline and the wheel's time
//! differ, so it moves down at most four times before it fires. Moving and firing go one timer at a
//! time, so a caller can stop after any of them, and a bucket with a million timers never holds the
//! lock for long.
//!
//! Deadlines further away than [`HORIZON`] are put there; when such a timer comes due too early it
//! is moved further.
//!
//! A slot belongs to the code that inserted it, which frees it by `remove`. So a number names one
//! timer at a time, and needs no generation:
//!
//! | state | `prev` | waker | next |
//! |---|---|---|---|
//! | free | | none | armed (insert) |
//! | armed | the previous entry, or `END` and a bucket | one | armed (reset, poll), fired (advance, drain), free (remove) |
//! | fired | `FIRED` | none | free (remove) |
//!
//! The wheel knows neither clock nor lock: `driver::timers` adds both.

use std::task::{RawWakerVTable, Waker};

use dapple_sched::foreign::KeptWaker;

use super::clock::tick_at_or_after;
use entries::{Entries, Entry, LOW_BITS};
use packed::Packed;

pub(super) use entries::CHUNK;

mod entries;
mod packed;

/// The timers of one worker.
pub(crate) struct Wheel {
    /// No bucket that begins before this tick holds a timer, except the buckets being emptied.
    elapsed: u64,
    /// A bit per bucket that holds a timer.
    occupied: [u64; LEVELS],
    buckets: Box<[Bucket; LEVELS * SLOTS]>,
    entries: Entries,
    /// Number of timers that have not fired.
    armed: usize,
}

/// First and last entry of a list in order of insertion.
#[derive(Clone, Copy)]
struct Bucket {
    head: u32,
    tail: u32,
}

/// A waker that the wheel no longer needs, to be dropped when no lock is held. It may be the last
/// one of a task; dropping the task may run code that takes the lock again.
#[must_use = "to be dropped after the lock"]
pub(crate) struct Leftover(Option<Packed>);

impl Drop for Leftover {
    fn drop(&mut self) {
        if let Some(packed) = self.0 {
            // SAFETY: a `Leftover` contains a waker that was taken out of its entry, or never came
            // into one.
            drop(KeptWaker::from(unsafe { packed.unpack() }));
        }
    }
}

impl Wheel {
    /// A wheel with the time `now`.
    pub(crate) fn new(now: u64) -> Self {
        let empty = Bucket { head: NONE, tail: NONE };
        Wheel {
            elapsed: now,
            occupied: [0; LEVELS],
            buckets: Box::new([empty; LEVELS * SLOTS]),
            entries: Entries::new(),
            armed: 0,
        }
    }

    /// Number of timers that were not removed.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Arms a timer. A deadline that has passed fires at the next `advance`. `None` if there are
    /// 2^30 timers already.
    #[inline]
    pub(crate) fn insert(&mut self, deadline: u64, waker: KeptWaker) -> Option<u32> {
        let index = self.entries.take()?;
        let entry = self.entries.at(index);
        entry.set_deadline(deadline);
        entry.set_packed(Packed::new(waker.into_waker()));
        self.armed += 1;
        self.link(index, tick_of(deadline));
        Some(index)
    }

    /// Ends a timer.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> Leftover {
        let waker = self.entries.at(index).take_packed();
        if waker.is_some() {
            self.unlink(index);
            self.armed -= 1;
        }
        self.entries.give_back(index);
        Leftover(waker)
    }

    /// Whether the timer has yet to fire.
    pub(crate) fn is_armed(&mut self, index: u32) -> bool {
        self.entries.at(index).packed().is_some()
    }

    /// The deadline of a timer, without the bits that [`low_bits`] returns.
    pub(crate) fn deadline(&mut self, index: u32) -> u64 {
        self.entries.at(index).deadline()
    }

    /// Whether a timer has yet to fire and will wake the task of `waker`. May return false by
    /// mistake.
    #[inline]
    pub(crate) fn will_wake(&mut self, index: u32, waker: &Waker) -> bool {
        self.entries.at(index).packed().is_some_and(|packed| packed.will_wake(waker))
    }

    /// Makes a timer that has yet to fire wake `waker`; returns the waker that it no longer needs.
    #[inline]
    pub(crate) fn rewire(&mut self, index: u32, waker: KeptWaker) -> Leftover {
        let entry = self.entries.at(index);
        let mut packed = Packed::new(waker.into_waker());
        if let Some(old) = entry.packed() {
            entry.set_packed(packed);
            packed = old;
        }
        Leftover(Some(packed))
    }

    /// Moves the deadline of a timer that has yet to fire.
    #[inline]
    pub(crate) fn reset(&mut self, index: u32, deadline: u64) {
        self.unlink(index);
        self.entries.at(index).set_deadline(deadline);
        self.link(index, tick_of(deadline));
    }

    /// The next tick with work for `advance`: a timer that fires or a bucket that moves down.
    pub(crate) fn next_tick(&self) -> Option<u64> {
        self.next_bucket().map(|(_, at)| at)
    }

    /// Moves time to `now` and collects the wakers of due timers, in order of their deadlines,
    /// touching at most `budget` timers. Returns the rest of the budget; if it is 0, time may have
    /// stopped earlier.
    pub(crate) fn advance(&mut self, now: u64, budget: usize, fired: &mut Vec<KeptWaker>) -> usize {
        for left in (0..budget).rev() {
            let (bucket, at) = match self.next_bucket() {
                Some((bucket, at)) if at <= now => (bucket, at),
                _ => {
                    self.elapsed = self.elapsed.max(now);
                    return left + 1;
                }
            };
            self.elapsed = at;
            let index = self.buckets[bucket].head;
            self.unlink(index);
            let tick = tick_of(self.entries.at(index).deadline());
            if tick <= at {
                fired.extend(self.fire(index));
            } else {
                self.link(index, tick);
            }
        }
        0
    }

    /// Adds table and data of the wakers in a chunk of timers; false if there is no such chunk.
    /// Leaves out boxed wakers.
    pub(crate) fn wakers_of(&self, chunk: usize, wakers: &mut Vec<(&'static RawWakerVTable, *const ())>) -> bool {
        let Some(entries) = self.entries.chunk(chunk) else { return false };
        wakers.extend(entries.iter().filter_map(|entry| entry.packed()?.parts()));
        true
    }

    /// Fires all timers, and returns their wakers.
    pub(crate) fn drain(&mut self) -> Vec<KeptWaker> {
        let mut wakers = Vec::with_capacity(self.armed);
        while let Some((bucket, _)) = self.next_bucket() {
            let index = self.buckets[bucket].head;
            self.unlink(index);
            wakers.extend(self.fire(index));
        }
        wakers
    }

    /// Takes the waker of an entry that was just unlinked.
    fn fire(&mut self, index: u32) -> Option<KeptWaker> {
        let entry = self.entries.at(index);
        entry.prev = FIRED;
        let packed = entry.take_packed()?;
        self.armed -= 1;
        // SAFETY: taken out of its entry, so this happens once.
        Some(KeptWaker::from(unsafe { packed.unpack() }))
    }

    /// The occupied bucket that begins first, and its tick. At equal ticks, the bucket of the
    /// highest level: its timers move down before those of the same tick fire.
    fn next_bucket(&self) -> Option<(usize, u64)> {
        if self.armed == 0 {
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
            // A bucket that began before `elapsed` is being emptied.
            let at = ((position + u64::from(distance)) << shift).max(self.elapsed);
            if best.is_none_or(|(_, earliest)| at < earliest) {
                let slot = (current + distance) as usize % SLOTS;
                best = Some((level * SLOTS + slot, at));
            }
        }
        best
    }

    /// Puts an entry at the end of the bucket for `tick`.
    #[inline]
    fn link(&mut self, index: u32, tick: u64) {
        let tick = tick.clamp(self.elapsed, self.elapsed + HORIZON);
        let differing = (self.elapsed ^ tick) | (SLOTS as u64 - 1);
        let level = ((63 - differing.leading_zeros()) / BITS).min(LEVELS as u32 - 1);
        let slot = (tick >> (BITS * level)) as usize % SLOTS;
        let bucket = level as usize * SLOTS + slot;
        let tail = self.buckets[bucket].tail;
        if tail == NONE {
            self.buckets[bucket].head = index;
            self.occupied[level as usize] |= 1 << slot;
        } else {
            self.entries.at(tail).next = index;
        }
        self.buckets[bucket].tail = index;
        let entry = self.entries.at(index);
        entry.prev = if tail == NONE { END | bucket as u32 } else { tail };
        entry.next = END | bucket as u32;
    }

    #[inline]
    fn unlink(&mut self, index: u32) {
        let &mut Entry { prev, next, .. } = self.entries.at(index);
        if prev & END == 0 {
            self.entries.at(prev).next = next;
        } else {
            self.buckets[(prev & !END) as usize].head = if next & END == 0 { next } else { NONE };
        }
        if next & END == 0 {
            self.entries.at(next).prev = prev;
        } else {
            self.buckets[(next & !END) as usize].tail = if prev & END == 0 { prev } else { NONE };
        }
        if prev & END != 0 && next & END != 0 {
            let bucket = (prev & !END) as usize;
            self.occupied[bucket / SLOTS] &= !(1 << (bucket % SLOTS));
        }
    }
}

impl Drop for Wheel {
    fn drop(&mut self) {
        self.drain();
    }
}

/// The bits of a deadline that the wheel does not keep.
pub(crate) fn low_bits(deadline: u64) -> u64 {
    deadline & LOW_BITS
}

/// The tick in which a deadline has passed, whatever the bits that the wheel does not keep.
pub(crate) fn tick_of(deadline: u64) -> u64 {
    tick_at_or_after(deadline | LOW_BITS)
}

/// The most ticks from the wheel's time at which a timer is put. Less than a turn of the highest
/// level, so that its buckets never hold two turns at once.
pub(crate) const HORIZON: u64 = 1 << 29;

/// Bits of a deadline for each level.
const BITS: u32 = 6;
/// Buckets of a level.
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 5;
/// No entry.
const NONE: u32 = u32::MAX;
/// Marks the end of a list; the other bits name the bucket. Indices have 30 bits.
const END: u32 = 1 << 31;
/// In `prev` of a timer that has fired.
const FIRED: u32 = u32::MAX;

#[cfg(test)]
mod tests;
