//! A connection that ceases to speak HTTP.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use hyper::rt::{Read, Write};

use super::Observer;

/// A connection of any kind, both ways.
pub trait Duplex: Read + Write + Send + Unpin {}

impl<S: Read + Write + Send + Unpin> Duplex for S {}

/// What takes a connection over once the head of the reply is sent, as after `CONNECT`.
pub trait Tunnel: Send + 'static {
    /// Gives it who wants to know what becomes of the reply that made it: its body is what goes to the client by the tunnel.
    fn observe(&mut self, observer: Box<dyn Observer>);

    /// Goes on with the connection until it ends. `first` are bytes that the client sent already. Nobody else watches the time then, or
    /// whether the server is closing.
    fn run(self: Box<Self>, client: Box<dyn Duplex>, first: Bytes) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}
