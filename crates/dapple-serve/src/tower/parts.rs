//! Turns a borrowed request into one that owns its parts.

use bytes::Bytes;
use dapple_http::{Form, Request};
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Uri};

/// The parts of a request, all in one allocation; `None` if its target is not a URI.
pub(super) fn of(request: &Request<'_>) -> Option<Parts> {
    let fields = || request.fields.iter();
    let len = request.path.len() + request.query.map_or(0, str::len) + 64;
    let mut memory = Vec::with_capacity(fields().map(|field| field.value.len()).sum::<usize>() + len);
    write_target(request, &mut memory);
    let target_len = memory.len();
    fields().for_each(|field| memory.extend_from_slice(field.value));
    let mut memory = Bytes::from(memory);
    let uri = Uri::from_maybe_shared(memory.split_to(target_len)).ok()?;
    let mut headers = HeaderMap::with_capacity(fields().count());
    for field in fields() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_maybe_shared(memory.split_to(field.value.len())).ok()?);
    }
    let mut parts = http::Request::new(()).into_parts().0;
    (parts.method, parts.version, parts.uri, parts.headers) = (request.method.clone(), request.version, uri, headers);
    Some(parts)
}

fn write_target(request: &Request<'_>, out: &mut Vec<u8>) {
    if let (Form::Absolute, Some(authority)) = (request.form, request.authority) {
        out.extend_from_slice(request.scheme.unwrap_or("http").as_bytes());
        out.extend_from_slice(b"://");
        out.extend_from_slice(authority.as_bytes());
    }
    out.extend_from_slice(request.path.as_bytes());
    if let Some(query) = request.query {
        out.push(b'?');
        out.extend_from_slice(query.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use dapple_http::{HeadLimits, HeadScan, parse};
    use http::request::Parts;

    fn parts(text: &str) -> Option<Parts> {
        let limits = HeadLimits::default();
        let found = HeadScan::new().find(text.as_bytes(), &limits).ok()??;
        let mut storage = [const { MaybeUninit::uninit() }; 8];
        let head = parse(&text.as_bytes()[found.start..found.end], &mut storage, &limits).ok()?;
        super::of(&head.request)
    }

    #[test]
    fn a_request_keeps_all_its_parts() {
        let asked = parts("GET /a/b?c=d&e HTTP/1.1\r\nHost: x\r\nA: 1\r\nEmpty:\r\na: 2\r\n\r\n").unwrap();
        assert_eq!((asked.method.as_str(), asked.uri.path(), asked.uri.query()), ("GET", "/a/b", Some("c=d&e")));
        assert_eq!(asked.headers.get_all("a").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!((asked.headers["host"].as_bytes(), asked.headers.len()), (&b"x"[..], 4));
        assert_eq!(parts("GET / HTTP/1.0\r\n\r\n").unwrap().version, http::Version::HTTP_10);
    }

    #[test]
    fn targets_have_their_forms() {
        let uri = |target: &str, method: &str| {
            parts(&format!("{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n")).unwrap().uri.to_string()
        };
        assert_eq!(uri("http://x/a?b", "GET"), "http://x/a?b");
        assert_eq!(uri("*", "OPTIONS"), "*");
        assert_eq!(uri("/?", "GET"), "/?");
    }
}
