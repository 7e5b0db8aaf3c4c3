//! Conditional requests and ranges (RFC 9110, sections 13 and 14), for services behind [`serve`](crate::serve()).
//!
//! A service says what it has, and these functions say what the request asks of that, by the same rules as `dapple serve`.
//!
//! ```
//! use dapple_serve::conditional::{Validators, Verdict, Wanted, evaluate, wanted};
//! use http::{HeaderMap, Method};
//!
//! let current = Validators { etag: Some(b"\"7\""), modified_s: None };
//! let mut headers = HeaderMap::new();
//! headers.insert("if-none-match", "\"6\", \"7\"".parse()?);
//! assert_eq!(evaluate(&Method::GET, &headers, Some(&current)), Verdict::NotModified);
//! assert_eq!(evaluate(&Method::PUT, &headers, Some(&current)), Verdict::Failed);
//! assert_eq!(evaluate(&Method::PUT, &headers, None), Verdict::Proceed);
//! headers.insert("range", "bytes=10-".parse()?);
//! assert_eq!(wanted(&headers, &current, 100), Wanted::One(10..100));
//! # Ok::<(), http::header::InvalidHeaderValue>(())
//! ```

use std::time::UNIX_EPOCH;

use dapple_http::{Field, Fields};
use dapple_sched::environment;
use http::{HeaderMap, Method};

pub use dapple_http::conditional::{Validators, Verdict};
pub use dapple_http::range::Wanted;

/// Evaluates the conditions of a request, apart from `If-Range`, in their order of precedence, against the present state of
/// what the request is about; `None` if there is nothing yet.
///
/// Call it for a request that would succeed without conditions. If the answer to a request that changes something is
/// [`Verdict::Proceed`], change that state and no later one, for example by a `cas` of the store.
#[must_use]
pub fn evaluate(method: &Method, headers: &HeaderMap, current: Option<&Validators<'_>>) -> Verdict {
    match current {
        Some(current) => dapple_http::conditional::evaluate(method, Fields::new(&fields(headers)), current),
        // `If-Match` wants something to be there, and the other conditions hold for nothing.
        None if headers.contains_key(http::header::IF_MATCH) => Verdict::Failed,
        None => Verdict::Proceed,
    }
}

/// The part of a representation of `len` bytes that a request wants: the whole without the field `Range`, and with an
/// `If-Range` that does not hold.
///
/// Ask for it only in answers to GET that [`evaluate`] lets proceed.
#[must_use]
pub fn wanted(headers: &HeaderMap, current: &Validators<'_>, len: u64) -> Wanted {
    let Some(value) = headers.get(http::header::RANGE) else { return Wanted::Whole };
    let now_s = environment::system_now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    match dapple_http::conditional::if_range_holds(Fields::new(&fields(headers)), current, now_s) {
        true => dapple_http::range::wanted(value.as_bytes(), len),
        false => Wanted::Whole,
    }
}

/// The conditions among the fields.
fn fields(headers: &HeaderMap) -> Vec<Field<'_>> {
    let conditions = headers.iter().filter(|(name, _)| name.as_str().starts_with("if-"));
    conditions.map(|(name, value)| Field { name: name.as_str(), value: value.as_bytes() }).collect()
}

#[cfg(test)]
mod tests {
    use http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE};

    use super::*;

    const CURRENT: Validators<'_> = Validators { etag: Some(b"\"a,b\""), modified_s: None };

    fn headers(fields: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn conditions_are_met_by_what_is_there() {
        let date = "Thu, 01 Jan 1970 00:00:00 GMT";
        for (fields, there, nothing) in [
            (vec![], Verdict::Proceed, Verdict::Proceed),
            (vec![(IF_MATCH, "*")], Verdict::Proceed, Verdict::Failed),
            (vec![(IF_MATCH, "\"x\""), (IF_MATCH, "\"y\", \"a,b\"")], Verdict::Proceed, Verdict::Failed),
            (vec![(IF_MATCH, "W/\"a,b\"")], Verdict::Failed, Verdict::Failed),
            (vec![(IF_NONE_MATCH, "*")], Verdict::Failed, Verdict::Proceed),
            (vec![(IF_NONE_MATCH, "W/\"a,b\"")], Verdict::Failed, Verdict::Proceed),
            (vec![(IF_NONE_MATCH, "\"x\"")], Verdict::Proceed, Verdict::Proceed),
            (vec![(IF_UNMODIFIED_SINCE, date)], Verdict::Proceed, Verdict::Proceed),
        ] {
            let fields = headers(&fields);
            assert_eq!(evaluate(&Method::PUT, &fields, Some(&CURRENT)), there, "{fields:?}");
            assert_eq!(evaluate(&Method::PUT, &fields, None), nothing, "{fields:?}");
        }
    }

    #[test]
    fn a_range_is_of_the_state_that_the_client_has() {
        let part = |fields: &[(HeaderName, &str)]| wanted(&headers(fields), &CURRENT, 10);
        assert_eq!(part(&[]), Wanted::Whole);
        assert_eq!(part(&[(RANGE, "bytes=2-3")]), Wanted::One(2..4));
        assert_eq!(part(&[(RANGE, "bytes=2-3"), (IF_RANGE, "\"a,b\"")]), Wanted::One(2..4));
        assert_eq!(part(&[(RANGE, "bytes=2-3"), (IF_RANGE, "\"x\"")]), Wanted::Whole);
        assert_eq!(part(&[(RANGE, "bytes=10-")]), Wanted::Outside);
    }
}
