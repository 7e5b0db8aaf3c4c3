//! Options that SIGHUP reads again, and reports about those that it does not.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::access_log::wait_for;
use crate::support::{Client, Response, Server, Site, dapple, eventually};

/// A server with these lines added to its file, and its log.
fn start(site: &Site, lines: &str) -> Server {
    std::fs::create_dir_all(site.path.join("root/folder")).unwrap();
    site.write("root/page.txt", "text ".repeat(1_000));
    write(site, lines);
    let mut command = dapple();
    command.arg("serve").arg("--config").arg(site.path.join("serve.toml"));
    command.stderr(Stdio::from(std::fs::File::create(site.path.join("stderr")).unwrap()));
    Server::spawn(command)
}

fn write(site: &Site, lines: &str) {
    site.write("serve.toml", format!("dir = \"root\"\nport = 0\n{lines}"));
}

fn log(site: &Site) -> String {
    std::fs::read_to_string(site.path.join("stderr")).unwrap()
}

/// Waits for a matching reply, on new connections; work that began before SIGHUP may still be in
/// progress.
fn soon(server: &Server, path: &str, fits: impl Fn(&Response) -> bool) {
    let get = || server.connect().request("GET", path, "Accept-Encoding: gzip\r\n");
    assert!(eventually(LIMIT, || fits(&get())), "{path}: {:?}", get());
}

fn is_coded(response: &Response) -> bool {
    response.status == 200 && response.header("content-encoding") == Some("gzip")
}

fn is_plain(response: &Response) -> bool {
    response.status == 200 && response.header("content-encoding").is_none()
}

#[test]
fn lists_and_compression_are_turned_on_and_off() {
    let site = Site::new();
    let server = start(&site, "");
    let mut kept = server.connect();
    soon(&server, "/folder/", |response| response.status == 404);
    soon(&server, "/page.txt", is_coded);
    assert_eq!(kept.get("/page.txt").status, 200);
    for _ in 0..3 {
        write(&site, "list = true\nno_compress = true\n");
        server.signal(Signal::HUP);
        soon(&server, "/folder/", |response| response.status == 200 && response.text().contains("</html>"));
        soon(&server, "/page.txt", is_plain);
        write(&site, "");
        server.signal(Signal::HUP);
        soon(&server, "/folder/", |response| response.status == 404);
        soon(&server, "/page.txt", is_coded);
    }
    assert_eq!(kept.get("/page.txt").status, 200, "connections go on");
}

#[test]
fn new_limits_apply_to_later_connections() {
    let site = Site::new();
    let server = start(&site, "");
    let mut kept = server.connect();
    assert_eq!(kept.get("/page.txt").status, 200);
    write(&site, "head_max_kb = 1\nidle_timeout_s = 0.5\nhead_timeout_s = 0.5\n");
    server.signal(Signal::HUP);
    let long = format!("X-Long: {}\r\n", "x".repeat(2_000));
    let ask = || {
        let mut client = server.connect();
        client.request("GET", "/page.txt", &long).status
    };
    assert!(eventually(LIMIT, || ask() == 431), "{}", ask());
    let mut idle = server.connect();
    assert_eq!(idle.get("/page.txt").status, 200);
    assert_eq!(idle.read_to_end().unwrap(), b"", "it ends before the client gives up");
    assert_eq!(kept.request("GET", "/page.txt", &long).status, 200, "it keeps the limits that it began with");
}

#[test]
fn the_access_log_changes_its_place_and_format() {
    let site = Site::new();
    let (one, two) = (site.path.join("one.log"), site.path.join("two.log"));
    let server = start(&site, "access_log = \"one.log\"\naccess_log_format = \"common\"\n");
    server.get("/page.txt");
    assert!(wait_for(&one, 1)[0].starts_with("127.0.0.1 - - ["));
    write(&site, "access_log = \"two.log\"\naccess_log_format = \"json\"\n");
    server.signal(Signal::HUP);
    let is_there = |path: &Path| std::fs::read_to_string(path).unwrap_or_default().contains("\"status\":200");
    assert!(eventually(LIMIT, || server.get("/page.txt").status == 200 && is_there(&two)), "{}", log(&site));
    // The new place cannot be opened, so the log stays where it is.
    write(&site, "access_log = \"nowhere/three.log\"\naccess_log_format = \"json\"\n");
    server.signal(Signal::HUP);
    assert!(eventually(LIMIT, || log(&site).contains("three.log")), "{}", log(&site));
    let count = wait_for(&two, 1).len();
    server.get("/page.txt");
    wait_for(&two, count + 1);
    assert!(!log(&site).contains("SIGUSR2"), "{}", log(&site));
}

#[test]
fn options_that_need_a_restart_are_reported() {
    let site = Site::new();
    let server = start(&site, "workers = 2\ncache_mb = 8\n");
    let others = "workers = 1\ncache_mb = 16\nhidden = true\naccess_log = \"a.log\"\nlist = true\n";
    write(&site, others);
    server.signal(Signal::HUP);
    let said = |option: &str| {
        let is_of = |line: &&str| line.contains(&format!("option=\"{option}\""));
        log(&site).lines().filter(is_of).filter(|line| line.contains("SIGUSR2")).count()
    };
    for option in ["workers", "cache_mb", "hidden", "access_log"] {
        assert!(eventually(LIMIT, || said(option) == 1), "{option}: {}", log(&site));
    }
    assert_eq!(said("list") + said("port") + said("dir") + said("config"), 0, "{}", log(&site));
    // As long as the difference lasts.
    server.signal(Signal::HUP);
    assert!(eventually(LIMIT, || said("workers") == 2), "{}", log(&site));
    // Settings that make no sense change nothing.
    write(&site, "list = 7\n");
    server.signal(Signal::HUP);
    assert!(eventually(LIMIT, || log(&site).contains("options and rules stay unchanged")), "{}", log(&site));
    assert_eq!(Client::connect(("127.0.0.1", server.port)).get("/folder/").status, 200);
}

/// A limit that only a bug reaches, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);
