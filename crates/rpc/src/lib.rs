//! ONC RPC (RFC 5531) on Dapple: servers and clients over TCP and UDP.
//!
//! It is an example of a protocol module that other programs use, as libasync's module for RPC was (thesis, section 2.2): calls are
//! dispatched by program, version and procedure, a call's reply is a callback in a color; over UDP the server
//! runs no call twice. Messages are those of the crate `onc-rpc`; arguments and results are bytes in XDR, for
//! which a program takes a library of its choice, as the example `nfs_attributes` does. There is no port mapper: a client knows the port.

#![forbid(unsafe_code)]

mod duplicates;
mod error;
mod message;
mod record;
mod server;
mod service;

pub use error::CallError;
pub use service::{Call, Service};

/// How long a message may be, in bytes: as long as a datagram.
pub const MESSAGE_MAX: usize = 64 * 1024;

/// Calls that a server answers at a time, for each TCP connection and for each UDP socket, and that a client may have made.
pub const CALLS_MAX: usize = 128;
