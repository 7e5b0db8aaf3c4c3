//! The parts of a server that `serve` and `proxy` share: the host of `dapple-serve`, and its limits.

mod args;
mod connection;
mod net;

pub(crate) use self::args::{AdmissionLimits, CONNECTIONS_MAX, CONNECTIONS_PER_CLIENT, DRAIN};
pub(crate) use self::connection::{ConnectionRows, ProxyConnectionRows, connection_limits};
pub(crate) use self::net::{NetArgs, OwnNetwork};
pub(crate) use dapple_serve::host::*;
