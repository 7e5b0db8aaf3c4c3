//! The part of HTTP/1.1 that a proxy needs: the head of a request for `http://HOST[:PORT]/PATH`.

/// The server to connect to, and the request for it.
#[derive(Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The head for the server: without the server's name in the first line, and with a request to
    /// close.
    pub(crate) head: Vec<u8>,
}

/// How long a head can be, in bytes.
pub(crate) const HEAD_MAX: usize = 16 * 1024;

/// The length of the head, including the empty line, if it is complete. `checked` bytes had been
/// searched before the last ones came.
pub(crate) fn head_len(received: &[u8], checked: usize) -> Option<usize> {
    let start = checked.saturating_sub(END.len() - 1);
    received[start..].windows(END.len()).position(|bytes| bytes == END).map(|at| start + at + END.len())
}

/// Parses a complete head. The error is a sentence for the client.
pub(crate) fn parse_request(head: &[u8]) -> Result<Request, &'static str> {
    let head = str::from_utf8(head).map_err(|_| "the head is not text")?;
    let mut lines = head.trim_end_matches("\r\n").split("\r\n");
    if lines.clone().any(|line| line.contains(|letter: char| letter.is_control() && letter != '\t')) {
        return Err("there are control characters in the head");
    }
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, url, version @ ("HTTP/1.0" | "HTTP/1.1")] = words[..] else {
        return Err("the first line is not: METHOD http://HOST/PATH HTTP/1.1");
    };
    let url = url.strip_prefix("http://").ok_or("this proxy fetches http:// addresses only")?;
    let (authority, path) = url.split_at(url.find(['/', '?']).unwrap_or(url.len()));
    let slash = if path.starts_with('/') { "" } else { "/" };
    let (host, port) = host_and_port(authority)?;
    let mut head = format!("{method} {slash}{path} {version}\r\nHost: {authority}\r\nConnection: close\r\n");
    for line in lines {
        let (name, _value) = line.split_once(':').ok_or("a header line has no colon")?;
        if name.is_empty() || !name.bytes().all(is_of_a_name) {
            return Err("a header line is malformed");
        }
        // These fields concern this connection, not the server. `Host` was the proxy's to set (RFC
        // 9112, section 3.2.2).
        if !HOP_BY_HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop)) {
            head.push_str(line);
            head.push_str("\r\n");
        }
    }
    head.push_str("\r\n");
    Ok(Request { host, port, head: head.into_bytes() })
}

/// Splits `HOST[:PORT]`; an IPv6 address is in brackets.
fn host_and_port(authority: &str) -> Result<(String, u16), &'static str> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| "the port is not a number")?),
        _ => (authority, 80),
    };
    let is_name =
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte));
    is_name.then(|| (host.to_owned(), port)).ok_or("the address has no valid host")
}

/// The letters of a token (RFC 9110, section 5.6.2).
fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

const END: &[u8] = b"\r\n\r\n";

const HOP_BY_HOP: [&str; 7] =
    ["host", "connection", "proxy-connection", "proxy-authorization", "keep-alive", "te", "upgrade"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_rewritten() {
        let head = b"GET http://a.example:81/b?c HTTP/1.1\r\nHost: x\r\nProxy-Connection: y\r\nAccept: */*\r\n\r\n";
        let request = parse_request(head).unwrap();
        assert_eq!((request.host.as_str(), request.port), ("a.example", 81));
        let text = "GET /b?c HTTP/1.1\r\nHost: a.example:81\r\nConnection: close\r\nAccept: */*\r\n\r\n";
        assert_eq!(str::from_utf8(&request.head).unwrap(), text);
        let request = parse_request(b"GET http://[::1] HTTP/1.0\r\n\r\n").unwrap();
        assert_eq!((request.host.as_str(), request.port), ("[::1]", 80));
        assert!(request.head.starts_with(b"GET / HTTP/1.0\r\nHost: [::1]\r\n"));
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "CONNECT a:443 HTTP/1.1\r\n\r\n",
            "GET https://a/ HTTP/1.1\r\n\r\n",
            "GET http:// HTTP/1.1\r\n\r\n",
            "GET http://a:b/ HTTP/1.1\r\n\r\n",
            "GET http://a:99999/ HTTP/1.1\r\n\r\n",
            "GET http://user@a/ HTTP/1.1\r\n\r\n",
            "GET http://a/ b HTTP/1.1\r\n\r\n",
            "GET http://a/ HTTP/2\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nno colon\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\n: empty\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nA: b\r\n folded: c\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
            "GET http://a/\n HTTP/1.1\r\n\r\n",
        ] {
            assert!(parse_request(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(parse_request(b"GET http://\xff/ HTTP/1.1\r\n\r\n").is_err());
    }

    #[test]
    fn the_end_of_a_head_is_found_in_pieces() {
        let text = b"GET\r\n\r\n";
        for checked in 0..text.len() {
            assert_eq!(head_len(&text[..checked], 0), None);
            assert_eq!(head_len(text, checked), Some(text.len()), "{checked}");
            assert_eq!(head_len(b"GET\r\n\r\nbody", checked), Some(text.len()), "{checked}");
        }
    }
}
