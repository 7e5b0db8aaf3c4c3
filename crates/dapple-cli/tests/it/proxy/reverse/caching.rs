//! The cache of a reverse proxy: the parts shared with a forward proxy, and its own.

use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;

use super::{start, start_with_numbers};
use crate::proxy::caching::{origin_of_cases, the_rules_hold};
use crate::proxy::origin::Origin;
use crate::proxy::{note, reply};
use crate::support::{Client, Response, Server, Site, dapple, eventually};

const CACHE: [&str; 2] = ["--cache-mb", "16"];
const FRESH: &str = "cache-control: max-age=600\r\n";

/// Answers with the number of earlier requests, and these lines.
fn counting(head: &'static str) -> Origin {
    Origin::of(move |asked| reply("200 OK", head, &format!("answer {}", asked.number)))
}

fn get(proxy: &Server, path: &str, headers: &str) -> Response {
    proxy.connect().request("GET", path, headers)
}

fn get_at(proxy: &Server, host: &str, headers: &str) -> Response {
    let mut client = proxy.connect();
    client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n"));
    client.read_response()
}

#[test]
fn the_rules_of_rfc_9111() {
    let origin = origin_of_cases();
    let proxy = start(&origin.url(""), &CACHE);
    the_rules_hold(&origin, |target, headers| get(&proxy, target, headers));
}

#[test]
fn nothing_is_kept_without_the_option() {
    for options in [&[][..], &["--cache-mb", "0"]] {
        let origin = counting(FRESH);
        let proxy = start(&origin.url(""), options);
        for answer in ["answer 0", "answer 1"] {
            let response = get(&proxy, "/", "");
            assert_eq!((response.text(), note(&response), response.header("age")), (answer, "", None));
        }
    }
}

/// RFC 9213, section 2.2.
#[test]
fn cdn_cache_control_goes_before_cache_control_and_expires() {
    let far = "expires: Thu, 01 Jan 2099 00:00:00 GMT\r\n";
    for (fields, others, is_reused) in [
        ("max-age=600", "", true),
        ("max-age=600", "cache-control: no-store\r\n", true),
        ("max-age=600", "cache-control: max-age=0\r\nexpires: 0\r\n", true),
        ("no-store", FRESH, false),
        ("private", FRESH, false),
        ("no-cache", FRESH, false),
        ("max-age=0", far, false),
        ("max-age=0", FRESH, false),
        ("max-age=600, &&&", "cache-control: no-store\r\n", false),
        ("max-age=0, &&&", FRESH, true),
        ("max-age=\"60\"", "cache-control: no-store\r\n", false),
        ("", FRESH, true),
    ] {
        let head = format!("cdn-cache-control: {fields}\r\n{others}etag: \"a\"\r\n");
        let origin = Origin::of(move |asked| reply("200 OK", &head, &format!("answer {}", asked.number)));
        let proxy = start(&origin.url(""), &CACHE);
        let responses = [get(&proxy, "/", ""), get(&proxy, "/", "")];
        let expected = if is_reused { "answer 0" } else { "answer 1" };
        assert_eq!(responses[1].text(), expected, "{fields}, {others}: {}", note(&responses[1]));
        for response in responses {
            assert_eq!(response.header("cdn-cache-control"), Some(fields), "caches in front may obey the field, too");
        }
    }
}

#[test]
fn hosts_and_schemes_have_entries_of_their_own() {
    let origin = counting(FRESH);
    let proxy = start(&origin.url(""), &[&CACHE[..], &["--trust-forwarded", "127.0.0.0/8"]].concat());
    for (host, headers, answer) in [
        ("a.example", "", 0),
        ("b.example", "", 1),
        ("A.example:80", "", 0),
        ("a.example", "x-forwarded-proto: https\r\n", 2),
        ("a.example:443", "x-forwarded-proto: https\r\n", 2),
        ("a.example", "x-forwarded-host: b.example\r\n", 3),
        ("a.example", "x-forwarded-prefix: /b\r\n", 4),
        ("a.example", "x-forwarded-for: 192.0.2.1\r\n", 0),
        ("b.example", "", 1),
    ] {
        let response = get_at(&proxy, host, headers);
        assert_eq!(response.text(), format!("answer {answer}"), "{host} {headers}: {}", note(&response));
    }
    let response = get_at(&proxy, "a.example", "x-forwarded-host: a/b\r\n");
    assert_eq!((response.text(), note(&response)), ("answer 5", "dapple; fwd=bypass"));
    // Servers see an invalid port, and may redirect others to it.
    for host in ["c.example:99999", "c.example:"] {
        get_at(&proxy, host, "");
    }
    let response = get_at(&proxy, "c.example", "");
    assert!(note(&response).starts_with("dapple; fwd=uri-miss"), "{}", note(&response));
}

#[test]
fn untrusted_clients_choose_no_entry() {
    let origin = counting("cache-control: max-age=600\r\nvary: x-forwarded-for, x-real-ip\r\n");
    let proxy = start(&origin.url(""), &CACHE);
    for headers in ["", "x-forwarded-for: 192.0.2.1\r\n", "x-real-ip: 192.0.2.1\r\nx-forwarded-host: evil\r\n"] {
        assert_eq!(get(&proxy, "/", headers).text(), "answer 0", "{headers}");
    }
    // The fields for upstreams are part of the key.
    let proxy = start(&origin.url(""), &[&CACHE[..], &["--trust-forwarded", "127.0.0.0/8"]].concat());
    for (headers, answer) in [
        ("x-forwarded-for: 192.0.2.1\r\n", 1),
        ("x-forwarded-for: 192.0.2.2\r\n", 2),
        ("x-forwarded-for: 192.0.2.1\r\n", 1),
    ] {
        assert_eq!(get(&proxy, "/", headers).text(), format!("answer {answer}"), "{headers}");
    }
}

#[test]
fn simultaneous_misses_ask_once() {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Origin::start(move |_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n{FRESH}\r\n01234");
        stream.write_all(head.as_bytes()).is_ok()
            && wait.lock().unwrap().recv().is_ok()
            && stream.write_all(b"56789").is_ok()
    });
    let (proxy, metrics) = start_with_numbers(&origin.url(""), &CACHE);
    let begin = || {
        let mut client = proxy.connect();
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        client
    };
    let mut clients: Vec<Client> = (0..8).map(|_| begin()).collect();
    for client in &mut clients {
        assert_eq!(client.read_head().header("content-length"), Some("10"));
    }
    go.send(()).unwrap();
    for client in &mut clients {
        let mut body = [0; 10];
        client.read_all(&mut body);
        assert_eq!(&body, b"0123456789");
    }
    assert_eq!(origin.count(), 1);
    let page = Server::get_at(("127.0.0.1", metrics), "/metrics");
    for line in ["dapple_cache_misses_total 8", "dapple_cache_collapsed_total 7", "dapple_cache_entries 1"] {
        assert!(page.text().lines().any(|found| found == line), "{line} in {}", page.text());
    }
}

#[test]
fn one_entry_answers_heads_parts_and_conditions() {
    let origin = Origin::of(|_| reply("200 OK", "cache-control: max-age=600\r\netag: \"a\"\r\n", "0123456789"));
    let (proxy, metrics) = start_with_numbers(&origin.url(""), &CACHE);
    assert_eq!(get(&proxy, "/", "if-none-match: \"a\"\r\n").status, 304, "of a response fetched as a whole");
    let part = get(&proxy, "/", "range: bytes=2-4\r\n");
    assert!(part.status == 206 && part.text() == "234" && part.header("age").is_some(), "{}", part.status);
    assert_eq!(get(&proxy, "/", "if-none-match: W/\"a\"\r\n").status, 304);
    let head = proxy.connect().request("HEAD", "/", "");
    assert_eq!((head.status, head.header("content-length")), (200, Some("10")));
    assert_eq!(origin.count(), 1);
    assert_eq!(origin.asked()[0].header("if-none-match"), None);
    let page = Server::get_at(("127.0.0.1", metrics), "/metrics");
    assert!(page.text().lines().any(|line| line == "dapple_cache_sent_bytes_total 3"), "{}", page.text());
}

#[test]
fn fields_of_a_validation_for_one_client_go_to_no_other() {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Origin::of(move |asked| match asked.number {
        0 => reply("200 OK", "cache-control: max-age=0\r\netag: \"a\"\r\n", "one"),
        number => {
            if number == 1 {
                wait.lock().unwrap().recv().unwrap();
            }
            format!("HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\nset-cookie: id={number}\r\n\r\n").into_bytes()
        }
    });
    let (proxy, metrics) = start_with_numbers(&origin.url(""), &CACHE);
    assert_eq!(get_at(&proxy, "x", "").text(), "one");
    let mut clients = [proxy.connect(), proxy.connect()];
    for (number, client) in clients.iter_mut().enumerate() {
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let misses = format!("dapple_cache_misses_total {}", number + 2);
        let has_missed =
            || Server::get_at(("127.0.0.1", metrics), "/metrics").text().lines().any(|line| line == misses);
        assert!(eventually(LIMIT, || has_missed() && origin.count() == 2));
    }
    go.send(()).unwrap();
    let cookies = clients.map(|mut client| client.read_response().header("set-cookie").map(str::to_owned));
    assert!(cookies[0].is_some() && cookies[1].is_some() && cookies[0] != cookies[1], "{cookies:?}");
}

#[test]
fn stale_responses_are_validated_and_changed_ones_forgotten() {
    let origin = Origin::of(|asked| match (asked.method.as_str(), asked.header("if-none-match")) {
        ("GET", None) => reply("200 OK", "cache-control: max-age=0\r\netag: \"a\"\r\n", &asked.target),
        ("GET", Some(_)) => b"HTTP/1.1 304 Not Modified\r\ncache-control: max-age=600\r\n\r\n".to_vec(),
        _ => reply("201 Created", "location: http://test/other\r\n", ""),
    });
    let proxy = start(&origin.url(""), &CACHE);
    for path in ["/", "/other"] {
        for expected in ["fwd=uri-miss; stored", "fwd=stale; fwd-status=304", "; hit"] {
            let response = get(&proxy, path, "");
            assert!(response.text() == path && note(&response).contains(expected), "{path}: {}", note(&response));
        }
    }
    let posted = proxy.connect().request("POST", "/", "content-length: 0\r\n");
    assert_eq!((posted.status, note(&posted)), (201, "dapple; fwd=method"));
    for path in ["/", "/other"] {
        assert!(note(&get(&proxy, path, "")).contains("fwd=uri-miss"), "{path}");
    }
}

#[test]
fn cached_responses_outlive_their_upstreams() {
    let is_down = Arc::new(AtomicBool::new(false));
    let down = is_down.clone();
    let origin = Origin::start(move |asked, stream| {
        let control = match asked.target.as_str() {
            "/fresh" => "max-age=600",
            "/if-error" => "max-age=0, stale-if-error=600",
            "/never" => "max-age=0, must-revalidate, stale-if-error=600",
            _ => "no-store",
        };
        let head = format!("cache-control: {control}\r\netag: \"a\"\r\n");
        !down.load(Ordering::Relaxed) && stream.write_all(&reply("200 OK", &head, &asked.target)).is_ok()
    });
    let (proxy, metrics) = start_with_numbers(&origin.url(""), &[&CACHE[..], &["--fail-after", "1"]].concat());
    for path in ["/fresh", "/if-error", "/never", "/none"] {
        assert_eq!(get(&proxy, path, "").text(), path);
    }
    is_down.store(true, Ordering::Relaxed);
    // The first request finds that the upstream has ended; then it is out of service.
    for _ in 0..3 {
        let response = get(&proxy, "/if-error", "");
        assert_eq!((response.status, response.text()), (200, "/if-error"));
        assert!(note(&response).contains("stale-if-error"), "{}", note(&response));
        assert_eq!(get(&proxy, "/fresh", "").text(), "/fresh");
        let never = get(&proxy, "/never", "");
        assert!(never.status == 504 && never.header("proxy-status").is_some(), "{}", never.status);
        assert!([502, 503].contains(&get(&proxy, "/none", "").status));
    }
    let page = Server::get_at(("127.0.0.1", metrics), "/metrics");
    assert!(page.text().lines().any(|line| line == "dapple_cache_stale_total 3"), "{}", page.text());
    is_down.store(false, Ordering::Relaxed);
    assert!(eventually(LIMIT, || get(&proxy, "/none", "").status == 200), "it is tried again");
}

#[test]
fn a_stale_answer_now_and_a_fresh_one_for_the_next() {
    let origin = Origin::of(|asked| {
        let seconds = if asked.number == 0 { 0 } else { 600 };
        let head = format!("cdn-cache-control: max-age={seconds}, stale-while-revalidate=600\r\n");
        reply("200 OK", &head, &format!("body {}", asked.number))
    });
    let proxy = start(&origin.url(""), &CACHE);
    assert_eq!(get(&proxy, "/", "").text(), "body 0");
    assert_eq!(get(&proxy, "/", "").text(), "body 0");
    assert!(eventually(LIMIT, || get(&proxy, "/", "").text() == "body 1"));
    assert_eq!(origin.count(), 2);
}

#[test]
fn a_miss_is_retried_at_another_upstream_and_the_log_says_so() {
    let broken = Origin::start(|_, _| false);
    let good = counting(FRESH);
    let site = Site::new();
    let log = site.path.join("access.log");
    let to = format!("{},{}", broken.url(""), good.url(""));
    let words = ["--retry-percent", "100", "--access-log", log.to_str().unwrap(), "--access-log-format", "json"];
    let proxy = start(&to, &[&CACHE[..], &words].concat());
    // Picks are random: repeat until the broken upstream was tried first.
    let mut count = 0;
    assert!(eventually(LIMIT, || {
        count += 1;
        assert_eq!(get(&proxy, &format!("/{count}"), "").status, 200);
        broken.count() > 0
    }));
    let hit = get(&proxy, &format!("/{count}"), "");
    assert!(note(&hit).contains("; hit"), "{}", note(&hit));
    let lines = || std::fs::read_to_string(&log).unwrap_or_default();
    assert!(eventually(LIMIT, || lines().lines().count() == count + 1), "{}", lines());
    let lines: Vec<serde_json::Value> = lines().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let has = |upstream: serde_json::Value, tries: u64| {
        lines.iter().any(|line| line["upstream"] == upstream && line["tries"] == tries)
    };
    assert!(has(good.url("").into(), 2) && has(serde_json::Value::Null, 0), "{lines:?}");
}

#[test]
fn interim_responses_go_only_to_the_request_that_asks() {
    let hint = b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n";
    let origin = Origin::of(move |_| [&hint[..], &reply("200 OK", FRESH, "done")].concat());
    let proxy = start(&origin.url(""), &CACHE);
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    let head = client.read_head();
    assert_eq!((head.status, head.header("link")), (103, Some("</a.css>")));
    assert_eq!(client.read_response().text(), "done");
    let hit = client.get("/");
    assert_eq!((hit.status, hit.text(), hit.header("link")), (200, "done", None));
    assert_eq!(origin.count(), 1);
}

#[test]
fn upgrades_bypass_the_cache() {
    let origin = Origin::of(|asked| match asked.header("upgrade") {
        Some(_) => b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nhello".to_vec(),
        None => reply("200 OK", FRESH, "page"),
    });
    let proxy = start(&origin.url(""), &CACHE);
    assert_eq!(get(&proxy, "/", "").text(), "page");
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.1\r\nHost: test\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
    assert_eq!(client.read_head().status, 101);
    let mut hello = [0; 5];
    client.read_all(&mut hello);
    assert_eq!(&hello, b"hello");
}

#[test]
fn a_reload_keeps_the_cache() {
    let (one, two) = (counting(FRESH), counting(FRESH));
    let folder = Site::new();
    let write = |to: &Origin| folder.write("proxy.toml", format!("to = [\"{}\"]\ncache_mb = 8\n", to.url("")));
    write(&one);
    let mut command = dapple();
    command.args(["proxy", "--port", "0", "--workers", "2", "--config"]).arg(folder.path.join("proxy.toml"));
    command.stderr(Stdio::null());
    let proxy = Server::spawn(command);
    assert_eq!(get(&proxy, "/", "").text(), "answer 0");
    write(&two);
    proxy.signal(Signal::HUP);
    let mut count = 0;
    assert!(eventually(LIMIT, || {
        count += 1;
        get(&proxy, &format!("/{count}"), "");
        two.count() > 0
    }));
    assert!(note(&get(&proxy, "/", "")).contains("; hit"));
}

/// A limit that only a bug reaches.
const LIMIT: Duration = Duration::from_secs(60);
