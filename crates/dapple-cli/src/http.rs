//! The HTTP engine of `dapple-serve`, which `serve` and `proxy` share.

pub(crate) use dapple_serve::http::*;
