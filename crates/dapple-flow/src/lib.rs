//! Sources, sinks and queues of typed items, and event loops of the program's own, on Dapple's I/O
//! core.
//!
//! [`flow`] moves items between devices, queues and handlers; [`event_loop`] connects a thread that
//! waits in its own way to a runtime. Both use only the public interface of `dapple-io`.

#![forbid(unsafe_code)]

pub mod event_loop;
pub mod flow;
mod lock;

use std::io;

fn shut_down_error() -> io::Error {
    io::Error::other("the Dapple runtime of this source has shut down")
}
