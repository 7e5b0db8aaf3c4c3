//! More about colors: posted callbacks, priorities, several colors at once, colors held for
//! reading.

#[doc(inline)]
pub use dapple_sched::{
    Closed, Described, PostError, Posted, Priority, ReadingColor, Set, When, WithAll, described, when,
};
