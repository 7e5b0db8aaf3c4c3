//! No open proxy by accident.

use std::process::Stdio;

use super::origin::Origin;
use super::{ask, get, reply};
use crate::support::{Server, dapple};

fn start(options: &[&str]) -> Server {
    let mut command = dapple();
    command.args(["proxy", "--port", "0", "--workers", "1"]).args(options);
    Server::spawn(command)
}

#[test]
fn private_addresses_are_refused_however_they_are_written() {
    let proxy = start(&[]);
    let origin = Origin::of(|_| reply("200 OK", "", "reached"));
    let port = origin.port;
    for host in [
        "127.0.0.1",
        "localhost",
        "a.localhost",
        "127.8.8.8",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "0.0.0.0",
        "[::]",
        "10.0.0.1",
        "192.168.1.1",
        "172.16.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "[fe80::1]",
        "[fd00::1]",
        "224.0.0.1",
    ] {
        let response = get(&proxy, &format!("http://{host}:{port}/"), "");
        assert_eq!(response.status, 403, "{host}");
        assert!(response.text().contains("--allow-"), "{host}: {}", response.text());
    }
    assert_eq!(origin.count(), 0);
}

#[test]
fn options_allow_no_more_than_they_say() {
    let origin = Origin::of(|_| reply("200 OK", "", "reached"));
    let port = origin.port;
    let by_name = start(&["--allow-destination", "localhost"]);
    assert_eq!(get(&by_name, &format!("http://LOCALHOST:{port}/"), "").status, 200);
    assert_eq!(get(&by_name, &format!("http://127.0.0.1:{port}/"), "").status, 403);
    let by_network = start(&["--allow-destination", "127.0.0.1/32"]);
    assert_eq!(get(&by_network, &format!("http://127.0.0.1:{port}/"), "").status, 200);
    assert_eq!(get(&by_network, &format!("http://127.0.0.2:{port}/"), "").status, 403);
    let private = start(&["--allow-private"]);
    assert_eq!(get(&private, &format!("http://127.0.0.1:{port}/"), "").status, 200);
    for host in ["169.254.169.254", "224.0.0.1"] {
        assert_eq!(get(&private, &format!("http://{host}/"), "").status, 403, "{host}");
    }
}

#[test]
fn the_proxy_does_not_call_itself() {
    let proxy = start(&["--allow-private"]);
    let own = proxy.port;
    assert_eq!(get(&proxy, &format!("http://127.0.0.1:{own}/-/status"), "").status, 403);
    // The name also has ::1, where the proxy does not listen.
    assert_ne!(get(&proxy, &format!("http://localhost:{own}/-/status"), "").status, 200);
}

#[test]
fn tunnels_lead_to_tls_only() {
    let proxy = start(&["--allow-private", "--connect-port", "1"]);
    for (target, status) in [("127.0.0.1:25", 403), ("127.0.0.1:80", 403), ("169.254.169.254:443", 403)] {
        let response = ask(&proxy, "CONNECT", target, "");
        assert_eq!(response.status, status, "{target}");
    }
    assert!(ask(&proxy, "CONNECT", "127.0.0.1:22", "").text().contains("--connect-port 22"));
    for framing in ["content-length: 5\r\n", "transfer-encoding: chunked\r\n"] {
        let mut client = proxy.connect();
        client.send(format!("CONNECT 127.0.0.1:8443 HTTP/1.1\r\nhost: x\r\n{framing}\r\n0\r\n\r\n"));
        assert_eq!(client.read_response().status, 400, "RFC 9110, 9.3.6: {framing}");
    }
    // Allowed, but no server is there.
    assert_eq!(ask(&proxy, "CONNECT", "127.0.0.1:1", "").status, 502);
}

#[test]
fn on_other_addresses_it_starts_only_with_a_list_of_clients() {
    let refused = dapple().args(["proxy", "--addr", "0.0.0.0:0"]).stdout(Stdio::null()).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("--allow-clients"), "{text}");
    let wrong = dapple().args(["proxy", "--allow-clients", "all"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));

    let mut command = dapple();
    command.args(["proxy", "--addr", "0.0.0.0:0", "--allow-clients", "10.9.8.0/24"]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    assert!(line.contains("http://0.0.0.0:"), "{line}");
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn options_come_from_the_environment_too() {
    let origin = Origin::of(|_| reply("200 OK", "", "reached"));
    let mut command = dapple();
    command.args(["proxy", "--port", "0", "--workers", "1"]).env("DAPPLE_PROXY_ALLOW_PRIVATE", "true");
    let proxy = Server::spawn(command);
    assert_eq!(get(&proxy, &origin.url("/"), "").status, 200);
}
