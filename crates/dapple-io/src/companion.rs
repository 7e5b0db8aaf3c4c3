//! Threads of the program that live as long as a runtime: its shutdown stops them, and waits for
//! them.
//!
//! Event loops (`dapple::event_loop`) use this. A program needs it only if those do not fit.

use std::fmt;
use std::io;
use std::mem;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use dapple_sched::foreign;

use crate::driver::standing::Call;
use crate::driver::{current, shut_down_error};
use crate::lock::Mutex;

/// A thread, or several, that must not outlive the runtime.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::sync::Arc;
/// use std::time::Instant;
/// use dapple_io::companion::{self, Companion};
///
/// struct Ticker(AtomicBool);
///
/// impl Companion for Ticker {
///     fn stop(&self) {
///         self.0.store(true, Ordering::Release);
///     }
///
///     fn await_end(&self, _deadline: Instant) -> bool {
///         true // no thread was started
///     }
/// }
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// let ticker = Arc::new(Ticker(AtomicBool::new(false)));
/// runtime.block_on(async { companion::register(&ticker) })?;
/// drop(runtime);
/// assert!(ticker.0.load(Ordering::Acquire));
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Companion: Send + Sync + 'static {
    /// Tells it to stop. Called once, after the tasks of the runtime have ended; it must not block.
    fn stop(&self);

    /// Waits for its end until `deadline`, blocking the calling thread; false if it has not ended.
    fn await_end(&self, deadline: Instant) -> bool;
}

/// Makes the current runtime stop `companion` at its shutdown, and wait for all companions
/// together, one second at most.
///
/// The runtime keeps a weak reference: a companion that is dropped earlier is forgotten.
/// Registering takes time in proportion to the number of registered ones.
///
/// # Errors
///
/// There is no runtime here, or it has shut down.
pub fn register<C: Companion>(companion: &Arc<C>) -> io::Result<()> {
    current::shared()?.companions.add(companion)
}

/// A wait for a companion's answer. While it exists, a [standing
/// clock](crate::Config::standing_clock) does not move by itself, because the answer comes in real
/// time.
pub struct Awaiting {
    /// `None` if the clock is the real one.
    _call: Option<Call>,
}

impl Awaiting {
    /// Begins to wait, in the current runtime. Without one, or with a real clock, it does nothing.
    ///
    /// ```
    /// let awaiting = dapple_io::companion::Awaiting::begin();
    /// // … the answer comes …
    /// drop(awaiting);
    /// ```
    #[must_use = "it ends when it is dropped"]
    pub fn begin() -> Awaiting {
        Awaiting { _call: current::shared().ok().and_then(|shared| Call::begin(&shared)) }
    }
}

impl fmt::Debug for Awaiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awaiting").finish_non_exhaustive()
    }
}

/// The companions of one runtime.
#[derive(Default)]
pub(crate) struct Registry(Mutex<Companions>);

#[derive(Default)]
struct Companions {
    all: Vec<Weak<dyn Companion>>,
    is_shut_down: bool,
}

impl Registry {
    fn add<C: Companion>(&self, companion: &Arc<C>) -> io::Result<()> {
        let companion: Arc<dyn Companion> = companion.clone();
        let mut companions = self.0.lock();
        if companions.is_shut_down {
            return Err(shut_down_error());
        }
        companions.all.retain(|known| known.strong_count() > 0);
        companions.all.push(Arc::downgrade(&companion));
        Ok(())
    }

    /// Stops all companions, and waits for them.
    pub(crate) fn shut_down(&self) {
        let all = {
            let mut companions = self.0.lock();
            companions.is_shut_down = true;
            mem::take(&mut companions.all)
        };
        let all: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        // It is foreign code, which must not prevent the rest of the shutdown.
        all.iter().for_each(|one| _ = foreign::contain(|| one.stop()));
        // REAL: companions are threads.
        let deadline = Instant::now() + STOP_MAX;
        let ended = |one: &&Arc<dyn Companion>| foreign::contain(|| one.await_end(deadline)).unwrap_or(true);
        let left = all.iter().filter(|one| !ended(one)).count();
        if left > 0 {
            tracing::warn!(companions = left, "threads beside the runtime do not stop: they are left behind");
        }
    }
}

/// How long a shutdown waits for all companions together.
const STOP_MAX: Duration = Duration::from_secs(1);
