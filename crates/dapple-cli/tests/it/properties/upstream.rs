//! The fields of messages that the proxy passes on, and the end of a server's response.
//!
//! The input is the version, the status, and lines with a field each.

use dapple_http::framing::framing;
use dapple_http::{Field, Fields, Form, Request};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TRAILER, TRANSFER_ENCODING};
use http::{Method, StatusCode, Version};

#[allow(dead_code, reason = "only the passing-on code of this file is used")]
#[path = "../../../src/proxy/fields.rs"]
mod fields;

/// A response ends where every recipient sees its end, and the fields of one connection stay on it.
pub(super) fn upstream(data: &[u8]) {
    let [version, status, lines @ ..] = data else { return };
    let version = if version % 2 == 0 { Version::HTTP_11 } else { Version::HTTP_10 };
    let status = StatusCode::from_u16(100 + 2 * u16::from(*status)).expect("a status");
    let headers: HeaderMap = lines.split(|byte| *byte == b'\n').filter_map(field).collect();
    if let Ok(len) = framing(version, status, &headers) {
        is_beyond_doubt(len, version, &headers);
    }
    let mut left = headers.clone();
    dapple_http::hops::strip(&mut left);
    stays(&headers, &left);
    let behind = fields::trailers(headers.clone()).unwrap_or_default();
    let is_harmless =
        |name: &HeaderName| ![HOST, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name) && left.contains_key(name);
    assert!(behind.keys().all(is_harmless), "{behind:?}");
    request(&headers, &left);
    dapple_client::relay::Via::random("dapple").add_to(&mut left, version);
}

fn field(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let at = line.iter().position(|byte| *byte == b':')?;
    HeaderName::from_bytes(&line[..at]).ok().zip(HeaderValue::from_bytes(line[at + 1..].trim_ascii()).ok())
}

/// At most one field determines the end of the body, unambiguously.
fn is_beyond_doubt(len: Option<u64>, version: Version, headers: &HeaderMap) {
    let all = |name| headers.get_all(name).iter().collect::<Vec<_>>();
    match (&all(CONTENT_LENGTH)[..], &all(TRANSFER_ENCODING)[..]) {
        ([], []) => assert_eq!(len, None),
        ([text], []) => {
            assert!(text.as_bytes().iter().all(u8::is_ascii_digit));
            assert_eq!(text.to_str().ok().and_then(|text| text.parse().ok()), len);
        }
        ([], [coding]) => {
            assert!(coding.as_bytes().eq_ignore_ascii_case(b"chunked") && version == Version::HTTP_11);
            assert_eq!(len, None);
        }
        both => panic!("{both:?} was trusted"),
    }
}

/// All fields that `Connection` names are gone, and everything else is unchanged.
fn stays(all: &HeaderMap, left: &HeaderMap) {
    let options: Vec<String> = all
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| {
            let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
            text.split(',').map(|option| option.trim_ascii().to_owned()).collect::<Vec<_>>()
        })
        .collect();
    for name in all.keys() {
        let is_kept = [HOST, CONTENT_LENGTH].contains(name);
        let is_named = options.iter().any(|option| option == name.as_str()) && !is_kept;
        let values = |headers: &HeaderMap| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
        match is_named || OF_ONE_CONNECTION.contains(&name.as_str()) {
            true => assert!(!left.contains_key(name), "{name} went on"),
            false => assert_eq!(values(all), values(left), "{name}"),
        }
    }
    assert!(left.keys().all(|name| all.contains_key(name)));
}

/// A request is passed on with the same fields, and one host.
fn request(all: &HeaderMap, left: &HeaderMap) {
    let list: Vec<Field<'_>> =
        all.iter().map(|(name, value)| Field { name: name.as_str(), value: value.as_bytes() }).collect();
    let request = Request {
        method: Method::GET,
        version: Version::HTTP_11,
        form: Form::Absolute,
        scheme: Some("http"),
        authority: Some("a"),
        path: "/",
        query: None,
        fields: Fields::new(&list),
    };
    let mut sent = fields::outgoing(&request, &HeaderValue::from_static("a"));
    assert_eq!(sent.get_all(HOST).iter().collect::<Vec<_>>(), ["a"]);
    sent.remove(HOST);
    if request.takes_trailers() {
        assert_eq!(sent.remove("te").expect("the proxy asks for trailers"), "trailers");
        assert_eq!(sent.remove(CONNECTION).expect("it belongs to one connection"), "te");
    }
    let mut left = left.clone();
    left.remove(HOST);
    // Its announcement of trailers goes on with them.
    left.extend(all.get_all(TRAILER).iter().map(|value| (TRAILER, value.clone())));
    assert_eq!(sent, left);
}

/// Fields that are only for the next hop, whatever `Connection` says.
const OF_ONE_CONNECTION: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
