//! Lines on their way from the workers to the file.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tracing::warn;

use super::sink::Sink;

/// A buffer for each worker, and one for whoever else ends a request.
pub(super) struct Queue {
    slots: Box<[Slot]>,
    /// The writer will look at the buffers again before it sleeps.
    is_awake: AtomicBool,
    wants_reopening: AtomicBool,
    is_closing: AtomicBool,
    /// Lines that could not be written.
    unwritten: AtomicU64,
    thread: OnceLock<Thread>,
}

/// Two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Slot {
    lines: Mutex<Vec<u8>>,
    dropped: AtomicU64,
}

impl Queue {
    pub(super) fn new(workers: usize) -> Queue {
        Queue {
            slots: (0..=workers).map(|_| Slot::default()).collect(),
            is_awake: AtomicBool::new(true),
            wants_reopening: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            unwritten: AtomicU64::new(0),
            thread: OnceLock::new(),
        }
    }

    /// Says which thread drains it.
    pub(super) fn set_thread(&self, thread: Thread) {
        // Set once.
        let _ = self.thread.set(thread);
    }

    pub(super) fn put(&self, worker: Option<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        let others = self.slots.len() - 1;
        let slot = &self.slots[worker.unwrap_or(others).min(others)];
        {
            let mut lines = slot.lock();
            if lines.len() >= SLOT_LEN_MAX {
                slot.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            write(&mut lines);
        }
        // Either the writer's last look at this buffer came later than this line, or its word that it sleeps came earlier than our
        // taking of the lock and is seen here.
        if !self.is_awake.load(Ordering::Relaxed) && !self.is_awake.swap(true, Ordering::Relaxed) {
            self.wake();
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        let dropped: u64 = self.slots.iter().map(|slot| slot.dropped.load(Ordering::Relaxed)).sum();
        dropped + self.unwritten.load(Ordering::Relaxed)
    }

    pub(super) fn reopen(&self) {
        self.wants_reopening.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Writes lines until the queue is closed and empty.
    pub(super) fn drain(&self, sink: &mut Sink) {
        let mut complaint = Complaint { seen: 0, last: None };
        let mut lines = Vec::new();
        loop {
            if self.wants_reopening.swap(false, Ordering::Acquire) {
                sink.reopen();
            }
            // Read before the buffers: what was put before it was closed is written.
            let is_closing = self.is_closing.load(Ordering::Acquire);
            self.is_awake.store(false, Ordering::Relaxed);
            if self.write_all(sink, &mut lines) {
                self.is_awake.store(true, Ordering::Relaxed);
                complaint.of(self.slots.iter().map(|slot| slot.dropped.load(Ordering::Relaxed)).sum());
                if !is_closing {
                    // Meanwhile more lines gather.
                    thread::park_timeout(PAUSE);
                }
            } else if is_closing {
                return;
            } else if !self.wants_reopening.load(Ordering::Acquire) {
                thread::park();
            }
        }
    }

    /// Writes what is there; whether that was anything.
    fn write_all(&self, sink: &mut Sink, lines: &mut Vec<u8>) -> bool {
        let mut was_any = false;
        for slot in &self.slots {
            // The writer's memory becomes the worker's, and the other way round.
            std::mem::swap(&mut *slot.lock(), lines);
            if !lines.is_empty() {
                was_any = true;
                self.unwritten.fetch_add(sink.write(lines), Ordering::Relaxed);
                lines.clear();
            }
        }
        was_any
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        // Lines have no state that a panic could leave half-made, but for a line that is not whole.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that lines were dropped, once in a while.
struct Complaint {
    seen: u64,
    last: Option<Instant>,
}

impl Complaint {
    fn of(&mut self, dropped: u64) {
        if dropped == self.seen || self.last.is_some_and(|last| last.elapsed() < COMPLAINT_PAUSE) {
            return;
        }
        warn!(
            lines = dropped - self.seen,
            "lines of the access log were dropped: it is written more slowly than it grows"
        );
        (self.seen, self.last) = (dropped, Some(Instant::now()));
    }
}

/// How many bytes of lines may wait in one buffer; the last line may go beyond it.
const SLOT_LEN_MAX: usize = 1 << 20;

/// How long lines gather before they are written.
const PAUSE: Duration = Duration::from_millis(10);

/// How often dropped lines are spoken of.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::{Queue, SLOT_LEN_MAX};

    #[test]
    fn a_full_buffer_drops_and_counts() {
        let queue = Queue::new(1);
        let line = [b'x'; 1024];
        for _ in 0..SLOT_LEN_MAX / line.len() + 7 {
            queue.put(Some(0), |lines| lines.extend_from_slice(&line));
        }
        assert_eq!(queue.dropped(), 7);
        queue.put(None, |lines| lines.extend_from_slice(&line));
        assert_eq!(queue.dropped(), 7, "the other buffer has room");
    }
}
