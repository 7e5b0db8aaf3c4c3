//! Whether a client has a response already: what a cache may answer itself of conditional requests (RFC 9111, section 4.3.2).

use http::HeaderMap;
use http::header::{ETAG, LAST_MODIFIED};

use crate::Fields;

/// Whether the client asked for the response with these fields only if it is not the one that the client has, and it is that:
/// then the answer is 304. `If-None-Match` goes before `If-Modified-Since`.
pub fn has_current(request: Fields<'_>, stored: &HeaderMap) -> bool {
    let mut tags = request.all("if-none-match").peekable();
    if tags.peek().is_some() {
        let current = stored.get(ETAG).map(|tag| tag.as_bytes());
        return tags.any(|list| names(list, current));
    }
    let since = request.first("if-modified-since").and_then(seconds);
    let modified = stored.get(LAST_MODIFIED).and_then(|date| seconds(date.as_bytes()));
    matches!((since, modified), (Some(since), Some(modified)) if modified <= since)
}

/// Whether two entity tags are the same when it does not matter whether they are weak (RFC 9110, section 8.8.3.2).
pub fn tags_match(one: &[u8], other: &[u8]) -> bool {
    let opaque = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
    opaque(one) == opaque(other)
}

/// Whether a list of tags names this one. Commas may stand inside of tags.
fn names(list: &[u8], current: Option<&[u8]>) -> bool {
    let mut rest = list.trim_ascii();
    if rest == b"*" {
        return true;
    }
    let Some(current) = current else { return false };
    while !rest.is_empty() {
        let start = if rest.starts_with(b"W/") { 2 } else { 0 };
        let Some(b'"') = rest.get(start) else {
            // No tag: on to the next comma.
            let Some(comma) = rest.iter().position(|byte| *byte == b',') else { return false };
            rest = rest[comma + 1..].trim_ascii_start();
            continue;
        };
        let Some(len) = rest[start + 1..].iter().position(|byte| *byte == b'"') else { return false };
        let (tag, behind) = rest.split_at(start + len + 2);
        if tags_match(tag, current) {
            return true;
        }
        rest = behind;
    }
    false
}

/// A date as seconds since 1970, in any of the three forms that there are.
pub(super) fn seconds(date: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(date).ok()?.trim()).ok()?;
    Some(date.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::has_current;
    use crate::{Field, Fields};

    const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const NEW: &str = "Mon, 07 Nov 1994 08:49:37 GMT";

    #[test]
    fn tags_go_before_dates() {
        let mut stored = HeaderMap::new();
        stored.insert("etag", HeaderValue::from_static("\"a,b\""));
        stored.insert("last-modified", HeaderValue::from_static(OLD));
        for (request, expected) in [
            (&[][..], false),
            (&[("if-none-match", "\"a,b\"")], true),
            (&[("if-none-match", "\"x\", W/\"a,b\" ,\"y\"")], true),
            (&[("if-none-match", "\"x\""), ("if-none-match", "\"a,b\"")], true),
            (&[("if-none-match", "*")], true),
            (&[("if-none-match", "\"a\"")], false),
            (&[("if-none-match", "b\", \"")], false),
            (&[("if-none-match", "\"x\""), ("if-modified-since", NEW)], false),
            (&[("if-modified-since", NEW)], true),
            (&[("if-modified-since", OLD)], true),
            (&[("if-modified-since", "Sunday, 06-Nov-94 08:49:37 GMT")], true),
            (&[("if-modified-since", "Sun Nov  6 08:49:37 1994")], true),
            (&[("if-modified-since", "Sat, 05 Nov 1994 08:49:37 GMT")], false),
            (&[("if-modified-since", "yesterday")], false),
        ] {
            let fields: Vec<Field<'_>> =
                request.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
            assert_eq!(has_current(Fields::new(&fields), &stored), expected, "{request:?}");
        }
    }
}
