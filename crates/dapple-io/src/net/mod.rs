//! TCP, UDP and Unix sockets as `async` types.
//!
//! Everything that connects takes names as well as addresses; see [`resolve`] and [`Connector`].
//!
//! All of them are made without blocking, and tasks may share them by reference. They are
//! registered with the runtime of the thread that makes them. For the callback style, see their
//! `on_readable`, `on_writable` and [`event::on_accept`](crate::event::on_accept).

mod address;
mod arrival;
mod connect;
#[cfg(feature = "dns")]
pub(crate) mod dns;
mod half;
mod host;
mod link;
mod listener;
mod lookup;
mod passed_on;
mod peer;
mod race;
mod services;
mod socket;
mod tcp;
mod udp;
mod unix;

pub use address::{Addresses, ToAddresses, ToSocketAddrs};
pub use connect::{Connector, resolve, tcp_connect};
#[cfg(feature = "dns")]
pub use dns::{Resolver, ResolverConfig, ResolverStats};
pub use half::{ReadHalf, WriteHalf};
pub use link::{PacketQueue, TunQueue};
pub use listener::TcpListener;
pub use passed_on::{PassedOn, passed_on};
pub use peer::{Listener, Peer};
pub use services::{ServiceTarget, services};
pub use tcp::TcpStream;
pub use udp::UdpSocket;
pub use unix::{UnixListener, UnixStream};
