//! The log: a file to which records are appended in order.
//!
//! Who has the lock of the tail writes. A record counts when its write, and with `--sync` its fsync, has succeeded; what was written of
//! a batch that failed is cut off again, so that nothing is in the log that was not acknowledged. Where that fails too, the log is
//! broken, and takes nothing until the process begins anew.

mod open;
mod record;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use dapple::blocking::spawn_blocking;
use dapple::sync::oneshot;

pub(crate) use self::open::OpenError;
pub(super) use self::record::Entry;
use self::record::RECORD_LEN;

/// The log. Clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Log(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    tail: Mutex<Tail>,
    waiting: Mutex<Waiting>,
    /// Held by the thread that writes what waits; the others find theirs written when they have it.
    leading: Mutex<()>,
    /// Whether a record has to be on the disk before it counts.
    is_durable: bool,
    len_max: u64,
}

/// The end of the file.
#[derive(Debug)]
struct Tail {
    file: File,
    len: u64,
    /// The number of the next record.
    next: u64,
    broken: Option<String>,
    /// The last write failed, which has been said.
    is_failing: bool,
}

/// Entries of callers that bring one at a time. Bounded by who may call: the width of a stage, or the limit of threads.
#[derive(Debug, Default)]
struct Waiting {
    entries: Vec<(Entry, oneshot::Sender<Result<u64, LogError>>)>,
    /// Whether somebody writes and will look again.
    is_led: bool,
}

/// Why an entry is not in the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LogError {
    #[error("the log is full ({0}); nothing of this task was kept")]
    Full(String),
    /// Whether something of the task was kept is not known.
    #[error("the log cannot be written: {0}")]
    Broken(String),
    /// It broke before, and nothing was tried for this task.
    #[error("the log cannot be written any more: {0}")]
    Closed(String),
}

impl Log {
    /// How many records are in it.
    pub(super) fn records(&self) -> u64 {
        self.tail().len / RECORD_LEN as u64
    }

    /// Appends entries, in their order, and makes all of them durable together. Returns their numbers. Blocks.
    pub(super) fn append_all(&self, entries: &[Entry]) -> Vec<Result<u64, LogError>> {
        let mut tail = self.tail();
        if let Some(problem) = &tail.broken {
            return vec![Err(LogError::Closed(problem.clone())); entries.len()];
        }
        let room = (self.0.len_max.saturating_sub(tail.len) / RECORD_LEN as u64).min(entries.len() as u64) as usize;
        let mut results = match tail.write(&entries[..room], self.0.is_durable) {
            Ok(first) => (first..).take(room).map(Ok).collect(),
            Err(error) => vec![Err(error); room],
        };
        if room < entries.len() && !std::mem::replace(&mut tail.is_failing, true) {
            tracing::error!(len_max = self.0.len_max, "the log is full, and its tasks are not signed");
        }
        let full = || LogError::Full(format!("it has {} of {} bytes", tail.len, self.0.len_max));
        results.resize_with(entries.len(), || Err(full()));
        results
    }

    /// Appends an entry, together with those that others bring meanwhile. Blocks.
    pub(super) fn append_blocking(&self, entry: Entry) -> Result<u64, LogError> {
        let (tx, mut rx) = oneshot::channel();
        self.waiting().entries.push((entry, tx));
        {
            let _leading = self.0.leading.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(result) = rx.try_recv() {
                return result;
            }
            self.write_waiting();
        }
        rx.try_recv().unwrap_or_else(|_| Err(lost()))
    }

    /// As [`append_blocking`](Self::append_blocking), for a task. Cancel safe: dropped, the entry is appended none the less.
    pub(super) async fn append(&self, entry: Entry) -> Result<u64, LogError> {
        let (tx, rx) = oneshot::channel();
        let leads = {
            let mut waiting = self.waiting();
            waiting.entries.push((entry, tx));
            !std::mem::replace(&mut waiting.is_led, true)
        };
        if leads {
            let log = self.clone();
            // Detached, as others count on it also where this caller goes away.
            drop(dapple::spawn(async move { spawn_blocking(move || while log.write_waiting() {}).await }));
        }
        rx.await.unwrap_or_else(|_| Err(lost()))
    }

    /// Writes what waits; false, and nobody leads any more, when there is nothing.
    fn write_waiting(&self) -> bool {
        let batch = {
            let mut waiting = self.waiting();
            if waiting.entries.is_empty() {
                waiting.is_led = false;
                return false;
            }
            std::mem::take(&mut waiting.entries)
        };
        let (entries, answers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        for (answer, result) in answers.into_iter().zip(self.append_all(&entries)) {
            // Who has gone does not want to know.
            let _ = answer.send(result);
        }
        true
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.0.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tail {
    /// Returns the number of the first.
    fn write(&mut self, entries: &[Entry], is_durable: bool) -> Result<u64, LogError> {
        if entries.is_empty() {
            return Ok(self.next);
        }
        let mut bytes = Vec::with_capacity(entries.len() * RECORD_LEN);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        for (entry, sequence) in entries.iter().zip(self.next..) {
            record::encode(entry, sequence, time_us, &mut bytes);
        }
        if let Err(error) = self.file.write_all_at(&bytes, self.len) {
            let is_full = matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
            );
            self.cut(&error);
            let text = error.to_string();
            return Err(if is_full { LogError::Full(text) } else { LogError::Broken(text) });
        }
        if is_durable && let Err(error) = self.file.sync_data() {
            // What the disk has now, nobody knows; an fsync that succeeds later would not tell (PostgreSQL's lesson of 2018).
            self.cut(&error);
            self.broken = Some(format!("an fsync failed, and what is on the disk is not known: {error}"));
            return Err(LogError::Broken(error.to_string()));
        }
        self.is_failing = false;
        self.len += bytes.len() as u64;
        let first = self.next;
        self.next += entries.len() as u64;
        Ok(first)
    }

    /// Takes back what may have been written.
    fn cut(&mut self, cause: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::error!(error = %cause, "the log cannot be written; its tasks are answered with an error");
        }
        if let Err(error) = self.file.set_len(self.len) {
            self.broken = Some(format!("{cause}; and what was half written cannot be cut off: {error}"));
        }
    }
}

fn lost() -> LogError {
    LogError::Broken("the server ended before it was written".to_owned())
}
