//! Sources, sinks and the queues between them, for TCP, Unix sockets, pipes and files (Gribble,
//! chapter 5).
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
//! - A [`Source`] yields items as they arrive: bytes, or the items of a codec ([`Lines`],
//!   [`Frames`], your own). A [`Listener`] is a source of connections; a [`BlockSource`] reads a
//!   file at offsets, and yields in the disk's order.
//! - [`Datagrams`] are a source of those of UDP: a port names the handler that it is chained to. A
//!   [`DatagramSink`] sends some; [`Broadcast`] sends to all members of a group of hosts.
//! - A [`Sink`] takes items and writes them in order, in the background. Each request names the
//!   recipient of its result: see [`Completion`].
//! - A [`Queue`] is between them: bounded, with a policy at the bound ([`WhenFull`]). Consumers
//!   poll it, await it, wait on it with a limit, or chain it to a [`Handler`].
//! - A [`Device`] is below, chosen by a type (`Source<Tcp>`) or, with [`Any`], by a [`Name`] such
//!   as `tcp:127.0.0.1:80` from a configuration. The code is the same.
//!
//! Sources, queues and listeners implement `futures_core::Stream`, sinks and queues
//! `futures_sink::Sink`, so code for these traits works with them.
//!
//! These hold for all of them:
//!
//! - **Nothing grows without a bound.** Limits count all waiting data: items in queues, requests
//!   and bytes in sinks, completions not yet handled. A consumer that stops makes its producers
//!   wait, back to the other side of a connection.
//! - **Dropping a future loses no data**: it stays in the source or the queue. Each method's docs
//!   say so.
//! - **No user code runs inside another's call.** Events between two parts go through a queue or a
//!   color, never down a chain of calls (Gribble's structured upcalls, section 5.2.3). A handler
//!   runs alone in its color and needs no lock.
//!
//! The page `docs/io.md` has the rest, with drawings.

mod block_source;
mod chain;
mod codec;
mod completion;
mod datagrams;
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
pub use datagrams::{Broadcast, Datagram, DatagramSink, Datagrams};
pub use device::{
    Acceptor, Any, AnyAcceptor, AnyReader, AnyWriter, Append, BadName, Device, Disk, DiskReader, DiskWriter, Name,
    Nothing, Pipe, Reader, SocketAcceptor, StreamReader, StreamWriter, Tcp, Unix, Writer, pipe,
};
pub use handler::{Close, CloseAtEnd, Handler, Receipt};
pub use listener::{Connection, Listener, connect};
pub use queue::{PopError, PushError, Queue, WhenFull};
pub use sink::{Sink, SubmitError, Written};
pub use source::Source;
