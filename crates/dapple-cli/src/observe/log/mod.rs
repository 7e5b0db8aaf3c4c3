//! The access log: one line for each request, made when its reply has ended.
//!
//! ```text
//!   worker       puts its line into its own buffer (bounded; full: the line is dropped and counted)
//!   a thread     takes all buffers every few milliseconds and writes them with one call, in the order of time
//! ```
//!
//! A disk or a reader that is slow, full or gone holds up that thread and nobody else.

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

/// Whoever holds it has the log written; dropping it writes what waits, and ends the writing.
pub(crate) struct Writing {
    queue: Arc<Queue>,
    ended: Receiver<()>,
}

impl Log {
    /// Opens the log at `path`, which is appended to; `-` is stdout. `workers` is how many put lines into it.
    ///
    /// # Errors
    ///
    /// Where the file cannot be opened, or the thread not be started.
    pub(crate) fn open(path: &Path, format: Format, workers: usize) -> io::Result<(Log, Writing)> {
        let mut sink = Sink::open(path)?;
        let queue = Arc::new(Queue::new(workers));
        let (tell_end, ended) = channel();
        let of_thread = queue.clone();
        let run = move || {
            of_thread.drain(&mut sink);
            // Nobody waits where writing took too long.
            let _ = tell_end.send(());
        };
        let thread = thread::Builder::new().name("dapple-log".to_owned()).spawn(run)?;
        queue.set_thread(thread.thread().clone());
        Ok((Log { format: ArcSwap::from_pointee(format), queue: queue.clone() }, Writing { queue, ended }))
    }

    /// How lines look.
    pub(crate) fn format(&self) -> Format {
        **self.format.load()
    }

    /// Changes that, for requests to come.
    pub(crate) fn set_format(&self, format: Format) {
        self.format.store(Arc::new(format));
    }

    /// Adds the line that `write` writes, its newline included.
    pub(crate) fn put(&self, worker: Option<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        self.queue.put(worker, write);
    }

    /// Lines that were dropped, as the buffer was full or the file could not be written.
    pub(crate) fn dropped(&self) -> u64 {
        self.queue.dropped()
    }

    /// Writes to this file from now on, or to stdout (`-`). Where it cannot be opened, that is said, and nothing changes.
    pub(crate) fn reopen_at(&self, path: &Path) {
        self.queue.reopen_at(path.to_owned());
    }

    /// Opens the file anew, after it was renamed.
    pub(crate) fn reopen(&self) {
        self.queue.reopen();
    }
}

/// Whether a log can be kept there.
///
/// # Errors
///
/// Where it cannot. A file that was not there is, after this.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    Sink::open(path).map(drop)
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.queue.close();
        // A pipe that nobody reads must not hold up the end.
        let _ = self.ended.recv_timeout(CLOSE_MAX);
    }
}

/// How long writing the rest may take at the end.
const CLOSE_MAX: Duration = Duration::from_secs(2);
