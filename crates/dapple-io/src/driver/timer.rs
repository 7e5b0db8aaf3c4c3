//! One deadline that can be awaited, moved and dropped, in eight bytes.
//!
//! | `KIND` | the other bits | next |
//! |---|---|---|
//! | `IDLE` | the deadline | armed (poll); idle (reset) |
//! | `FRESH` | the deadline, which was in the future when it was set | armed (poll); idle (reset) |
//! | `ARMED` | the lowest bits of the deadline, the number of a queue, our place there | idle (poll finds it fired; reset finds it fired) |

use std::io;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use super::clock::{self, NANOS_MAX, nanos, nanos_after};
use super::current;
use super::timers::{Answer, Queue};
use super::wheel::low_bits;

/// A deadline, and perhaps a place in a worker's wheel. Dropping it disarms it.
pub(crate) struct Timer(u64);

struct WheelSlot {
    queue: &'static Queue,
    index: u32,
    low_bits: u64,
}

impl Timer {
    pub(crate) fn at(deadline: Instant) -> Timer {
        Timer(IDLE | nanos(deadline))
    }

    /// A deadline this long after now.
    #[inline]
    pub(crate) fn after(duration: Duration) -> Timer {
        let kind = if duration.is_zero() { IDLE } else { FRESH };
        Timer(kind | nanos_after(nanos(now()), duration))
    }

    pub(crate) fn deadline(&self) -> Instant {
        let deadline = match self.place() {
            Some(place) => place.queue.deadline(place.index) | place.low_bits,
            None => self.0 & NANOS_MAX,
        };
        clock::instant(deadline)
    }

    /// Moves the deadline. A waiting task is woken at the new one.
    #[inline]
    pub(crate) fn reset(&mut self, deadline: Instant) {
        let deadline = nanos(deadline);
        match self.place() {
            Some(place) if place.queue.reset(place.index, deadline) => {
                self.0 = self.0 & !(LOW_BITS_MAX << LOW_BITS_AT) | low_bits(deadline) << LOW_BITS_AT;
            }
            _ => self.0 = IDLE | deadline,
        }
    }

    /// Ready when the deadline has passed; otherwise the waker runs at that time. After the runtime
    /// has shut down, nothing will wake it.
    ///
    /// A poll does not compare an armed or fresh timer with the clock, which would be most of its
    /// cost.
    ///
    /// # Errors
    ///
    /// There is no runtime with an epoll driver here.
    #[inline]
    pub(crate) fn poll(&mut self, waker: &Waker) -> io::Result<Poll<()>> {
        if let Some(place) = self.place() {
            match place.queue.poll(place.index, waker) {
                Answer::Pending => return Ok(Poll::Pending),
                Answer::Fired(deadline) => {
                    self.0 = IDLE | deadline | place.low_bits;
                    return Ok(Poll::Ready(()));
                }
                Answer::Closed(deadline) => self.0 = IDLE | deadline | place.low_bits,
            }
        }
        let deadline = self.0 & NANOS_MAX;
        if self.0 & KIND == IDLE && nanos(now()) >= deadline {
            return Ok(Poll::Ready(()));
        }
        self.arm(deadline, waker)?;
        Ok(Poll::Pending)
    }

    /// Whether it was polled before its deadline, and has not been ready since.
    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        self.0 & KIND == ARMED
    }

    #[inline]
    fn arm(&mut self, deadline: u64, waker: &Waker) -> io::Result<()> {
        let armed = current::with_slot_for_timer(|slot, is_owner| {
            let (index, is_first) = slot.timers().arm(deadline, waker.into())?;
            // The read-modify-write in `unpark` orders the new `next_tick` before the owner's next
            // look at it.
            if is_first && !is_owner {
                slot.unpark();
            }
            Some((slot.timers().number(), index))
        })?;
        if let Some((queue, index)) = armed {
            let queue = u64::from(queue) << QUEUE_AT;
            self.0 = ARMED | low_bits(deadline) << LOW_BITS_AT | queue | u64::from(index);
        }
        Ok(())
    }

    #[inline]
    fn place(&self) -> Option<WheelSlot> {
        (self.0 & KIND == ARMED).then(|| WheelSlot {
            queue: Queue::numbered((self.0 >> QUEUE_AT & QUEUE_MAX) as u16),
            index: (self.0 & INDEX_MAX) as u32,
            low_bits: self.0 >> LOW_BITS_AT & LOW_BITS_MAX,
        })
    }
}

impl Drop for Timer {
    #[inline]
    fn drop(&mut self) {
        if let Some(place) = self.place() {
            place.queue.disarm(place.index);
        }
    }
}

/// Now, by the clock of the runtime, which may stand still.
#[inline]
fn now() -> Instant {
    crate::time::Instant::now().into_std()
}

const KIND: u64 = 3 << 62;
const IDLE: u64 = 0;
const FRESH: u64 = 1 << 62;
const ARMED: u64 = 2 << 62;
const INDEX_MAX: u64 = (1 << 30) - 1;
const QUEUE_AT: u32 = 30;
const QUEUE_MAX: u64 = (1 << 14) - 1;
const LOW_BITS_AT: u32 = 44;
const LOW_BITS_MAX: u64 = 0xff;
