//! Parsers of addresses in options.

use std::net::{SocketAddr, ToSocketAddrs};

/// Splits `HOST:PORT`, with an IPv6 host in brackets.
pub fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let advice = "write HOST:PORT, for example 127.0.0.1:8080, 0.0.0.0:80 or [::1]:8080";
    let (host, port) = text.rsplit_once(':').ok_or(advice)?;
    let port = port.parse().map_err(|_| format!("{port:?} is not a port (0 to 65535); {advice}"))?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    // Brackets are for IPv6 addresses, and no name contains them.
    let is_host = match bare {
        Some(address) => address.contains(':') && !address.contains(['[', ']']),
        None => !host.is_empty() && !host.contains([':', '[', ']']),
    };
    if !is_host {
        return Err(advice.to_owned());
    }
    Ok((bare.unwrap_or(host).to_owned(), port))
}

/// The first address of what [`host_and_port`] takes.
pub fn socket_addr(text: &str) -> Result<SocketAddr, String> {
    let (host, port) = host_and_port(text)?;
    let found = (host.as_str(), port).to_socket_addrs().map(|mut addrs| addrs.next());
    let unknown = |why: String| {
        format!(
            "cannot find the host {host:?}{why}; give an address, such as \
        127.0.0.1:{port}"
        )
    };
    found.map_err(|error| unknown(format!(" ({error})")))?.ok_or_else(|| unknown(String::new()))
}

#[cfg(test)]
mod tests {
    use super::{host_and_port, socket_addr};

    #[test]
    fn addresses_of_hosts() {
        let local = socket_addr("localhost:7000").unwrap();
        assert!(local.ip().is_loopback() && local.port() == 7000);
        assert_eq!(socket_addr("[::1]:1"), Ok("[::1]:1".parse().unwrap()));
        assert!(socket_addr("7000").unwrap_err().contains("HOST:PORT"));
        let unknown = socket_addr("nowhere.invalid:7000").unwrap_err();
        assert!(unknown.contains("the host \"nowhere.invalid\"") && unknown.contains("127.0.0.1:7000"), "{unknown}");
    }

    #[test]
    fn addresses() {
        assert_eq!(host_and_port("localhost:80"), Ok(("localhost".to_owned(), 80)));
        assert_eq!(host_and_port("[::1]:8080"), Ok(("::1".to_owned(), 8080)));
        for bad in [
            "",
            "80",
            ":80",
            "host",
            "host:",
            "host:99999",
            "::1:80",
            "host:-1",
            "[]:80",
            "[host]:80",
            "[[::1]]:80",
            "a]:80",
        ] {
            assert!(host_and_port(bad).is_err(), "{bad}");
        }
    }
}
