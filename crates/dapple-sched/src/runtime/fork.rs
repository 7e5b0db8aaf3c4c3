//! Detects that this process is a fork of the one that built a runtime: `fork` copies only the
//! calling thread, so the runtime's copy has no workers, and waiting for them would never end.
//!
//! A handler increments a counter of forks in each child before `fork` returns there. A runtime
//! remembers the counter's value, and compares it when a thread that is not a worker passes work to
//! the runtime. This costs one load of a word that hardly ever changes. A child may build runtimes
//! of its own.

use std::sync::atomic::{AtomicU32, Ordering::*};

use crate::runtime::shared::Shared;

/// Forks between the first process that built a runtime and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The number of forks that led to this process since a runtime was first built.
#[inline]
pub(super) fn generation() -> u32 {
    // Relaxed: written before any other code of the process runs.
    FORKS.load(Relaxed)
}

/// Begins to count forks.
pub(crate) fn watch() {
    #[cfg(all(unix, not(any(dapple_loom, dapple_shuttle, miri))))]
    {
        static WATCHED: std::sync::Once = std::sync::Once::new();
        // SAFETY: the handler only adds to an atomic number, which any child process may do.
        WATCHED.call_once(|| _ = unsafe { pthread_atfork(None, None, Some(note_fork)) });
    }
}

impl Shared {
    /// Panics if the runtime's workers are not in this process.
    #[inline]
    pub(crate) fn check_process(&self) {
        if self.is_left_behind() {
            refuse();
        }
    }

    /// Whether this is a runtime's copy in the child of a fork, without workers.
    #[inline]
    pub(crate) fn is_left_behind(&self) -> bool {
        self.generation != generation()
    }
}

#[cold]
#[inline(never)]
pub(crate) fn refuse() -> ! {
    panic!("{LEFT_BEHIND}");
}

/// A worker's thread finds that it is the only one of its runtime: its callback has forked and
/// returned.
#[cold]
#[inline(never)]
pub(crate) fn end_worker() -> ! {
    eprintln!("dapple: {LEFT_BEHIND}; this child was forked by a callback, which must not return");
    std::process::abort();
}

#[cfg(all(unix, not(any(dapple_loom, dapple_shuttle, miri))))]
extern "C" fn note_fork() {
    FORKS.fetch_add(1, Relaxed);
}

// SAFETY: as POSIX declares it.
#[cfg(all(unix, not(any(dapple_loom, dapple_shuttle, miri))))]
unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> std::ffi::c_int;
}

const LEFT_BEHIND: &str = "this process is a fork of the one in which its Dapple runtime was built, and the runtime's \
    workers were not copied: build the runtime after the fork, or start the child by std::process::Command";
