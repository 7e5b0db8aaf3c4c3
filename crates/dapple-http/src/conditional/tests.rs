use http::Method;

use super::{Validators, Verdict, date, evaluate, if_range_holds, tags};
use crate::request::{Field, Fields};

/// Sun, 06 Nov 1994 08:49:37 GMT.
const CHANGED_S: u64 = 784_111_777;
const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

const CURRENT: Validators<'static> = Validators { etag: Some(b"\"a,1\""), modified_s: Some(CHANGED_S) };

fn with<R>(lines: &[(&str, &str)], then: impl FnOnce(Fields<'_>) -> R) -> R {
    let list: Vec<Field<'_>> = lines.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
    then(Fields::new(&list))
}

fn verdict(method: &Method, lines: &[(&str, &str)]) -> Verdict {
    with(lines, |fields| evaluate(method, fields, &CURRENT))
}

#[test]
fn one_condition_at_a_time() {
    use Verdict::{Failed, NotModified, Proceed};
    for (name, value, expected) in [
        ("If-Match", "\"a,1\"", Proceed),
        ("If-Match", "\"x\", \"a,1\"", Proceed),
        ("If-Match", "*", Proceed),
        ("If-Match", "W/\"a,1\"", Failed),
        ("If-Match", "\"x\"", Failed),
        ("If-Match", "a,1", Failed),
        ("If-Match", "", Failed),
        ("If-None-Match", "\"a,1\"", NotModified),
        ("If-None-Match", "W/\"a,1\"", NotModified),
        ("If-None-Match", "\"x\",,\t\"a,1\"", NotModified),
        ("If-None-Match", "*", NotModified),
        ("If-None-Match", "\"x\"", Proceed),
        ("If-None-Match", "\"a", Proceed),
        ("If-Unmodified-Since", SAME, Proceed),
        ("If-Unmodified-Since", AFTER, Proceed),
        ("If-Unmodified-Since", BEFORE, Failed),
        ("If-Unmodified-Since", "yesterday", Proceed),
        ("If-Modified-Since", SAME, NotModified),
        ("If-Modified-Since", AFTER, NotModified),
        ("If-Modified-Since", BEFORE, Proceed),
        ("If-Modified-Since", "0", Proceed),
        ("If-Modified-Since", "Sunday, 06-Nov-94 08:49:37 GMT", NotModified),
        ("If-Modified-Since", "Sun Nov  6 08:49:37 1994", NotModified),
        ("If-Range", "\"x\"", Proceed),
        ("If-Else", "x", Proceed),
    ] {
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(verdict(&method, &[(name, value)]), expected, "{name}: {value}");
        }
    }
}

/// RFC 9110, section 13.2.2.
#[test]
fn precedence() {
    use Verdict::{Failed, NotModified, Proceed};
    let get = Method::GET;
    // A tag that matches makes the later date void.
    assert_eq!(verdict(&get, &[("If-Match", "\"a,1\""), ("If-Unmodified-Since", BEFORE)]), Proceed);
    assert_eq!(verdict(&get, &[("If-Match", "\"x\""), ("If-None-Match", "\"a,1\"")]), Failed);
    assert_eq!(verdict(&get, &[("If-Match", "\"a,1\""), ("If-None-Match", "\"a,1\"")]), NotModified);
    assert_eq!(verdict(&get, &[("If-Unmodified-Since", BEFORE), ("If-None-Match", "\"a,1\"")]), Failed);
    assert_eq!(verdict(&get, &[("If-None-Match", "\"x\""), ("If-Modified-Since", SAME)]), Proceed);
    assert_eq!(verdict(&get, &[("If-None-Match", "\"a,1\""), ("If-Modified-Since", BEFORE)]), NotModified);
    assert_eq!(verdict(&get, &[("If-Match", "*"), ("If-Modified-Since", SAME)]), NotModified);
}

#[test]
fn other_methods() {
    let put = Method::PUT;
    assert_eq!(verdict(&put, &[("If-None-Match", "*")]), Verdict::Failed);
    assert_eq!(verdict(&put, &[("If-Modified-Since", SAME)]), Verdict::Proceed, "for reading only");
    assert_eq!(verdict(&put, &[("If-Match", "\"a,1\"")]), Verdict::Proceed);
}

#[test]
fn fields_that_stand_there_twice() {
    let get = Method::GET;
    assert_eq!(verdict(&get, &[("If-None-Match", "\"x\""), ("If-None-Match", "\"a,1\"")]), Verdict::NotModified);
    assert_eq!(verdict(&get, &[("If-Modified-Since", SAME), ("If-Modified-Since", SAME)]), Verdict::Proceed);
    assert_eq!(verdict(&get, &[("If-Unmodified-Since", BEFORE), ("If-Unmodified-Since", BEFORE)]), Verdict::Proceed);
}

#[test]
fn without_validators() {
    let bare = Validators { etag: None, modified_s: None };
    for (name, value, expected) in [
        ("If-Match", "*", Verdict::Proceed),
        ("If-Match", "\"a\"", Verdict::Failed),
        ("If-None-Match", "*", Verdict::NotModified),
        ("If-None-Match", "\"a\"", Verdict::Proceed),
        ("If-Modified-Since", SAME, Verdict::Proceed),
        ("If-Unmodified-Since", BEFORE, Verdict::Proceed),
    ] {
        let found = with(&[(name, value)], |fields| evaluate(&Method::GET, fields, &bare));
        assert_eq!(found, expected, "{name}: {value}");
    }
}

#[test]
fn weak_tags_fit_only_where_that_is_enough() {
    let weak = Validators { etag: Some(b"W/\"a\""), modified_s: None };
    let found = |name, value| with(&[(name, value)], |fields| evaluate(&Method::GET, fields, &weak));
    assert_eq!(found("If-None-Match", "\"a\""), Verdict::NotModified);
    assert_eq!(found("If-Match", "W/\"a\""), Verdict::Failed);
    assert!(!with(&[("If-Range", "W/\"a\"")], |fields| if_range_holds(fields, &weak, CHANGED_S + 9)));
}

#[test]
fn parts_fit_to_the_very_same_state() {
    let long_ago = CHANGED_S + 100;
    for (value, now_s, holds) in [
        ("\"a,1\"", CHANGED_S, true),
        ("W/\"a,1\"", long_ago, false),
        ("\"a\"", long_ago, false),
        (SAME, long_ago, true),
        ("Sunday, 06-Nov-94 08:49:37 GMT", long_ago, true),
        // Later is not equal, and within the same second it may have changed twice.
        (AFTER, long_ago, false),
        (BEFORE, long_ago, false),
        (SAME, CHANGED_S, false),
        ("a,1", long_ago, false),
        ("*", long_ago, false),
        ("", long_ago, false),
        ("\"", long_ago, false),
    ] {
        let found = with(&[("If-Range", value)], |fields| if_range_holds(fields, &CURRENT, now_s));
        assert_eq!(found, holds, "{value} at {now_s}");
    }
    assert!(with(&[], |fields| if_range_holds(fields, &CURRENT, long_ago)));
    let twice = [("If-Range", "\"a,1\""), ("If-Range", "\"a,1\"")];
    assert!(!with(&twice, |fields| if_range_holds(fields, &CURRENT, long_ago)));
}

#[test]
fn dates_in_three_formats() {
    for text in [SAME, "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
        assert_eq!(date(text.as_bytes()), Some(CHANGED_S), "{text}");
    }
    for text in ["", "1994-11-06T08:49:37Z", "Sun, 06 Nov 1994 08:49:37 CET", "784111777", "\u{e9}"] {
        assert_eq!(date(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn lists_of_tags() {
    let all = |list: &'static str| tags(list.as_bytes()).map(<[u8]>::to_vec).collect::<Vec<_>>();
    assert_eq!(all("\"a\", W/\"b,c\" ,\"\""), [&b"\"a\""[..], b"W/\"b,c\"", b"\"\""]);
    assert_eq!(all(" ,, \"a\""), [b"\"a\""]);
    assert_eq!(all("\"a\" b \"c\""), [b"\"a\""]);
    assert_eq!(all("w/\"a\""), Vec::<Vec<u8>>::new(), "only the capital letter makes a tag weak");
    assert_eq!(all("\"a b\""), Vec::<Vec<u8>>::new());
    assert_eq!(all("\"a"), Vec::<Vec<u8>>::new());
}
