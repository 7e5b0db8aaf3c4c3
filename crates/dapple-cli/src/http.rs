//! The HTTP that `serve` and `proxy` share: the engine of `dapple-serve`.

pub(crate) use dapple_serve::http::*;
