//! Fields that decide about a reply.

use dapple_http::coding::{Accepted, Coding};
use dapple_http::conditional::{self, Validators, Verdict};
use dapple_http::range::{self, Wanted};
use dapple_http::{Field, Fields};
use http::Method;

/// Parts are within the content, not empty, neither overlap nor touch, and are together at most the
/// whole.
pub(crate) fn range(data: &[u8]) {
    let (len, value) = data.split_at(data.len().min(2));
    let len = len.iter().fold(0_u64, |len, byte| len << 8 | u64::from(*byte));
    for len in [len, 0, 1, u64::MAX] {
        match range::wanted(value, len) {
            Wanted::Whole | Wanted::Outside => {}
            Wanted::One(part) => assert!(part.start < part.end && part.end <= len),
            Wanted::Several(mut parts) => {
                assert!((2..=range::RANGES_MAX).contains(&parts.len()));
                parts.sort_by_key(|part| part.start);
                assert!(parts.iter().all(|part| part.start < part.end && part.end <= len));
                assert!(parts.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }
}

/// Up to eight lines of `name value`.
fn lines(data: &[u8], names: &[&'static str]) -> Vec<(&'static str, Vec<u8>)> {
    let line = |line: &[u8]| {
        let (first, value) = line.split_first()?;
        let value = value.trim_ascii();
        let is_field = value.iter().all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f));
        is_field.then(|| (names[usize::from(*first) % names.len()], value.to_vec()))
    };
    data.split(|byte| *byte == b'\n').take(8).filter_map(line).collect()
}

/// Conditions hold in the order of the standard, computed in another way than the code does.
pub(crate) fn conditional(data: &[u8]) {
    const NAMES: &[&str] = &["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range"];
    let lines = lines(data, NAMES);
    let list: Vec<_> = lines.iter().map(|(name, value)| Field { name, value }).collect();
    let fields = Fields::new(&list);
    let has = |name: &str| fields.first(name).is_some();
    let current = Validators { etag: Some(b"\"tag\""), modified_s: Some(784_111_777) };
    let get = conditional::evaluate(&Method::GET, fields, &current);
    assert_eq!(get, conditional::evaluate(&Method::HEAD, fields, &current));
    let put = conditional::evaluate(&Method::PUT, fields, &current);
    assert!(put != Verdict::NotModified);
    match get {
        Verdict::NotModified => assert!(has("if-none-match") || has("if-modified-since")),
        Verdict::Failed => {
            assert!(has("if-match") || has("if-unmodified-since"));
            assert_eq!(put, Verdict::Failed);
        }
        Verdict::Proceed => assert!(fields.first("if-match").is_none_or(|_| mentions(fields, "if-match"))),
    }
    if fields.all("if-none-match").any(|list| list == b"*") && !has("if-match") && !has("if-unmodified-since") {
        assert_eq!((get, put), (Verdict::NotModified, Verdict::Failed));
    }
    let holds = conditional::if_range_holds(fields, &current, 1_900_000_000);
    match fields.first("if-range") {
        None => assert!(holds),
        Some(value) if holds => assert!(value == b"\"tag\"" || conditional::date(value) == Some(784_111_777)),
        Some(_) => {}
    }
    if let Some(seconds) = conditional::date(data) {
        assert!(seconds < 253_402_300_800);
    }
}

/// Whether any list of this name contains the tag anywhere, or is a star.
fn mentions(fields: Fields<'_>, name: &str) -> bool {
    fields.all(name).any(|list| list == b"*" || list.windows(5).any(|window| window == b"\"tag\""))
}

/// Codings come once each, best first, and only those that were named or covered by a star.
pub(crate) fn coding(data: &[u8]) {
    let lines = lines(data, &["accept-encoding"]);
    let list: Vec<_> = lines.iter().map(|(name, value)| Field { name, value }).collect();
    let accepted = Accepted::of(Fields::new(&list));
    let order: Vec<Coding> = accepted.in_order().collect();
    assert!(order.len() <= Coding::ALL.len());
    assert_eq!(accepted.any_coding(), !order.is_empty());
    for (place, coding) in order.iter().enumerate() {
        assert!(!order[..place].contains(coding));
        let name = coding.name().as_bytes();
        let is_named = |value: &[u8]| value.to_ascii_lowercase().windows(name.len()).any(|window| window == name);
        assert!(lines.iter().any(|(_, value)| is_named(value) || value.contains(&b'*')));
    }
    if lines.is_empty() {
        assert_eq!(accepted, Accepted::PLAIN);
    }
}
