//! The runtime that quinn needs, provided by Dapple.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use dapple_io::time::{self, Sleep};
use dapple_sched::Color;
use quinn::{AsyncTimer, AsyncUdpSocket, Endpoint, EndpointConfig, Runtime, ServerConfig};

use super::socket::Socket;

/// Creates an endpoint on a bound socket, for clients, and with a `config` for servers too. Its
/// tasks have a color each, or all the default color.
///
/// # Errors
///
/// The kernel refuses to watch the socket.
pub fn endpoint(socket: std::net::UdpSocket, config: Option<ServerConfig>, serial: bool) -> io::Result<Endpoint> {
    Endpoint::new(EndpointConfig::default(), config, socket, Arc::new(Dapple { serial }))
}

/// quinn's view of the runtime.
#[derive(Debug)]
struct Dapple {
    serial: bool,
}

impl Runtime for Dapple {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer(time::sleep_until(deadline)))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        drop(match self.serial {
            true => Color::DEFAULT.spawn(future),
            false => dapple_sched::spawn(future),
        });
    }

    fn wrap_udp_socket(&self, socket: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Ok(Arc::new(Socket::new(socket)?))
    }

    fn now(&self) -> Instant {
        time::Instant::now().into_std()
    }
}

/// A timer of a connection.
struct Timer(Sleep);

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.0.reset(deadline);
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timer").field(&self.0.deadline()).finish()
    }
}
