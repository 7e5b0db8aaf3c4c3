//! The HTTP that `serve` and `proxy` share: replies, services, and the connections that carry them.

pub(crate) mod body;
pub(crate) mod clock;
pub(crate) mod connection;
pub(crate) mod http1;
pub(crate) mod http2;
#[cfg(feature = "http3")]
pub(crate) mod http3;
pub(crate) mod hyper;
pub(crate) mod interims;
pub(crate) mod limits;
pub(crate) mod observer;
pub(crate) mod pace;
pub(crate) mod reply;
pub(crate) mod request_body;
pub(crate) mod service;
mod trailers;
pub(crate) mod tunnel;

pub(crate) use self::body::{Body, BodyStream};
pub(crate) use self::interims::Interims;
pub(crate) use self::limits::Limits;
pub(crate) use self::observer::Observer;
pub(crate) use self::reply::{Reply, Served, SharedHead};
pub(crate) use self::request_body::{Incoming, RequestBody};
pub(crate) use self::service::{Awaited, Client, Service};
pub(crate) use self::tunnel::Tunnel;
