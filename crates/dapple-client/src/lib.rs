//! HTTP clients on Dapple.
//!
//! - [`Connector`] makes connections for clients that bring their own pool: `hyper_util::client::legacy::Client` (feature
//!   `hyper-util`), and tonic's `Endpoint::connect_with_connector`. Names, sockets, timers and TLS are Dapple's.

#![forbid(unsafe_code)]

mod connect;
mod connector;
mod error;
mod origin;
mod stream;
/// What the proxies of the `dapple` command share with the client, and no stable interface.
#[doc(hidden)]
pub mod upstream;

pub use self::connector::{Connecting, Connector};
pub use self::error::ConnectError;
pub use self::origin::{Origin, Scheme};
pub use self::stream::Stream;
