//! Sources, sinks and the queues between them, alike for TCP, Unix sockets, pipes and files (Gribble, chapter 5).
//!
//! ```text
//!     TCP ─┐                                                   ┌─► TCP
//!    Unix ─┤   ┌────────┐  items   ┌───────────┐   ┌──────┐    ├─► Unix
//!    pipe ─┼──►│ Source ├─────────►│ Queue     ├──►│ Sink ├────┼─► pipe
//!    file ─┘   └────────┘ or batch │ (bounded) │   └──┬───┘    └─► file
//!                                  └─────▲─────┘      │
//!                                        └────────────┘
//!                                         completions: to a queue, or to a
//!                                         closure in a color, for each request
//! ```
//!
//! - A [`Source`] yields items as they arrive: bytes, or what a codec ([`Lines`], [`Frames`], your own) makes of them. A
//!   [`Listener`] is a source of connections; a [`BlockSource`] reads a file at offsets, and yields as the disk does.
//! - A [`Sink`] takes items and writes them in order, in the background. Who is told of a completion is named with each request:
//!   see [`Completion`].
//! - A [`Queue`] is between: bounded, with a decision about what happens at the bound ([`WhenFull`]). It is polled, awaited, waited
//!   on with a limit, or chained to a [`Handler`].
//! - A [`Device`] is underneath, chosen by a type (`Source<Tcp>`) or, with [`Any`], by a [`Name`] such as `tcp:127.0.0.1:80`
//!   from a configuration. The code is the same.
//!
//! Sources, queues and listeners implement `futures_core::Stream`, sinks and queues `futures_sink::Sink`, so that what is written
//! for those works here.
//!
//! What holds for all of them:
//!
//! - **Nothing grows.** Whatever waits is counted against a limit: items in queues, requests and bytes in sinks, completions that
//!   have not been handled. A consumer that stops makes its producers wait, back to the other side of a connection.
//! - **Nothing that arrived is lost** by dropping a future: it stays in the source or the queue. Each says so.
//! - **No thread of user code in the middle.** Events between two parts go through a queue or a color, never down a chain of calls
//!   (Gribble's structured upcalls, section 5.2.3); a handler runs alone in its color and needs no lock.
//!
//! The page `docs/io.md` tells the rest, with drawings.

mod block_source;
mod chain;
mod codec;
mod completion;
mod device;
mod gate;
mod handler;
mod listener;
mod queue;
mod sink;
mod source;
mod wait;

pub use block_source::{Block, BlockSource};
pub use chain::{EndReason, Ended, Flow};
pub use codec::{Chunks, Decode, Encode, Frames, Lines};
pub use completion::{Completion, Pending};
pub use device::{
    Acceptor, Any, AnyAcceptor, AnyReader, AnyWriter, Append, BadName, Device, Disk, DiskReader, DiskWriter, Name,
    Nothing, Pipe, Reader, SocketAcceptor, StreamReader, StreamWriter, Tcp, Unix, Writer, pipe,
};
pub use handler::{Close, CloseAtEnd, Handler, Receipt};
pub use listener::{Connection, Listener, connect};
pub use queue::{PopError, PushError, Queue, WhenFull};
pub use sink::{Sink, SubmitError, Written};
pub use source::Source;
