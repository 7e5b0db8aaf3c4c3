//! `dapple sign` and `dapple sign-client`: the SignServer of S. Gribble's dissertation (Berkeley, 2000; section 4.4 and Appendix A), built
//! four times on the design framework, and the client that measures it.

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

pub(crate) use self::args::Args;
pub(crate) use self::client::{ClientArgs, run as run_client};
pub(crate) use self::host::HostArgs;
pub(crate) use self::server::run;
