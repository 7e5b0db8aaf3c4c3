//! The program as its users meet it: its command line, and curl.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A running server, which ends with the test.
struct Server {
    child: Child,
    base: String,
}

impl Server {
    fn start(store: &Path) -> Server {
        let mut child = program(&["serve", "--listen", "127.0.0.1:0"], store).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let base = lines.find_map(|line| Some(line.unwrap().split_once("at ")?.1.trim_end_matches('/').to_owned()));
        Server { child, base: base.expect("the server says where it listens") }
    }

    /// The status and the body of a reply to curl, which follows redirects; asks again while the server is too busy.
    fn curl(&self, path: &str) -> (u16, String) {
        let begin = Instant::now();
        loop {
            let reply = self.curl_once(path);
            if reply.0 != 503 || begin.elapsed() > Duration::from_secs(60) {
                return reply;
            }
        }
    }

    fn curl_once(&self, path: &str) -> (u16, String) {
        let url = format!("{}{path}", self.base);
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--location", "--write-out", "\n%{http_code}", &url]);
        let text = String::from_utf8(curl.output().unwrap().stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), body.to_owned())
    }

    fn json(&self, path: &str) -> (u16, Value) {
        let (status, body) = self.curl(path);
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(args: &[&str], store: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_parallelisms"));
    command.args(args).arg(format!("--store=redb:{}", store.display()));
    command
}

/// Whether curl is there; tries to install it as root.
fn has_curl() -> bool {
    let is_there = || Command::new("curl").arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there() {
        let mut apt = Command::new("apt-get");
        let _ = apt.args(["install", "--yes", "--no-install-recommends", "curl"]).stdin(Stdio::null()).output();
    }
    let found = is_there();
    if !found {
        eprintln!("SKIPPED: curl is not there and cannot be installed; install it with `apt-get install curl`");
    }
    found
}

/// The text on standard error of a program that must fail with this exit code.
fn failure(output: Output, code: i32) -> String {
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

#[test]
fn the_sample_answers_which_packages_are_like_nginx() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("store"));
    let (status, answer) = server.json("/like/nginx?json");
    assert_eq!((status, &answer["package"]), (200, &Value::from("nginx")));
    let like = answer["like"].as_array().unwrap();
    let names: Vec<&str> = like.iter().map(|like| like["package"].as_str().unwrap()).collect();
    assert!(names.contains(&"lighttpd"), "{names:?}");
    let scores: Vec<f64> = like.iter().map(|like| like["score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b) && scores.iter().all(|score| (0.0..=1.0).contains(score)), "{scores:?}");
    let weights = |reason: &Value| reason["weight"].as_f64().unwrap();
    for like in like {
        let reasons = like["reasons"].as_array().unwrap();
        assert!(!reasons.is_empty() && reasons.is_sorted_by(|a, b| weights(a) >= weights(b)), "{like}");
    }
    // A rare category weighs more than a common one.
    let (_, rare) = server.json("/category/provides:httpd?json");
    assert!(rare["packages"].as_array().unwrap().contains(&Value::from("nginx")), "{rare}");

    let (status, start) = server.curl("/");
    assert!(status == 200 && start.contains("<form action=\"/like\">") && !start.contains("<script"), "{start}");
    let (status, page) = server.curl("/like?package=nginx");
    assert!(status == 200 && page.contains("<a href=\"/like/lighttpd\">lighttpd</a>"), "{page}");
    assert!(page.contains("<a href=\"/category/provides:httpd\">provides httpd</a>"), "{page}");
    let (status, page) = server.curl("/category/provides:httpd");
    assert!(status == 200 && page.contains("<a href=\"/like/nginx\">nginx</a>"), "{page}");
}

#[test]
fn names_that_no_package_has_are_answered_with_the_nearest() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("store"));
    let (status, answer) = server.json("/like/ngimx?json");
    assert_eq!((status, &answer["nearest"][0]), (404, &Value::from("nginx")));
    let (status, page) = server.curl("/like?package=ngimx");
    assert!(status == 404 && page.contains("<a href=\"/like/nginx\">nginx</a>"), "{page}");
    for hostile in ["/like/%3Cscript%3Ealert(1)", "/like?package=%3Cscript%3E/%22", "/category/%3Cscript%3E"] {
        let (status, page) = server.curl(hostile);
        assert!(status == 404 && !page.contains("<script"), "{hostile}: {page}");
    }
    let long = "a".repeat(8000);
    for path in [format!("/like/{long}"), format!("/like?package={long}"), format!("/category/{long}")] {
        assert_eq!(server.curl(&path).0, 404, "{}", &path[..20]);
    }
    assert_eq!(server.curl("/other").0, 404);
    assert_eq!(server.curl("/like/%FF").0, 400);
}

#[test]
fn lists_are_loaded_and_added_to() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (store, list) = (folder.path().join("store"), folder.path().join("list"));
    let tagged =
        |name: &str, tag: &str| format!("Package: {name}\nTag: {tag}\nDepends: libc6\nDescription: {name}!\n\n");
    std::fs::write(&list, tagged("one", "a::b") + &tagged("two", "a::b") + &tagged("three", "c::d")).unwrap();
    let output = program(&["load", list.to_str().unwrap()], &store).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("list: 3 packages\n3 packages in "), "{text}");

    let mut load = program(&["load", "-"], &store).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let many: String = (0..20_000).map(|number| tagged(&format!("p{number}"), "c::d")).collect();
    let more = tagged("two", "e::f") + &tagged("four", "e::f") + &many;
    load.stdin.take().unwrap().write_all(more.as_bytes()).unwrap();
    let mut text = String::new();
    load.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(load.wait().unwrap().success() && text.contains("20004 packages in "), "{text}");

    let server = Server::start(&store);
    let like = |name: &str| {
        let (_, answer) = server.json(&format!("/like/{name}?json"));
        let like = answer["like"].as_array().unwrap();
        like.iter().map(|like| like["package"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(like("two"), ["four", "one"], "the package has the tags of both lists");
    assert_eq!(like("three").len(), 20);
}

#[test]
fn mistakes_are_answered_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let (store, file) = (folder.path().join("store"), folder.path().join("file"));
    let run = |args: &[&str]| program(args, &store).output().unwrap();
    let missing = failure(run(&["load", "no-such-file"]), 1);
    assert!(missing.starts_with("parallelisms: cannot read no-such-file: No such file"), "{missing}");
    std::fs::write(&file, "\x04\x22\x4d\x18").unwrap();
    let compressed = failure(run(&["load", file.to_str().unwrap()]), 1);
    assert!(compressed.contains("apt-cache dumpavail | parallelisms load -"), "{compressed}");
    assert!(failure(run(&["serve", "--listne", "x"]), 2).contains("a similar argument exists: '--listen'"));
    assert!(failure(run(&["serve", "--listen", "nowhere"]), 2).contains("invalid socket address"));
    assert!(failure(run(&["load"]), 2).contains("<FILE>"));
    let url = Command::new(env!("CARGO_BIN_EXE_parallelisms")).args(["serve", "--store", "nowhere"]).output().unwrap();
    assert!(failure(url, 2).contains("a store is `redb:DIR`"));
    assert!(!store.exists(), "a mistake makes no store");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let text = failure(run(&["serve", "--listen", &address]), 1);
    assert!(text.contains(&format!("cannot listen on {address}")) && text.contains("--listen"), "{text}");
    let text = failure(program(&["serve", "--listen", "127.0.0.1:0"], &file).output().unwrap(), 1);
    assert!(text.contains("the store ") && text.contains("file"), "{text}");
    let help = run(&["--help"]);
    assert!(String::from_utf8(help.stdout).unwrap().contains("apt-cache dumpavail"));
}
