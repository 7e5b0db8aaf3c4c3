//! The web chat, with curl.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::programs::{Gateway, Process, has};

const CURL: [(&str, &str); 1] = [("curl", "curl")];

#[test]
fn a_message_is_said_once_and_outlives_the_gateway() {
    if !has(&CURL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::start(folder.path(), &[]);
    assert_eq!((gateway.say("ann", "x"), gateway.put("talk", "{}"), gateway.put("talk", "{}")), (404, 201, 204));
    let say = ["--json", r#"{"name": "ann", "text": "hello <b>", "id": "7"}"#];
    // The client says it again, as if it got no reply, also to a gateway that was killed meanwhile.
    for attempt in 0..3 {
        assert_eq!(gateway.curl("/talks/talk/messages", &say), (200, r#"{"position":0}"#.to_owned()));
        if attempt == 1 {
            gateway.process.0.kill().unwrap();
            drop(gateway);
            gateway = Gateway::start(folder.path(), &[]);
        }
    }
    assert_eq!(gateway.archive(""), ["ann@web: hello <b>"]);
    assert!(gateway.curl("/", &[]).1.contains("<a href=\"/talks/talk\">talk</a>"));
    assert!(gateway.curl("/talks/talk", &[]).1.contains("<script src=\"/chat.js\">"));
    let long = format!(r#"{{"name": "ann", "text": "{}"}}"#, "x".repeat(4001));
    for (body, status) in [("{", 400), ("{}", 422), (r#"{"name": "ann", "text": " "}"#, 422), (&long, 413)] {
        assert_eq!(gateway.curl("/talks/talk/messages", &["--json", body]).0, status, "{body}");
    }
    // A form of another site cannot say anything.
    assert_eq!(gateway.curl("/talks/talk/messages", &["--data", say[1]]).0, 415);
    assert_eq!(gateway.curl("/talks/talk", &["--header", "Host: evil.example"]).0, 401);
    for legs in ["[]", r##"{"irc:#a b": null}"##, r#"{"irc:": null}"#, r#"{"x": null}"#] {
        assert_eq!(gateway.put("talk", legs), 422, "{legs}");
    }
    assert_eq!((gateway.put("TALK", "{}"), gateway.put("talk", "null"), gateway.say("ann", "x")), (422, 204, 404));
    assert!(gateway.end());
}

#[test]
fn the_archive_is_searched_by_time_and_words() {
    if !has(&CURL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path(), &[]);
    assert_eq!(gateway.put("talk", "{}"), 201);
    for number in 0..120 {
        assert_eq!(gateway.say(if number % 2 == 0 { "ann" } else { "ben" }, &format!("number {number}")), 200);
    }
    let times: Vec<u64> = ["", "at=100"]
        .iter()
        .flat_map(|query| {
            let answer = gateway.json(&format!("/talks/talk/messages?{query}"));
            answer["messages"]
                .as_array()
                .unwrap()
                .iter()
                .map(|message| message["at_ms"].as_u64().unwrap())
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(times.len() == 120 && times.is_sorted());
    for (from, to) in [(0, 120), (30, 60), (119, 120), (60, 60), (1, 2)] {
        let end = times.get(to).copied().unwrap_or(u64::MAX >> 1);
        let expected: Vec<usize> = (0..120).filter(|at| times[*at] >= times[from] && times[*at] < end).collect();
        let found = gateway.archive(&format!("from={}&to={end}", times[from]));
        // The query goes on by position alone, and so without an end.
        let found: Vec<String> = found.into_iter().take(expected.len()).collect();
        let numbers: Vec<String> = expected.iter().map(|number| format!("number {number}")).collect();
        assert!(found.iter().zip(&numbers).all(|(found, number)| found.ends_with(number)), "{from} {to}: {found:?}");
        assert_eq!(found.len(), numbers.len(), "{from} {to}");
    }
    assert_eq!(gateway.archive("words=BEN+111"), ["ben@web: number 111"]);
    assert_eq!(gateway.archive("words=ann+111"), [""; 0]);
    assert_eq!(gateway.archive(&format!("from={}", times[119] + 1)), [""; 0]);
}

/// The events that curl gets, with this field in its request.
fn listen(gateway: &Gateway, query: &str, field: &str) -> (Process, impl Iterator<Item = Value> + use<>) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--no-buffer", "--header", field, &format!("{}/talks/talk/events{query}", gateway.base)]);
    let mut process = Process::start(curl.stdout(Stdio::piped()));
    let lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    (process, lines.filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()))
}

fn id(event: Value) -> u64 {
    event["position"].as_u64().unwrap()
}

#[test]
fn a_message_is_given_to_a_leg_once() {
    if !has(&CURL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::start(folder.path(), &[]);
    assert_eq!(gateway.put("talk", r#"{"fax:1": null, "fax:2": null}"#), 201);
    let claim = |gateway: &Gateway, leg: &str, position: u64| {
        let body = format!(r#"{{"leg": "{leg}", "position": {position}}}"#);
        gateway.curl("/talks/talk/claims", &["--json", &body]).0
    };
    // A leg that nothing listened to yet has no message to claim.
    assert_eq!(
        (gateway.say("ann", "before"), claim(&gateway, "fax:1", 0), claim(&gateway, "fax:3", 0)),
        (200, 409, 404)
    );
    let (one, mut to_one) = listen(&gateway, "?leg=fax:1", "x: y");
    let body = r#"{"name": "ben", "text": "heard", "leg": "fax:1", "id": "1"}"#;
    let texts = |events: &mut dyn Iterator<Item = Value>, count: usize| -> Vec<String> {
        events.take(count).map(|event| event["text"].as_str().unwrap().to_owned()).collect()
    };
    // The first event shows that the leg has its cursor.
    while gateway.json("/status")["talk"]["legs"]["fax:1"].is_null() {}
    assert_eq!((gateway.say("ann", "one"), gateway.curl("/talks/talk/messages", &["--json", body]).0), (200, 200));
    assert_eq!(gateway.say("ann", "two"), 200);
    // A leg is not told what came by it.
    assert_eq!(texts(&mut to_one, 2), ["one", "two"]);
    // Not claimed, and so told again; claimed by one of many, and never told again, whatever is killed.
    drop(one);
    let claims: Vec<_> = std::thread::scope(|scope| {
        let claims: Vec<_> = (0..8).map(|_| scope.spawn(|| claim(&gateway, "fax:1", 1))).collect();
        claims.into_iter().map(|claim| claim.join().unwrap()).collect()
    });
    assert_eq!((claims.iter().filter(|status| **status == 204).count(), claims.len()), (1, 8));
    gateway.process.0.kill().unwrap();
    drop(gateway);
    gateway = Gateway::start(folder.path(), &[]);
    let (_one, mut to_one) = listen(&gateway, "?leg=fax:1", "Last-Event-ID: 0");
    assert_eq!(texts(&mut to_one, 1), ["two"]);
    assert_eq!([1, 0, 3, 3].map(|position| claim(&gateway, "fax:1", position)), [409, 409, 204, 409]);
    assert_eq!(gateway.json("/status")["talk"]["end"], 4);
    // A leg that comes back begins anew.
    assert_eq!((gateway.put("talk", "{}"), gateway.put("talk", r#"{"fax:1": null}"#)), (204, 204));
    assert!(gateway.json("/status")["talk"]["legs"]["fax:1"].is_null());
    assert!(gateway.end());
}

#[test]
fn each_listener_reads_in_one_language() {
    if !has(&CURL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path(), &[]);
    assert_eq!(gateway.put("talk", r#"{"fax:de": "de", "fax:fr": "fr", "fax:xx": "xx", "fax:none": null}"#), 201);
    let legs = ["de", "fr", "xx", "none"];
    let mut listeners = legs.map(|leg| listen(&gateway, &format!("?leg=fax:{leg}"), "x: y"));
    while legs.iter().any(|leg| gateway.json("/status")["talk"]["legs"][&format!("fax:{leg}")].is_null()) {}
    let body = r#"{"name": "ann", "text": "Hello, world!", "language": "en"}"#;
    assert_eq!(gateway.curl("/talks/talk/messages", &["--json", body]).0, 200);
    let events = listeners.each_mut().map(|listener| listener.1.next().unwrap());
    let texts = ["Hallo, Welt!", "Bonjour, monde!", "Hello, world!", "Hello, world!"];
    assert_eq!(events.each_ref().map(|event| event["text"].as_str().unwrap()), texts);
    assert_eq!((&events[0]["original"], events[2].get("original")), (&Value::from("Hello, world!"), None));
    assert_eq!(gateway.archive(""), ["ann@web: Hello, world!"]);
    // By its own language, a leg says in which one it writes.
    let body = r#"{"name": "ben", "text": "danke", "leg": "fax:de"}"#;
    assert_eq!(gateway.curl("/talks/talk/messages", &["--json", body]).0, 200);
    assert_eq!(listeners[1].1.next().unwrap()["text"], "merci");
    let (_web, mut to_web) = listen(&gateway, "?language=fr", "x: y");
    assert_eq!(to_web.next().unwrap()["text"], "Bonjour, monde!");
}

#[test]
fn a_server_translates_and_may_fail() {
    if !has(&CURL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/translate", server.local_addr().unwrap());
    let gateway = Gateway::start(folder.path(), &["--translate-url", &url]);
    assert_eq!(gateway.put("talk", "{}"), 201);
    for text in ["one", "two", "three"] {
        let body = format!(r#"{{"name": "ann", "text": "{text}", "language": "en"}}"#);
        assert_eq!(gateway.curl("/talks/talk/messages", &["--json", &body]).0, 200);
    }
    let answering = std::thread::spawn(move || {
        // An answer, an error, and silence.
        for reply in [
            "HTTP/1.1 200 OK\r\ncontent-length: 25\r\n\r\n{\"translatedText\":\"eins\"}",
            "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
            "",
        ] {
            let (mut stream, _) = server.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.extend(byte);
            }
            let request = String::from_utf8(request).unwrap();
            assert!(request.contains(r#""q":"#) && request.contains(r#""source":"en","target":"de""#), "{request}");
            stream.write_all(reply.as_bytes()).unwrap();
            if reply.is_empty() {
                // Until the gateway gives up.
                let _ = stream.read(&mut [0]);
            }
        }
    });
    let (_web, events) = listen(&gateway, "?language=de", "x: y");
    let texts: Vec<Value> = events.take(3).map(|event| event["text"].clone()).collect();
    assert_eq!(texts, ["eins", "two", "three"]);
    answering.join().unwrap();
}

#[test]
fn a_client_that_comes_back_gets_what_it_missed() {
    if !has(&CURL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path(), &[]);
    assert_eq!(gateway.put("talk", "{}"), 201);
    for number in 0..60 {
        assert_eq!(gateway.say("ann", &format!("number {number}")), 200);
    }
    let (_first, mut ids) = listen(&gateway, "", "x: y");
    assert!(ids.by_ref().take(50).map(id).eq(10..60));
    let (_second, mut later) = listen(&gateway, "", "Last-Event-ID: 57");
    assert!(later.by_ref().take(2).map(id).eq(58..60));
    assert_eq!(gateway.say("ann", "now"), 200);
    assert_eq!((ids.next().map(id), later.next().map(id)), (Some(60), Some(60)));
    // They do not hold up the end.
    assert!(gateway.end());
    assert!(ids.next().is_none() && later.next().is_none());
}

#[test]
fn a_leg_that_is_behind_skips_nothing_when_it_connects_again() {
    if !has(&CURL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path(), &[]);
    assert_eq!(gateway.put("talk", r#"{"fax:x": null}"#), 201);
    let listener = listen(&gateway, "?leg=fax:x", "x: y");
    gateway.wait_for_leg("fax:x");
    drop(listener);
    let body = r#"{"name": "ann", "text": "hello"}"#;
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail-early", "--output", "/dev/null", "--json", body]);
    assert!(curl.arg(format!("{}/talks/talk/messages?[1-1100]", gateway.base)).status().unwrap().success());
    let (_again, ids) = listen(&gateway, "?leg=fax:x", "x: y");
    assert!(ids.take(1100).map(id).eq(0..1100));
}

#[test]
fn with_a_token_each_request_needs_it() {
    if !has(&CURL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "0123456789abcdef\n").unwrap();
    let gateway = Gateway::start(folder.path(), &["--token-file", &token.to_string_lossy()]);
    for path in ["/", "/chat.js", "/status", "/talks/talk", "/talks/talk/events"] {
        assert_eq!(gateway.curl(path, &[]).0, 401, "{path}");
        assert_eq!(gateway.curl(path, &["--user", "ann:0123456789abcdeX"]).0, 401, "{path}");
    }
    assert_eq!(gateway.curl("/", &["--user", "ann:0123456789abcdef", "--header", "Host: chat.example"]).0, 200);
    assert_eq!(gateway.curl("/", &["--header", "Authorization: Bearer 0123456789abcdef"]).0, 200);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanctio"));
    let open = command.args(["--listen", "0.0.0.0:0"]).output().unwrap();
    assert!(!open.status.success() && String::from_utf8_lossy(&open.stderr).contains("--token-file"));
}
