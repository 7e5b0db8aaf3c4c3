//! ONC RPC (RFC 5531) on Dapple: servers and clients over TCP and UDP.
//!
//! It is an example of a protocol module that other programs use, like libasync's RPC module
//! (thesis, section 2.2). Calls are dispatched by program, version and procedure, and a call's
//! reply is a callback in a color. Over UDP the client repeats lost messages, while the server
//! answers no call twice. Messages come from the crate `onc-rpc`; arguments and results are bytes
//! in XDR, for which a program chooses its own library, as the example `nfs_attributes` does. There
//! is no port mapper: a client knows the port.
//!
//! ```
//! use std::sync::Arc;
//!
//! use dapple::Colored;
//! use dapple::net::UdpSocket;
//! use rpc::{Client, Service};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! dapple::block_on(async {
//!     // Program 536870912, version 1, procedure 1 counts its calls, in the color of the count.
//!     let count = Colored::new(0_u32);
//!     let service = Service::new().procedure(0x2000_0000, 1, 1, move |call| {
//!         count.post(|count| {
//!             *count += 1;
//!             call.succeed(count.to_be_bytes().to_vec());
//!         });
//!     });
//!     let socket = UdpSocket::bind("127.0.0.1:0")?;
//!     let address = socket.local_addr()?;
//!     drop(dapple::spawn(Arc::new(service).serve_udp(socket)));
//!
//!     let client = Client::udp(address).await?;
//!     assert_eq!(client.call(0x2000_0000, 1, 1, Vec::new()).await?, [0, 0, 0, 1]);
//!     Ok(())
//! })
//! # }
//! ```

#![forbid(unsafe_code)]

mod client;
mod duplicates;
mod error;
mod message;
mod record;
mod server;
mod service;

pub use client::Client;
pub use error::CallError;
pub use service::{Call, Service};

/// The longest message in bytes: the size of a datagram.
pub const MESSAGE_MAX: usize = 64 * 1024;

/// The limit of calls that a server answers at a time, for each TCP connection and UDP socket, and
/// of unanswered calls of a client.
pub const CALLS_MAX: usize = 128;
