//! The metrics address, read by a parser as strict as Prometheus's own.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

use crate::support::{Client, Response, Server, Site, eventually};

/// Starts a server, and returns the port of its metrics.
fn measured(site: &Site, options: &[&str]) -> (Server, u16) {
    let mut all = vec!["--metrics", "127.0.0.1:0"];
    all.extend(options);
    let mut server = Server::start(&site.path, &all);
    let port = announced(&mut server);
    (server, port)
}

/// The metrics port of a server that just started.
pub(crate) fn announced(server: &mut Server) -> u16 {
    let mut line = String::new();
    server.stdout.read_line(&mut line).unwrap();
    let port =
        line.trim().strip_prefix("dapple: metrics on http://127.0.0.1:").and_then(|rest| rest.strip_suffix("/metrics"));
    port.unwrap_or_else(|| panic!("no address in {line:?}")).parse().unwrap()
}

pub(crate) fn page(port: u16) -> Page {
    let response = Client::connect(("127.0.0.1", port)).get("/metrics");
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    Page::parse(response.text()).unwrap_or_else(|problem| panic!("{problem} in\n{}", response.text()))
}

/// All samples, by name and labels as written.
pub(crate) struct Page(BTreeMap<String, f64>);

impl Page {
    pub(crate) fn value(&self, sample: &str) -> f64 {
        *self.0.get(sample).unwrap_or_else(|| panic!("no {sample} in {:#?}", self.0))
    }

    /// Parses text format 0.0.4: each family once, its HELP and TYPE before its samples, which
    /// follow at once; names and labels well-formed, no sample twice, counters named so, histograms
    /// cumulative and whole.
    fn parse(text: &str) -> Result<Page, String> {
        if !text.ends_with('\n') {
            return Err("the last line has no end".to_owned());
        }
        let mut samples = BTreeMap::new();
        let mut families: BTreeSet<String> = BTreeSet::new();
        let (mut family, mut kind) = (String::new(), String::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').ok_or_else(|| format!("no help: {line}"))?;
                if help.is_empty() || !is_name(name) || !families.insert(name.to_owned()) {
                    return Err(format!("a bad or second family: {line}"));
                }
                (family, kind) = (name.to_owned(), String::new());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, of) = rest.split_once(' ').ok_or_else(|| format!("no type: {line}"))?;
                let is_known = ["counter", "gauge", "histogram"].contains(&of);
                if name != family || !kind.is_empty() || !is_known || (of == "counter") != name.ends_with("_total") {
                    return Err(format!("a bad type: {line}"));
                }
                kind = of.to_owned();
            } else {
                let (sample, value) = line.rsplit_once(' ').ok_or_else(|| format!("no value: {line}"))?;
                let (name, labels) = sample.split_once('{').map_or((sample, None), |(name, rest)| (name, Some(rest)));
                let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
                if kind.is_empty() || !suffixes.iter().any(|suffix| name == format!("{family}{suffix}")) {
                    return Err(format!("outside of its family {family}: {line}"));
                }
                labels.map_or(Ok(()), check_labels)?;
                let value: f64 = value.parse().map_err(|_| format!("no number: {line}"))?;
                if samples.insert(sample.to_owned(), value).is_some() || value.is_nan() || value < 0.0 {
                    return Err(format!("twice, or below 0: {line}"));
                }
            }
        }
        let page = Page(samples);
        page.check_histograms(text)?;
        Ok(page)
    }

    fn check_histograms(&self, text: &str) -> Result<(), String> {
        for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" histogram")) {
            let (mut bound, mut count) = (0.0, 0.0);
            for line in text.lines() {
                let Some(rest) = line.strip_prefix(&format!("{name}_bucket{{le=\"")) else { continue };
                let (le, value) = rest.split_once("\"} ").ok_or_else(|| format!("a bad bucket: {line}"))?;
                let (le, value): (f64, f64) = (le.parse().unwrap(), value.parse().unwrap());
                if le <= bound || value < count {
                    return Err(format!("not cumulative: {line}"));
                }
                (bound, count) = (le, value);
            }
            if bound != f64::INFINITY || self.value(&format!("{name}_count")) != count {
                return Err(format!("{name} is not whole"));
            }
            self.value(&format!("{name}_sum"));
        }
        Ok(())
    }
}

/// `name="text",…}`, where only `\\`, `\"` and `\n` are escapes.
fn check_labels(labels: &str) -> Result<(), String> {
    let mut rest = labels.strip_suffix('}').ok_or_else(|| format!("open labels: {labels}"))?;
    loop {
        let (name, text) = rest.split_once("=\"").ok_or_else(|| format!("no label: {labels}"))?;
        if !is_name(name) || name.contains(':') {
            return Err(format!("a bad label: {labels}"));
        }
        let end = text.find('"').filter(|end| !text[..*end].contains('\\')).ok_or_else(|| labels.to_owned())?;
        match text[end + 1..].strip_prefix(',') {
            Some(more) => rest = more,
            None if text.len() == end + 1 => return Ok(()),
            None => return Err(format!("bad labels: {labels}")),
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || sign == '_' || sign == ':';
    !name.is_empty() && name.chars().all(is_sign) && !name.starts_with(|sign: char| sign.is_ascii_digit())
}

#[test]
fn requests_are_counted() {
    let site = Site::with_index();
    let (server, port) = measured(&site, &["--access-log", "/dev/null"]);
    let before = page(port);
    assert_eq!(before.value("dapple_http_requests_total{method=\"GET\",code=\"2xx\"}"), 0.0);
    let mut client = server.connect();
    for _ in 0..20 {
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(client.get("/missing").status, 404);
    assert_eq!(client.request("HEAD", "/", "").status, 200);
    assert_eq!(client.request("BREW", "/", "").status, 501);
    let seen = |page: &Page| page.value("dapple_http_request_duration_seconds_count") >= 23.0;
    assert!(eventually(std::time::Duration::from_secs(40), || seen(&page(port))));
    let after = page(port);
    for (sample, value) in [
        ("dapple_http_requests_total{method=\"GET\",code=\"2xx\"}", 20.0),
        ("dapple_http_requests_total{method=\"GET\",code=\"4xx\"}", 1.0),
        ("dapple_http_requests_total{method=\"HEAD\",code=\"2xx\"}", 1.0),
        ("dapple_http_requests_total{method=\"other\",code=\"5xx\"}", 1.0),
        ("dapple_http_request_duration_seconds_count", 23.0),
        ("dapple_http_responses_cut_total", 0.0),
        ("dapple_connections_open", 1.0),
        ("dapple_connections_total", 1.0),
        ("dapple_page_cache_pages", 1.0),
        ("dapple_access_log_lines_dropped_total", 0.0),
    ] {
        assert_eq!(after.value(sample), value, "{sample}");
    }
    assert!(after.value("dapple_http_response_body_bytes_total") > 280.0);
    assert!(after.value("dapple_page_cache_hits_total") >= 18.0);
    let callbacks = |page: &Page| {
        (0..2).map(|worker| page.value(&format!("dapple_worker_callbacks_total{{worker=\"{worker}\"}}"))).sum::<f64>()
    };
    assert!(callbacks(&after) > callbacks(&before));
}

#[test]
fn the_process_is_measured() {
    let site = Site::with_index();
    let (server, port) = measured(&site, &[]);
    let page = page(port);
    let resident = page.value("process_resident_memory_bytes");
    assert!(resident > 1e6 && resident <= server.resident_max() as f64, "{resident}");
    assert!(page.value("process_open_fds") > 3.0 && page.value("process_open_fds") < page.value("process_max_fds"));
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let start = page.value("process_start_time_seconds");
    assert!(start > now - 3_600.0 && start < now + 2.0, "{start} {now}");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(page.value(&format!("dapple_build_info{{version=\"{version}\",command=\"serve\"}}")), 1.0);
}

#[test]
fn the_metrics_address_has_only_metrics_and_no_other_address_has_them() {
    let site = Site::with_index();
    let (server, port) = measured(&site, &[]);
    let get = |path: &str| -> Response { Client::connect(("127.0.0.1", port)).get(path) };
    assert_eq!((get("/-/healthy").status, get("/-/healthy").text()), (200, "ok\n"));
    assert_eq!(get("/").status, 404);
    assert_eq!(get("/index.html").status, 404);
    let refused = Client::connect(("127.0.0.1", port)).request("POST", "/metrics", "");
    assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD")));
    assert_eq!(server.get("/metrics").status, 404);
}

#[test]
fn a_cut_response_is_counted() {
    let site = Site::new();
    site.write("large.bin", crate::support::noise(32 << 20, 3));
    let (server, port) = measured(&site, &["--cache-mb", "1"]);
    let mut client = server.connect();
    client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_head().status, 200);
    drop(client);
    let is_seen = || page(port).value("dapple_http_responses_cut_total") == 1.0;
    assert!(eventually(std::time::Duration::from_secs(20), is_seen));
}

#[test]
fn clients_that_take_too_long_are_counted() {
    let site = Site::with_index();
    // Long enough that bytes sent at once arrive before.
    let limits = ["--idle-timeout-s", "3", "--head-timeout-s", "3"];
    let (server, port) = measured(&site, &limits);
    let silent = server.connect();
    let mut slow = server.connect();
    slow.send("GET / HTTP/1.1\r\nHost:");
    let is_seen = |awaited: &str| {
        page(port).value(&format!("dapple_connections_timed_out_total{{awaited=\"{awaited}\"}}")) == 1.0
    };
    let limit = std::time::Duration::from_secs(20);
    assert!(eventually(limit, || is_seen("next_request")));
    assert!(eventually(limit, || is_seen("request")));
    drop((silent, slow));
}
