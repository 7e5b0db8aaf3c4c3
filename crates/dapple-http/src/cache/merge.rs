//! The effect of `304 Not Modified` on a stored response (RFC 9111, sections 3.2 and 4.3.4).

use http::HeaderMap;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, LAST_MODIFIED, TRANSFER_ENCODING,
};

use crate::conditional::weakly;

/// Whether a 304 with these fields refers to the stored response: it has the same tag, or the same
/// date, or neither.
pub fn is_about(stored: &HeaderMap, not_modified: &HeaderMap) -> bool {
    if let Some(tag) = not_modified.get(ETAG) {
        return stored.get(ETAG).is_some_and(|known| weakly(known.as_bytes(), tag.as_bytes()));
    }
    match not_modified.get(LAST_MODIFIED) {
        Some(date) => stored.get(LAST_MODIFIED).is_none_or(|known| known == date),
        None => true,
    }
}

/// The stored fields, replaced by those of the 304. Fields that describe the stored bytes stay.
///
/// Remove connection-specific fields from `not_modified` first.
pub fn merged(stored: &HeaderMap, not_modified: &HeaderMap) -> HeaderMap {
    let mut merged = stored.clone();
    for name in not_modified.keys().filter(|name| !OF_THE_BYTES.contains(name)) {
        merged.remove(name);
        for value in not_modified.get_all(name) {
            merged.append(name, value.clone());
        }
    }
    merged
}

const OF_THE_BYTES: [HeaderName; 5] =
    [CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, TRANSFER_ENCODING];

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{is_about, merged};

    fn fields(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        list.iter().map(field).collect()
    }

    #[test]
    fn new_fields_replace_and_join_old_ones() {
        let stored = fields(&[("etag", "\"a\""), ("x", "1"), ("x", "2"), ("content-length", "7"), ("y", "0")]);
        let new = fields(&[("x", "3"), ("z", "4"), ("content-length", "0"), ("content-type", "no")]);
        let expected = fields(&[("etag", "\"a\""), ("x", "3"), ("content-length", "7"), ("y", "0"), ("z", "4")]);
        assert_eq!(merged(&stored, &new), expected);
    }

    #[test]
    fn another_tag_is_about_something_else() {
        let stored = fields(&[("etag", "\"a\""), ("last-modified", "x")]);
        for (new, expected) in [
            (&[][..], true),
            (&[("etag", "\"a\"")], true),
            (&[("etag", "W/\"a\"")], true),
            (&[("etag", "\"b\"")], false),
            (&[("last-modified", "x")], true),
            (&[("last-modified", "y")], false),
        ] {
            assert_eq!(is_about(&stored, &fields(new)), expected, "{new:?}");
        }
        assert!(!is_about(&HeaderMap::new(), &fields(&[("etag", "\"a\"")])));
    }
}
