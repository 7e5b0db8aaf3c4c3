//! What hickory asks of a runtime, for resolvers of a program's own.

pub use crate::net::dns::Provider;
