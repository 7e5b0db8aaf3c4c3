//! Event sources that take a callback, in the style of the papers' `fdcb` and `delaycb`.
//!
//! The callback carries its color, so the code that registers it need not know about colors. Each
//! function returns a
//! [`Registration`]: dropping it cancels, [`Registration::detach`] lets the callback live as long as the runtime.
//!
//! A source waits until its callback has run before it polls again. So at most one run of a
//! callback is queued (for [`on_accept`]: a few), however fast events come: a slow callback slows
//! its source down, and no queue grows.
//!
//! ```
//! use std::sync::mpsc;
//! use std::time::Duration;
//! use dapple_sched::Color;
//!
//! let runtime = dapple_io::runtime_builder().workers(1).build()?;
//! let (tx, rx) = mpsc::channel();
//! let _entered = runtime.enter();
//! let tick = Color::new().wrap(move |()| drop(tx.send("tick")));
//! let ticks = dapple_io::event::every(Duration::from_millis(1), tick)?;
//! assert_eq!(rx.recv(), Ok("tick"));
//! assert_eq!(rx.recv(), Ok("tick"));
//! ticks.cancel();
//! # Ok::<(), std::io::Error>(())
//! ```

mod deadline;
mod task;
mod watch;

use std::fmt;
use std::sync::Arc;

pub use deadline::{after, at, every};
pub use task::{on_accept, on_child_exit, on_connect, on_signal};
pub(crate) use watch::watch;
pub use watch::{on_readable, on_writable};

/// The registration of a callback for events. Dropping it cancels.
///
/// A cancel is a mark that each run checks at its turn: cancel in the callback's own color, and no
/// run comes after that. If other code cancels, a run in progress continues, and no other begins. A
/// cancel is cheap, from any thread.
#[must_use = "dropping a registration cancels it: keep it, or call `detach`"]
pub struct Registration(Option<Arc<dyn Cancel>>);

/// Something that can be canceled. Called once.
pub(crate) trait Cancel: Send + Sync {
    fn cancel(&self);
}

impl Registration {
    pub(crate) fn new(cancel: Arc<dyn Cancel>) -> Self {
        Registration(Some(cancel))
    }

    /// Stops calling the callback, and drops it.
    pub fn cancel(self) {
        drop(self);
    }

    /// Keeps the callback as long as its source and the runtime live.
    pub fn detach(mut self) {
        self.0 = None;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(cancel) = self.0.take() {
            cancel.cancel();
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registration")
    }
}
