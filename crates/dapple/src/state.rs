//! More about state: pinned state, which need not be `Send`, shared reading, and requests for
//! state.

#[doc(inline)]
pub use dapple_sched::{Pinned, PinnedWith, Read, Reading, TryWithError, With};
