//! Heads of requests.

use std::mem::MaybeUninit;

use dapple_http::{Field, Form, Found, Framing, Head, HeadLimits, HeadScan, Refusal, parse};
use http::{Method, Version};

/// The end of the head does not depend on the pieces. An accepted head, written again, means the
/// same, and contains nothing forbidden.
pub(crate) fn head(data: &[u8]) {
    let limits = HeadLimits { len_max: 4096, target_len_max: 1024, fields_max: 20 };
    let whole = scan(data, &limits, data.len().max(1));
    assert_eq!(whole, scan(data, &limits, 1), "byte by byte");
    assert_eq!(whole, scan(data, &limits, 7), "in pieces");
    let Ok(Some(found)) = whole else { return };
    let bytes = &data[found.start..found.end];
    assert!(bytes.len() <= limits.len_max && bytes.ends_with(b"\r\n\r\n"));
    let mut storage = storage(found.fields);
    let Ok(head) = parse(bytes, &mut storage, &limits) else { return };
    check(&head, &limits);
    let again = written(&head);
    let mut other = HeadScan::new();
    let found = other
        .find(&again, &HeadLimits::default())
        .expect("an accepted head is well-formed")
        .expect("the head has an end");
    assert_eq!((found.start, found.end), (0, again.len()));
    let mut storage = self::storage(found.fields);
    let second = parse(&again, &mut storage, &HeadLimits::default()).expect("an accepted head is accepted again");
    assert!(is_same(&head, &second), "{head:?} and {second:?}");
}

pub(super) fn storage<'a>(fields: usize) -> Vec<MaybeUninit<Field<'a>>> {
    (0..fields).map(|_| MaybeUninit::uninit()).collect()
}

fn scan(data: &[u8], limits: &HeadLimits, piece_len: usize) -> Result<Option<Found>, Refusal> {
    let mut scan = HeadScan::new();
    let mut end = 0;
    loop {
        end = (end + piece_len).min(data.len());
        match scan.find(&data[..end], limits) {
            Ok(None) if end < data.len() => {}
            outcome => return outcome,
        }
    }
}

fn check(head: &Head<'_>, limits: &HeadLimits) {
    let request = &head.request;
    assert!(matches!(request.version, Version::HTTP_10 | Version::HTTP_11));
    assert!(request.fields.len() <= limits.fields_max && request.path.len() <= limits.target_len_max);
    assert!(request.path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#' && byte != b'?'));
    match request.form {
        Form::Origin | Form::Absolute => assert!(request.path.starts_with('/') || request.path == "*"),
        Form::Authority => assert!(request.method == Method::CONNECT && request.path.is_empty()),
        Form::Asterisk => assert!(request.method == Method::OPTIONS && request.path == "*"),
    }
    assert!(request.authority.is_some() || request.version == Version::HTTP_10 || request.form == Form::Asterisk);
    assert!(request.authority.is_none_or(|host| !host.contains(['@', '/', ' ', '\\', '#', '?'])));
    for field in request.fields.iter() {
        assert!(!field.name.is_empty() && !field.name.contains([' ', '\t', ':', '\r', '\n', '\0']));
        assert!(!field.value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        assert_eq!(field.value, field.value.trim_ascii());
    }
    let has = |name: &str| request.fields.first(name).is_some();
    assert!(!(has("content-length") && has("transfer-encoding")));
    assert_eq!(head.framing == Framing::Chunked, has("transfer-encoding"));
    assert!(request.version == Version::HTTP_11 || !has("transfer-encoding"));
    assert!(request.fields.all("host").count() <= 1 && request.fields.all("content-length").count() <= 1);
    assert!(!matches!(head.framing, Framing::Len(0)) && (!head.expects_continue || head.framing != Framing::None));
}

/// As written by an equally strict client.
fn written(head: &Head<'_>) -> Vec<u8> {
    let request = &head.request;
    let mut target = String::new();
    match request.form {
        Form::Authority => target.push_str(request.authority.expect("CONNECT has one")),
        Form::Absolute => {
            target = format!("{}://{}", request.scheme.expect("it has one"), request.authority.expect("it has one"));
            if request.path != "*" {
                target.push_str(request.path);
            }
        }
        Form::Origin | Form::Asterisk => target.push_str(request.path),
    }
    if let Some(query) = request.query {
        target = format!("{target}?{query}");
    }
    let mut out = format!("{} {target} {:?}\r\n", request.method, request.version).into_bytes();
    for field in request.fields.iter() {
        out.extend([field.name.as_bytes(), b": ", field.value, b"\r\n"].concat());
    }
    out.extend(b"\r\n");
    out
}

fn is_same(one: &Head<'_>, other: &Head<'_>) -> bool {
    let parts = |head: &Head<'_>| {
        let request = head.request.clone();
        let fields: Vec<_> = request.fields.iter().map(|field| (field.name.to_owned(), field.value.to_vec())).collect();
        let target = (request.form, request.authority.map(str::to_owned), request.path.to_owned());
        let framing = (head.framing, head.keep_alive, head.expects_continue);
        (request.method, request.version, target, request.query.map(str::to_owned), fields, framing)
    };
    parts(one) == parts(other)
}
