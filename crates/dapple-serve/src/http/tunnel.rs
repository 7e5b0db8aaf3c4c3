//! Connections that stop speaking HTTP.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use hyper::rt::{Read, Write};

use super::Observer;

/// A two-way connection of any kind.
pub trait Duplex: Read + Write + Send + Unpin {}

impl<S: Read + Write + Send + Unpin> Duplex for S {}

/// Takes a connection over once the head of the reply is sent, as after `CONNECT`.
pub trait Tunnel: Send + 'static {
    /// Sets the observer of the reply that made the tunnel: its body is the data from the tunnel to
    /// the client.
    fn observe(&mut self, observer: Box<dyn Observer>);

    /// Serves the connection until it ends. `first` are bytes that the client sent already. From
    /// then on only the tunnel watches time limits and the closing of the server.
    fn run(self: Box<Self>, client: Box<dyn Duplex>, first: Bytes) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}
