//! Connections to servers, with limits. The client and the proxies of the `dapple` command are policies over this module.
//!
//! ```text
//!   Hosts    the servers that are in use, and the connections to all of them
//!   Host     one server: its connections, their limits, and the requests that wait
//!   Turn     permission for one request to a server
//!   Line     the connection, or the stream of one, that the request goes by
//!   Session  a connection of HTTP/2 that its owner keeps, outside of all this
//!   Lease    the turn and the connection of a request, until its response is complete
//! ```
//!
//! Every future of this module may be dropped at any time. It then gives its turn and its place back, and the connection of an unfinished
//! request closes.

mod begin;
mod body;
mod host;
mod hosts;
mod lease;
mod line;
mod message;
mod pool;
mod session;
mod sweep;

pub use self::body::{BodyError, Download};
pub use self::host::{Host, OpenSlot, Turn};
pub use self::hosts::{Config, Hosts, Limits, Spawn};
pub use self::lease::{Gone, Lease};
pub use self::line::{Line, Respond, Unanswered};
pub use self::message::{Message, Taken};
pub use self::pool::STREAMS_MAX;
pub use self::session::Session;

pub use crate::connect::{Dial, Rule};
pub use dapple_tower::with_causes;
