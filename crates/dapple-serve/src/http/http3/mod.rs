//! HTTP/3 for servers, a preview: QUIC by quinn and messages by h3, run by Dapple.
//!
//! One task reads the socket. Every connection has a quinn task, which makes and takes packets, and
//! one of ours, which takes requests; every request is a task too. All have colors of their own, so
//! that encryption and answers of different connections run on all cores; with `--serial`
//! everything has the default color.
//!
//! | action of a peer | reaction |
//! |---|---|
//! | send first packets with forged addresses | with `VALIDATE_FROM` handshakes in progress, new clients have to prove their address (Retry) |
//! | not finish its handshake | the handshake ends after 10 s |
//! | open many streams | 128 at a time; more are refused by the protocol |
//! | take nothing, or too little, of a reply | the stream is reset at the limit of the [pace](super::pace) |
//! | be silent, or vanish | the connection ends after `idle_timeout` without a packet or without a request; both are at most 30 s |
//! | send a body that the service does not read | the server takes 256 KB, at the [pace](super::pace) that a body must have; then it replies, and stops the rest (`H3_NO_ERROR`) |
//! | send a head that is too large, or an endless frame | `431`; beyond `head.len_max` and a window the server stops reading, and the stream is reset |
//! | request retransmissions | a connection keeps at most 1 MB for them |

mod answer;
mod config;
mod connection;
mod incoming;
mod metered;
mod request_body;
mod runtime;
mod socket;

pub use self::config::server_config;
pub use self::connection::serve;
pub use self::incoming::{Handshake, HandshakeHandler, accept};
pub use self::runtime::endpoint;
