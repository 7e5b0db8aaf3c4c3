//! Addresses that need no resolver.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// What can be turned into socket addresses without asking anybody.
///
/// Like the trait of this name in `std`, with one difference: a text must be an address (`"127.0.0.1:80"`, `"[::1]:80"`)
/// or `localhost`. Other names need a resolver, which blocks; for them there are [`resolve`](super::resolve) and
/// [`tcp_connect`](super::tcp_connect).
///
/// ```
/// use dapple_io::net::ToSocketAddrs;
///
/// assert_eq!("127.0.0.1:80".to_socket_addrs()?.len(), 1);
/// assert!("example.com:80".to_socket_addrs().is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait ToSocketAddrs {
    /// The addresses, at least one, in the order in which to try them.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when this is not an address.
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>>;
}

impl ToSocketAddrs for SocketAddr {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![*self])
    }
}

impl ToSocketAddrs for SocketAddrV4 {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![(*self).into()])
    }
}

impl ToSocketAddrs for SocketAddrV6 {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![(*self).into()])
    }
}

impl ToSocketAddrs for (IpAddr, u16) {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![(*self).into()])
    }
}

impl ToSocketAddrs for (Ipv4Addr, u16) {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![(*self).into()])
    }
}

impl ToSocketAddrs for (Ipv6Addr, u16) {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![(*self).into()])
    }
}

impl ToSocketAddrs for (&str, u16) {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        let (host, port) = *self;
        literal(host, port).ok_or_else(|| not_an_address(host))
    }
}

impl ToSocketAddrs for (String, u16) {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        (self.0.as_str(), self.1).to_socket_addrs()
    }
}

impl ToSocketAddrs for str {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        if let Ok(addr) = self.parse() {
            return Ok(vec![addr]);
        }
        let port = self.strip_prefix("localhost:").and_then(|port| port.parse().ok());
        match port {
            Some(port) => ("localhost", port).to_socket_addrs(),
            None => Err(not_an_address(self)),
        }
    }
}

impl ToSocketAddrs for String {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        self.as_str().to_socket_addrs()
    }
}

impl ToSocketAddrs for [SocketAddr] {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        match self.is_empty() {
            true => Err(no_address()),
            false => Ok(self.to_vec()),
        }
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        (**self).to_socket_addrs()
    }
}

/// The addresses of a host that is written as an address, in brackets or not, or is `localhost`.
pub(crate) fn literal(host: &str, port: u16) -> Option<Vec<SocketAddr>> {
    if host == "localhost" {
        let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        return Some(loopback.map(|ip| (ip, port).into()).to_vec());
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let ip: IpAddr = bare.parse().ok()?;
    Some(vec![(ip, port).into()])
}

/// Tries the addresses in order; the first success or the last error.
pub(crate) fn try_each<T>(addrs: impl ToSocketAddrs, mut f: impl FnMut(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let mut last = no_address();
    for addr in addrs.to_socket_addrs()? {
        match f(addr) {
            Ok(value) => return Ok(value),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// There is nothing to try.
pub(crate) fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no address was given")
}

fn not_an_address(text: &str) -> io::Error {
    let advice = format!(
        "`{text}` is not an address like 127.0.0.1:80 or [::1]:80; names are looked up by net::resolve and net::tcp_connect"
    );
    io::Error::new(io::ErrorKind::InvalidInput, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for good in ["127.0.0.1:80", "[::1]:80", "localhost:80"] {
            assert_eq!(good.to_socket_addrs().unwrap()[0].port(), 80);
        }
        for bad in ["", "localhost", "localhost:x", "example.com:80", "127.0.0.1", "::1:99999"] {
            assert!(bad.to_socket_addrs().is_err(), "{bad}");
        }
        assert!(literal("[::1]", 1).is_some());
        assert!(literal("host", 1).is_none());
    }
}
