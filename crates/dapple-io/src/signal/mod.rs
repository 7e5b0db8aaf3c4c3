//! Signals of the process, to be awaited.
//!
//! The first call for a signal replaces its default action for the whole life of the process,
//! because there is no safe way back: after one call of [`ctrl_c`], Ctrl-C no longer ends the
//! program by itself.

mod hub;

use std::future::Future;
use std::io;
use std::sync::Arc;

use crate::driver::current;
use crate::environment;
pub(crate) use hub::Hub;
use hub::{Counter, Received};

/// Ctrl-C in a terminal.
pub const SIGINT: i32 = libc::SIGINT;
/// The request to end, from `kill`, service managers and containers.
pub const SIGTERM: i32 = libc::SIGTERM;
/// The terminal was closed; by convention, servers read their configuration again.
pub const SIGHUP: i32 = libc::SIGHUP;
/// Ctrl-\ in a terminal.
pub const SIGQUIT: i32 = libc::SIGQUIT;
/// For the program's own use.
pub const SIGUSR1: i32 = libc::SIGUSR1;
/// For the program's own use.
pub const SIGUSR2: i32 = libc::SIGUSR2;
/// A child has ended.
pub const SIGCHLD: i32 = libc::SIGCHLD;
/// The size of the terminal has changed.
pub const SIGWINCH: i32 = libc::SIGWINCH;

/// Starts to watch for a signal.
///
/// ```
/// use dapple_io::signal::{SIGTERM, signal};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let mut terminate = signal(SIGTERM)?;
///     let task = dapple_sched::spawn(async move { terminate.recv().await });
///     // A supervisor sends SIGTERM; then `task` resolves.
///     # task.abort();
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// There is no runtime here; the number is not a signal; or the signal cannot be caught (`SIGKILL`,
/// `SIGSTOP`) or must not be (`SIGSEGV`, `SIGILL`, `SIGFPE`).
pub fn signal(number: i32) -> io::Result<Signal> {
    environment::refuse("a signal");
    let counter = current::shared()?.signals.counter(number)?;
    Ok(Signal { seen: counter.count(), counter })
}

/// Waits for the next Ctrl-C (`SIGINT`). Cancel safe, but a signal between two calls is not
/// remembered: a loop needs [`signal`].
///
/// # Errors
///
/// There is no runtime here.
pub async fn ctrl_c() -> io::Result<()> {
    signal(SIGINT)?.recv().await;
    Ok(())
}

/// Watches one signal from its creation on.
#[derive(Debug)]
pub struct Signal {
    counter: Arc<Counter>,
    seen: u64,
}

impl Signal {
    /// Waits until the signal has arrived since the last call, or since this was made. Several
    /// signals in a row may count as one, as in the kernel. Cancel safe: dropping it loses no
    /// signal. Never resolves after the runtime has shut down.
    pub async fn recv(&mut self) {
        self.received().await
    }

    fn received(&mut self) -> impl Future<Output = ()> + '_ {
        Received::new(&self.counter, &mut self.seen)
    }
}
