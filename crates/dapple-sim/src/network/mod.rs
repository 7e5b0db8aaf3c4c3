//! The network: connections, listeners, datagrams, and the ways between hosts.
//!
//! Nothing here wakes a task. Each event changes the state of sockets and notes what is to be told (`World::tell`); the workers of
//! the host tell it when they look for events, as they would take them from the kernel.

pub(crate) mod connection;
mod files;
pub(crate) mod ports;
pub(crate) mod sockets;
