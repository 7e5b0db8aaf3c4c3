//! TCP, UDP and Unix sockets as `async` types.
//!
//! All of them are made without blocking and may be shared by reference between tasks. They are registered with the
//! runtime of the thread that makes them. Where the callback style is wanted, see their `on_readable`, `on_writable` and
//! [`event::on_accept`](crate::event::on_accept).

mod address;
mod connect;
mod half;
mod listener;
mod tcp;
mod udp;
mod unix;

pub use address::ToSocketAddrs;
pub use connect::{resolve, tcp_connect};
pub use half::{ReadHalf, WriteHalf};
pub use listener::TcpListener;
pub use tcp::TcpStream;
pub use udp::UdpSocket;
pub use unix::{UnixListener, UnixStream};
