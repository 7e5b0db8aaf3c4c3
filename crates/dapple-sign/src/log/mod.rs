//! The log: a file to which records are appended in order.
//!
//! The thread with the lock of the tail writes. A record counts when its write, and with `--sync`
//! its fsync, has succeeded. The log cuts off the bytes of a failed batch, so that it holds only
//! acknowledged records. If cutting fails too, the log is broken, and takes nothing until the
//! process restarts.

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

/// The log. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Log(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    tail: Mutex<Tail>,
    waiting: Mutex<Waiting>,
    /// Held by the thread that writes waiting entries; the others find theirs written when they get
    /// the lock.
    leading: Mutex<()>,
    /// Whether a record counts only when it is on the disk.
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
    /// Whether the last write failed, which has been logged.
    is_failing: bool,
}

/// The entries of callers that bring one at a time. The callers bound their number: the width of a
/// stage, or the limit of threads.
#[derive(Debug, Default)]
struct Waiting {
    entries: Vec<(Entry, oneshot::Sender<Result<u64, LogError>>)>,
    /// Whether a thread is writing, and will check again.
    is_led: bool,
}

/// The reason why an entry is not in the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LogError {
    #[error("the log is full ({0}); nothing of this task was kept")]
    Full(String),
    /// Whether anything of the task was kept is unknown.
    #[error("cannot write to the log: {0}")]
    Broken(String),
    /// The log broke earlier, and did not try this task.
    #[error("the log can no longer be written: {0}")]
    Closed(String),
}

impl Log {
    /// The number of records in the log.
    pub(super) fn records(&self) -> u64 {
        self.tail().len / RECORD_LEN as u64
    }

    /// Appends entries in order, and makes all of them durable together. Returns their numbers.
    /// Blocks.
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
            tracing::error!(len_max = self.0.len_max, "the log is full; its tasks are not signed");
        }
        let full = || LogError::Full(format!("the log has {} of {} bytes", tail.len, self.0.len_max));
        results.resize_with(entries.len(), || Err(full()));
        results
    }

    /// Appends an entry, together with entries of other callers. Blocks.
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

    /// As [`append_blocking`](Self::append_blocking), for a Dapple task. Cancel safe: if dropped,
    /// the entry is appended all the same.
    pub(super) async fn append(&self, entry: Entry) -> Result<u64, LogError> {
        let (tx, rx) = oneshot::channel();
        let leads = {
            let mut waiting = self.waiting();
            waiting.entries.push((entry, tx));
            !std::mem::replace(&mut waiting.is_led, true)
        };
        if leads {
            let log = self.clone();
            // Detached, because other callers depend on it even if this one is dropped.
            drop(dapple::spawn(async move { spawn_blocking(move || while log.write_waiting() {}).await }));
        }
        rx.await.unwrap_or_else(|_| Err(lost()))
    }

    /// Writes the waiting entries; returns `false` if there are none, and stops leading.
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
            // A caller that has left needs no answer.
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
    /// Writes entries, and returns the number of the first.
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
            // The state of the disk is unknown, and a later fsync that succeeds would not reveal it
            // (PostgreSQL's lesson of 2018).
            self.cut(&error);
            self.broken = Some(format!("an fsync failed, and the state of the disk is unknown: {error}"));
            return Err(LogError::Broken(error.to_string()));
        }
        self.is_failing = false;
        self.len += bytes.len() as u64;
        let first = self.next;
        self.next += entries.len() as u64;
        Ok(first)
    }

    /// Cuts off bytes that may have been written.
    fn cut(&mut self, cause: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::error!(error = %cause, "cannot write to the log; its tasks are answered with an error");
        }
        if let Err(error) = self.file.set_len(self.len) {
            self.broken = Some(format!("{cause}; and the incomplete record cannot be cut off: {error}"));
        }
    }
}

fn lost() -> LogError {
    LogError::Broken("the server ended before it was written".to_owned())
}
