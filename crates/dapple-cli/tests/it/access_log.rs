//! The access log, as people and programs read it.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Server, Site, dapple, eventually, noise};

/// How long a line may take to be written on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // A line that is still being written does not count.
    text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(|line| line.trim_end().to_owned()).collect()
}

/// The first `count` lines.
pub(crate) fn wait_for(path: &Path, count: usize) -> Vec<String> {
    assert!(eventually(LIMIT, || lines(path).len() >= count), "{count} lines, but: {:?}", lines(path));
    lines(path)
}

fn logged(site: &Site, options: &[&str]) -> (Server, PathBuf) {
    let path = site.path.join(".access.log");
    let mut all = vec!["--access-log", path.to_str().unwrap()];
    all.extend(options);
    (Server::start(&site.path, &all), path)
}

#[test]
fn the_combined_format_is_the_default() {
    let site = Site::with_index();
    let (server, path) = logged(&site, &[]);
    let mut client = server.connect();
    client.request("GET", "/?q=1", "Referer: http://a.example/\r\nUser-Agent: it/1\r\n");
    client.request("HEAD", "/", "");
    client.get("/missing");
    let lines = wait_for(&path, 3);
    assert!(lines[0].starts_with("127.0.0.1 - - ["), "{lines:?}");
    assert!(lines[0].ends_with("+0000] \"GET /?q=1 HTTP/1.1\" 200 14 \"http://a.example/\" \"it/1\""), "{lines:?}");
    assert!(lines[1].ends_with("\"HEAD / HTTP/1.1\" 200 - \"-\" \"-\""), "{lines:?}");
    assert!(lines[2].contains("\"GET /missing HTTP/1.1\" 404 "), "{lines:?}");
}

#[test]
fn the_common_format_is_a_part_of_it() {
    let site = Site::with_index();
    let (server, path) = logged(&site, &["--access-log-format", "common"]);
    server.get("/");
    assert!(wait_for(&path, 1)[0].ends_with("+0000] \"GET / HTTP/1.1\" 200 14"));
}

#[test]
fn clients_cannot_inject_lines() {
    let site = Site::with_index();
    let (server, path) = logged(&site, &[]);
    let mut client = server.connect();
    client.request("GET", "/%0a\"%22", "User-Agent: x\" \\ \u{e9}\t!\r\n");
    client.request("GET", "/", "");
    let lines = wait_for(&path, 2);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("\"GET /%0a\\x22%22 HTTP/1.1\" 404"), "{lines:?}");
    assert!(lines[0].ends_with("\"-\" \"x\\x22 \\x5C \\xC3\\xA9\\x09!\""), "{lines:?}");
}

#[test]
fn json_has_all_facts_and_the_reasons_of_refusals() {
    let site = Site::with_index();
    let (server, path) = logged(&site, &["--access-log-format", "json"]);
    server.get("/");
    server.connect().send("GET / HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n");
    let parsed: Vec<Value> = wait_for(&path, 2).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Two connections: the order of their lines is undefined.
    let (refused, served): (Vec<Value>, Vec<Value>) = parsed.into_iter().partition(|line| line["refused"].is_string());
    let (served, refused) = (&served[0], &refused[0]);
    assert_eq!(served["target"], "/");
    assert_eq!(served["version"], "HTTP/1.1");
    assert_eq!(served["host"], "test");
    assert_eq!((&served["status"], &served["bytes"], &served["complete"]), (&200.into(), &14.into(), &true.into()));
    assert!(served["color"].as_u64().unwrap() > 0 && served["worker"].as_u64().unwrap() < 2, "{served}");
    assert!(served["duration_us"].as_u64().is_some() && served["time"].as_str().unwrap().ends_with('Z'), "{served}");
    assert_eq!(refused["status"], 400);
    assert!(!refused["refused"].as_str().unwrap().is_empty(), "{refused}");
}

#[test]
fn a_cut_response_is_marked() {
    let site = Site::new();
    let len = 32 << 20;
    site.write("large.bin", noise(len, 3));
    let (server, path) = logged(&site, &["--access-log-format", "json", "--cache-mb", "1"]);
    let mut client = server.connect();
    client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_head().status, 200);
    client.read(&mut [0; 1000]).unwrap();
    drop(client);
    let line: Value = serde_json::from_str(&wait_for(&path, 1)[0]).unwrap();
    assert_eq!(line["complete"], false);
    let sent = line["bytes"].as_u64().unwrap();
    assert!(sent > 0 && sent < len as u64, "{line}");
    // A complete response is counted to the byte.
    assert_eq!(server.get("/large.bin").body.len(), len);
    let line: Value = serde_json::from_str(&wait_for(&path, 2)[1]).unwrap();
    assert_eq!((&line["complete"], line["bytes"].as_u64()), (&true.into(), Some(len as u64)));
}

#[test]
fn every_request_has_a_line_also_those_before_the_end() {
    let site = Site::with_index();
    let (mut server, path) = logged(&site, &[]);
    std::thread::scope(|scope| {
        for client in 0..8 {
            let server = &server;
            scope.spawn(move || {
                let mut connection = server.connect();
                for request in 0..500 {
                    assert_eq!(connection.get(&format!("/?{client}-{request}")).status, 200);
                }
            });
        }
    });
    server.signal(Signal::TERM);
    assert_eq!(server.wait(LIMIT).expect("it stops").code(), Some(0));
    let mut lines = lines(&path);
    assert_eq!(lines.len(), 4_000);
    let mut next = [0; 8];
    for line in &lines {
        let (client, request) = line.split_once("/?").and_then(|(_, rest)| rest.split_once('-')).unwrap();
        let (client, request): (usize, usize) =
            (client.parse().unwrap(), request.split_once(' ').unwrap().0.parse().unwrap());
        assert_eq!(request, next[client], "the lines of a connection are in order, whichever worker it was on");
        next[client] += 1;
    }
    lines.sort_by_key(|line| line.split('"').nth(1).map(str::to_owned));
    lines.dedup_by_key(|line| line.split('"').nth(1).map(str::to_owned));
    assert_eq!(lines.len(), 4_000, "all of them different");
}

#[test]
fn a_signal_reopens_a_renamed_log() {
    let site = Site::with_index();
    let (server, path) = logged(&site, &[]);
    for (round, signal) in [Signal::USR1, Signal::HUP].into_iter().enumerate() {
        server.get("/?before");
        wait_for(&path, 1);
        let old = path.with_extension(format!("log.{round}"));
        std::fs::rename(&path, &old).unwrap();
        server.get("/?still");
        wait_for(&old, 2);
        server.signal(signal);
        assert!(eventually(LIMIT, || path.exists()), "the file is there again");
        server.get("/?after");
        let new = wait_for(&path, 1);
        assert!(new[0].contains("/?after"), "{new:?}");
        std::fs::remove_file(&path).unwrap();
        server.signal(signal);
        assert!(eventually(LIMIT, || path.exists()), "the file is there again");
    }
}

#[test]
fn a_full_disk_costs_lines_and_nothing_else() {
    let site = Site::with_index();
    let path = site.path.join(".access.log");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let errors = site.path.join(".stderr");
    let mut command = dapple();
    command.arg("serve").arg(&site.path).args(["--port", "0", "--access-log"]).arg(&path);
    command.stderr(Stdio::from(std::fs::File::create(&errors).unwrap()));
    let server = Server::spawn(command);
    let says = |part: &str| std::fs::read_to_string(&errors).unwrap().matches(part).count();
    for _ in 0..3 {
        assert_eq!(server.get("/").status, 200);
        assert!(eventually(LIMIT, || says("cannot write to the access log") == 1), "once");
    }
    std::fs::remove_file(&path).unwrap();
    server.signal(Signal::USR1);
    assert!(eventually(LIMIT, || path.exists()));
    assert_eq!(server.get("/?again").status, 200);
    assert!(eventually(LIMIT, || lines(&path).iter().any(|line| line.contains("/?again"))));
    assert!(eventually(LIMIT, || says("the access log works again") == 1));
    // A waiting line is not lost; a line of another worker may come after the last.
    let all_told = || says(&format!("lost={}", 4 - lines(&path).len())) == 1;
    assert!(eventually(LIMIT, all_told), "{} written", lines(&path).len());
}

#[test]
fn a_reader_that_does_not_read_costs_lines_and_nothing_else() {
    let site = Site::with_index();
    let mut server = Server::start(&site.path, &["--access-log", "-"]);
    let mut client = server.connect();
    let agent = format!("User-Agent: {}\r\n", "x".repeat(8_000));
    // More than the pipe, and the buffers before it, hold.
    for _ in 0..600 {
        assert_eq!(client.request("GET", "/", &agent).status, 200);
    }
    let mut line = String::new();
    server.stdout.read_line(&mut line).unwrap();
    assert!(line.starts_with("127.0.0.1 - - [") && line.contains("\"GET / HTTP/1.1\" 200 14"), "{line}");
    server.signal(Signal::TERM);
    assert_eq!(server.wait(LIMIT).expect("the server stops, whether or not the log has a reader").code(), Some(0));
}

#[test]
fn a_log_that_cannot_be_opened_is_reported_at_the_start() {
    let site = Site::with_index();
    for more in [&["--check"][..], &[]] {
        let mut command = dapple();
        command.arg("serve").arg(&site.path).args(["--port", "0", "--access-log", "/no/such/folder/log"]).args(more);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("cannot open the access log \"/no/such/folder/log\""), "{message}");
    }
}
