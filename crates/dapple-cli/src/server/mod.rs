//! What `serve` and `proxy` share of being a server: the host of `dapple-serve`, and its options.

mod args;

pub(crate) use self::args::AdmissionArgs;
pub(crate) use dapple_serve::host::*;
