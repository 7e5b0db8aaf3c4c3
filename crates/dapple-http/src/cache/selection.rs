//! The requests that a response may answer: `Vary` (RFC 9111, section 4.1).

use http::HeaderMap;
use http::header::{COOKIE, HeaderName, VARY};

use crate::Fields;

/// The request fields that a response depends on, with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    fields: Vec<(HeaderName, Option<Vec<u8>>)>,
}

impl Selection {
    /// The selection of a response for the request that it answers; `None` if it may answer no
    /// other request (`Vary: *`, or an invalid field).
    pub fn of(response: &HeaderMap, request: Fields<'_>) -> Option<Selection> {
        let mut fields: Vec<(HeaderName, Option<Vec<u8>>)> = Vec::new();
        for name in response.get_all(VARY).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b',')) {
            let name = name.trim_ascii();
            if name.is_empty() {
                continue;
            }
            // A star means that facts outside of the fields decide.
            let name = (name != b"*").then(|| HeaderName::from_bytes(name).ok()).flatten()?;
            if !fields.iter().any(|(known, _)| *known == name) {
                let value = normal(request, &name);
                fields.push((name, value));
            }
        }
        Some(Selection { fields })
    }

    /// Adds the cookies of the request, for a response without a sign that it is the same for all
    /// users.
    #[must_use]
    pub fn with_cookies(mut self, request: Fields<'_>) -> Selection {
        if !self.fields.iter().any(|(known, _)| *known == COOKIE) {
            self.fields.push((COOKIE, normal(request, &COOKIE)));
        }
        self
    }

    /// Whether the response may also answer this request.
    pub fn matches(&self, request: Fields<'_>) -> bool {
        self.fields.iter().all(|(name, value)| normal(request, name) == *value)
    }

    /// Its approximate size in bytes.
    pub fn weight(&self) -> usize {
        self.fields.iter().map(|(_, value)| 64 + value.as_ref().map_or(0, Vec::len)).sum()
    }
}

/// The values of a field joined, without white space around commas. No further equivalence is
/// known.
fn normal(request: Fields<'_>, name: &HeaderName) -> Option<Vec<u8>> {
    let mut values = request.all(name.as_str()).peekable();
    values.peek()?;
    let mut normal = Vec::new();
    for part in values.flat_map(|value| value.split(|byte| *byte == b',')) {
        if !normal.is_empty() {
            normal.push(b',');
        }
        normal.extend_from_slice(part.trim_ascii());
    }
    Some(normal)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::Selection;
    use crate::{Field, Fields};

    fn selection(vary: &[&'static str], request: &[(&str, &str)]) -> Option<Selection> {
        let mut response = HeaderMap::new();
        for value in vary {
            response.append("vary", HeaderValue::from_static(value));
        }
        with(request, |fields| Selection::of(&response, fields))
    }

    fn with<T>(request: &[(&str, &str)], look: impl FnOnce(Fields<'_>) -> T) -> T {
        let fields: Vec<Field<'_>> =
            request.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
        look(Fields::new(&fields))
    }

    #[test]
    fn what_is_not_named_does_not_matter() {
        let selection = selection(&[], &[("accept", "a")]).unwrap();
        assert!(with(&[("accept", "b")], |fields| selection.matches(fields)));
    }

    #[test]
    fn what_is_named_has_to_be_the_same() {
        let stored = selection(&["Accept-Encoding", " ,accept-language"], &[("Accept-Encoding", "gzip, br")]).unwrap();
        for (request, is_match) in [
            (&[("accept-encoding", "gzip, br")][..], true),
            (&[("accept-encoding", "gzip ,br")], true),
            (&[("accept-encoding", "gzip"), ("Accept-Encoding", "br")], true),
            (&[("accept-encoding", "br, gzip")], false),
            (&[("accept-encoding", "gzip, br"), ("accept-language", "")], false),
            (&[], false),
        ] {
            assert_eq!(with(request, |fields| stored.matches(fields)), is_match, "{request:?}");
        }
    }

    #[test]
    fn cookies_may_count_unnamed() {
        for vary in [&[][..], &["cookie"]] {
            let (one, none) = ([("cookie", "a=1"), ("accept", "a")], [("accept", "b")]);
            let stored =
                |request| selection(vary, request).map(|found| with(request, |fields| found.with_cookies(fields)));
            for (stored, request, is_match) in [
                (stored(&one), &one[..], true),
                (stored(&one), &none, false),
                (stored(&none), &one, false),
                (stored(&none), &[], true),
            ] {
                assert_eq!(with(request, |fields| stored.unwrap().matches(fields)), is_match, "{request:?}");
            }
        }
    }

    #[test]
    fn a_star_or_nonsense_matches_nothing() {
        assert_eq!(selection(&["*"], &[]), None);
        assert_eq!(selection(&["accept, *"], &[]), None);
        assert_eq!(selection(&["accept", "*"], &[]), None);
        assert_eq!(selection(&["a b"], &[]), None);
    }
}
