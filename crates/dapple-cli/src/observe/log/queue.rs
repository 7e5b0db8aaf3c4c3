//! The queue of lines between the workers and the file.
//!
//! The color of a connection may be stolen between two of its lines, which are then in the buffers
//! of two workers. So every line has a timestamp, and the writer merges by it. The writer writes
//! only lines from before it began to take the buffers. So if it has the second of two lines, it
//! also has the first.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tracing::warn;

use super::sink::Sink;

/// A buffer for each worker, and one for all other threads.
pub(super) struct Queue {
    slots: Box<[Slot]>,
    /// Whether the writer will check the buffers again before it sleeps.
    is_awake: AtomicBool,
    wants_reopening: AtomicBool,
    /// The new place to write to, if it has changed.
    elsewhere: Mutex<Option<PathBuf>>,
    is_closing: AtomicBool,
    /// The number of lines that could not be written.
    unwritten: AtomicU64,
    thread: OnceLock<Thread>,
}

/// Two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Slot {
    lines: Mutex<Lines>,
    dropped: AtomicU64,
}

/// The lines of one buffer, in order.
#[derive(Default)]
struct Lines {
    text: Vec<u8>,
    /// For each line, its time in nanoseconds and the end of its text.
    marks: Vec<(u64, usize)>,
}

impl Queue {
    pub(super) fn new(workers: usize) -> Queue {
        Queue {
            slots: (0..=workers).map(|_| Slot::default()).collect(),
            is_awake: AtomicBool::new(true),
            wants_reopening: AtomicBool::new(false),
            elsewhere: Mutex::default(),
            is_closing: AtomicBool::new(false),
            unwritten: AtomicU64::new(0),
            thread: OnceLock::new(),
        }
    }

    /// Sets the thread that drains the queue.
    pub(super) fn set_thread(&self, thread: Thread) {
        // It is set only once.
        let _ = self.thread.set(thread);
    }

    pub(super) fn put(&self, worker: Option<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        let others = self.slots.len() - 1;
        let slot = &self.slots[worker.unwrap_or(others).min(others)];
        {
            let mut lines = slot.lock();
            if lines.text.len() >= SLOT_LEN_MAX {
                slot.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            write(&mut lines.text);
            let end = lines.text.len();
            lines.marks.push((now_ns(), end));
        }
        // Either the writer reads this buffer after this line was added, or it announced its sleep
        // before this thread took the lock, and this thread sees that.
        if !self.is_awake.load(Ordering::Relaxed) && !self.is_awake.swap(true, Ordering::Relaxed) {
            self.wake();
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        let dropped: u64 = self.slots.iter().map(|slot| slot.dropped.load(Ordering::Relaxed)).sum();
        dropped + self.unwritten.load(Ordering::Relaxed)
    }

    pub(super) fn reopen_at(&self, path: PathBuf) {
        *self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner) = Some(path);
        self.reopen();
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
        let mut merge = Merge::new(self.slots.len());
        loop {
            if self.wants_reopening.swap(false, Ordering::Acquire) {
                sink.reopen(self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).take());
            }
            // Read before the buffers, so that lines added before the queue was closed are written.
            let is_closing = self.is_closing.load(Ordering::Acquire);
            self.is_awake.store(false, Ordering::Relaxed);
            if self.write_all(sink, &mut merge, is_closing) {
                self.is_awake.store(true, Ordering::Relaxed);
                complaint.of(self.slots.iter().map(|slot| slot.dropped.load(Ordering::Relaxed)).sum());
                if !is_closing {
                    // More lines gather meanwhile.
                    thread::park_timeout(PAUSE);
                }
            } else if is_closing {
                return;
            } else if !self.wants_reopening.load(Ordering::Acquire) {
                thread::park();
            }
        }
    }

    /// Writes the waiting lines; returns whether there were any, or some are left.
    fn write_all(&self, sink: &mut Sink, merge: &mut Merge, is_closing: bool) -> bool {
        let until_ns = if is_closing { u64::MAX } else { now_ns() };
        let mut was_any = false;
        for (slot, taken) in self.slots.iter().zip(&mut merge.taken) {
            was_any |= taken.take(&mut slot.lock());
        }
        let lines = merge.before(until_ns);
        if !lines.is_empty() {
            self.unwritten.fetch_add(sink.write(lines), Ordering::Relaxed);
        }
        was_any
    }
}

/// The lines that the writer took from all buffers.
struct Merge {
    taken: Vec<Taken>,
    merged: Vec<u8>,
}

/// The lines that the writer took from one buffer, and how many of them are written.
#[derive(Default)]
struct Taken {
    lines: Lines,
    next: usize,
    written: usize,
}

impl Merge {
    fn new(slots: usize) -> Merge {
        Merge { taken: (0..slots).map(|_| Taken::default()).collect(), merged: Vec::new() }
    }

    /// All lines up to this time, in order.
    fn before(&mut self, until_ns: u64) -> &[u8] {
        self.merged.clear();
        while let Some(first) = self.taken.iter_mut().min_by_key(|taken| taken.at_ns())
            && first.at_ns() <= until_ns
            && let Some(line) = first.pop()
        {
            self.merged.extend_from_slice(line);
        }
        &self.merged
    }
}

impl Taken {
    /// Takes all lines of a buffer; returns whether there are any.
    fn take(&mut self, lines: &mut Lines) -> bool {
        if self.next == self.lines.marks.len() {
            self.lines.text.clear();
            self.lines.marks.clear();
            (self.next, self.written) = (0, 0);
            // The writer and the worker swap their memory.
            std::mem::swap(&mut self.lines, lines);
        } else {
            let before = self.lines.text.len();
            self.lines.text.append(&mut lines.text);
            self.lines.marks.extend(lines.marks.drain(..).map(|(at_ns, end)| (at_ns, before + end)));
        }
        self.next < self.lines.marks.len()
    }

    /// The time of the next line; the end of time if there is none.
    fn at_ns(&self) -> u64 {
        self.lines.marks.get(self.next).map_or(u64::MAX, |(at_ns, _)| *at_ns)
    }

    fn pop(&mut self) -> Option<&[u8]> {
        let (_, end) = *self.lines.marks.get(self.next)?;
        let line = &self.lines.text[self.written..end];
        (self.next, self.written) = (self.next + 1, end);
        Some(line)
    }
}

/// A time that all threads agree on.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        // A panic could leave at most one incomplete line.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports dropped lines, at intervals.
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
            "access log lines were dropped: they arrive faster than they can be written"
        );
        (self.seen, self.last) = (dropped, Some(Instant::now()));
    }
}

/// How many bytes of lines may wait in one buffer; the last line may exceed it.
const SLOT_LEN_MAX: usize = 1 << 20;

/// How long lines gather before they are written.
const PAUSE: Duration = Duration::from_millis(10);

/// How often dropped lines are reported.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::{Lines, Merge, Queue, SLOT_LEN_MAX};

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

    fn lines(of: &[(u64, &str)]) -> Lines {
        let mut lines = Lines::default();
        for (at_ns, text) in of {
            lines.text.extend_from_slice(text.as_bytes());
            lines.marks.push((*at_ns, lines.text.len()));
        }
        lines
    }

    #[test]
    fn lines_of_several_workers_are_in_time_order() {
        let mut merge = Merge::new(3);
        assert!(merge.taken[0].take(&mut lines(&[(3, "c"), (4, "d"), (9, "i")])));
        assert!(merge.taken[1].take(&mut lines(&[(1, "a"), (2, "b"), (7, "g")])));
        assert!(!merge.taken[2].take(&mut lines(&[])));
        assert_eq!(merge.before(5), b"abcd");
        // Later lines wait for lines that may be earlier.
        assert!(merge.taken[0].take(&mut lines(&[(10, "j")])));
        assert!(merge.taken[1].take(&mut lines(&[])));
        assert!(merge.taken[2].take(&mut lines(&[(6, "f"), (8, "h")])));
        assert_eq!(merge.before(u64::MAX), b"fghij");
        assert!(!merge.taken[0].take(&mut lines(&[])));
        assert_eq!(merge.before(u64::MAX), b"");
    }
}
