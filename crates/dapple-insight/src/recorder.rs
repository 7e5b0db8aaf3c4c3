//! The scheduler's callbacks, in one table for each worker.
//!
//! A row has one writer: the thread on which its callback runs. A worker's table has one writer, too, so nothing here is
//! locked or shared between workers. A full table takes no more: the analysis needs whole chains, and the loss is counted.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

use dapple_sched::environment::{HashMap, now, system_now};
use dapple_sched::{Handle, HasObserver, Label, Observer, RequestNote, TraceEvent, TraceKind};

use crate::recording::{Event, Kind, Line, Recording, Served};

/// The observer of one runtime.
struct Recorder {
    /// One for each worker, and one for all other threads.
    tables: Box<[Table]>,
    /// Rows that one table holds.
    capacity: usize,
    /// The number of the current recording, or of the last one.
    number: AtomicU64,
    /// Rows have nanoseconds since then.
    base: Instant,
    /// Requests that ended while it recorded, at most [`REQUESTS_MAX`].
    requests: Mutex<Vec<(RequestNote, Instant)>>,
    /// The lines of the program, by their addresses.
    lines: Mutex<HashMap<usize, &'static Location<'static>>>,
}

/// Two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
struct Table {
    /// Rows in use. Only the table's writer adds; the begin of a recording sets it to 0.
    len: AtomicUsize,
    /// Events that found no room.
    lost: AtomicU64,
    /// Addresses that are in [`Recorder::lines`].
    known: [AtomicUsize; KNOWN],
    /// Made when the first recording begins.
    rows: OnceLock<Box<[Row]>>,
}

/// A callback or a closure in line: one cache line. Its writer stores `tag` last, with `Release`, and `ended_ns` when it
/// ends; the end of the recording loads both with `Acquire`.
#[repr(align(64))]
struct Row {
    tag: AtomicU64,
    callback: AtomicU64,
    cause: AtomicU64,
    color: AtomicU64,
    line: AtomicUsize,
    accepted_ns: AtomicU64,
    started_ns: AtomicU64,
    /// [`RUNS`]: it has not ended.
    ended_ns: AtomicU64,
}

/// The lowest bits of [`Row::tag`]. The number of the color's label follows, and, in the upper half, the number of the
/// recording, so rows of the last one are not mistaken for new ones. `EMPTY` is not 0, so a new table is written when it is made, and its memory is there.
const EMPTY: u64 = 1;
const CALLBACK: u64 = 2;
const OF_SEVERAL: u64 = 3;
const IN_LINE: u64 = 4;
const READS: u64 = 5;
const KINDS: u64 = 8;
const LABEL_SHIFT: u32 = KINDS.trailing_zeros();
const NUMBER_SHIFT: u32 = 32;

/// A value of [`Row::ended_ns`].
const RUNS: u64 = u64::MAX;

/// The token of a callback that found no room.
const NO_ROW: u64 = u64::MAX;

const KNOWN: usize = 256;

impl Table {
    fn new() -> Table {
        Table {
            len: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            known: [const { AtomicUsize::new(0) }; KNOWN],
            rows: OnceLock::new(),
        }
    }

    /// A row for the calling thread; `None` if there is none left.
    fn claim(&self, is_shared: bool) -> Option<(usize, &Row)> {
        let rows = self.rows.get()?;
        // Relaxed: the row's tag publishes it.
        let at = match is_shared {
            true => self.len.fetch_add(1, Ordering::Relaxed),
            false => self.len.load(Ordering::Relaxed),
        };
        let Some(row) = rows.get(at) else {
            self.lose();
            return None;
        };
        if !is_shared {
            self.len.store(at + 1, Ordering::Relaxed);
        }
        Some((at, row))
    }

    fn lose(&self) {
        // Relaxed: a count.
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

impl Row {
    fn empty() -> Row {
        let zero = || AtomicU64::new(0);
        Row {
            tag: AtomicU64::new(EMPTY),
            callback: zero(),
            cause: zero(),
            color: zero(),
            line: AtomicUsize::new(0),
            accepted_ns: zero(),
            started_ns: zero(),
            ended_ns: zero(),
        }
    }
}

impl Recorder {
    /// The table of this thread, and whether other threads write to it.
    fn table(&self, event: &TraceEvent) -> (&Table, bool) {
        let last = self.tables.len() - 1;
        let at = event.worker.unwrap_or(last).min(last);
        (&self.tables[at], at == last)
    }

    fn ns(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.base);
        since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
    }

    /// Notes the line, unless this thread has seen it, and returns its address.
    fn line(&self, table: &Table, from: &'static Location<'static>) -> usize {
        let line = std::ptr::from_ref(from).addr();
        let known = &table.known[(line / align_of::<Location<'_>>()) % KNOWN];
        // Relaxed: a line is noted before the end of the recording, which takes the lock.
        if known.load(Ordering::Relaxed) != line {
            self.lines.lock().unwrap_or_else(PoisonError::into_inner).insert(line, from);
            known.store(line, Ordering::Relaxed);
        }
        line
    }

    /// Writes a row; returns its index.
    fn write(&self, event: &TraceEvent, tag: u64, started: Instant, ended_ns: u64) -> u64 {
        let (table, is_shared) = self.table(event);
        let Some((at, row)) = table.claim(is_shared) else { return NO_ROW };
        // Relaxed: the tag publishes all of it, and a recording's number is set before `observe` lets threads write.
        row.callback.store(event.callback, Ordering::Relaxed);
        row.cause.store(event.cause.unwrap_or(0), Ordering::Relaxed);
        row.color.store(event.color_id, Ordering::Relaxed);
        row.line.store(self.line(table, event.posted_from), Ordering::Relaxed);
        row.accepted_ns.store(self.ns(event.accepted_at), Ordering::Relaxed);
        row.started_ns.store(self.ns(started), Ordering::Relaxed);
        row.ended_ns.store(ended_ns, Ordering::Relaxed);
        let label = u64::from(event.label.map_or(0, Label::number)) << LABEL_SHIFT;
        let number = self.number.load(Ordering::Relaxed) << NUMBER_SHIFT;
        row.tag.store(number | label | tag, Ordering::Release);
        at as u64
    }

    /// The events of a recording that lasted between these times, in order.
    fn events(&self, began_ns: u64, ended_ns: u64) -> Vec<Raw> {
        let mut events = Vec::new();
        for (worker, table) in self.tables.iter().enumerate() {
            let worker = u16::try_from(worker).ok().filter(|_| worker + 1 < self.tables.len());
            let rows = table.rows.get().map_or(&[][..], |rows| rows);
            for row in &rows[..table.len.load(Ordering::Relaxed).min(rows.len())] {
                // Acquire: pairs with the store in `write`.
                let tag = row.tag.load(Ordering::Acquire);
                if tag >> NUMBER_SHIFT == self.number.load(Ordering::Relaxed) {
                    row.events(tag as u32, worker, began_ns, ended_ns, &mut events);
                }
            }
        }
        events.sort_by_key(|event| event.at_ns);
        events
    }
}

/// An event; times are those of the rows.
struct Raw {
    kind: Kind,
    callback: u64,
    cause: u64,
    color: u64,
    worker: Option<u16>,
    line: usize,
    /// The number of the color's label, or 0.
    label: u32,
    began_ns: u64,
    at_ns: u64,
}

impl Row {
    fn events(&self, tag: u32, worker: Option<u16>, began_ns: u64, ended_ns: u64, events: &mut Vec<Raw>) {
        let load = |field: &AtomicU64| field.load(Ordering::Relaxed);
        let (accepted_ns, started_ns) = (load(&self.accepted_ns), load(&self.started_ns));
        let row_ended_ns = self.ended_ns.load(Ordering::Acquire);
        let kind = u64::from(tag) % KINDS;
        if kind == EMPTY || accepted_ns < began_ns || started_ns > ended_ns {
            return;
        }
        let event = |kind, began_ns, at_ns| Raw {
            kind,
            callback: load(&self.callback),
            cause: load(&self.cause),
            color: load(&self.color),
            worker,
            line: self.line.load(Ordering::Relaxed),
            label: tag >> LABEL_SHIFT,
            began_ns,
            at_ns,
        };
        let accepted = match kind {
            IN_LINE => return events.push(event(Kind::InLine, started_ns, row_ended_ns)),
            READS => return events.push(event(Kind::InLineRead, started_ns, row_ended_ns)),
            OF_SEVERAL => Kind::AcceptedBySeveral,
            _ => Kind::Accepted,
        };
        events.push(event(accepted, accepted_ns, accepted_ns));
        events.push(event(Kind::Started, started_ns, started_ns));
        if row_ended_ns != RUNS {
            events.push(event(Kind::Ended, row_ended_ns, row_ended_ns));
        }
    }
}

impl Observer for Recorder {
    fn event(&self, event: &TraceEvent) {
        match event.kind {
            TraceKind::InLine { started, reads } => {
                self.write(event, if reads { READS } else { IN_LINE }, started, self.ns(event.at));
            }
            TraceKind::Request(note) => {
                let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
                match requests.len() < REQUESTS_MAX {
                    true => requests.push((note, event.at)),
                    false => self.table(event).0.lose(),
                }
            }
            _ => {}
        }
    }

    fn skips_accepted(&self) -> bool {
        true
    }

    fn started(&self, event: &TraceEvent) -> u64 {
        self.write(event, if event.several { OF_SEVERAL } else { CALLBACK }, event.at, RUNS)
    }

    fn ended(&self, event: &TraceEvent, started: u64) {
        let (table, _) = self.table(event);
        if started == NO_ROW {
            return table.lose();
        }
        // Relaxed: this thread wrote it. It has another callback if this one began before the recording.
        let row = usize::try_from(started).ok().and_then(|at| table.rows.get()?.get(at));
        if let Some(row) = row.filter(|row| row.callback.load(Ordering::Relaxed) == event.callback) {
            row.ended_ns.store(self.ns(event.at), Ordering::Release);
        }
    }
}

/// Records the callbacks of one runtime, as often as asked, one recording at a time.
///
/// Off, it costs nothing but the two branches of a callback that are there without it. On, `bench insight` says what it
/// costs. The first recording takes [`BYTES_EACH`](Self::BYTES_EACH) bytes for each callback up to the limit, which later
/// ones use again.
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
    insight: Holds<'a>,
    began: Instant,
    /// When it was stopped.
    ended: Option<Instant>,
}

/// The recorder of a session.
enum Holds<'a> {
    Borrowed(&'a Insight),
    #[cfg(feature = "page")]
    Shared(Arc<Insight>),
}

impl Holds<'_> {
    fn insight(&self) -> &Insight {
        match self {
            Holds::Borrowed(insight) => insight,
            #[cfg(feature = "page")]
            Holds::Shared(insight) => insight,
        }
    }
}

impl Insight {
    /// The memory of one callback, in bytes.
    pub const BYTES_EACH: usize = size_of::<Row>();

    /// For the runtime of this handle. Records nothing yet.
    ///
    /// # Errors
    /// The runtime has an observer already, of the program or of another `Insight`.
    pub fn new(handle: &Handle) -> Result<Insight, HasObserver> {
        Insight::with_capacity(handle, CALLBACKS_MAX)
    }

    /// As [`Insight::new`], with at most this many callbacks and closures in line for each worker. Default: 200,000, or
    /// 12.8 MB for each.
    ///
    /// # Errors
    /// As [`Insight::new`].
    pub fn with_capacity(handle: &Handle, capacity: usize) -> Result<Insight, HasObserver> {
        let tables = (0..=handle.workers()).map(|_| Table::new()).collect();
        let recorder = Arc::new(Recorder {
            tables,
            capacity,
            number: AtomicU64::new(0),
            base: now(),
            requests: Mutex::default(),
            lines: Mutex::default(),
        });
        handle.set_observer(recorder.clone())?;
        Ok(Insight { handle: handle.clone(), recorder, records: AtomicBool::new(false) })
    }

    /// The runtime.
    #[cfg(feature = "page")]
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Begins to record the callbacks that are accepted from now on. The first time, it makes the tables, which takes
    /// some milliseconds for each worker.
    ///
    /// # Errors
    /// Another recording has not ended.
    pub fn begin(&self) -> Result<Session<'_>, AlreadyRecording> {
        let began = self.start()?;
        Ok(Session { insight: Holds::Borrowed(self), began, ended: None })
    }

    /// As [`Insight::begin`]; the session may end on another thread.
    #[cfg(feature = "page")]
    pub(crate) fn begin_shared(self: &Arc<Self>) -> Result<Session<'static>, AlreadyRecording> {
        let began = self.start()?;
        Ok(Session { insight: Holds::Shared(self.clone()), began, ended: None })
    }

    fn start(&self) -> Result<Instant, AlreadyRecording> {
        if self.records.swap(true, Ordering::AcqRel) {
            return Err(AlreadyRecording);
        }
        self.recorder.number.fetch_add(1, Ordering::Relaxed);
        for table in &self.recorder.tables {
            table.rows.get_or_init(|| (0..self.recorder.capacity).map(|_| Row::empty()).collect());
            // Relaxed: `observe` below lets the workers write.
            table.len.store(0, Ordering::Relaxed);
            table.lost.store(0, Ordering::Relaxed);
        }
        self.recorder.requests.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let began = now();
        self.handle.observe(true);
        Ok(began)
    }
}

impl fmt::Debug for Insight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Insight").field("records", &self.records).finish_non_exhaustive()
    }
}

impl Session<'_> {
    /// Ends it, so that [`Session::end`] may read the tables later.
    pub(crate) fn stop(&mut self) -> Instant {
        let insight = self.insight.insight();
        *self.ended.get_or_insert_with(|| {
            let ended = now();
            insight.handle.observe(false);
            ended
        })
    }

    /// Ends it. Callbacks that still run count up to now; those that have not begun are left out.
    pub fn end(mut self) -> Recording {
        let ended = self.stop();
        let insight = self.insight.insight();
        let recorder = &insight.recorder;
        let (began_ns, ended_ns) = (recorder.ns(self.began), recorder.ns(ended));
        let since = |ns: u64| ns.saturating_sub(began_ns);
        let lost = recorder.tables.iter().map(|table| table.lost.load(Ordering::Relaxed)).sum();
        let raw = recorder.events(began_ns, ended_ns);
        let mut recording = Recording::new(insight.handle.workers(), since(ended_ns), lost);
        // REAL: recordings of two machines have no other common clock.
        let began_unix = system_now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        recording.began_unix_ns =
            (began_unix.as_nanos() as u64).saturating_sub(recorder.ns(now()).saturating_sub(began_ns));
        let notes = std::mem::take(&mut *recorder.requests.lock().unwrap_or_else(PoisonError::into_inner));
        let whole = notes.into_iter().filter(|(note, at)| note.started >= self.began && *at <= ended);
        recording.requests = whole
            .map(|(note, at)| Served {
                trace: format!("{:032x}", note.trace_id),
                span: note.span_id,
                parent: note.parent_id,
                callback: note.first,
                began_ns: since(recorder.ns(note.started)),
                ended_ns: since(recorder.ns(at)),
            })
            .collect();
        let places = recorder.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = HashMap::default();
        for event in raw {
            // A row's writer has noted its line before.
            let Some(place) = places.get(&event.line) else { continue };
            let line = *lines.entry((event.line, event.label)).or_insert_with(|| {
                let label = Label::of_number(event.label).map(|label| label.as_str().to_owned());
                recording.lines.push(Line { file: place.file().to_owned(), line: place.line(), label });
                recording.lines.len() as u32 - 1
            });
            let Raw { kind, callback, cause, color, worker, .. } = event;
            let (began_ns, at_ns) = (since(event.began_ns), since(event.at_ns));
            recording.events.push(Event { kind, callback, cause, color, worker, line, began_ns, at_ns });
        }
        recording
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.stop();
        self.insight.insight().records.store(false, Ordering::Release);
    }
}

impl fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("began", &self.began).finish_non_exhaustive()
    }
}

/// The most requests of one recording.
const REQUESTS_MAX: usize = 20_000;

/// Callbacks for each worker.
const CALLBACKS_MAX: usize = 200_000;
