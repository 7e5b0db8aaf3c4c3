//! Health checks of upstreams, and the log's account of answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use super::{number, start, start_with_numbers};
use crate::access_log::wait_for;
use crate::proxy::origin::Origin;
use crate::proxy::reply;
use crate::support::{Server, Site, dapple, eventually};

/// Answers checks with a status that can be changed, and requests with its name.
fn origin(name: &'static str) -> (Origin, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(200));
    let shown = status.clone();
    let origin = Origin::of(move |asked| match asked.target.as_str() {
        "/healthy?deep=1" => reply(&format!("{} X", shown.load(Ordering::Relaxed)), "", "x"),
        _ => reply("200 OK", "", name),
    });
    (origin, status)
}

#[test]
fn an_upstream_that_fails_its_checks_gets_no_requests() {
    let ((one, one_status), (two, two_status)) = (origin("one"), origin("two"));
    let to = format!("{},{}", one.url(""), two.url(""));
    let options = ["--health-path", "/healthy?deep=1", "--health-interval-s", "0.05", "--health-passes", "2"];
    let (proxy, metrics) = start_with_numbers(&to, &options);
    let is_in = |origin: &Origin| number(metrics, "dapple_upstream_in_service", &origin.url("")) == 1.0;
    let who = || proxy.get("/").text().to_owned();
    assert!(eventually(LIMIT, || who() == "one") && eventually(LIMIT, || who() == "two"), "both are asked");
    one_status.store(500, Ordering::Relaxed);
    assert!(eventually(LIMIT, || !is_in(&one)), "it is taken out of service");
    assert!((0..20).all(|_| who() == "two"));
    two_status.store(404, Ordering::Relaxed);
    assert!(eventually(LIMIT, || !is_in(&two)), "it is taken out of service");
    let none = proxy.get("/");
    assert!(none.status == 503 && none.header("retry-after").is_some(), "{}", none.status);
    one_status.store(302, Ordering::Relaxed);
    assert!(eventually(LIMIT, || is_in(&one)), "it is put into service");
    assert!((0..20).all(|_| who() == "one"));
    assert!(number(metrics, "dapple_upstream_checks_failed_total", &one.url("")) >= 3.0);
    let check = one.asked().into_iter().find(|asked| asked.target == "/healthy?deep=1").unwrap();
    assert_eq!(check.header("user-agent"), Some("dapple-health"));
}

#[test]
fn the_log_says_how_checks_failed() {
    let (origin, status) = origin("one");
    status.store(500, Ordering::Relaxed);
    let mut command = dapple();
    command.args(["proxy", "--port", "0", "--workers", "1", "--to", &origin.url("")]);
    command.args(["--health-path", "/healthy?deep=1", "--health-interval-s", "0.05"]);
    let mut proxy = Server::spawn_with_log(command);
    assert!(eventually(LIMIT, || proxy.get("/").status == 503), "it is taken out of service");
    proxy.signal(Signal::TERM);
    assert!(proxy.wait(LIMIT).unwrap().success());
    let log = proxy.log_to_end();
    assert!(log.contains("is out of service") && log.contains("a health check was answered with 500"), "{log}");
}

#[test]
fn the_access_log_names_the_upstream() {
    let (origin, _) = origin("one");
    let folder = Site::new();
    let log = folder.path.join("log");
    let options = ["--access-log", log.to_str().unwrap(), "--access-log-format", "json"];
    let proxy = start(&origin.url(""), &options);
    proxy.get("/x?y");
    let line = wait_for(&log, 1).remove(0);
    for part in
        [&format!("\"upstream\":\"{}\"", origin.url("")), "\"tries\":1", "\"upstream_us\":", "\"target\":\"/x?y\""]
    {
        assert!(line.contains(part), "{part} in {line}");
    }
}

/// A limit that only a bug reaches, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);
