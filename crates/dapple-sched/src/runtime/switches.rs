//! Parts of the scheduler that a bench can leave out, to show the effect of each (USENIX 2003,
//! Table 2). Only with the feature `switches`; without it every part is present, and these checks
//! cost nothing.

#[cfg(feature = "switches")]
mod imp {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    /// The parts that the scheduler of this process has.
    #[derive(Clone, Copy, Debug)]
    pub struct Switches {
        /// One run queue for all workers. Suits only colors that post to themselves.
        pub shared_queue: bool,
        /// Free lists of blocks per worker; otherwise each callback has a separate allocation.
        pub free_lists: bool,
        /// Workers steal.
        pub stealing: bool,
    }

    static SHARED_QUEUE: AtomicBool = AtomicBool::new(false);
    static FREE_LISTS: AtomicBool = AtomicBool::new(true);
    static STEALING: AtomicBool = AtomicBool::new(true);

    impl Switches {
        /// Sets this for all runtimes of the process. Call it before the first color, callback or
        /// runtime is made.
        pub fn set(self) {
            // Relaxed: written before any other thread reads it.
            SHARED_QUEUE.store(self.shared_queue, Relaxed);
            FREE_LISTS.store(self.free_lists, Relaxed);
            STEALING.store(self.stealing, Relaxed);
        }
    }

    pub(crate) fn shared_queue() -> bool {
        // Relaxed, all three: see `set`.
        SHARED_QUEUE.load(Relaxed)
    }

    pub(crate) fn free_lists() -> bool {
        FREE_LISTS.load(Relaxed)
    }

    pub(crate) fn stealing() -> bool {
        STEALING.load(Relaxed)
    }
}

#[cfg(not(feature = "switches"))]
mod imp {
    #[inline(always)]
    pub(crate) const fn shared_queue() -> bool {
        false
    }

    #[inline(always)]
    pub(crate) const fn free_lists() -> bool {
        true
    }

    #[inline(always)]
    pub(crate) const fn stealing() -> bool {
        true
    }
}

#[cfg(feature = "switches")]
pub use imp::Switches;
pub(crate) use imp::{free_lists, shared_queue, stealing};
