//! The rules of RFC 9111, each with its section.

use std::time::{Duration, UNIX_EPOCH};

use http::header::CDN_CACHE_CONTROL;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{Control, Policy, Reception, Verdict};
use crate::{Field, Fields};

/// A moment in 2023, at a whole second.
const NOW_MS: u64 = 1_700_000_000_000;

/// `@N` in a value is the date N seconds after now.
fn fields(text: &str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").unwrap();
        let value = match value.strip_prefix('@') {
            Some(offset) => {
                let at = NOW_MS / 1_000;
                let at = at.checked_add_signed(offset.parse().unwrap()).unwrap();
                httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(at))
            }
            None => value.to_owned(),
        };
        fields.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(&value).unwrap());
    }
    fields
}

fn policy_at(request: &str, status: u16, response: &str, reception: Reception) -> Option<Policy> {
    policy_with(request, status, response, &[], reception)
}

fn policy_with(
    request: &str,
    status: u16,
    response: &str,
    targets: &[HeaderName],
    reception: Reception,
) -> Option<Policy> {
    let request = fields(request);
    let list: Vec<Field<'_>> =
        request.iter().map(|(name, value)| Field { name: name.as_str(), value: value.as_bytes() }).collect();
    let list = Fields::new(&list);
    let asked = Control::of_request(list);
    Policy::of(list, &asked, StatusCode::from_u16(status).unwrap(), &fields(response), targets, reception)
}

fn policy(request: &str, status: u16, response: &str) -> Option<Policy> {
    policy_at(request, status, response, Reception { requested_ms: NOW_MS, received_ms: NOW_MS })
}

fn verdict(response: &str, asked: &str, after_s: u64) -> Verdict {
    let policy = policy("", 200, response).unwrap_or_else(|| panic!("{response} is not stored"));
    policy.verdict(&Control::parse([asked.as_bytes()]), NOW_MS + 1_000 * after_s)
}

#[test]
fn what_is_kept() {
    for (section, request, status, response, is_kept) in [
        ("3", "", 200, "cache-control: max-age=9", true),
        ("3", "", 200, "expires: @9", true),
        ("3", "", 200, "etag: \"a\"", true),
        ("3: neither fresh nor to be validated", "", 200, "", false),
        ("3: nothing says so", "", 302, "etag: \"a\"", false),
        ("3: it says so", "", 302, "cache-control: max-age=9", true),
        ("3: by default", "", 404, "last-modified: @-1000", true),
        ("3: status not understood", "", 599, "cache-control: max-age=9", false),
        ("3.3: partial responses", "", 206, "cache-control: max-age=9", false),
        ("5.2.1.5", "cache-control: no-store", 200, "cache-control: max-age=9", false),
        ("5.2.2.5", "", 200, "cache-control: max-age=9, no-store", false),
        ("5.2.2.5: in any case", "", 200, "cache-control: max-age=9, No-Store", false),
        ("5.2.2.5: on any line", "", 200, "cache-control: max-age=9\ncache-control: no-store", false),
        ("5.2.2.3", "", 200, "cache-control: max-age=9, no-store, must-understand", true),
        ("5.2.2.7", "", 200, "cache-control: max-age=9, private", false),
        ("5.2.2.7: of some fields", "", 200, "cache-control: max-age=9, private=\"a\"", false),
        ("3.5", "authorization: x", 200, "cache-control: max-age=9", false),
        ("3.5: public", "authorization: x", 200, "cache-control: max-age=9, public", true),
        ("3.5: s-maxage", "authorization: x", 200, "cache-control: s-maxage=9", true),
        ("3.5: must-revalidate", "authorization: x", 200, "cache-control: max-age=9, must-revalidate", true),
        ("7.3: cookies", "", 200, "cache-control: max-age=9\nset-cookie: a=b", false),
        ("7.3: cookies for all", "", 200, "cache-control: max-age=9, public\nset-cookie: a=b", true),
    ] {
        assert_eq!(policy(request, status, response).is_some(), is_kept, "{section}: {status} {response}");
    }
}

#[test]
fn how_long_it_is_fresh() {
    for (section, response, fresh_for_s) in [
        ("4.2.1: s-maxage first", "cache-control: s-maxage=3, max-age=9\nexpires: @99", 3),
        ("4.2.1: then max-age", "cache-control: max-age=9\nexpires: @99", 9),
        ("4.2.1: then Expires", "expires: @99", 99),
        ("4.2.1: against Date", "date: @-5\nexpires: @99", 99),
        ("5.3: no date", "expires: 0", 0),
        ("5.3: two dates", "expires: @9\nexpires: @8", 0),
        ("4.2.2: a tenth", "date: @0\nlast-modified: @-1000", 100),
        ("4.2.2: a day at most", "date: @0\nlast-modified: @-99999999", 86_400),
        ("4.2.2: nothing to guess by", "", 0),
        ("4.2.3: Age", "cache-control: max-age=9\nage: 4", 5),
        ("4.2.3: Age first of several", "cache-control: max-age=9\nage: 4, 5", 5),
        ("5.1: Age that is none", "cache-control: max-age=9\nage: x", 9),
        ("4.2.3: Date", "cache-control: max-age=9\ndate: @-6", 3),
        ("4.2.3: the larger", "cache-control: max-age=9\ndate: @-6\nage: 7", 2),
        ("4.2.3: a clock in front", "cache-control: max-age=9\ndate: @60", 9),
    ] {
        let policy = policy("", 200, &format!("{response}\netag: \"a\"")).unwrap();
        assert_eq!(policy.fresh_for_s(NOW_MS), fresh_for_s, "{section}");
    }
}

#[test]
fn the_way_of_a_response_counts_for_its_age() {
    let reception = Reception { requested_ms: NOW_MS - 3_000, received_ms: NOW_MS };
    let policy = policy_at("", 200, "cache-control: max-age=9\nage: 2", reception).unwrap();
    assert_eq!((policy.age_s(NOW_MS), policy.age_s(NOW_MS + 1_999)), (5, 6));
    // A clock that was set back makes no response younger than at its arrival.
    assert_eq!(policy.age_s(NOW_MS - 60_000), 5);
}

#[test]
fn what_may_be_done_with_it() {
    use Verdict::{Fresh, Stale, StaleWhileRevalidate, Validate};
    let plain = "cache-control: max-age=10\netag: \"a\"";
    for (section, response, asked, after_s, expected) in [
        ("4.2", plain, "", 9, Fresh),
        ("4.2", plain, "", 10, Validate),
        ("5.2.1.1", plain, "max-age=5", 5, Fresh),
        ("5.2.1.1", plain, "max-age=5", 6, Validate),
        ("5.2.1.2", plain, "max-stale=5", 15, Stale),
        ("5.2.1.2", plain, "max-stale=5", 16, Validate),
        ("5.2.1.2", plain, "max-stale", 9_999, Stale),
        ("5.2.1.3", plain, "min-fresh=5", 5, Fresh),
        ("5.2.1.3", plain, "min-fresh=5", 6, Validate),
        ("5.2.1.4", plain, "no-cache", 0, Validate),
        ("5.2.2.4", "cache-control: max-age=10, no-cache\netag: \"a\"", "max-stale", 0, Validate),
        ("5.2.2.2", "cache-control: max-age=10, must-revalidate", "max-stale", 11, Validate),
        ("5.2.2.8", "cache-control: max-age=10, proxy-revalidate", "max-stale", 11, Validate),
        ("5.2.2.10", "cache-control: s-maxage=10", "max-stale", 11, Validate),
        ("RFC 5861, 3", "cache-control: max-age=10, stale-while-revalidate=5", "", 14, StaleWhileRevalidate),
        ("RFC 5861, 3", "cache-control: max-age=10, stale-while-revalidate=5", "", 15, Validate),
        ("RFC 5861, 3", "cache-control: max-age=10, stale-while-revalidate=5", "max-age=1", 12, Validate),
    ] {
        assert_eq!(verdict(response, asked, after_s), expected, "{section}: {response}, {asked}, {after_s}");
    }
}

#[test]
fn what_may_stand_in_for_an_error() {
    let may = |response: &str, asked: &str, after_s: u64| {
        let policy = policy("", 200, response).unwrap();
        policy.may_replace_error(&Control::parse([asked.as_bytes()]), NOW_MS + 1_000 * after_s)
    };
    assert!(may("cache-control: max-age=10, stale-if-error=5", "", 14));
    assert!(!may("cache-control: max-age=10, stale-if-error=5", "", 15));
    assert!(!may("cache-control: max-age=10, stale-if-error=5, must-revalidate", "", 14));
    assert!(!may("cache-control: max-age=10", "", 11));
    assert!(may("cache-control: max-age=10", "stale-if-error=5", 14));
}

/// RFC 9213.
#[test]
fn a_targeted_field_stands_for_cache_control_and_expires() {
    let reception = Reception { requested_ms: NOW_MS, received_ms: NOW_MS };
    let lifetime = |response: &str, targets: &[HeaderName]| {
        policy_with("", 200, response, targets, reception).map(|policy| policy.fresh_for_s(NOW_MS))
    };
    for (response, of_target, of_others) in [
        ("cdn-cache-control: max-age=60", Some(60), None),
        ("cdn-cache-control: max-age=60\ncache-control: max-age=5", Some(60), Some(5)),
        ("cdn-cache-control: max-age=60\ncache-control: no-store", Some(60), None),
        ("cdn-cache-control: max-age=60\ncdn-cache-control: s-maxage=70\nexpires: 0", Some(70), None),
        ("cdn-cache-control: no-store\ncache-control: max-age=5", None, Some(5)),
        ("cdn-cache-control: private\nexpires: @5", None, Some(5)),
        ("cdn-cache-control: max-age=0\nexpires: @5", None, Some(5)),
        ("cdn-cache-control: x\nexpires: @5", None, Some(5)),
        ("cdn-cache-control: max-age=60, &&\ncache-control: max-age=5", Some(5), Some(5)),
        ("cdn-cache-control: ,\ncache-control: max-age=5", Some(5), Some(5)),
        ("cdn-cache-control: max-age=\"60\"\ncache-control: max-age=5", None, Some(5)),
        ("cdn-cache-control: public\nlast-modified: @-1000", Some(100), Some(100)),
    ] {
        assert_eq!(lifetime(response, &[CDN_CACHE_CONTROL]), of_target, "{response}");
        assert_eq!(lifetime(response, &[]), of_others, "{response}");
    }
    let both = "a-cache-control: &&\ncdn-cache-control: max-age=60\ncache-control: max-age=5";
    assert_eq!(lifetime(both, &[HeaderName::from_static("a-cache-control"), CDN_CACHE_CONTROL]), Some(60));
}
