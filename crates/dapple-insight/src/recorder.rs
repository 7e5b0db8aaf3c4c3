//! The scheduler's events, in one buffer for each worker.
//!
//! A buffer has one writer, its worker, so its lock is free but when the recording ends. A full buffer takes no more:
//! the analysis needs whole chains, and the loss is counted.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use dapple_sched::environment::{HashMap, now};
use dapple_sched::{Handle, HasObserver, Observer, TraceEvent, TraceKind};

use crate::recording::{Event, Kind, Line, Recording};

/// The observer of one runtime.
struct Recorder {
    /// One for each worker, and one for all other threads.
    buffers: Box<[Buffer]>,
    lost: AtomicU64,
    /// Events that one buffer holds.
    capacity: usize,
}

/// Two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Buffer(Mutex<Vec<Raw>>);

/// An event, with times of the clock.
struct Raw {
    kind: Kind,
    callback: u64,
    cause: u64,
    color: u64,
    worker: Option<u16>,
    from: &'static Location<'static>,
    began: Instant,
    at: Instant,
}

impl Observer for Recorder {
    fn event(&self, event: &TraceEvent) {
        let (kind, began) = match event.kind {
            TraceKind::Accepted => (Kind::Accepted, event.at),
            TraceKind::Started => (Kind::Started, event.at),
            TraceKind::Ended { .. } => (Kind::Ended, event.at),
            TraceKind::InLine { started } => (Kind::InLine, started),
            _ => return,
        };
        let last = self.buffers.len() - 1;
        let buffer = &self.buffers[event.worker.unwrap_or(last).min(last)];
        let mut events = buffer.0.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() >= self.capacity {
            // Relaxed: a count.
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        events.push(Raw {
            kind,
            callback: event.callback,
            cause: event.cause.unwrap_or(0),
            color: event.color_id,
            worker: event.worker.and_then(|worker| u16::try_from(worker).ok()),
            from: event.posted_from,
            began,
            at: event.at,
        });
    }
}

/// Records the callbacks of one runtime, as often as asked, one recording at a time.
///
/// Off, it costs nothing but the two branches of a callback that are there without it. On, it costs about 0.3 us for each
/// callback, and [`BYTES_EACH`](Self::BYTES_EACH) bytes for each of its three events, up to the limit.
pub struct Insight {
    handle: Handle,
    recorder: Arc<Recorder>,
    records: AtomicBool,
}

/// Another recording of the same runtime has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlreadyRecording;

impl fmt::Display for AlreadyRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another recording of this program has not ended: try again in a moment")
    }
}

impl std::error::Error for AlreadyRecording {}

/// A recording that has begun. Dropping it throws the recording away.
#[must_use = "a recording lasts until it is ended or dropped"]
pub struct Session<'a> {
    insight: &'a Insight,
    began: Instant,
}

impl Insight {
    /// The memory of one event, in bytes.
    pub const BYTES_EACH: usize = size_of::<Raw>();

    /// For the runtime of this handle. Records nothing yet.
    ///
    /// # Errors
    /// The runtime has an observer already, of the program or of another `Insight`.
    pub fn new(handle: &Handle) -> Result<Insight, HasObserver> {
        Insight::with_capacity(handle, EVENTS_MAX)
    }

    /// As [`Insight::new`], with at most this many events for each worker. Default: 400,000, or about 30 MB for each.
    ///
    /// # Errors
    /// As [`Insight::new`].
    pub fn with_capacity(handle: &Handle, capacity: usize) -> Result<Insight, HasObserver> {
        let buffers = (0..=handle.workers()).map(|_| Buffer::default()).collect();
        let recorder = Arc::new(Recorder { buffers, lost: AtomicU64::new(0), capacity });
        handle.set_observer(recorder.clone())?;
        Ok(Insight { handle: handle.clone(), recorder, records: AtomicBool::new(false) })
    }

    /// Begins to record the callbacks that are accepted from now on.
    ///
    /// # Errors
    /// Another recording has not ended.
    pub fn begin(&self) -> Result<Session<'_>, AlreadyRecording> {
        if self.records.swap(true, Ordering::AcqRel) {
            return Err(AlreadyRecording);
        }
        self.take();
        let began = now();
        self.handle.observe(true);
        Ok(Session { insight: self, began })
    }

    /// The events so far, and the number of those lost.
    fn take(&self) -> (Vec<Raw>, u64) {
        let take = |buffer: &Buffer| std::mem::take(&mut *buffer.0.lock().unwrap_or_else(PoisonError::into_inner));
        let events = self.recorder.buffers.iter().flat_map(take).collect();
        (events, self.recorder.lost.swap(0, Ordering::Relaxed))
    }
}

impl fmt::Debug for Insight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Insight").field("records", &self.records).finish_non_exhaustive()
    }
}

impl Session<'_> {
    /// Ends it. Callbacks that still run count up to now; those that have not begun are left out.
    pub fn end(self) -> Recording {
        let ended = now();
        self.insight.handle.observe(false);
        let (mut raw, lost) = self.insight.take();
        raw.sort_by_key(|event| event.at);
        let ns = |at: Instant| u64::try_from(at.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX);
        let mut recording = Recording::new(self.insight.handle.workers(), ns(ended), lost);
        let mut lines = HashMap::default();
        for event in raw {
            let line = *lines.entry(std::ptr::from_ref(event.from).addr()).or_insert_with(|| {
                recording.lines.push(Line { file: event.from.file().to_owned(), line: event.from.line() });
                recording.lines.len() as u32 - 1
            });
            let Raw { kind, callback, cause, color, worker, .. } = event;
            let (began_ns, at_ns) = (ns(event.began), ns(event.at));
            recording.events.push(Event { kind, callback, cause, color, worker, line, began_ns, at_ns });
        }
        recording
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.insight.handle.observe(false);
        self.insight.take();
        self.insight.records.store(false, Ordering::Release);
    }
}

impl fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("began", &self.began).finish_non_exhaustive()
    }
}

/// Events for each worker: about 130,000 callbacks.
const EVENTS_MAX: usize = 400_000;
