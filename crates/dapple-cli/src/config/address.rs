//! Addresses as options write them.

/// Splits `HOST:PORT`, where an IPv6 address as the host stands in brackets.
pub(crate) fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let advice = "write HOST:PORT, for example 127.0.0.1:8080, 0.0.0.0:80 or [::1]:8080";
    let (host, port) = text.rsplit_once(':').ok_or(advice)?;
    let port = port.parse().map_err(|_| format!("{port:?} is not a port (0 to 65535); {advice}"))?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    // Brackets are for IPv6 addresses, and stand in no name.
    let is_host = match bare {
        Some(address) => address.contains(':') && !address.contains(['[', ']']),
        None => !host.is_empty() && !host.contains([':', '[', ']']),
    };
    if !is_host {
        return Err(advice.to_owned());
    }
    Ok((bare.unwrap_or(host).to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::host_and_port;

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
