//! The near side of a barrier whose far side is [`crate::Barrier`].
//!
//! The only fence of the scheduler, and the only handshake on two words: a worker writes where it is before each poll of a
//! light task, and looks for a thief afterwards (`light.rs`). A read-modify-write there would cost as much as the poll. What is
//! handed over goes through acquire and release like everything else, so that race detectors see it; the barrier decides
//! only which of two threads gives way.

use std::sync::atomic::Ordering::SeqCst;

/// Keeps a store before it in front of a load after it. The far side makes this thread pass a real fence at that moment, so
/// here it is the compiler that is told.
#[inline(always)]
pub(crate) fn light_barrier() {
    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    std::sync::atomic::compiler_fence(SeqCst);
    // A model has both sides alike.
    #[cfg(any(dapple_loom, dapple_shuttle))]
    crate::sync::atomic::fence(SeqCst);
}
