//! A recording, and its file.
//!
//! A file is JSON lines, compressed by gzip, which has a checksum: the header; one array for each event; the number of
//! events. So a file that was cut off or changed is refused.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::replay::{self, Change, Prediction};
use crate::runs::Runs;
use crate::snapshot::Snapshot;

/// The callbacks of a program during a while, with their causes.
#[derive(Clone, PartialEq, Debug)]
pub struct Recording {
    pub(crate) workers: usize,
    pub(crate) elapsed_ns: u64,
    pub(crate) lost: u64,
    /// The begin by the machine's wall clock, since 1970; 0 if it is not known.
    pub(crate) began_unix_ns: u64,
    pub(crate) requests: Vec<Served>,
    pub(crate) lines: Vec<Line>,
    pub(crate) events: Vec<Event>,
}

/// A request that began and ended in the recording; times are nanoseconds since its begin.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Served {
    /// 32 hexadecimal digits, because JSON's numbers are shorter.
    pub(crate) trace: String,
    pub(crate) span: u64,
    /// 0: none.
    pub(crate) parent: u64,
    /// The one in which it began.
    pub(crate) callback: u64,
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
}

/// A line of the program, or a label with one of the lines that used it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) file: String,
    pub(crate) line: u32,
    /// That of the color.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
}

impl Line {
    /// The label, or else the place.
    pub(crate) fn name(&self) -> String {
        self.label.clone().unwrap_or_else(|| self.place())
    }

    /// As in `src/bank.rs:41`, without detours.
    pub(crate) fn place(&self) -> String {
        let mut parts: Vec<&str> = Vec::new();
        for part in self.file.split('/') {
            match part {
                ".." if parts.last().is_some_and(|last| !last.is_empty() && *last != "..") => drop(parts.pop()),
                "." => {}
                part => parts.push(part),
            }
        }
        format!("{}:{}", parts.join("/"), self.line)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Accepted,
    Started,
    Ended,
    InLine,
    /// As `Accepted`, of a callback that holds several colors.
    AcceptedBySeveral,
    /// As `InLine`, of a closure that reads.
    InLineRead,
}

impl Kind {
    /// By its number in a file.
    const ALL: [Kind; 6] =
        [Kind::Accepted, Kind::Started, Kind::Ended, Kind::InLine, Kind::AcceptedBySeveral, Kind::InLineRead];
}

/// One event; times are nanoseconds since the begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) callback: u64,
    /// 0: none.
    pub(crate) cause: u64,
    pub(crate) color: u64,
    pub(crate) worker: Option<u16>,
    /// Its index in `lines`.
    pub(crate) line: u32,
    /// Of a closure in line; otherwise as `at_ns`.
    pub(crate) began_ns: u64,
    pub(crate) at_ns: u64,
}

/// As written: kind, callback, cause, color, worker or -1, line, begin, time.
type Row = (u8, u64, u64, u64, i32, u32, u64, u64);

#[derive(Serialize, Deserialize)]
struct Header {
    /// The name and the version of the format.
    dapple_recording: u32,
    workers: usize,
    elapsed_ns: u64,
    lost: u64,
    #[serde(default)]
    began_unix_ns: u64,
    #[serde(default)]
    requests: Vec<Served>,
    lines: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
struct Trailer {
    events: u64,
}

/// The reason why a file is not a recording.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read.
    Io(io::Error),
    /// It is no recording at all.
    Foreign,
    /// Another version of the format has written it.
    Version(u32),
    /// It was cut off or changed, at this event.
    Damaged(u64),
    /// It is longer than any recording.
    TooLong,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Io(error) => write!(f, "it cannot be read: {error}"),
            LoadError::Foreign => f.write_str("it is no recording: make one with `dapple record`"),
            LoadError::Version(version) => {
                write!(
                    f,
                    "it has version {version} of the format, and this program reads version {VERSION}: record again"
                )
            }
            LoadError::Damaged(at) => write!(f, "it was cut off or changed, at event {at}: record again"),
            LoadError::TooLong => write!(f, "it has more than {EVENTS_MAX} events: record for a shorter time"),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl Recording {
    pub(crate) fn new(workers: usize, elapsed_ns: u64, lost: u64) -> Recording {
        Recording {
            workers,
            elapsed_ns,
            lost,
            began_unix_ns: 0,
            requests: Vec::new(),
            lines: Vec::new(),
            events: Vec::new(),
        }
    }

    /// How many workers the program had.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// How many callbacks have begun in it; closures in line are parts of them.
    pub fn callbacks(&self) -> usize {
        self.events.iter().filter(|event| event.kind == Kind::Started).count()
    }

    /// How many events found no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The findings of the recording.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(self, &Runs::of(self))
    }

    /// The throughput with this many workers, after some changes, compared with the recorded number of workers and no
    /// change. Both are computed from the recording, so the rate of the recorded run is not needed.
    pub fn predict(&self, workers: usize, changes: &[Change]) -> Prediction {
        replay::predict(&Runs::of(self), self.workers, workers, changes)
    }

    /// Writes it as a file.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn save(&self, to: impl Write) -> io::Result<()> {
        let mut out = GzEncoder::new(to, Compression::fast());
        let header = Header {
            dapple_recording: VERSION,
            workers: self.workers,
            elapsed_ns: self.elapsed_ns,
            lost: self.lost,
            began_unix_ns: self.began_unix_ns,
            requests: self.requests.clone(),
            lines: self.lines.clone(),
        };
        line(&mut out, &header)?;
        for event in &self.events {
            line(&mut out, &event.row())?;
        }
        line(&mut out, &Trailer { events: self.events.len() as u64 })?;
        out.finish().map(drop)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It is no recording, of another version, or not whole.
    pub fn load(from: impl Read) -> Result<Recording, LoadError> {
        let mut lines = BufReader::new(GzDecoder::new(from).take(BYTES_MAX)).lines();
        let first = lines.next().ok_or(LoadError::Foreign)?.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                LoadError::Foreign
            }
            _ => LoadError::Io(error),
        })?;
        let version = serde_json::from_str::<serde_json::Value>(&first).ok();
        let version = version.and_then(|header| header.get("dapple_recording")?.as_u64()).ok_or(LoadError::Foreign)?;
        if version != u64::from(VERSION) {
            return Err(LoadError::Version(u32::try_from(version).unwrap_or(u32::MAX)));
        }
        let header: Header = serde_json::from_str(&first).map_err(|_| LoadError::Damaged(0))?;
        // No runtime has more workers, and the analysis makes room for each.
        if !(1..=WORKERS_MAX).contains(&header.workers) || header.elapsed_ns > TIME_MAX_NS {
            return Err(LoadError::Damaged(0));
        }
        let mut recording = Recording::new(header.workers, header.elapsed_ns, header.lost);
        recording.lines = header.lines;
        recording.began_unix_ns = header.began_unix_ns;
        let makes_sense = |served: &Served| {
            served.began_ns <= served.ended_ns && served.ended_ns <= TIME_MAX_NS && is_trace(&served.trace)
        };
        if !header.requests.iter().all(makes_sense) {
            return Err(LoadError::Damaged(0));
        }
        recording.requests = header.requests;
        let mut ends = None;
        for text in lines {
            let count = recording.events.len() as u64;
            let damaged = || LoadError::Damaged(count);
            let text = text.map_err(|_| damaged())?;
            if ends.is_some() {
                return Err(damaged());
            }
            if text.starts_with('{') {
                ends = Some(serde_json::from_str::<Trailer>(&text).map_err(|_| damaged())?);
                continue;
            }
            if count >= EVENTS_MAX {
                return Err(LoadError::TooLong);
            }
            let row: Row = serde_json::from_str(&text).map_err(|_| damaged())?;
            recording.events.push(recording.event(row).ok_or_else(damaged)?);
        }
        let count = recording.events.len() as u64;
        match ends.is_some_and(|trailer| trailer.events == count) {
            true => Ok(recording),
            false => Err(LoadError::Damaged(count)),
        }
    }

    /// `None` if it makes no sense.
    fn event(&self, row: Row) -> Option<Event> {
        let (kind, callback, cause, color, worker, line, began_ns, at_ns) = row;
        let kind = Kind::ALL.get(usize::from(kind)).copied()?;
        let worker = if worker < 0 { None } else { Some(u16::try_from(worker).ok()?) };
        let fits = (line as usize) < self.lines.len() && began_ns <= at_ns && at_ns <= TIME_MAX_NS;
        fits.then_some(Event { kind, callback, cause, color, worker, line, began_ns, at_ns })
    }
}

impl Event {
    fn row(&self) -> Row {
        let worker = self.worker.map_or(-1, i32::from);
        (self.kind as u8, self.callback, self.cause, self.color, worker, self.line, self.began_ns, self.at_ns)
    }
}

fn is_trace(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// The version of the format that this code writes and reads.
const VERSION: u32 = 2;

/// More than a recording of 64 workers has.
const EVENTS_MAX: u64 = 40_000_000;

/// Events have the number of their worker in 16 bits.
const WORKERS_MAX: usize = 1 << 16;

/// Of the uncompressed text.
const BYTES_MAX: u64 = EVENTS_MAX * 96;

/// An hour.
const TIME_MAX_NS: u64 = 3_600_000_000_000;
