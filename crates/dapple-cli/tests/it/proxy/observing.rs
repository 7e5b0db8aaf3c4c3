//! The proxy's reports about requests: the access log, and metrics.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::origin::Origin;
use super::{ask, get, reply};
use crate::access_log::wait_for;
use crate::metrics::{announced, page};
use crate::support::{Server, Site, eventually};

#[test]
fn each_request_has_a_line_with_its_whole_target() {
    let site = Site::new();
    let path = site.path.join("access.log");
    let origin = Origin::of(|_| reply("200 OK", "", "12345"));
    let mut proxy = Server::start_proxy(&["--access-log", path.to_str().unwrap()]);
    let url = origin.url("/a?b=1");
    assert_eq!(get(&proxy, &url, "User-Agent: it/1\r\n").status, 200);
    let line = wait_for(&path, 1).remove(0);
    assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
    assert!(line.ends_with(&format!("+0000] \"GET {url} HTTP/1.1\" 200 5 \"-\" \"it/1\"")), "{line}");
    // A refused request has a line too, even if it is not a valid request.
    assert_eq!(get(&proxy, "http://169.254.169.254/", "").status, 403);
    assert!(wait_for(&path, 2)[1].contains("\"GET http://169.254.169.254/ HTTP/1.1\" 403 "));
    proxy.connect().send("GET http://a/ HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n");
    assert!(wait_for(&path, 3)[2].contains("\"-\" 400 "));
    // A signal makes the proxy reopen the file.
    let old = path.with_extension("old");
    std::fs::rename(&path, &old).unwrap();
    proxy.signal(Signal::USR1);
    assert!(eventually(LIMIT, || path.exists()), "the file is there again");
    assert_eq!(get(&proxy, &url, "").status, 200);
    assert!(wait_for(&path, 1)[0].contains(&url));
    proxy.signal(Signal::TERM);
    assert_eq!(proxy.wait(LIMIT).expect("it stops").code(), Some(0));
    assert_eq!(wait_for(&old, 3).len(), 3);
}

#[test]
fn a_tunnel_has_a_line_when_it_ends() {
    let site = Site::new();
    let path = site.path.join("access.log");
    let answer = |_: &_| reply("200 OK", "", "12345");
    let origin = Origin::of(answer);
    let port = origin.port.to_string();
    let log = path.to_str().unwrap();
    let proxy = Server::start_proxy(&["--connect-port", &port, "--access-log", log, "--access-log-format", "json"]);
    let mut client = super::tunnels::connect(&proxy, origin.port);
    assert_eq!(client.get("/").text(), "12345");
    // The tunnel is open, and has no line yet; a later request has one.
    assert_eq!(ask(&proxy, "CONNECT", "127.0.0.1:1", "").status, 403);
    let refused: Value = serde_json::from_str(&wait_for(&path, 1)[0]).unwrap();
    assert_eq!((&refused["target"], &refused["status"]), (&"127.0.0.1:1".into(), &403.into()));
    client.end();
    assert_eq!(client.read_to_end().unwrap(), b"");
    let line: Value = serde_json::from_str(&wait_for(&path, 2)[1]).unwrap();
    let target = format!("127.0.0.1:{port}");
    assert_eq!((&line["method"], &line["target"]), (&"CONNECT".into(), &target.into()));
    assert_eq!((&line["status"], &line["complete"]), (&200.into(), &true.into()));
    let sent = reply("200 OK", "", "12345").len();
    assert_eq!(line["bytes"], sent);
}

#[test]
fn requests_and_tunnels_are_counted() {
    let origin = Origin::of(|asked| match asked.target.as_str() {
        "/kept" => reply("200 OK", "cache-control: max-age=60\r\n", "12345"),
        _ if asked.header("if-none-match").is_some() => reply("304 Not Modified", "etag: \"a\"\r\n", ""),
        _ => reply("200 OK", "cache-control: max-age=0\r\netag: \"a\"\r\n", "12345"),
    });
    let mut proxy = Server::start_proxy(&["--metrics", "127.0.0.1:0", "--connect-port", &origin.port.to_string()]);
    let metrics = announced(&mut proxy);
    assert_eq!(page(metrics).value("dapple_cache_entries"), 0.0);
    for _ in 0..3 {
        assert_eq!(get(&proxy, &origin.url("/kept"), "").status, 200);
    }
    for _ in 0..2 {
        assert_eq!(get(&proxy, &origin.url("/old"), "").status, 200);
    }
    assert_eq!(ask(&proxy, "POST", &origin.url("/post"), "content-length: 0\r\n").status, 200);
    assert_eq!(get(&proxy, "http://169.254.169.254/", "").status, 403);
    // No server listens there.
    assert_eq!(get(&proxy, "http://127.0.0.1:1/", "").status, 502);
    let _tunnel = super::tunnels::connect(&proxy, origin.port);

    let seen = || {
        let page = page(metrics);
        page.value("dapple_http_request_duration_seconds_count") >= 8.0 && page.value("dapple_cache_entries") == 2.0
    };
    assert!(eventually(LIMIT, seen));
    let page = page(metrics);
    for (sample, value) in [
        ("dapple_http_requests_total{method=\"GET\",code=\"2xx\"}", 5.0),
        ("dapple_http_requests_total{method=\"POST\",code=\"2xx\"}", 1.0),
        ("dapple_http_requests_total{method=\"GET\",code=\"4xx\"}", 1.0),
        ("dapple_http_requests_total{method=\"GET\",code=\"5xx\"}", 1.0),
        ("dapple_cache_hits_total", 2.0),
        ("dapple_cache_misses_total", 5.0),
        ("dapple_cache_revalidated_total", 1.0),
        ("dapple_cache_stale_total", 0.0),
        ("dapple_cache_passed_total", 1.0),
        ("dapple_cache_entries", 2.0),
        ("dapple_cache_evictions_total", 0.0),
        ("dapple_cache_fetches", 0.0),
        ("dapple_proxy_refused_total", 1.0),
        ("dapple_proxy_failed_total", 1.0),
        ("dapple_upstream_fetches_failed_total", 1.0),
        ("dapple_tunnels_open", 1.0),
        ("dapple_tunnels_total", 1.0),
        ("dapple_connections_total", 9.0),
        ("dapple_connections_refused_total{reason=\"stranger\"}", 0.0),
        ("dapple_connections_refused_total{reason=\"full\"}", 0.0),
    ] {
        assert_eq!(page.value(sample), value, "{sample}");
    }
    assert!(page.value("dapple_cache_bytes") > 10.0);
    // The tunnel's, and at least one kept for requests.
    assert!(page.value("dapple_upstream_connections_open") >= 2.0);
    assert!(page.value("dapple_upstream_connections_idle") >= 1.0);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(page.value(&format!("dapple_build_info{{version=\"{version}\",command=\"proxy\"}}")), 1.0);
    assert_eq!(get(&proxy, "/metrics", "").status, 400, "nowhere else");
}

#[test]
fn a_log_that_cannot_be_opened_is_reported_at_the_start() {
    let output = crate::support::dapple()
        .args(["proxy", "--port", "0", "--access-log", "/no/such/folder/log"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("cannot open the access log \"/no/such/folder/log\""), "{message}");
}

const LIMIT: Duration = Duration::from_secs(20);
