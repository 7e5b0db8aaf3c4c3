//! The HTTP that `serve` and `proxy` share: replies, services, and the connections that carry them.

#![expect(clippy::len_without_is_empty, reason = "the lengths are of the remaining bodies, and may be unknown")]

pub mod body;
pub mod clock;
pub mod connection;
pub mod handler;
pub mod http1;
pub mod http2;
#[cfg(feature = "http3")]
pub mod http3;
pub mod hyper;
pub mod interims;
pub mod limits;
pub mod observer;
pub mod pace;
pub mod reply;
pub mod request_body;
pub mod service;
mod trailers;
pub mod tunnel;

pub use self::body::{Body, BodyStream};
pub use self::handler::{Awaited, Handler};
pub use self::interims::Interims;
pub use self::limits::Limits;
pub use self::observer::Observer;
pub use self::reply::{Reply, Served, SharedHead};
pub use self::request_body::{Incoming, RequestBody};
pub use self::service::{Borrowed, Client, Service};
pub use self::tunnel::Tunnel;
