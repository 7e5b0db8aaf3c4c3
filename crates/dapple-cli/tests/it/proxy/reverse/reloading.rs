//! SIGHUP reads the list of upstreams again; other signals end the proxy or hand it over.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::proxy::origin::Origin;
use crate::proxy::reply;
use crate::support::{Server, Site, dapple, eventually};
use crate::upgrade::News;

fn origin(name: &'static str) -> Origin {
    Origin::of(move |_| reply("200 OK", "", name))
}

fn start(folder: &Site) -> Server {
    let mut command = dapple();
    command.args(["proxy", "--port", "0", "--workers", "2", "--config"]).arg(folder.path.join("proxy.toml"));
    command.stderr(Stdio::from(std::fs::File::create(folder.path.join("stderr")).unwrap()));
    Server::spawn(command)
}

#[test]
fn upstreams_come_and_go_without_a_gap() {
    let (one, two) = (origin("one"), origin("two"));
    let folder = Site::new();
    let write = |to: &[&Origin], more: &str| {
        let to: Vec<String> = to.iter().map(|origin| format!("\"{}\"", origin.url(""))).collect();
        folder.write("proxy.toml", format!("to = [{}]\n{more}", to.join(", ")));
    };
    write(&[&one], "");
    let proxy = start(&folder);
    let mut kept = proxy.connect();
    let mut who = || kept.get("/").text().to_owned();
    assert_eq!(who(), "one");
    write(&[&two], "");
    proxy.signal(Signal::HUP);
    assert!(eventually(LIMIT, || who() == "two"));
    assert!((0..20).all(|_| who() == "two"));
    write(&[&one, &two], "retries = 7\n");
    proxy.signal(Signal::HUP);
    assert!(eventually(LIMIT, || who() == "one"), "it is asked again");
    assert!(eventually(LIMIT, || who() == "two"), "so is the other");
    assert!(two.asked().iter().all(|asked| asked.connection == 0), "an upstream that stays keeps its connection");
    // Settings that make no sense change nothing.
    folder.write("proxy.toml", "to = []\n");
    proxy.signal(Signal::HUP);
    let log = || std::fs::read_to_string(folder.path.join("stderr")).unwrap();
    assert!(eventually(LIMIT, || log().contains("the upstreams stay unchanged")), "{}", log());
    folder.write("proxy.toml", "to = [\"ftp://x\"]\n");
    proxy.signal(Signal::HUP);
    assert!(eventually(LIMIT, || log().contains("ftp:// is not supported")), "{}", log());
    assert!(["one", "two"].contains(&who().as_str()));
    assert!(log().contains("option=\"retries\""), "{}", log());
}

#[test]
fn requests_in_flight_are_finished_at_the_end() {
    let slow = Origin::of(|_| {
        std::thread::sleep(Duration::from_millis(700));
        reply("200 OK", "", "late")
    });
    let mut proxy = super::start(&slow.url(""), &[]);
    let (mut client, mut idle) = (proxy.connect(), proxy.connect());
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(eventually(LIMIT, || slow.count() == 1));
    proxy.signal(Signal::TERM);
    let response = client.read_response();
    assert_eq!((response.text(), response.header("connection")), ("late", Some("close")));
    assert_eq!(idle.read_to_end().unwrap_or_default(), b"");
    assert_eq!(proxy.wait(LIMIT).expect("it ends").code(), Some(0));
}

#[test]
fn a_new_process_takes_over() {
    let one = origin("one");
    let folder = Site::new();
    let mut news = News::listen(&folder.path);
    let mut command = dapple();
    command.env("NOTIFY_SOCKET", &news.path).args(["proxy", "--port", "0", "--workers", "2", "--to", &one.url("")]);
    let mut proxy = Server::spawn(command);
    news.next_ready();
    assert_eq!(proxy.get("/").text(), "one");
    proxy.signal(Signal::USR2);
    let next = news.next_ready();
    assert_eq!(proxy.wait(LIMIT).expect("the old process ends").code(), Some(0));
    assert_eq!(proxy.get("/").text(), "one", "by the new process");
    kill_process(Pid::from_raw(next).unwrap(), Signal::TERM).unwrap();
    while news.next() != "STOPPING=1" {}
}

/// A limit that only a bug reaches, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);
