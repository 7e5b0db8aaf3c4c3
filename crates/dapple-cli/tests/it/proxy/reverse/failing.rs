//! Upstreams that die, stall and come back.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{number, start, start_with_numbers};
use crate::proxy::origin::Origin;
use crate::proxy::reply;
use crate::support::{Client, Server, Site, dapple, eventually};
use crate::tls::Certificate;

/// A port on which no server listens.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// `dapple serve` on this port.
fn site(site: &Site, port: u16) -> Server {
    let mut command = dapple();
    command.arg("serve").arg(&site.path).args(["--workers", "1", "--port", &port.to_string()]);
    Server::spawn(command)
}

#[test]
fn killing_an_upstream_under_load_costs_no_get() {
    let (one, two) = (Site::new(), Site::new());
    one.write("index.html", "page");
    two.write("index.html", "page");
    let (mut first, second) = (site(&one, 0), site(&two, 0));
    let to = format!("http://127.0.0.1:{},http://127.0.0.1:{}", first.port, second.port);
    // A large budget: each client may meet the upstream that dies.
    let (proxy, metrics) = start_with_numbers(&to, &["--retry-percent", "100"]);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let name = format!("http://127.0.0.1:{}", first.port);
    let in_service = || number(metrics, "dapple_upstream_in_service", &name) == 1.0;
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = proxy.connect();
                while !stop.load(Ordering::Relaxed) {
                    let response = client.get("/");
                    assert_eq!((response.status, response.text()), (200, "page"));
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let more = |count| {
            let seen = done.load(Ordering::Relaxed);
            assert!(eventually(LIMIT, || done.load(Ordering::Relaxed) > seen + count), "the load runs");
        };
        more(200);
        first.child.kill().unwrap();
        first.child.wait().unwrap();
        assert!(eventually(LIMIT, || !in_service()), "it is taken out of service");
        more(200);
        // It comes back on the same port, and is found again.
        let again = site(&one, first.port);
        assert!(eventually(LIMIT, in_service), "it rejoins");
        let before = number(metrics, "dapple_upstream_responses_total", &name);
        assert!(eventually(LIMIT, || number(metrics, "dapple_upstream_responses_total", &name) > before + 20.0));
        stop.store(true, Ordering::Relaxed);
        drop(again);
    });
    assert!(number(metrics, "dapple_upstream_outs_total", &name) >= 1.0);
}

/// An origin that ends each connection after a request.
fn breaks() -> Origin {
    Origin::start(|_, _| false)
}

#[test]
fn only_safe_requests_are_repeated() {
    let broken = breaks();
    let good = Origin::of(|asked| reply("200 OK", "", &String::from_utf8_lossy(&asked.body)));
    let to = format!("{},{}", broken.url(""), good.url(""));
    let proxy = start(&to, &["--fail-after", "1000", "--retry-percent", "100"]);
    // Also with a body that is kept.
    for index in 0..20 {
        let mut client = proxy.connect();
        assert_eq!(client.get("/").status, 200);
        client.send(format!("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n{:04}", index));
        assert_eq!(client.read_response().text(), format!("{index:04}"));
    }
    assert!(broken.asked().iter().any(|asked| asked.method == "PUT" && asked.body.len() == 4));
    let (mut failed, mut answered) = (0, 0);
    for _ in 0..40 {
        let mut client = proxy.connect();
        client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nonce");
        match client.read_response().status {
            200 => answered += 1,
            502 => failed += 1,
            other => panic!("{other}"),
        }
    }
    let posts = |origin: &Origin| origin.asked().iter().filter(|asked| asked.method == "POST").count();
    assert_eq!((posts(&broken), posts(&good)), (failed, answered), "each was made once");
    assert!(failed > 0, "some met the upstream that breaks");
}

#[test]
fn an_unsent_request_may_go_elsewhere_whatever_its_method() {
    let good = Origin::of(|asked| reply("200 OK", "", &String::from_utf8_lossy(&asked.body)));
    let to = format!("http://127.0.0.1:{},{}", free_port(), good.url(""));
    let proxy = start(&to, &["--retry-percent", "100"]);
    for _ in 0..20 {
        let mut client = proxy.connect();
        client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nonce");
        assert_eq!(client.read_response().text(), "once");
    }
}

#[test]
fn a_body_too_long_to_be_kept_is_not_sent_twice() {
    let broken = Origin::start(|_, _| false);
    let good = Origin::of(|_| reply("200 OK", "", "good"));
    let to = format!("{},{}", broken.url(""), good.url(""));
    let proxy = start(&to, &["--fail-after", "1000", "--retry-percent", "100"]);
    let body = "x".repeat(1 << 20);
    let mut statuses = Vec::new();
    while !(statuses.contains(&200) && statuses.contains(&502)) {
        let mut client = proxy.connect();
        client.send(format!("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        statuses.push(client.read_response().status);
        assert!(statuses.len() < 200, "{statuses:?}");
    }
    assert_eq!(broken.count() + good.count(), statuses.len(), "each was made once");
}

#[test]
fn retries_are_bounded() {
    let (one, two, three) = (breaks(), breaks(), breaks());
    let to = format!("{},{},{}", one.url(""), two.url(""), three.url(""));
    let count = || one.count() + two.count() + three.count();
    let proxy = start(&to, &["--fail-after", "1000", "--retries", "1"]);
    assert_eq!((proxy.get("/").status, count()), (502, 2));
    let proxy = start(&to, &["--fail-after", "1000", "--retries", "0"]);
    assert_eq!((proxy.get("/").status, count()), (502, 3));
    // The budget: a few at the start, and 5 for each 100.
    let proxy = start(&to, &["--fail-after", "1000", "--retry-percent", "5"]);
    let before = count();
    for _ in 0..100 {
        assert_eq!(proxy.get("/").status, 502);
    }
    let more = count() - before - 100;
    assert!((1..=30).contains(&more), "{more} retries");
}

#[test]
fn with_all_upstreams_out_clients_are_told_when_to_retry() {
    let port = free_port();
    let (proxy, metrics) = start_with_numbers(&format!("http://127.0.0.1:{port}"), &["--fail-after", "2"]);
    let first = proxy.get("/");
    assert_eq!((first.status, first.header("proxy-status")), (502, Some("dapple; error=connection_refused")));
    assert!(!first.text().contains(&port.to_string()), "{}", first.text());
    let mut last = None;
    assert!(eventually(LIMIT, || {
        let response = proxy.get("/");
        let is_out = response.status == 503;
        last = Some(response);
        is_out
    }));
    let last = last.unwrap();
    let seconds: u64 = last.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&seconds), "{seconds}");
    assert_eq!(number(metrics, "dapple_upstream_in_service", &format!("http://127.0.0.1:{port}")), 0.0);
    // As soon as a server listens there, it is found.
    let site = Site::with_index();
    let _server = self::site(&site, port);
    assert!(eventually(LIMIT, || proxy.get("/").status == 200));
}

/// A server that gives the same HTTP/1.1 answer to any input.
fn deaf() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    port
}

#[test]
fn the_log_has_the_reason_of_a_failure_and_clients_get_its_kind() {
    let (site, secrets) = (Site::with_index(), Site::new());
    let certificate = Certificate::make(&secrets, "a", "localhost");
    let encrypted = Server::start(&site.path, &certificate.options());
    let (free, deaf) = (free_port(), deaf());
    for (to, kind, reason) in [
        (format!("http://127.0.0.1:{free}"), "connection_refused", "cannot connect to it: "),
        ("http://nowhere.invalid".to_owned(), "dns_error", "its name could not be looked up: "),
        (
            format!("https://localhost:{}", encrypted.port),
            "tls_certificate_error",
            "its certificate is not accepted: the TLS handshake failed: invalid peer certificate",
        ),
        (
            format!("https://127.0.0.1:{deaf}"),
            "tls_protocol_error",
            "the TLS handshake failed: the TLS handshake failed",
        ),
        (
            format!("h2c://127.0.0.1:{deaf}"),
            "http_response_incomplete",
            "the connection ended before there was a response: ",
        ),
    ] {
        let mut command = dapple();
        command.args(["proxy", "--port", "0", "--workers", "1", "--fail-after", "1", "--to", &to]);
        let mut proxy = Server::spawn_with_log(command);
        let response = proxy.get("/");
        let shown = (response.status, response.header("proxy-status").map(str::to_owned));
        assert_eq!(shown, (502, Some(format!("dapple; error={kind}"))), "{to}");
        proxy.signal(Signal::TERM);
        assert!(proxy.wait(LIMIT).unwrap().success());
        let log = proxy.log_to_end();
        let is_said = |line: &str| line.contains("is out of service") && line.contains(reason) && line.contains(&to);
        assert!(log.lines().any(is_said), "{to}: {log}");
    }
}

#[test]
fn a_silent_upstream_is_a_timeout() {
    let silent = Origin::start(|asked, stream| {
        if asked.target == "/body" {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello").unwrap();
        }
        thread::sleep(Duration::from_secs(60));
        false
    });
    let other = Origin::of(|_| reply("200 OK", "", "other"));
    // After the client has waited, no other upstream is tried.
    let proxy = start(&silent.url(""), &["--response-timeout-s", "1"]);
    let begin = Instant::now();
    let late = proxy.get("/head");
    assert_eq!((late.status, late.header("proxy-status")), (504, Some("dapple; error=http_response_timeout")));
    let mut client = proxy.connect();
    client.send("GET /body HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!(client.read_head().header("content-length"), Some("10"));
    assert!(client.read_to_end().unwrap_or_default().len() < 10);
    assert!(begin.elapsed() < LIMIT);
    assert_eq!(other.count(), 0);
}

#[test]
fn a_client_that_stops_does_not_count_against_its_upstream() {
    let origin = Origin::of(|_| reply("200 OK", "", "x"));
    let proxy = start(&origin.url(""), &["--response-timeout-s", "1", "--fail-after", "1"]);
    let mut client = proxy.connect();
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello");
    assert_eq!(client.read_response().status, 408);
    let mut gone = proxy.connect();
    gone.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello");
    gone.end();
    assert_eq!(gone.read_response().status, 400);
    assert_eq!(proxy.get("/").status, 200, "it is in");
    assert!(origin.asked().iter().all(|asked| asked.method == "GET"), "no half body looked complete");
}

#[test]
fn a_slow_upstream_gets_less() {
    let slow = Origin::of(|_| {
        thread::sleep(Duration::from_millis(200));
        reply("200 OK", "", "slow")
    });
    let fast = Origin::of(|_| reply("200 OK", "", "fast"));
    let proxy = start(&format!("{},{}", slow.url(""), fast.url("")), &[]);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = proxy.connect();
                for _ in 0..50 {
                    assert_eq!(client.get("/").status, 200);
                }
            });
        }
    });
    assert!(slow.count() < fast.count() / 4, "{} and {}", slow.count(), fast.count());
}

#[test]
fn connections_kept_too_long_cost_no_request() {
    // Closes each connection a moment after its response, without an announcement.
    let origin = Origin::start(|_, stream| {
        stream.write_all(&reply("200 OK", "", "x")).unwrap();
        thread::sleep(Duration::from_millis(1));
        false
    });
    let proxy = start(&origin.url(""), &["--fail-after", "1"]);
    let mut client = proxy.connect();
    for _ in 0..200 {
        assert_eq!(client.get("/").status, 200);
    }
}

#[test]
fn connections_to_an_upstream_are_bounded() {
    let (open, most) = (AtomicU64::new(0), AtomicU64::new(0));
    let (open, most): (&'static AtomicU64, &'static AtomicU64) = (Box::leak(Box::new(open)), Box::leak(Box::new(most)));
    let origin = Origin::start(move |_, stream| {
        let now = open.fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(now, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(20));
        open.fetch_sub(1, Ordering::SeqCst);
        stream.write_all(&reply("200 OK", "", "x")).is_ok()
    });
    let (proxy, metrics) = start_with_numbers(&origin.url(""), &["--upstream-connections", "3"]);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut client = proxy.connect();
                for _ in 0..20 {
                    assert_eq!(client.get("/").status, 200, "the waiting request is served");
                }
            });
        }
    });
    assert!(most.load(Ordering::SeqCst) <= 3, "{most:?}");
    let name = format!("http://127.0.0.1:{}", origin.port);
    assert!(number(metrics, "dapple_upstream_connections_open", &name) <= 3.0);
    // More requests than may wait are refused.
    let proxy = start(&origin.url(""), &["--upstream-connections", "1"]);
    let mut clients: Vec<Client> = (0..200).map(|_| proxy.connect()).collect();
    clients.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.read_response().status).collect();
    let served = statuses.iter().filter(|status| **status == 200).count();
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    assert!((100..200).contains(&served), "{served}");
}

#[test]
fn kept_connections_end_after_their_time() {
    let origin = Origin::of(|_| reply("200 OK", "", "x"));
    let (proxy, metrics) = start_with_numbers(&origin.url(""), &["--upstream-idle-s", "0.3"]);
    assert_eq!(proxy.get("/").status, 200);
    let name = format!("http://127.0.0.1:{}", origin.port);
    assert!(eventually(LIMIT, || number(metrics, "dapple_upstream_connections_open", &name) == 0.0));
    assert_eq!(proxy.get("/").status, 200);
    assert!(origin.asked().iter().map(|asked| asked.connection).eq([0, 1]));
    assert!(TcpStream::connect(("127.0.0.1", proxy.port)).is_ok());
}

/// A limit that only a bug reaches, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);
