//! The program as its users meet it: its command line, and curl.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A running server, which ends with the test.
struct Server {
    child: Child,
    base: String,
}

/// A reply to curl.
#[derive(Debug)]
struct Reply {
    status: u16,
    etag: String,
    body: Value,
}

impl Server {
    fn start(args: &[&str], store: &Path) -> Server {
        let mut child = program(args, store).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let base = line.trim_end().strip_suffix('/').and_then(|line| line.rsplit_once(' '));
        let base = base.unwrap_or_else(|| panic!("the server says where it listens: {line}")).1.to_owned();
        Server { child, base }
    }

    /// The reply to curl; asks again while the server is too busy.
    fn curl(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Reply {
        let begin = Instant::now();
        loop {
            let reply = self.curl_once(method, path, headers, body);
            if reply.status != 503 || begin.elapsed() > Duration::from_secs(60) {
                return reply;
            }
        }
    }

    fn curl_once(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Reply {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--request", method, "--write-out", "\n%{http_code} %header{etag}"]);
        for header in headers {
            curl.args(["--header", header]);
        }
        if !body.is_empty() {
            curl.args(["--data-binary", body]);
        }
        let output = curl.arg(format!("{}{path}", self.base)).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, rest) = text.rsplit_once('\n').unwrap();
        let (status, etag) = rest.split_once(' ').unwrap();
        let body = if body.trim().is_empty() { Value::Null } else { serde_json::from_str(body).unwrap_or(body.into()) };
        Reply { status: status.parse().unwrap(), etag: etag.to_owned(), body }
    }

    fn get(&self, path: &str) -> Reply {
        self.curl("GET", path, &[], "")
    }

    fn status(&self, method: &str, path: &str, headers: &[&str], body: &str) -> u16 {
        self.curl(method, path, headers, body).status
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // By SIGKILL: an acknowledged change must survive that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(args: &[&str], store: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_preferences"));
    command.args(args).arg(format!("--store=redb:{}", store.display()));
    command
}

const ANY_PORT: [&str; 2] = ["--listen", "127.0.0.1:0"];
const NEW: [&str; 1] = ["If-None-Match: *"];

/// Whether curl is there, in a version that shows headers; tries to install it as root.
fn has_curl() -> bool {
    let version = || {
        let output = Command::new("curl").arg("--version").output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let mut numbers = text.split([' ', '.']).skip(1).map(|number| number.parse::<u32>().unwrap_or(0));
        Some((numbers.next()?, numbers.next()?))
    };
    if version().is_none() {
        let mut apt = Command::new("apt-get");
        let _ = apt.args(["install", "--yes", "--no-install-recommends", "curl"]).stdin(Stdio::null()).output();
    }
    let found = version().is_some_and(|version| version >= (7, 84));
    if !found {
        eprintln!("SKIPPED: curl 7.84 or newer is not there and cannot be installed: apt-get install curl");
    }
    found
}

#[test]
fn documents_have_versions() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&ANY_PORT, folder.path());
    assert_eq!(server.get("/users/ann").status, 404);
    let lost = server.curl("PUT", "/users/ann", &[], "{}");
    assert!(lost.status == 428 && lost.body["error"].as_str().unwrap().contains("If-Match"), "{lost:?}");
    let first = server.curl("PUT", "/users/ann", &NEW, r#"{"language": "de"}"#);
    assert_eq!(first.status, 204);
    let again = server.curl("PUT", "/users/ann", &NEW, "{}");
    assert_eq!((again.status, &again.etag), (412, &first.etag));
    let read = server.get("/users/ann");
    assert_eq!((read.status, &read.etag, &read.body), (200, &first.etag, &json!({"language": "de"})));
    let known = [format!("If-None-Match: \"x\", W/{}", first.etag)];
    assert_eq!(server.status("GET", "/users/ann", &[&known[0]], ""), 304);

    let matching = format!("If-Match: {}", first.etag);
    let second = server.curl("PUT", "/users/ann", &[&matching], r#"{"language": "fr", "pages": "short"}"#);
    assert!(second.status == 204 && second.etag != first.etag, "{second:?}");
    assert_eq!(server.status("PUT", "/users/ann", &[&matching], "{}"), 412);
    assert_eq!(server.status("DELETE", "/users/ann", &[&matching], ""), 412);
    assert_eq!(server.status("PUT", "/users/ann", &["If-Match: W/\"1\""], "{}"), 412);
    // A comma may be part of a tag.
    assert_eq!(server.status("PUT", "/users/ann", &[&format!("If-Match: \"x,{}", second.etag)], "{}"), 412);
    assert_eq!(server.status("GET", "/users/ann", &[&matching], ""), 412);
    let patched = server.curl("PATCH", "/users/ann", &[], r#"{"language": null, "size": 12}"#);
    assert_eq!(server.get("/users/ann").body, json!({"pages": "short", "size": 12}));
    assert_eq!(server.status("PATCH", "/users/ben", &[], r#"{"size": 1}"#), 204);

    // A removed document does not get an old tag again.
    assert_eq!(server.status("DELETE", "/users/ann", &[&format!("If-Match: {}", patched.etag)], ""), 204);
    assert_eq!(server.status("DELETE", "/users/ann", &["If-Match: *"], ""), 404);
    let new = server.curl("PUT", "/users/ann", &NEW, "{}");
    assert!(![&first.etag, &second.etag, &patched.etag].contains(&&new.etag), "{new:?}");

    // A kill of the process loses no acknowledged change.
    drop(server);
    let server = Server::start(&ANY_PORT, folder.path());
    assert_eq!(server.get("/users/ann").etag, new.etag);
    let names = server.get("/users").body;
    assert_eq!(names, json!({"names": ["ann", "ben"], "next": null}));
    assert_eq!(server.get("/users?after=ann").body["names"], json!(["ben"]));
}

#[test]
fn a_proxy_asks_for_the_preferences_at_a_device() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&ANY_PORT, folder.path());
    assert_eq!(server.get("/users/ann/for/phone").status, 404);
    assert_eq!(server.status("PUT", "/devices/phone", &NEW, r#"{"width": 320, "scripts": false}"#), 204);
    let anonymous = server.get("/users/ann/for/phone");
    assert_eq!((&anonymous.body["width"], &anonymous.body["height"]), (&json!(320), &json!(1024)));
    let user = r#"{"language": "de", "devices": {"phone": {"width": 300}}}"#;
    assert_eq!(server.status("PUT", "/users/ann", &NEW, user), 204);
    let ann = server.get("/users/ann/for/phone");
    assert_eq!((&ann.body["width"], &ann.body["language"]), (&json!(300), &json!("de")));
    assert!(ann.body.get("devices").is_none() && ann.etag != anonymous.etag, "{ann:?}");
    let known = format!("If-None-Match: {}", ann.etag);
    assert_eq!(server.status("GET", "/users/ann/for/phone", &[&known], ""), 304);
    // A change of either document changes the answer.
    assert_eq!(server.status("PATCH", "/devices/phone", &[], r#"{"color_bits": 8}"#), 204);
    assert_eq!(server.curl("GET", "/users/ann/for/phone", &[&known], "").body["color_bits"], 8);
}

#[test]
fn no_change_of_concurrent_clients_is_lost() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&ANY_PORT, folder.path());
    assert_eq!(server.status("PUT", "/users/ann", &NEW, r#"{"count": 0}"#), 204);
    let add = |patch: bool, name: usize| {
        for number in 0..10 {
            if patch {
                let patch = format!(r#"{{"of-{name}-{number}": true}}"#);
                assert_eq!(server.status("PATCH", "/users/ann", &[], &patch), 204);
                continue;
            }
            loop {
                let mut read = server.get("/users/ann");
                read.body["count"] = json!(read.body["count"].as_u64().unwrap() + 1);
                let matching = format!("If-Match: {}", read.etag);
                match server.status("PUT", "/users/ann", &[&matching], &read.body.to_string()) {
                    204 => break,
                    status => assert_eq!(status, 412),
                }
            }
        }
    };
    let add = &add;
    thread::scope(|scope| {
        for name in 0..6 {
            scope.spawn(move || add(name % 2 == 0, name));
        }
    });
    let all = server.get("/users/ann").body;
    assert_eq!((all["count"].as_u64(), all.as_object().unwrap().len()), (Some(30), 31), "{all}");
}

#[test]
fn harmful_requests_are_refused_with_a_sentence() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&ANY_PORT, folder.path());
    let refused = |path: &str, body: &str| {
        let reply = server.curl("PUT", path, &NEW, body);
        assert_eq!(reply.status, 422, "{reply:?}");
        reply.body["error"].as_str().unwrap().to_owned()
    };
    assert!(refused("/devices/phone", r#"{"widht": 1}"#).contains("unknown field `widht`"));
    assert!(refused("/users/ann", "[1]").contains("not a JSON object"));
    assert!(refused("/users/ann", &"[".repeat(50_000)).contains("recursion limit"));
    assert!(refused("/users/a%2Fb", "{}").contains("a name has letters"));
    assert!(refused(&format!("/users/{}", "a".repeat(300)), "{}").contains("at most 200 bytes"));
    let large = folder.path().join("large");
    std::fs::write(&large, format!("{{\"a\": \"{}\"}}", "a".repeat(100_000))).unwrap();
    assert_eq!(server.status("PUT", "/users/ann", &NEW, &format!("@{}", large.display())), 413);
    // Small patches do not add up to a large document either.
    let grow = |number: usize| {
        let patch = format!("{{\"m{number}\": \"{}\"}}", "a".repeat(30_000));
        std::fs::write(&large, patch).unwrap();
        server.status("PATCH", "/users/ann", &[], &format!("@{}", large.display()))
    };
    assert_eq!([grow(1), grow(2), grow(3)], [204, 204, 422]);
    assert_eq!(server.status("PUT", "/devices/a", &NEW, "\u{1}"), 422);
    assert_eq!((server.get("/other").status, server.get("/users/a/b/c").status), (400, 404));
    assert_eq!(server.get(&format!("/users/{}", "a".repeat(8000))).status, 404);
    assert_eq!(server.get(&format!("/users?after={}", "a".repeat(8000))).status, 404);
    assert_eq!(server.get("/devices").body["names"], json!([]));
    assert!(server.get("/").body.as_str().unwrap().contains("merge patch"));
}

#[test]
fn a_token_keeps_strangers_out() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (store, file) = (folder.path().join("store"), folder.path().join("token"));
    let failure = |args: &[&str]| {
        let output = program(args, &store).output().unwrap();
        assert!(!output.status.success() && !store.exists());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(failure(&["--listen", "0.0.0.0:0"]).contains("can be reached from other machines"));
    let path = file.to_str().unwrap();
    assert!(failure(&["--token-file", path]).contains("cannot read"));
    std::fs::write(&file, "short\n").unwrap();
    assert!(failure(&["--token-file", path]).contains("less than 16 letters"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(failure(&["--listen", &taken.local_addr().unwrap().to_string()]).contains("choose another address"));

    std::fs::write(&file, "0123456789abcdef\n").unwrap();
    let server = Server::start(&["--listen", "127.0.0.1:0", "--token-file", path], &store);
    for header in ["X: y", "Authorization: Bearer 0123456789abcdeX", "Authorization: 0123456789abcdef"] {
        assert_eq!(server.status("GET", "/users", &[header], ""), 401, "{header}");
    }
    assert_eq!(server.status("GET", "/users", &["Authorization: Bearer 0123456789abcdef"], ""), 200);
}
