//! The server's debug log, and the requests that its lines belong to.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use crate::support::{Server, Site, dapple, eventually};

/// The value of a field, as the log writes it.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = text.split_once(&format!("{name}="))?.1;
    rest.split([' ', '}']).next()
}

/// Starts a server with its stderr in a file, and returns that file's text once `is_all` accepts
/// it.
fn said(level: &str, requests: impl Fn(&Server), is_all: impl Fn(&str) -> bool) -> String {
    let site = Site::new();
    for number in 0..COUNT {
        site.write(&format!("{number}/page.html"), format!("<p>{}</p>", "text ".repeat(600 + number)));
        site.write(&format!("{number}/list/{number}.txt"), "x");
    }
    let path = site.path.join(".stderr");
    let mut command = dapple();
    command.arg("serve").arg(&site.path).args(["--port", "0", "--workers", "2", "--list"]).env("DAPPLE_LOG", level);
    command.stderr(Stdio::from(std::fs::File::create(&path).unwrap()));
    let server = Server::spawn(command);
    requests(&server);
    let text = || std::fs::read_to_string(&path).unwrap();
    assert!(eventually(Duration::from_secs(20), || is_all(&text())), "{}", text());
    text()
}

fn ask_for_all(server: &Server) {
    std::thread::scope(|scope| {
        for client in 0..4 {
            scope.spawn(move || {
                let mut connection = server.connect();
                for number in (client..COUNT).step_by(4) {
                    let page = connection.request("GET", &format!("/{number}/page.html"), "Accept-Encoding: gzip\r\n");
                    assert_eq!(page.status, 200);
                    assert_eq!(connection.get(&format!("/{number}/list/")).status, 200);
                }
            });
        }
    });
}

/// Requests on several connections at once, with two workers; each is looked up, loaded, compressed
/// and listed in other colors and on other threads. Every line about a file must be in the span of
/// the request for it.
#[test]
fn a_request_is_followed_from_color_to_color() {
    let events =
        ["the disk was looked at", "waiting requests are answered", "a page was compressed", "a directory was listed"];
    let is_all = |text: &str| text.matches(" answered ").count() >= 2 * COUNT;
    let text = said("debug", ask_for_all, is_all);
    for event in events {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(event)).collect();
        let mut ids = BTreeSet::new();
        for line in &lines {
            let (span, _) = line.split_once("}: ").unwrap_or_else(|| panic!("no span in {line}"));
            assert!(span.contains("request{"), "{line}");
            let path = field(span, "path").unwrap_or_else(|| panic!("no path in {line}"));
            if let Some(file) = field(line, "file") {
                let asked = path.trim_start_matches('/');
                assert!(file.starts_with(asked), "{line}");
            }
            ids.insert(field(span, "id").unwrap().to_owned());
        }
        // While enough pages are being compressed, others are sent as they are.
        let least = if event == "a page was compressed" { 2 } else { COUNT };
        assert!(lines.len() >= least && ids.len() >= least, "{event}: {} lines, {} requests", lines.len(), ids.len());
    }
}

#[test]
fn successful_requests_are_not_logged() {
    assert_eq!(said("info", ask_for_all, |_| true), "");
}

const COUNT: usize = 40;
