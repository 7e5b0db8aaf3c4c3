//! The limits on clients of a proxy, and its end.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::Signal;

use super::origin::Origin;
use super::{number, reply};
use crate::support::{Client, Server, dapple, eventually};

/// A connection that is in use.
fn user(proxy: &Server) -> Client {
    let mut client = proxy.connect();
    assert_eq!(client.get("/-/status").status, 200);
    client
}

fn refusal(proxy: &Server) -> String {
    let mut client = proxy.connect();
    let refusal = client.read_response();
    assert_eq!(refusal.status, 503);
    assert_eq!(client.read_to_end().unwrap(), b"", "closed, not reset");
    refusal.text().to_owned()
}

#[test]
fn one_address_gets_its_share() {
    let proxy = Server::start_proxy(&["--connections-per-address", "2"]);
    let mut users = [user(&proxy), user(&proxy)];
    assert!(refusal(&proxy).contains("Your address"));
    let status: serde_json::Value = serde_json::from_slice(&users[0].get("/-/status").body).unwrap();
    assert_eq!((&status["connections"]["open"], &status["connections"]["turned_away"]), (&2.into(), &1.into()));
    drop(users);
    assert!(eventually(LIMIT, || proxy.connect().try_get("/-/status").is_ok_and(|status| status == 200)));
}

#[test]
fn at_the_limit_new_clients_are_told_so() {
    // The origin answers only at the end.
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let origin = Origin::start(move |_, _| gone.lock().unwrap().recv().is_ok());
    let proxy = Server::start_proxy(&["--connections", "2"]);
    let users = [(); 2].map(|()| {
        let mut client = proxy.connect();
        client.send(format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", origin.url("/")));
        client
    });
    assert!(eventually(LIMIT, || refusal(&proxy).contains("All connections are in use")));
    drop((users, go));
    assert!(eventually(LIMIT, || proxy.connect().try_get("/-/status").is_ok_and(|status| status == 200)));
}

#[test]
fn requests_in_flight_at_the_end_are_finished() {
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let origin = Origin::start(move |_, stream| {
        let answer = reply("200 OK", "cache-control: no-store\r\n", "0123456789");
        let (first, rest) = answer.split_at(answer.len() - 5);
        stream.write_all(first).unwrap();
        gone.lock().unwrap().recv().unwrap();
        stream.write_all(rest).is_ok()
    });
    let mut proxy = Server::start_proxy(&["--connect-port", &origin.port.to_string(), "--drain-s", "60"]);
    let mut client = proxy.connect();
    client.send(format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", origin.url("/")));
    assert_eq!(client.read_head().status, 200);
    let mut tunnel = super::tunnels::connect(&proxy, origin.port);
    assert_eq!(number(&proxy, "open"), 3);
    proxy.signal(Signal::TERM);
    // Only its two sides end a tunnel; the proxy just closes.
    assert_eq!(tunnel.read_to_end().unwrap_or_default(), b"");
    assert_eq!(proxy.wait(Duration::ZERO), None, "a response is on its way");
    go.send(()).unwrap();
    assert_eq!(client.read_to_end().unwrap(), b"0123456789");
    assert_eq!(proxy.wait(LIMIT).expect("it ends").code(), Some(0));
}

#[test]
fn a_response_that_takes_too_long_at_the_end_is_cut() {
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let origin = Origin::start(move |_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n01234").unwrap();
        let _ = gone.lock().unwrap().recv();
        false
    });
    let mut proxy = Server::start_proxy(&["--drain-s", "1"]);
    let mut client = proxy.connect();
    client.send(format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", origin.url("/")));
    assert_eq!(client.read_head().status, 200);
    proxy.signal(Signal::TERM);
    assert_eq!(proxy.wait(LIMIT).expect("it ends").code(), Some(0));
    assert!(client.read_to_end().unwrap_or_default().len() < 10);
    drop(go);
}

/// A proxy with at most this many open files; its log is available at the end.
fn start_short_of_files(files: u32, options: &[&str]) -> Server {
    let program = dapple().get_program().to_owned();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]).arg(program);
    command.args(["proxy", "--port", "0", "--workers", "1", "--allow-private"]).args(options).stderr(Stdio::piped());
    Server::spawn(command)
}

#[test]
fn a_start_warns_of_descriptors_only_where_more_were_asked_for_or_few_are_left() {
    for (files, options, is_warned) in
        [(4_096, &[][..], false), (4_096, &["--connections", "10000"], true), (256, &[], true)]
    {
        let mut proxy = start_short_of_files(files, options);
        proxy.signal(Signal::TERM);
        let log = proxy.log_to_end();
        assert_eq!(log.contains("the limit on open files"), is_warned, "{files} {options:?}: {log}");
        assert!(is_warned || log.is_empty(), "{log}");
    }
}

#[test]
fn idle_connections_make_room_for_others() {
    // More servers than there may be connections to servers, which are all kept.
    let origins: Vec<Origin> = (0..60).map(|_| Origin::of(|_| reply("200 OK", "", "x"))).collect();
    let proxy = start_short_of_files(64, &[]);
    let mut client = proxy.connect();
    for _ in 0..2 {
        for origin in &origins {
            let response = client.request("DELETE", &origin.url("/"), "");
            assert_eq!(response.status, 200, "{}", response.text());
        }
    }
    assert!(number(&proxy, "connects") >= 60);
}

const LIMIT: Duration = Duration::from_secs(30);
