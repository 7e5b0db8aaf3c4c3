//! Names, and connecting to them.

use std::io;
use std::net::SocketAddr;

use super::address::{literal, no_address};
use super::tcp::TcpStream;
use crate::blocking;

/// Connects to a host by name or address, trying all its addresses in turn (the papers' `tcpconnect`). Cancel safe: dropped
/// before it resolves, the attempt ends.
///
/// ```
/// use dapple_io::net::{TcpListener, tcp_connect};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let port = listener.local_addr()?.port();
///     let stream = tcp_connect("localhost", port).await?;
///     assert_eq!(stream.peer_addr()?.port(), port);
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// Those of the look-up, or of the last address tried.
pub async fn tcp_connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = no_address();
    for addr in resolve(host, port).await? {
        match TcpStream::connect(addr).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Looks a host up with the system's resolver, which blocks and therefore runs in the blocking pool; addresses and
/// `localhost` are understood without it. Cancel safe.
///
/// # Errors
///
/// Those of the resolver: the name is unknown, or nobody could be asked. There is no runtime here.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Some(addrs) = literal(host, port) {
        return Ok(addrs);
    }
    let host = host.to_owned();
    blocking::run(move || {
        let addrs = std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port));
        addrs.map(Iterator::collect)
    })
    .await
}
