//! HTTP/3 for servers, a preview: QUIC by quinn and its messages by h3, run by Dapple.
//!
//! The socket is read by one task; every connection has a task of quinn's, which makes and takes packets, and one of ours, which takes
//! requests; every request is a task again. All have colors of their own, so that encryption and answers of different connections run on
//! all cores; with `--serial` everything has the default color.
//!
//! | what a peer can do | what happens |
//! |---|---|
//! | send first packets with made-up addresses | with [`VALIDATE_FROM`](incoming) handshakes under way, new ones have to prove their address (Retry) |
//! | not finish its handshake | it is over after 10 s |
//! | open many streams | 128 at a time; more are refused by the protocol |
//! | take nothing, or too little, of a reply | the stream is reset when the [pace](super::pace) says so |
//! | be silent, or vanish | without a word the connection ends after `idle_timeout`, without a request too; both are at most 30 s |
//! | send a body that nobody reads | 256 KB are taken, at the [pace](super::pace) that a body has to have; then the reply comes, and what is left is stopped (`H3_NO_ERROR`) |
//! | send a head that is too large, or a frame without end | `431`; beyond `head.len_max` and a window it is not read, and the stream is reset |
//! | let what was sent be repeated | at most 1 MB a connection is kept for that |

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
pub use self::incoming::{Door, Handshake, accept};
pub use self::runtime::endpoint;
