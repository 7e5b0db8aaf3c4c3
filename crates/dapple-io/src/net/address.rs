//! Addresses, and names that are looked up when they are used.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::host::Host;

/// A value that converts to socket addresses without a look-up.
///
/// Like the trait of this name in `std`, except that a string must be an address (`"127.0.0.1:80"`,
/// `"[::1]:80"`) or `localhost`. Sockets bind to these; for connecting, a name is possible as well:
/// [`ToAddresses`].
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

/// A target to connect to: an address, several, or a name with a port, `"example.com:80"` or
/// `("example.com", 80)`, which is looked up when it is used.
///
/// Every [`ToSocketAddrs`] also implements this.
pub trait ToAddresses {
    /// The addresses, or the name to look up.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when this is neither an address nor a name with a port; the text says what is
    /// wrong.
    fn to_addresses(&self) -> io::Result<Addresses>;
}

/// The target that a [`ToAddresses`] names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(pub(crate) Target);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    One(SocketAddr),
    Several(Vec<SocketAddr>),
    Name { host: String, port: u16 },
}

impl From<SocketAddr> for Addresses {
    fn from(addr: SocketAddr) -> Self {
        Addresses(Target::One(addr))
    }
}

impl From<Vec<SocketAddr>> for Addresses {
    fn from(addrs: Vec<SocketAddr>) -> Self {
        match addrs[..] {
            [addr] => addr.into(),
            _ => Addresses(Target::Several(addrs)),
        }
    }
}

macro_rules! addresses_of_literals {
    ($($type:ty),*) => {
        $(impl ToAddresses for $type {
            fn to_addresses(&self) -> io::Result<Addresses> {
                Ok(SocketAddr::from(*self).into())
            }
        })*
    };
}
addresses_of_literals!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl ToAddresses for (&str, u16) {
    fn to_addresses(&self) -> io::Result<Addresses> {
        let (host, port) = *self;
        Ok(match Host::parse(host, port)? {
            Host::Addresses(addrs) => addrs.into(),
            Host::Name(name) => Addresses(Target::Name { host: name.to_owned(), port }),
        })
    }
}

impl ToAddresses for (String, u16) {
    fn to_addresses(&self) -> io::Result<Addresses> {
        (self.0.as_str(), self.1).to_addresses()
    }
}

impl ToAddresses for str {
    fn to_addresses(&self) -> io::Result<Addresses> {
        if let Ok(addr) = self.parse::<SocketAddr>() {
            return Ok(addr.into());
        }
        let no_port = || {
            let advice = format!("`{}` has no port; write it as `example.com:80`", self.escape_debug());
            io::Error::new(io::ErrorKind::InvalidInput, advice)
        };
        let (host, port) = self.rsplit_once(':').ok_or_else(no_port)?;
        let port = port.parse().map_err(|_| no_port())?;
        if host.contains(':') && !host.starts_with('[') {
            return Err(no_port());
        }
        (host, port).to_addresses()
    }
}

impl ToAddresses for String {
    fn to_addresses(&self) -> io::Result<Addresses> {
        self.as_str().to_addresses()
    }
}

impl ToAddresses for [SocketAddr] {
    fn to_addresses(&self) -> io::Result<Addresses> {
        Ok(self.to_socket_addrs()?.into())
    }
}

impl ToAddresses for Vec<SocketAddr> {
    fn to_addresses(&self) -> io::Result<Addresses> {
        self[..].to_addresses()
    }
}

impl ToAddresses for Addresses {
    fn to_addresses(&self) -> io::Result<Addresses> {
        Ok(self.clone())
    }
}

impl<T: ToAddresses + ?Sized> ToAddresses for &T {
    fn to_addresses(&self) -> io::Result<Addresses> {
        (**self).to_addresses()
    }
}

/// The addresses of a host that needs no look-up.
fn literal(host: &str, port: u16) -> Option<Vec<SocketAddr>> {
    match Host::parse(host, port) {
        Ok(Host::Addresses(addrs)) => Some(addrs),
        _ => None,
    }
}

/// Tries the addresses in order; returns the first success or the last error.
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

/// The error for an empty list of addresses.
pub(crate) fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no address was given")
}

fn not_an_address(text: &str) -> io::Error {
    let advice = format!(
        "`{text}` is not an address like 127.0.0.1:80 or [::1]:80; names are looked up by what connects and by net::resolve"
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

    #[test]
    fn texts_with_names() {
        let name = |host: &str, port| Addresses(Target::Name { host: host.to_owned(), port });
        assert_eq!("example.com:80".to_addresses().unwrap(), name("example.com", 80));
        assert_eq!(("example.com", 443).to_addresses().unwrap(), name("example.com", 443));
        let literal: SocketAddr = "[::1]:80".parse().unwrap();
        assert_eq!("[::1]:80".to_addresses().unwrap(), literal.into());
        assert_eq!(("::1", 80).to_addresses().unwrap(), literal.into());
        assert!(matches!("localhost:1".to_addresses().unwrap(), Addresses(Target::Several(addrs)) if addrs.len() == 2));
        for bad in
            ["", "example.com", "example.com:http", "example.com:99999", "::1:80", ":80", "a b:80", "http://a:80"]
        {
            let error = bad.to_addresses().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{bad}");
        }
        assert!(<[SocketAddr]>::to_addresses(&[]).is_err());
    }
}
