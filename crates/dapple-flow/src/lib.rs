//! Sources, sinks and queues of typed items, and event loops of a program's own, on Dapple's I/O core.
//!
//! [`flow`] moves items between devices, queues and handlers; [`event_loop`] joins a thread that waits in its own way to
//! a runtime. Both are above `dapple-io`, and use no more of it than any program can.

#![forbid(unsafe_code)]

pub mod event_loop;
pub mod flow;
mod lock;

use std::io;

fn shut_down_error() -> io::Error {
    io::Error::other("the Dapple runtime of this source has shut down")
}
