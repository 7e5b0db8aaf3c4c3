//! Serves any `tower_service::Service` over HTTP, on Dapple, in one line: [`serve`].
//!
//! HTTP/1.1, by a strict parser, and HTTP/2, by hyper, share one port. A request for another
//! protocol, such as WebSocket, goes to hyper, for `hyper::upgrade::on`. The protections that a
//! public server needs are built in and on by default:
//!
//! | action of a peer | reaction |
//! |---|---|
//! | open connections without end | beyond [`connections_max`](Serve::connections_max), idle connections are closed, first those of the client with the most; if none is idle, newcomers get `503` |
//! | take all descriptors | accepting pauses until one is free |
//! | leave before its reply | the server drops the handler of an HTTP/1.1 request after its body has arrived, and of an HTTP/2 stream that its peer resets |
//! | send its request slowly, or not at all | `408` after [`head_timeout`](Serve::head_timeout) |
//! | send a huge head | `431` beyond [`head_max_bytes`](Serve::head_max_bytes) |
//! | send a huge body | `413` beyond [`body_max_bytes`](Serve::body_max_bytes) |
//! | send a body slowly | `408` after [`body_timeout`](Serve::body_timeout), which data extends at [`receive_rate_min`](Serve::receive_rate_min) |
//! | take a reply slowly | the connection, or the stream, ends after [`pause_timeout`](Serve::pause_timeout), which data extends in the same way |
//! | keep an idle connection | it is closed after [`idle_timeout`](Serve::idle_timeout) |
//! | open and reset streams repeatedly | the connection ends (`GOAWAY`) |
//! | send HTTP/2 frames that carry no data (PING, SETTINGS, windows by the byte …) | beyond 1,000, plus some for each request and reply, the connection is cut |
//! | send more requests than there is time for | `503` with `Retry-After`, at once, by [admission control](dapple_tower::admission) |
//!
//! A panic in a handler ends only its own request, with a `500`. Shutdown has stages, see
//! [`Serve::with_graceful_shutdown`].

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod accept;
mod admission;
pub mod bearer;
mod builder;
/// Options of command lines: for the `dapple` command's programs, not a stable interface.
#[doc(hidden)]
pub mod command_line;
pub mod conditional;
/// Places, and which connections make room for others: for the `dapple` command's servers, not a
/// stable interface.
#[doc(hidden)]
pub mod connections;
mod descriptors;
mod handle;
/// Accepting, hand-over and the end of a process's servers: for the `dapple` command, not a stable
/// interface.
#[doc(hidden)]
pub mod host;
/// All HTTP versions, over any connection: for the `dapple` command's servers, not a stable
/// interface.
#[doc(hidden)]
pub mod http;
mod link;
/// Metrics of requests, connections, workers and the process, in Prometheus text: not a stable
/// interface.
#[doc(hidden)]
pub mod metrics;
mod options;
mod pace;
mod request;
mod server;
mod service;
mod tower;
#[cfg(feature = "tokio-compat")]
mod with_tokio;

pub use self::builder::{Serve, Serving, serve};
pub use self::handle::{ServeHandle, runtime_metrics};
pub use self::request::Body;
pub use self::service::HttpService;
#[cfg(feature = "tokio-compat")]
pub use self::with_tokio::WithTokio;
pub use dapple_io::net::{Listener, Peer};

/// The error type of services and bodies.
pub use dapple_tower::BoxError;
