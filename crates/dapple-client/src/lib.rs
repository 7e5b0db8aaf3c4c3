//! HTTP clients on Dapple.
//!
//! - [`Client`] sends requests, with a pool, redirects and time limits.
//! - `Connector` (feature `tls`) makes connections for clients that bring their own pool: `hyper_util::client::legacy::Client` (feature
//!   `hyper-util`), and tonic's `Endpoint::connect_with_connector`. Names, sockets, timers and TLS are Dapple's.
//! - [`relay`] has rules for programs that pass messages on.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod client;
mod connect;
#[cfg(feature = "tls")]
mod connector;
mod error;
mod origin;
pub mod relay;
mod stream;
/// The engine that the proxies of the `dapple` command share with the client. No stable interface.
#[doc(hidden)]
pub mod upstream;

pub use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Version, header};

pub use self::client::{Body, Client, ClientBuilder, Error, Phase, Response, ResponseBody};
#[cfg(feature = "tls")]
pub use self::connector::{Connecting, Connector};
pub use self::error::ConnectError;
pub use self::origin::{Origin, Scheme};
pub use self::stream::Stream;
