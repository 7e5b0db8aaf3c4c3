//! The HTTP rules shared by Dapple's web server and proxy, without I/O and without a clock: bytes
//! and times go in, decisions come out.
//!
//! `httparse` parses; this crate adds strict checks before it, and the duties of a server in RFC
//! 9110 and 9112.

#![forbid(unsafe_code)]

pub mod cache;
mod chunked;
pub mod coding;
pub mod conditional;
pub mod frames;
pub mod framing;
mod head;
pub mod hops;
pub mod range;
mod refusal;
mod reply;
mod request;

pub use chunked::{ChunkDecoder, ChunkStep, LAST_CHUNK, chunk_start};
pub use head::{Found, Framing, Head, HeadLimits, HeadScan, parse};
pub use refusal::Refusal;
pub use reply::{DateLine, ReplyFraming, write_head};
pub use request::{Field, Fields, Form, Request};
