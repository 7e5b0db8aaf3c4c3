//! `examples/small_web_server.rs`, on Dapple's scheduler and on the one of
//! `examples/shared/scheduler.rs`.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::examples::{Example, PATIENCE, executable};

const SCHEDULERS: [&[&str]; 2] = [&[], &["--own-scheduler"]];

fn command(site: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(executable("small_web_server"));
    command.arg(site).args(["--port", "0", "--workers", "2"]).args(arguments);
    command
}

fn start(site: &Path, arguments: &[&str]) -> Example {
    Example::run("small_web_server", command(site, arguments))
}

fn site() -> TempDir {
    let site = tempfile::tempdir().unwrap();
    fs::create_dir_all(site.path().join("a/b")).unwrap();
    for (name, text) in [("index.html", "root"), ("a/b/index.html", "folder"), ("a/b/page.txt", "a page")] {
        fs::write(site.path().join(name), text).unwrap();
    }
    site
}

#[derive(Debug, PartialEq)]
struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// The next reply. `None` if the server has closed.
fn hear(stream: &mut BufReader<TcpStream>, has_body: bool) -> Option<Reply> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).unwrap() == 0 {
            assert_eq!(head, "");
            return None;
        }
    }
    let mut reply = Reply { status: head.split(' ').nth(1).unwrap().parse().unwrap(), head, body: Vec::new() };
    if has_body && reply.status != 304 {
        reply.body.resize(reply.field("content-length").expect("its length").parse().unwrap(), 0);
        stream.read_exact(&mut reply.body).unwrap();
    }
    Some(reply)
}

/// Sends one request on a new connection.
fn ask(server: &Example, target: &str, fields: &str) -> Reply {
    let mut stream = server.connect();
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes()).unwrap();
    hear(&mut BufReader::new(stream), true).expect("it answers")
}

#[test]
fn pages_are_served() {
    for scheduler in SCHEDULERS {
        let site = site();
        let large: Vec<u8> = (0..3_000_001_u32).map(|at| (at * 7 % 251) as u8).collect();
        fs::write(site.path().join("large"), &large).unwrap();
        let server = start(site.path(), scheduler);
        for _ in 0..2 {
            assert_eq!(ask(&server, "/", "").text(), "root");
            assert_eq!(ask(&server, "http://a/?query", "").text(), "root");
            assert_eq!(ask(&server, "/a/b/", "").text(), "folder");
            assert_eq!(ask(&server, "/a//b/p%61ge.txt", "").text(), "a page");
            assert!(ask(&server, "/large", "").body == large);
        }
        let moved = ask(&server, "//a/b?x", "");
        assert_eq!((moved.status, moved.field("location")), (301, Some("/a/b/")));
        let page = ask(&server, "/a/b/page.txt", "");
        assert_eq!(page.field("content-type"), Some("text/plain"));
        let tag = page.field("etag").unwrap();
        let date = page.field("last-modified").unwrap();
        for (fields, status) in [
            (format!("If-None-Match: \"x\", W/{tag}\r\n"), 304),
            ("If-None-Match: *\r\n".to_owned(), 304),
            (format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {date}\r\n"), 200),
            (format!("If-Modified-Since: {date}\r\n"), 304),
            ("If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n".to_owned(), 200),
        ] {
            assert_eq!(ask(&server, "/a/b/page.txt", &fields).status, status, "{fields}");
        }
    }
}

#[test]
fn a_page_that_changes_is_read_again() {
    let site = site();
    let server = start(site.path(), &[]);
    let tag = ask(&server, "/a/b/page.txt", "").field("etag").unwrap().to_owned();
    // The folder has changed, too.
    fs::rename(site.path().join("a"), site.path().join("old")).unwrap();
    fs::create_dir_all(site.path().join("a/b")).unwrap();
    fs::write(site.path().join("a/b/page.txt"), "a newer page").unwrap();
    let begin = Instant::now();
    while ask(&server, "/a/b/page.txt", "").text() != "a newer page" {
        assert!(begin.elapsed() < PATIENCE, "the old page stays");
        thread::yield_now();
    }
    assert_eq!(ask(&server, "/a/b/page.txt", &format!("If-None-Match: {tag}\r\n")).status, 200);
}

#[test]
fn requests_in_a_row_are_answered_in_order() {
    for scheduler in SCHEDULERS {
        let site = site();
        let server = start(site.path(), scheduler);
        let stream = server.connect();
        let mut requests = String::new();
        for number in 0..200 {
            let (method, target) = if number % 3 == 0 { ("HEAD", "/") } else { ("GET", "/a/b/page.txt") };
            let target = if number % 5 == 0 { "/missing" } else { target };
            write!(requests, "{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        }
        let mut writer = stream.try_clone().unwrap();
        writer.write_all(requests.as_bytes()).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
        let mut reader = BufReader::new(stream);
        for number in 0..200 {
            let reply = hear(&mut reader, number % 3 != 0).expect("an answer to each");
            assert_eq!(reply.status == 404, number % 5 == 0, "{number}: {reply:?}");
            assert!(number % 5 == 0 || number % 3 == 0 || reply.text() == "a page", "{number}: {reply:?}");
        }
        assert_eq!(hear(&mut reader, true), None);
    }
}

#[test]
fn no_path_leads_out_of_the_folder() {
    let (site, outside) = (site(), tempfile::tempdir().unwrap());
    fs::write(outside.path().join("secret"), "secret").unwrap();
    fs::write(site.path().join(".hidden"), "secret").unwrap();
    symlink(outside.path(), site.path().join("folder")).unwrap();
    symlink(outside.path().join("secret"), site.path().join("a/file")).unwrap();
    symlink("../index.html", site.path().join("a/up")).unwrap();
    symlink("page.txt", site.path().join("a/b/link")).unwrap();
    let name = outside.path().file_name().unwrap().to_str().unwrap();
    let server = start(site.path(), &[]);
    for target in [
        &format!("/../{name}/secret"),
        &format!("/a/../../{name}/secret"),
        &format!("/%2e%2e/{name}/secret"),
        &format!("/..%2f{name}%2fsecret"),
        &format!("/{}/secret", outside.path().display()),
        "/folder/secret",
        "/folder",
        "/a/file",
        "/a/up",
        "/.hidden",
        "/%2ehidden",
        "/index.html%00.txt",
        "/index.html/",
        "/a/b/page.txt/x",
    ] {
        let reply = ask(&server, target, "");
        assert_eq!((reply.status, reply.text()), (404, "404 Not Found\n"), "{target}");
    }
    assert_eq!(ask(&server, "/a/b/link", "").text(), "a page", "a link to the same folder");
}

#[test]
fn what_is_no_request_is_refused() {
    let site = site();
    let server = start(site.path(), &[]);
    let fields = "A: b\r\n".repeat(100);
    let long = "x".repeat(20_000);
    for (request, status) in [
        ("nonsense\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("GET / HTTP/3.1\r\nHost: a\r\n\r\n", 505),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", 501),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde", 413),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (&format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"), 431),
        (&format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"), 431),
        (&long, 431),
        ("GET / HTTP/1.0\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 200),
    ] {
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let reply = hear(&mut reader, true).unwrap_or_else(|| panic!("an answer to {request:.80}"));
        assert_eq!(reply.status, status, "{request:.80}");
        assert_eq!((reply.field("connection"), hear(&mut reader, true)), (Some("close"), None), "{request:.80}");
    }
    // One that arrives byte by byte, and one that ends halfway.
    let mut stream = server.connect();
    for byte in b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(hear(&mut BufReader::new(stream), true).unwrap().text(), "root");
    let mut stream = server.connect();
    stream.write_all(b"GET / HT").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(hear(&mut BufReader::new(stream), true), None);
}

/// Forty files of 100 KB in a cache of one MB, and eight clients: every body is checked, and the
/// server counts all of it.
#[test]
fn a_cache_that_is_too_small_and_numbers_at_the_end() {
    for scheduler in SCHEDULERS {
        let site = site();
        for number in 0..FILES {
            fs::write(site.path().join(number.to_string()), vec![number; 100_000]).unwrap();
        }
        let mut child =
            command(site.path(), &[scheduler, &["--cache-mb", "1"]].concat()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let addr = line.split(" listens on ").nth(1).and_then(|rest| rest.split(';').next()).unwrap();
        let server = Example { child, addr: addr.parse().unwrap() };
        thread::scope(|scope| {
            for client in 0..8 {
                let server = &server;
                scope.spawn(move || {
                    let mut stream = BufReader::new(server.connect());
                    for number in 0..FILES {
                        let number = (number + client * 5) % FILES;
                        write!(stream.get_mut(), "GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
                        let reply = hear(&mut stream, true).expect("it answers");
                        assert!(reply.body.len() == 100_000 && reply.body.iter().all(|byte| *byte == number));
                    }
                });
            }
        });
        assert_eq!(ask(&server, "/missing", "").status, 404);
        kill_process(Pid::from_child(&server.child), Signal::TERM).unwrap();
        let mut numbers = String::new();
        output.read_to_string(&mut numbers).unwrap();
        assert!(numbers.starts_with("Counts { connections: 9, requests: 321, from_cache: "), "{numbers}");
        assert!(numbers.contains(", errors: 1, bytes: 32"), "{numbers}");
    }
}

const FILES: u8 = 40;

#[test]
fn wrong_flags_are_said() {
    for (arguments, says) in [
        (&["--port", "x", "."][..], "--port takes a number"),
        (&[".", "--workers", "0"], "--workers takes a number from 1"),
        (&[".", "--fast"], "--fast is not an option"),
        (&[], "usage: small_web_server FOLDER"),
        (&["/no/such/folder", "--port", "0"], "cannot open /no/such/folder"),
    ] {
        let output = Command::new(executable("small_web_server")).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(says), "{arguments:?}: {text}");
    }
}
