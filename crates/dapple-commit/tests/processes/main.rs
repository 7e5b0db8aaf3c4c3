//! Tests with real processes that are started, stopped and killed. They have their own binary,
//! because they load the machine.

mod children;
mod commit_kills;
mod compaction;
