//! `--insight`, `dapple record` and `dapple report`.

use std::io::BufRead;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{Client, Server, Site};

/// Starts a server with its page, and returns the page's port.
fn shown(site: &Site, options: &[&str]) -> (Server, u16) {
    let mut all = vec!["--insight", "127.0.0.1:0"];
    all.extend(options);
    let mut server = Server::start(&site.path, &all);
    let mut line = String::new();
    server.stdout.read_line(&mut line).unwrap();
    let port = line.trim().rsplit_once("http://127.0.0.1:").and_then(|(_, rest)| rest.strip_suffix('/'));
    let port = port.unwrap_or_else(|| panic!("no address in {line:?}")).parse().unwrap();
    (server, port)
}

fn dapple(args: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dapple")).args(args).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn get(port: u16, target: &str) -> (u16, String) {
    let response = Client::connect(("127.0.0.1", port)).get(target);
    (response.status, response.text().to_owned())
}

#[test]
fn the_page_and_its_data() {
    let site = Site::with_index();
    let (server, port) = shown(&site, &[]);
    let (status, page) = get(port, "/");
    assert!(status == 200 && page.contains("<title>Dapple insight</title>"), "{page}");
    assert_eq!(get(port, "/-/healthy"), (200, "ok\n".to_owned()));
    assert_eq!(get(port, "/predict.json").0, 409, "nothing is recorded yet");
    let asking = std::thread::spawn(move || get(port, "/snapshot.json?ms=2000"));
    // Each request is a callback of the server while the recording lasts.
    while !asking.is_finished() {
        assert_eq!(Client::connect(("127.0.0.1", server.port)).get("/index.html").status, 200);
    }
    let (status, snapshot) = asking.join().unwrap();
    let snapshot: Value = serde_json::from_str(&snapshot).unwrap();
    assert_eq!(status, 200);
    let names: Vec<&str> =
        snapshot["families"].as_array().unwrap().iter().filter_map(|family| family["name"].as_str()).collect();
    assert!(names.iter().any(|name| name.contains("dapple-cli/src/serve/site.rs:")), "{names:?}");
    assert_eq!(snapshot["predictions"].as_array().unwrap().len(), 7);
    let (status, predicted) = get(port, "/predict.json?workers=2&readable=none");
    assert!(status == 200 && predicted.contains("\"workers\":2"), "{predicted}");
    for wrong in ["/predict.json?workers=0", "/predict.json?faster=a", "/snapshot.json?ms=5", "/snapshot.json?ms=x"] {
        assert_eq!(get(port, wrong).0, 400, "{wrong}");
    }
    assert_eq!(get(port, "/nothing").0, 404);
}

#[test]
fn a_recording_and_its_reports() {
    let site = Site::with_index();
    let (_server, port) = shown(&site, &[]);
    let folder = tempfile::tempdir().unwrap();
    let addr = format!("127.0.0.1:{port}");
    let recorded = dapple(&["record", &addr, "--secs", "0.2", "-o", "one.recording"], folder.path());
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    assert_eq!(text(&recorded.stdout), "wrote one.recording; `dapple report one.recording` shows it\n");
    let report = |options: &[&str]| {
        let all: Vec<&str> = ["report", "one.recording"].iter().chain(options).copied().collect();
        dapple(&all, folder.path())
    };
    let shown = report(&["--workers", "4"]);
    let said = text(&shown.stdout);
    assert!(said.contains("predicted") && said.contains("what if: with 4 workers the rate is"), "{said}");
    let json: Value = serde_json::from_slice(&report(&["--json"]).stdout).unwrap();
    assert!(json["elapsed_ns"].as_u64().unwrap() >= 200_000_000);
    assert!(report(&["--html", "page.html"]).status.success());
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("window.RECORDED = {\"verdict\""));
    let perfetto: Value = serde_json::from_slice(&report(&["--export", "perfetto"]).stdout).unwrap();
    assert!(perfetto.as_array().unwrap().iter().any(|event| event["ph"] == "M"));
    assert!(report(&["--export", "folded"]).status.success());
    let wrong = report(&["--faster", "src/none.rs:1=2"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("has no color \"src/none.rs:1\""), "{}", text(&wrong.stderr));
}

#[test]
fn mistakes_get_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("other"), "hello").unwrap();
    for (args, sentence) in [
        (vec!["report", "none"], "make a recording with `dapple record HOST:PORT`"),
        (vec!["report", "other"], "it is no recording: make one with `dapple record`"),
        (vec!["record", "127.0.0.1:1"], "start it with `--insight 127.0.0.1:1`"),
        (vec!["record", "127.0.0.1:1", "--secs", "11"], "choose a number from 0.01 to 10"),
        (vec!["serve", ".", "--port", "0", "--insight", "0.0.0.0:0"], "is not a loopback address: give a token"),
        (vec!["serve", ".", "--port", "0", "--insight-token", "x"], "has no use without `--insight HOST:PORT`"),
    ] {
        let output = dapple(&args, folder.path());
        assert!(!output.status.success(), "{args:?}");
        assert!(text(&output.stderr).contains(sentence), "{args:?}: {}", text(&output.stderr));
    }
    assert!(!folder.path().join("dapple.recording").exists());
}

#[test]
fn a_token_keeps_others_out() {
    let site = Site::with_index();
    let (_server, port) = shown(&site, &["--insight-token", "secret"]);
    assert_eq!(get(port, "/").0, 401);
    assert_eq!(get(port, "/?token=wrong!").0, 401);
    assert_eq!(get(port, "/?token=secret").0, 200);
    let folder = tempfile::tempdir().unwrap();
    let addr = format!("127.0.0.1:{port}");
    let refused = dapple(&["record", &addr, "--secs", "0.1"], folder.path());
    assert!(text(&refused.stderr).contains("give the token"), "{}", text(&refused.stderr));
    let recorded = dapple(&["record", &addr, "--secs", "0.1", "--token", "secret"], folder.path());
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
}

#[test]
fn a_process_is_recorded_and_shown_by_its_number() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let pid = server.child.id().to_string();
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let recorded = dapple(&["record", &pid, "--secs", "0.1"], folder.path());
        assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    }
    assert!(dapple(&["report", "dapple.recording"], folder.path()).status.success());
    #[cfg(feature = "top")]
    {
        let shown = dapple(&["top", &pid, "--once"], folder.path());
        assert!(text(&shown.stdout).contains("predicted"), "{shown:?}");
        let screen = dapple(&["top", &pid], folder.path());
        assert!(text(&screen.stderr).contains("stdout is none: use `--once`"), "{screen:?}");
    }
    for (target, sentence) in [
        ("1", "lets no tool attach"),
        ("0", "a process has a number"),
        ("99999999999", "a process has a number"),
        ("host", "write the address of --insight"),
        (":1", "write the address of --insight"),
    ] {
        let output = dapple(&["record", target], folder.path());
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains(sentence), "{target}: {}", text(&output.stderr));
    }
}

/// A client's trace goes through the reverse proxy to the server, and the reports of both fit together.
#[test]
fn a_request_is_followed_through_two_programs() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let mut proxy = Command::new(env!("CARGO_BIN_EXE_dapple"));
    proxy.args(["proxy", "--port", "0", "--workers", "2", "--to", &format!("http://127.0.0.1:{}", server.port)]);
    let proxy = Server::spawn(proxy);
    let folder = tempfile::tempdir().unwrap();
    let mut recorders = [(&proxy, "proxy"), (&server, "server")].map(|(program, name)| {
        let pid = program.child.id().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_dapple"));
        command.args(["record", &pid, "--secs", "3", "-o", name]).current_dir(folder.path());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
    });
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let header = format!("traceparent: 00-{trace}-00f067aa0ba902b7-01\r\n");
    let mut client = Client::connect(("127.0.0.1", proxy.port));
    while recorders.iter_mut().any(|recorder| recorder.try_wait().unwrap().is_none()) {
        assert_eq!(client.request("GET", "/index.html", &header).status, 200);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let report = dapple(&["report", "proxy", "--with", "server", "--trace", trace], folder.path());
    let said = text(&report.stdout);
    let part = |line: &str| line.split_once(" part ").map(|(_, rest)| rest[..16].to_owned());
    let of_proxy: Vec<String> = said.lines().filter(|line| line.starts_with("recording 1:")).filter_map(part).collect();
    assert!(said.contains("asked by 00f067aa0ba902b7") && !of_proxy.is_empty(), "{report:?}");
    let of_server: Vec<&str> = said.lines().filter(|line| line.starts_with("recording 2:")).collect();
    let fits = |line: &&str| of_proxy.iter().any(|part| line.contains(&format!("asked by {part}")));
    assert!(of_server.iter().any(fits), "{said}");
    assert!(said.contains('#'), "{said}");
    let slowest = dapple(&["report", "server", "--trace", "slowest"], folder.path());
    assert!(text(&slowest.stdout).starts_with(&format!("trace {trace}")), "{slowest:?}");
    let none = dapple(&["report", "server", "--trace", "00000000000000000000000000000001"], folder.path());
    assert!(text(&none.stderr).contains("no whole request of trace"), "{none:?}");
    let wrong = dapple(&["report", "server", "--trace", "12"], folder.path());
    assert!(text(&wrong.stderr).contains("write `slowest`"), "{wrong:?}");
}

#[test]
fn metrics_have_the_bottleneck_and_the_waits() {
    let site = Site::with_index();
    let (mut server, _port) = shown(&site, &["--metrics", "127.0.0.1:0"]);
    let metrics = crate::metrics::announced(&mut server);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        assert_eq!(Client::connect(("127.0.0.1", server.port)).get("/index.html").status, 200);
        let (status, page) = get(metrics, "/metrics");
        assert_eq!(status, 200);
        let has = |start: &str| page.lines().any(|line| line.starts_with(start));
        if has("dapple_insight_bottleneck{kind=\"") {
            assert!(has("dapple_insight_waiting{cause=\"same_color\"}") && has("dapple_http_requests_total"), "{page}");
            if has("dapple_insight_color_busy_ratio{color=\"") {
                return;
            }
        }
        assert!(std::time::Instant::now() < until, "{page}");
    }
}
