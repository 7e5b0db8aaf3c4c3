//! What Dapple's web server and proxy share of HTTP, without I/O and without a clock: bytes and times go in, decisions come out.
//!
//! The parsing itself is `httparse`'s; here stand the strict checks in front of it, and what RFC 9110 and 9112 ask of whoever
//! answers.

#![forbid(unsafe_code)]

mod request;

pub use request::{Field, Fields, Form, Request};
