//! Which responses the cache keeps, for how long, and for which requests; each case names its
//! section of RFC 9111.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::origin::Origin;
use super::{ask, get, note, reply};
use crate::support::{Response, Server};

/// A request made twice. The rule decides whether the second reaches the origin.
struct Case {
    rule: &'static str,
    /// Header lines of both requests, and of the second only.
    request: &'static str,
    again: &'static str,
    status: &'static str,
    response: &'static str,
    is_reused: bool,
}

const fn case(rule: &'static str, response: &'static str, is_reused: bool) -> Case {
    Case { rule, request: "", again: "", status: "200 OK", response, is_reused }
}

const FRESH: &str = "cache-control: max-age=60\r\n";

const CASES: &[Case] = &[
    case("4.2.1: max-age", FRESH, true),
    case("4.2.1: s-maxage goes before max-age", "cache-control: max-age=60, s-maxage=0\r\netag: \"a\"\r\n", false),
    case("4.2.1: Expires", "expires: Thu, 01 Jan 2099 00:00:00 GMT\r\n", true),
    case("5.3: Expires with an invalid date", "expires: -1\r\netag: \"a\"\r\n", false),
    case("4.2.2: a tenth of its age", "last-modified: Tue, 01 Jan 2019 00:00:00 GMT\r\n", true),
    case("4.2.3: Age, and still fresh", "cache-control: max-age=60\r\nage: 30\r\n", true),
    case("4.2.3: Age", "cache-control: max-age=60\r\nage: 61\r\netag: \"a\"\r\n", false),
    case("4.2.3: Date", "cache-control: max-age=60\r\ndate: Tue, 01 Jan 2019 00:00:00 GMT\r\netag: \"a\"\r\n", false),
    case("3: neither freshness nor validator", "", false),
    case("5.2.2.5: no-store", "cache-control: no-store, max-age=60\r\n", false),
    case("5.2.2.5: in any case of letters", "cache-control: NO-STORE, max-age=60\r\n", false),
    case("5.2.2.5: on a line of its own", "cache-control: max-age=60\r\ncache-control: no-store\r\n", false),
    case("5.2.2.7: private", "cache-control: private, max-age=60\r\n", false),
    case("5.2.2.4: no-cache", "cache-control: no-cache, max-age=60\r\netag: \"a\"\r\n", false),
    case("7.3: cookies are not shared", "cache-control: max-age=60\r\nset-cookie: a=b\r\n", false),
    case("4.1: Vary: *", "cache-control: max-age=60\r\nvary: *\r\n", false),
    Case { status: "404 Not Found", ..case("3: other statuses too", FRESH, true) },
    Case {
        status: "302 Found",
        ..case("3: a redirect that says so", "cache-control: max-age=60\r\nlocation: /x\r\n", true)
    },
    Case { status: "500 Internal Server Error", ..case("3: an error is not kept", FRESH, false) },
    Case { request: "cache-control: no-store\r\n", ..case("5.2.1.5: the client's no-store", FRESH, false) },
    Case { again: "cache-control: no-cache\r\n", ..case("5.2.1.4: the client's no-cache", FRESH, false) },
    Case { again: "pragma: no-cache\r\n", ..case("5.4: Pragma", FRESH, false) },
    Case {
        again: "cache-control: max-age=30\r\npragma: no-cache\r\n",
        ..case("5.4: only without Cache-Control", FRESH, true)
    },
    Case { again: "cache-control: min-fresh=61\r\n", ..case("5.2.1.3: min-fresh", FRESH, false) },
    Case {
        again: "cache-control: max-stale\r\n",
        ..case("5.2.1.2: max-stale", "cache-control: max-age=0\r\netag: \"a\"\r\n", true)
    },
    Case {
        again: "cache-control: max-stale\r\n",
        ..case("5.2.2.2: must-revalidate", "cache-control: max-age=0, must-revalidate\r\netag: \"a\"\r\n", false)
    },
    Case { request: "authorization: Basic YQ==\r\n", ..case("3.5: Authorization", FRESH, false) },
    Case {
        request: "authorization: Basic YQ==\r\n",
        ..case("3.5: explicitly shareable", "cache-control: max-age=60, public\r\n", true)
    },
    Case { again: "authorization: Basic YQ==\r\n", ..case("3.5: kept without, requested with", FRESH, false) },
    Case {
        request: "accept-language: de\r\n",
        ..case("4.1: the same language", "cache-control: max-age=60\r\nvary: Accept-Language\r\n", true)
    },
    Case {
        again: "accept-language: de\r\n",
        ..case("4.1: another language", "cache-control: max-age=60\r\nvary: accept, Accept-Language\r\n", false)
    },
    Case {
        again: "accept-language: de\r\n",
        ..case("4.1: on a second line", "cache-control: max-age=60\r\nvary: accept\r\nvary: accept-language\r\n", false)
    },
    Case {
        request: "cookie: a=1\r\n",
        ..case("4.2.2: a guess, with the same cookie", "last-modified: Tue, 01 Jan 2019 00:00:00 GMT\r\n", true)
    },
    Case {
        again: "cookie: a=1\r\n",
        ..case("4.2.2: a guess, with a cookie", "last-modified: Tue, 01 Jan 2019 00:00:00 GMT\r\n", false)
    },
    Case { again: "cookie: a=1\r\n", ..case("4.2.2: no guess, with a cookie", FRESH, true) },
];

#[test]
fn the_rules_of_rfc_9111() {
    let proxy = Server::start_proxy(&[]);
    let origin = origin_of_cases();
    the_rules_hold(&origin, |target, headers| get(&proxy, &origin.url(target), headers));
}

/// An origin with a target for each case.
pub(super) fn origin_of_cases() -> Origin {
    Origin::of(|asked| {
        let case = &CASES[asked.target.trim_matches(['/', '?']).parse::<usize>().unwrap()];
        let head = format!("x-case: {}\r\n{}", case.rule, case.response);
        reply(case.status, &head, &format!("answer {}", asked.number))
    })
}

/// Makes each request twice, through a cache in front of [`origin_of_cases`].
pub(super) fn the_rules_hold(origin: &Origin, get: impl Fn(&str, &str) -> Response) {
    for (index, case) in CASES.iter().enumerate() {
        let (target, before) = (format!("/{index}?"), origin.count());
        let answers = [before, before + 1].map(|number| format!("answer {number}"));
        let first = get(&target, case.request);
        assert_eq!(first.text(), answers[0], "{}", case.rule);
        let second = get(&target, &format!("{}{}", case.request, case.again));
        assert_eq!(origin.count() - before, if case.is_reused { 1 } else { 2 }, "{}: {}", case.rule, note(&second));
        assert_eq!(second.text(), answers[usize::from(!case.is_reused)], "{}", case.rule);
        assert_eq!(note(&second).contains("; hit"), case.is_reused, "{}: {}", case.rule, note(&second));
        assert_eq!(second.status, first.status, "{}", case.rule);
        assert!(!case.is_reused || second.header("age").is_some(), "5.1, {}", case.rule);
        assert!(second.count("age") <= 1, "5.1, {}", case.rule);
    }
}

/// RFC 9213: such a field is for caches that work for the origin.
#[test]
fn fields_for_caches_of_an_origin_do_not_apply_here() {
    let proxy = Server::start_proxy(&[]);
    let head = "cdn-cache-control: no-store\r\ncache-control: max-age=60\r\n";
    let origin = Origin::of(move |asked| reply("200 OK", head, &format!("answer {}", asked.number)));
    for _ in 0..2 {
        let response = get(&proxy, &origin.url("/"), "");
        assert_eq!((response.text(), response.header("cdn-cache-control")), ("answer 0", Some("no-store")));
    }
    let head = "cdn-cache-control: max-age=60\r\ncache-control: no-store\r\n";
    let origin = Origin::of(move |asked| reply("200 OK", head, &format!("answer {}", asked.number)));
    assert_eq!(get(&proxy, &origin.url("/"), "").text(), "answer 0");
    assert_eq!(get(&proxy, &origin.url("/"), "").text(), "answer 1");
}

#[test]
fn variants_are_kept_together() {
    let proxy = Server::start_proxy(&[]);
    let origin = Origin::of(|asked| {
        let language = asked.header("accept-language").unwrap_or("none").to_owned();
        reply("200 OK", "cache-control: max-age=60\r\nvary: accept-language\r\n", &language)
    });
    for round in 0..2 {
        for language in ["de", "en", "fr"] {
            let response = get(&proxy, &origin.url("/"), &format!("accept-language: {language}\r\n"));
            assert_eq!((round, response.text()), (round, language));
        }
    }
    assert_eq!(origin.count(), 3);
}

#[test]
fn a_client_with_the_whole_response_finds_it_in_the_cache() {
    let proxy = Server::start_proxy(&[]);
    let origin = Origin::of(|asked| reply("200 OK", FRESH, if asked.number % 2 == 0 { "" } else { "body" }));
    let mut client = proxy.connect();
    for count in 1..=300 {
        let url = origin.url(&format!("/{count}"));
        client.get(&url);
        let second = client.get(&url);
        assert!(note(&second).contains("; hit"), "{count}: {}", note(&second));
        assert_eq!(origin.count(), count);
    }
    assert_eq!(origin.asked().last().unwrap().connection, 0, "and its connection free");
}

#[test]
fn unsafe_methods_make_it_forget() {
    // RFC 9111, 4.4.
    let proxy = Server::start_proxy(&[]);
    let fails = Arc::new(AtomicBool::new(true));
    let failing = fails.clone();
    let origin = Origin::of(move |asked| match asked.method.as_str() {
        "GET" => reply("200 OK", FRESH, &format!("{} {}", asked.target, asked.number)),
        _ if failing.load(Ordering::Relaxed) => reply("500 No", "", ""),
        _ => reply("201 Created", "location: /other\r\ncontent-location: http://example.com/else\r\n", ""),
    });
    let (url, other) = (origin.url("/x"), origin.url("/other"));
    assert_eq!(get(&proxy, &url, "").text(), "/x 0");
    assert_eq!(get(&proxy, &other, "").text(), "/other 1");
    assert_eq!(ask(&proxy, "POST", &url, "content-length: 0\r\n").status, 500);
    assert_eq!(get(&proxy, &url, "").text(), "/x 0", "a failed request changes nothing");
    fails.store(false, Ordering::Relaxed);
    assert_eq!(ask(&proxy, "DELETE", &url, "").status, 201);
    assert_eq!(get(&proxy, &url, "").text(), "/x 4");
    assert_eq!(get(&proxy, &other, "").text(), "/other 5");
}

#[test]
fn one_entry_answers_heads_parts_and_conditions() {
    let proxy = Server::start_proxy(&[]);
    let head = "cache-control: max-age=60\r\netag: \"a\"\r\ncontent-type: text/x\r\nx-more: 1\r\n";
    let origin = Origin::of(move |_| reply("200 OK", head, "0123456789"));
    let url = origin.url("/x");
    assert_eq!(get(&proxy, &url, "").text(), "0123456789");

    let head = ask(&proxy, "HEAD", &url, "");
    assert_eq!((head.status, head.header("content-length")), (200, Some("10")));
    assert_eq!(head.header("etag"), Some("\"a\""));
    for (range, status, text, content_range) in [
        ("2-4", 206, "234", Some("bytes 2-4/10")),
        ("-3", 206, "789", Some("bytes 7-9/10")),
        ("10-", 416, "", Some("bytes */10")),
        ("0-1,5-6", 206, "0123456", Some("bytes 0-6/10")),
    ] {
        let part = get(&proxy, &url, &format!("range: bytes={range}\r\n"));
        assert_eq!((part.status, part.text(), part.header("content-range")), (status, text, content_range), "{range}");
    }
    let part = get(&proxy, &url, "range: bytes=2-4\r\nif-range: \"b\"\r\n");
    assert_eq!((part.status, part.body.len()), (200, 10));
    let part = get(&proxy, &url, "range: bytes=2-4\r\nif-range: \"a\"\r\n");
    assert_eq!(part.status, 206);

    let same = get(&proxy, &url, "if-none-match: \"x\", W/\"a\"\r\n");
    assert_eq!((same.status, same.header("etag"), same.header("x-more")), (304, Some("\"a\""), None));
    assert_eq!(get(&proxy, &url, "if-none-match: \"b\"\r\n").status, 200);
    assert_eq!(origin.count(), 1, "everything came from one entry");
}

#[test]
fn parts_and_heads_of_missing_responses_are_passed_on() {
    let proxy = Server::start_proxy(&[]);
    let origin = Origin::of(|asked| match asked.method.as_str() {
        "HEAD" => b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\ncache-control: max-age=60\r\n\r\n".to_vec(),
        _ => reply("206 Partial Content", "cache-control: max-age=60\r\ncontent-range: bytes 2-3/10\r\n", "23"),
    });
    let url = origin.url("/x");
    for count in 1..3 {
        let part = get(&proxy, &url, "range: bytes=2-3\r\n");
        assert_eq!((part.status, part.text(), origin.count()), (206, "23", 2 * count - 1));
        assert_eq!(origin.asked()[2 * count - 2].header("range"), Some("bytes=2-3"));
        let head = ask(&proxy, "HEAD", &url, "");
        assert_eq!((head.status, head.header("content-length"), origin.count()), (200, Some("10"), 2 * count));
    }
}

#[test]
fn only_the_cache_is_asked_on_request() {
    // RFC 9111, 5.2.1.7.
    let proxy = Server::start_proxy(&[]);
    let origin = Origin::of(|_| reply("200 OK", FRESH, "x"));
    let url = origin.url("/");
    assert_eq!(get(&proxy, &url, "cache-control: only-if-cached\r\n").status, 504);
    assert_eq!(origin.count(), 0);
    get(&proxy, &url, "");
    assert_eq!(get(&proxy, &url, "cache-control: only-if-cached\r\n").text(), "x");
    assert_eq!(origin.count(), 1);
}

#[test]
fn one_address_in_two_spellings_is_one_entry() {
    let proxy = Server::start_proxy(&[]);
    let origin = Origin::of(|_| reply("200 OK", FRESH, "x"));
    get(&proxy, &format!("http://LOCALHOST:{}/a", origin.port), "");
    let second = get(&proxy, &format!("HTTP://localhost:{}/a", origin.port), "");
    assert!(note(&second).contains("hit"), "{}", note(&second));
}
