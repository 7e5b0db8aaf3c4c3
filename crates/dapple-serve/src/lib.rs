//! Any `tower_service::Service` over HTTP, on Dapple, in one line: [`serve`].
//!
//! HTTP/1.1, by a strict parser, and HTTP/2, by hyper, on the same port. A request for another protocol, such as WebSocket, goes to hyper, for
//! `hyper::upgrade::on`. What a server needs against strangers is built in, and on without being asked for:
//!
//! | what a peer can do | what happens |
//! |---|---|
//! | open connections without end | beyond [`connections_max`](Serve::connections_max), those that rest are closed, first of who has most; where none rests, newcomers get `503` |
//! | take all descriptors | accepting rests until one is free |
//! | leave before its reply | the handler of a request of HTTP/1.1 without a body still to come is dropped, as is a stream of HTTP/2 that its peer resets |
//! | send its request slowly, or not at all | `408` after [`header_timeout`](Serve::header_timeout) |
//! | send a huge head | `431` beyond [`header_bytes_max`](Serve::header_bytes_max) |
//! | send a huge body | `413` beyond [`body_bytes_max`](Serve::body_bytes_max) |
//! | send a body slowly | `408` after [`body_timeout`](Serve::body_timeout), which data extends at [`rate_min`](Serve::rate_min) |
//! | take a reply slowly | the connection, or the stream, ends after [`send_timeout`](Serve::send_timeout), extended alike |
//! | keep a connection without using it | it is closed after [`idle_timeout`](Serve::idle_timeout) |
//! | open and reset streams, over and over | the connection ends (`GOAWAY`) |
//! | send frames of HTTP/2 that carry nothing (PING, SETTINGS, windows by the byte …) | beyond 1,000, and some for each request and reply, the connection is cut |
//! | ask for more than there is time for | `503` with `Retry-After`, at once, by [admission control](dapple_tower::admission) |
//!
//! A handler that panics ends its own request with a `500`, and nothing else. The end has stages, see
//! [`Serve::with_graceful_shutdown`].

#![forbid(unsafe_code)]

mod accept;
mod admission;
mod builder;
/// Places, and who makes room for whom: for the `dapple` command's servers, and no stable interface.
#[doc(hidden)]
pub mod connections;
mod descriptors;
mod handle;
/// Accepting, hand-over and the end of a process's servers: for the `dapple` command, and no stable interface.
#[doc(hidden)]
pub mod host;
/// HTTP in its versions, over any connection: for the `dapple` command's servers, and no stable interface.
#[doc(hidden)]
pub mod http;
mod link;
/// Numbers of requests, connections, workers and the process, as Prometheus reads them: no stable interface.
#[doc(hidden)]
pub mod metrics;
mod options;
mod pace;
mod request;
mod server;
mod service;
mod tower;

pub use self::builder::{Serve, Serving, serve};
pub use self::handle::ServeHandle;
pub use self::request::Body;
pub use self::service::HttpService;
pub use dapple_io::net::{Listener, Peer};

/// What a service or a body fails with.
pub use dapple_tower::BoxError;
