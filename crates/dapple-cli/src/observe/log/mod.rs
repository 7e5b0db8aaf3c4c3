//! The access log: one line for each request, written when its reply has ended.
//!
//! ```text
//!   worker       puts its line into its own buffer (bounded; full: the line is dropped and counted)
//!   a thread     takes all buffers every few milliseconds and writes them with one call, in the order of time
//! ```
//!
//! A slow, full or broken disk or reader holds up only that thread.

mod escape;
mod line;
mod queue;
mod sink;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;

pub(crate) use self::line::{Format, Line};
use self::queue::Queue;
use self::sink::Sink;

/// The access log of a process.
pub(crate) struct Log {
    format: ArcSwap<Format>,
    queue: Arc<Queue>,
}

/// The owner of the writing thread; dropping it writes the waiting lines, and ends the thread.
pub(crate) struct Writing {
    queue: Arc<Queue>,
    ended: Receiver<()>,
}

impl Log {
    /// Opens the log at `path` for appending; `-` is stdout. `workers` is the number of workers
    /// that add lines.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or the thread cannot be started.
    pub(crate) fn open(path: &Path, format: Format, workers: usize) -> io::Result<(Log, Writing)> {
        Log::open_as(ACCESS_LOG, path, format, workers)
    }

    /// As [`open`](Self::open), of a log that messages call so.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub(crate) fn open_as(
        name: &'static str,
        path: &Path,
        format: Format,
        workers: usize,
    ) -> io::Result<(Log, Writing)> {
        let mut sink = Sink::open(name, path)?;
        let queue = Arc::new(Queue::new(workers));
        let (tell_end, ended) = channel();
        let of_thread = queue.clone();
        let run = move || {
            of_thread.drain(&mut sink);
            // No receiver waits if writing took too long.
            let _ = tell_end.send(());
        };
        let thread = thread::Builder::new().name("dapple-log".to_owned()).spawn(run)?;
        queue.set_thread(thread.thread().clone());
        Ok((Log { format: ArcSwap::from_pointee(format), queue: queue.clone() }, Writing { queue, ended }))
    }

    /// The format of lines.
    pub(crate) fn format(&self) -> Format {
        **self.format.load()
    }

    /// Changes the format, for later requests.
    pub(crate) fn set_format(&self, format: Format) {
        self.format.store(Arc::new(format));
    }

    /// Adds the line that `write` writes, including its newline.
    pub(crate) fn put(&self, worker: Option<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        self.queue.put(worker, write);
    }

    /// The number of lines dropped because the buffer was full or the file could not be written.
    pub(crate) fn dropped(&self) -> u64 {
        self.queue.dropped()
    }

    /// Writes to this file from now on, or to stdout (`-`). If the file cannot be opened, logs
    /// that, and changes nothing.
    pub(crate) fn reopen_at(&self, path: &Path) {
        self.queue.reopen_at(path.to_owned());
    }

    /// Reopens the file, after it was renamed.
    pub(crate) fn reopen(&self) {
        self.queue.reopen();
    }
}

/// Checks whether a log can be written there.
///
/// # Errors
///
/// The file cannot be opened. Creates the file if it did not exist.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    Sink::open(ACCESS_LOG, path).map(drop)
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.queue.close();
        // A pipe without a reader must not hold up the end.
        let _ = self.ended.recv_timeout(CLOSE_MAX);
    }
}

const ACCESS_LOG: &str = "access log";

/// How long writing the remaining lines may take at the end.
const CLOSE_MAX: Duration = Duration::from_secs(2);
