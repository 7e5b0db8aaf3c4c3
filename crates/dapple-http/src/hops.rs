//! Header fields of one connection, which a proxy does not pass on (RFC 9110, section 7.6).

use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName};

/// Removes the fields of one connection: the known ones, and those that `Connection` names. `Host` and `Content-Length` stay even
/// if it names them, as they decide where a message goes and where it ends.
///
/// ```
/// let mut headers = http::HeaderMap::new();
/// headers.insert("connection", "x-hop".parse()?);
/// headers.insert("x-hop", "1".parse()?);
/// headers.insert("accept", "*/*".parse()?);
/// dapple_http::hops::strip(&mut headers);
/// assert_eq!(headers.keys().collect::<Vec<_>>(), ["accept"]);
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
pub fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| !KEPT.contains(name))
        .collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection", "proxy-authentication-info"] {
        headers.remove(name);
    }
}

const HOP_BY_HOP: [HeaderName; 7] =
    [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

const KEPT: [HeaderName; 2] = [HOST, CONTENT_LENGTH];

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::strip;

    fn names(list: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut headers: HeaderMap =
            list.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect();
        strip(&mut headers);
        let mut names: Vec<String> = headers.keys().map(|name| name.as_str().to_owned()).collect();
        // Removing fields changes the order of the others.
        names.sort();
        names
    }

    #[test]
    fn fields_of_the_connection_are_not_passed_on() {
        let list = [
            ("connection", "close, X-Secret ,,host"),
            ("x-secret", "1"),
            ("host", "a"),
            ("te", "trailers"),
            ("proxy-authorization", "b"),
            ("proxy-connection", "keep-alive"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("accept", "c"),
        ];
        assert_eq!(names(&list), ["accept", "host"]);
    }
}
