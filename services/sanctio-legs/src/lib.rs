//! The common parts of the programs that carry conversations of sanctio to a network: the client of the hub, and the
//! connection to a chat server.

#![forbid(unsafe_code)]

pub mod hub;
pub mod link;
