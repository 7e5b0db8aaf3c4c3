//! Connections to servers, with limits: what a client and the proxies of the `dapple` command are policies over.
//!
//! ```text
//!   Hosts    the servers that are in use, and the connections to all of them
//!   Host     one server: its connections, how many there may be, and who waits
//!   Turn     a request may go to the server
//!   Line     the connection, or the stream of one, that the request goes by
//!   Lease    what the request has of the server until its response is complete
//! ```
//!
//! No future of this module is needed for a connection to go on or to end: dropped, each gives back what it has, and the connection of a
//! request that is not over ends.

mod begin;
mod body;
mod host;
mod hosts;
mod lease;
mod line;
mod pool;
mod sweep;

pub use self::body::{BodyError, Download};
pub use self::host::{Host, OpenPlace, Turn};
pub use self::hosts::{Config, Hosts, Limits, Spawn};
pub use self::lease::{Gone, Lease};
pub use self::line::{Line, Respond, Unanswered};
pub use self::pool::STREAMS_MAX;

pub use crate::connect::{Dial, Rule};
pub use crate::error::with_causes;
