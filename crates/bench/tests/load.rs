//! The load generator against a small server with right, wrong, late and missing answers.

mod properties;
#[path = "../../../fuzz/replay.rs"]
mod replay;

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The server's action for the request of that number on a connection, for that path; false ends
/// the connection.
type Answer = fn(&mut TcpStream, &str, usize) -> bool;

/// Serves until the test's process ends; returns the port.
fn serve(answer: Answer) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("it listens").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || connection(stream, answer));
        }
    });
    port
}

fn connection(mut stream: TcpStream, answer: Answer) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    for number in 0.. {
        let request = lines.next()?.ok()?;
        while !lines.next()?.ok()?.is_empty() {}
        let path = request.split(' ').nth(1).expect("a path");
        if !answer(&mut stream, path, number) {
            return None;
        }
    }
    None
}

fn reply(stream: &mut TcpStream, body: &str) -> bool {
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).is_ok()
}

/// The body for a path.
fn body_of(path: &str) -> String {
    format!("this is {path}").repeat(100)
}

fn right(stream: &mut TcpStream, path: &str, _: usize) -> bool {
    reply(stream, &body_of(path))
}

/// A folder with some expected files.
fn expected() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a", "b", "c"] {
        std::fs::write(folder.path().join(name), body_of(&format!("/{name}"))).expect("a file");
    }
    folder
}

fn load(port: u16, args: &[&str]) -> Output {
    let folder = expected();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.arg("load").arg(format!("http://127.0.0.1:{port}")).arg("--expect").arg(folder.path());
    command.arg("--json").args(args);
    let is_given = |flag: &str| args.contains(&flag) || flag.contains("secs") && args.contains(&"--total");
    for (flag, value) in [("--secs", "0.4"), ("--warm-up-secs", "0.2"), ("--connections", "8")] {
        if !is_given(flag) {
            command.args([flag, value]);
        }
    }
    command.output().expect("the bench can be started")
}

/// The summary of a load, whether the command succeeded, and its errors.
fn summary(port: u16, args: &[&str]) -> (Value, bool, String) {
    let output = load(port, args);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let summary = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("one line of JSON: {errors}"));
    (summary, output.status.success(), errors)
}

fn number(summary: &Value, field: &str) -> f64 {
    summary[field].as_f64().unwrap_or_else(|| panic!("{field} is a number: {summary}"))
}

#[test]
fn every_body_is_compared_in_a_closed_loop() {
    let (summary, passed, errors) = summary(serve(right), &["--workers", "2"]);
    assert!(passed && number(&summary, "requests") > 8.0, "{summary} {errors}");
    assert_eq!(summary["requests"], summary["compared"]);
    assert!(number(&summary, "p50_ms") <= number(&summary, "p99_ms"), "{summary}");
    assert!(number(&summary, "p999_ms") <= number(&summary, "max_ms"), "{summary}");
    assert!((0.0..=1.0).contains(&number(&summary, "jain")), "{summary}");
    assert_eq!(summary["connects"], 0, "all were made before: {summary}");
}

#[test]
fn so_many_requests_a_connection() {
    let (fives, passed, errors) = summary(serve(right), &["--requests", "5"]);
    assert!(passed, "{errors}");
    // The requests of 8 connections may have been counted on one side only.
    let ratio = number(&fives, "requests") - 5.0 * number(&fives, "connects");
    assert!(ratio.abs() <= 8.0 * 5.0, "{fives}");
    let (each, passed, errors) = summary(serve(right), &["--close"]);
    assert!(passed, "{errors}");
    assert!((number(&each, "requests") - number(&each, "connects")).abs() <= 8.0, "{each}");
}

#[test]
fn a_number_of_requests_is_asked_exactly() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let port = serve(|stream, path, _| {
        ASKED.fetch_add(1, Ordering::Relaxed);
        reply(stream, &body_of(path))
    });
    let args = ["--connections", "7", "--requests", "3", "--workers", "2", "--total", "1000"];
    let (summary, passed, errors) = summary(port, &args);
    assert!(passed, "{errors}");
    assert_eq!((number(&summary, "requests"), number(&summary, "compared")), (1_000.0, 1_000.0), "{summary}");
    assert_eq!(ASKED.load(Ordering::Relaxed), 1_000);
}

#[test]
fn clients_that_read_nothing_stay_until_the_end() {
    const STALLED: [&str; 4] = ["--stalled", "5", "--stalled-path", "/large"];
    let port = serve(|stream, path, _| match path {
        // As much as the kernel takes.
        "/large" => {
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 64000000\r\n\r\n{}", "x".repeat(64_000_000)).is_ok()
        }
        path => reply(stream, &body_of(path)),
    });
    let (kept, passed, errors) = summary(port, &STALLED);
    assert!(passed && number(&kept, "requests") > 8.0, "{kept} {errors}");
    let ends = serve(|stream, path, _| path != "/large" && reply(stream, &body_of(path)));
    let ended = load(ends, &STALLED);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && errors.contains("stalled client 0 of 5"), "{errors}");
    let cuts = serve(|stream, path, _| match path {
        "/large" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
            false
        }
        path => reply(stream, &body_of(path)),
    });
    let cut = load(cuts, &STALLED);
    let errors = String::from_utf8_lossy(&cut.stderr);
    assert!(!cut.status.success() && errors.contains("of 5 stalled clients 5 have no answer"), "{errors}");
    // A short answer over a connection that is kept.
    let short = load(serve(right), &STALLED);
    let errors = String::from_utf8_lossy(&short.stderr);
    assert!(!short.status.success() && errors.contains("ask for a larger file"), "{errors}");
}

#[test]
fn an_open_loop_counts_from_when_a_request_was_due() {
    // One at a time and 20 ms each, while 100 a second are due over one connection: they wait
    // longer and longer.
    let slow: Answer = |stream, path, _| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        reply(stream, &body_of(path))
    };
    let args = ["--connections", "1", "--rate", "100", "--constant", "--secs", "1"];
    let (open, passed, errors) = summary(serve(slow), &args);
    assert!(passed, "{errors}");
    assert!(number(&open, "max_ms") > 300.0, "half of what was due in a second is still to be sent: {open}");
    let (closed, ..) = summary(serve(slow), &["--connections", "1"]);
    assert!(number(&closed, "p50_ms") < number(&open, "p90_ms"), "{closed} {open}");
}

#[test]
fn a_wrong_body_is_noticed() {
    let sometimes: Answer = |stream, path, number| {
        let body = body_of(path);
        reply(stream, &if number % 10 == 9 { body.replace("this", "thAs") } else { body })
    };
    let (summary, passed, errors) = summary(serve(sometimes), &[]);
    assert!(!passed && errors.contains("requests failed"), "{errors}");
    assert!(number(&summary["errors"], "wrong-body") > 0.0 && number(&summary, "requests") > 0.0, "{summary}");
    let other_file: Answer = |stream, path, _| reply(stream, &body_of(if path == "/a" { "/b" } else { path }));
    let (summary, passed, _) = self::summary(serve(other_file), &[]);
    assert!(!passed && number(&summary["errors"], "wrong-body") > 0.0, "{summary}");
}

#[test]
fn servers_that_stall_reset_end_or_refuse_are_errors_by_kind() {
    let stall: Answer = |stream, path, number| {
        if number == 3 {
            std::thread::sleep(std::time::Duration::from_secs(3_600));
        }
        reply(stream, &body_of(path))
    };
    let end: Answer = |stream, path, number| {
        let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\nthis", body_of(path).len());
        number == usize::MAX
    };
    let reset: Answer = |stream, _, _| {
        socket2::SockRef::from(&*stream).set_linger(Some(std::time::Duration::ZERO)).expect("it can be told so");
        false
    };
    let status: Answer = |stream, _, _| write!(stream, "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n").is_ok();
    let garbage: Answer = |stream, _, _| write!(stream, "220 smtp.example.org\r\n\r\n").is_ok();
    for (answer, kind) in
        [(stall, "timeout"), (end, "ended-early"), (reset, "reset"), (status, "status-503"), (garbage, "malformed")]
    {
        let (summary, passed, errors) = summary(serve(answer), &["--timeout-ms", "200"]);
        assert!(!passed, "{kind}: {errors}");
        assert!(number(&summary["errors"], kind) > 0.0, "{kind}: {summary}");
        assert!(summary["error_example"].is_string(), "{kind}: {summary}");
    }
}

#[test]
fn a_client_that_gets_nothing_is_starved() {
    let only_some: Answer = |stream, path, _| {
        // Connections come from one address after the other.
        let std::net::IpAddr::V4(from) = stream.peer_addr().expect("it has one").ip() else { return false };
        if from.octets()[3] % 2 == 0 {
            std::thread::sleep(std::time::Duration::from_secs(3_600));
        }
        reply(stream, &body_of(path))
    };
    let (summary, ..) = summary(serve(only_some), &["--connections", "60"]);
    let starved = number(&summary, "starved");
    assert!(starved > 0.0 && starved < 60.0, "{summary}");
    assert!(number(&summary, "jain") < 0.99 && summary["waiting"].as_u64() >= Some(starved as u64), "{summary}");
    assert!(number(&summary, "waiting_max_ms") > 300.0, "{summary}");
}

#[test]
fn what_cannot_work_is_said_before_it_begins() {
    let fails = |output: Output, named: &str| {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(named), "{named}: {errors}");
    };
    let closed = {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        listener.local_addr().expect("it listens").port()
    };
    fails(load(closed, &[]), "is the server running, and is this its port?");
    fails(load(closed, &["--connections", "1000000"]), "raise `ulimit -n`");
    fails(load(closed, &["--secs", "0"]), "--secs 0 makes no sense");
    fails(load(closed, &["--rate", "0"]), "--rate 0 makes no sense");
    fails(load(closed, &["--urls", "/no/such/file"]), "cannot read /no/such/file");
    fails(load(closed, &["--cores", "99999"]), "there is no core 99999");
    fails(load(closed, &["https:/x"]), "write http://HOST:PORT");
}
