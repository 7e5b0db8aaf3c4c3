//! hickory's interface to a runtime, for a program's own resolvers.

pub use crate::net::dns::Provider;
