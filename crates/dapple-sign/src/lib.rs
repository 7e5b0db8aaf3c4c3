//! `dapple sign` and `dapple sign-client`: the SignServer of S. Gribble's dissertation (Berkeley,
//! 2000; section 4.4 and Appendix A), built four times on Dapple's stages, and the client that
//! measures it.

#![forbid(unsafe_code)]

mod answer;
mod args;
mod budget;
mod client;
mod connection;
mod digest;
mod error;
mod frame;
mod frames;
mod host;
mod log;
mod server;
mod signer;

pub use self::args::Args;
pub use self::client::{ClientArgs, run as run_client};
pub use self::error::SignError;
pub use self::host::HostArgs;
pub use self::server::run;
