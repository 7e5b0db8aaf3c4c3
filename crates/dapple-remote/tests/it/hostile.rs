//! Clients and hosts that break the protocol.

use std::time::Duration;

use dapple_io::net::{TcpListener, TcpStream};
use dapple_io::time::timeout;
use dapple_remote::{HostLimits, Peer, RemoteError, RemoteStage};

use super::{Running, echo, runtime};

/// Sends bytes to the host, and reads its replies until it closes.
async fn say(address: &str, bytes: &[u8]) -> String {
    let stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(bytes).await;
    let mut text = Vec::new();
    let mut buf = [0; 4096];
    loop {
        match timeout(Duration::from_secs(60), stream.read(&mut buf)).await.expect("the host closes") {
            Ok(0) | Err(_) => return String::from_utf8_lossy(&text).into_owned(),
            Ok(count) => text.extend_from_slice(&buf[..count]),
        }
    }
}

fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len}\r\n{headers}\r\n{body}")
        .into_bytes()
}

#[test]
fn each_misuse_has_a_status_and_a_sentence() {
    let runtime = runtime();
    runtime.block_on(async {
        let mut limits = HostLimits::default();
        limits.body_max_bytes = 100;
        let running = Running::start(echo().limits(limits).build());
        let json = "content-type: application/json\r\n";
        let schema = "dapple-schema: u8 -> u8\r\n";
        let late = "dapple-time-left-ms: 0\r\n";
        let cases = [
            (post("/stages/echo", json, "\"hi\""), "200 OK", "\"hi\""),
            (post("/stages/echo", json, "7"), "400 Bad Request", "\"outcome\":\"malformed\""),
            (post("/stages/echo", "", "\"hi\""), "409 Conflict", "application/json"),
            (post("/stages/echo", &format!("{json}{schema}"), "\"hi\""), "409 Conflict", "String -> String"),
            (post("/stages/nobody", json, "1"), "404 Not Found", "this host has echo"),
            (post("/stages/%ff", json, "1"), "400 Bad Request", "no text"),
            (post("/", json, "1"), "404 Not Found", "/stages"),
            (post("/health", json, "1"), "405 Method Not Allowed", "allow: GET"),
            (post("/stages/echo", json, &"x".repeat(101)), "413 Payload Too Large", "takes 100 at most"),
            (post("/stages/echo", &format!("{json}{late}"), "\"hi\""), "503 Service Unavailable", "retry-after: 1"),
            (
                post("/stages/echo", &format!("{json}dapple-time-left-ms: soon\r\n"), "\"hi\""),
                "400 Bad Request",
                "number",
            ),
            (b"GET /stages HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_vec(), "200 OK", "\"name\":\"echo\""),
            (b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_vec(), "200 OK", "serving"),
            (
                b"GET /stages/echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_vec(),
                "405 Method Not Allowed",
                "POST",
            ),
        ];
        for (request, status, words) in cases {
            let reply = say(&running.address, &request).await;
            let asked = String::from_utf8_lossy(&request).into_owned();
            assert!(reply.starts_with(&format!("HTTP/1.1 {status}")) && reply.contains(words), "{asked}\n{reply}");
            assert!(reply.contains("dapple-outcome: "), "{reply}");
        }
        running.end().await;
    });
}

#[test]
fn silence_and_nonsense_end_and_others_are_served_meanwhile() {
    let runtime = runtime();
    runtime.block_on(async {
        let mut limits = HostLimits::default();
        limits.head_timeout = Duration::from_millis(200);
        limits.body_timeout = Duration::from_millis(200);
        let running = Running::start(echo().limits(limits).build());
        let address = running.address.clone();
        let mut hostile = Vec::new();
        for bytes in [
            &b""[..],
            b"PRI * HT",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"GET /health HTTP/1.1\r\nx: ",
            b"\x16\x03\x01\x00\xff",
            b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n\r\n",
            b"POST /stages/echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\nslow",
        ] {
            let address = address.clone();
            hostile.push(dapple_sched::spawn(async move { say(&address, bytes).await }));
        }
        let mut stage: RemoteStage<String, String> = running.stage("echo");
        assert_eq!(stage.send("meanwhile".into()).await.unwrap(), "meanwhile");
        let mut replies = Vec::new();
        for task in hostile {
            replies.push(task.await.unwrap());
        }
        assert!(replies[6].contains("400 Bad Request") && replies[6].contains("did not come in within"), "{}", replies[6]);
        assert_eq!(stage.send("after".into()).await.unwrap(), "after");
        running.end().await;
    });
}

#[test]
fn one_connection_too_many_is_told_so() {
    let runtime = runtime();
    runtime.block_on(async {
        let mut limits = HostLimits::default();
        limits.connections_max = 2;
        let running = Running::start(echo().limits(limits).build());
        let mut stages: Vec<RemoteStage<String, String>> = (0..2).map(|_| running.stage("echo")).collect();
        for stage in &mut stages {
            stage.send("a".into()).await.unwrap();
        }
        let error = running.stage::<String, String>("echo").send("b".into()).await.unwrap_err();
        assert!(error.to_string().contains("has all of its 2 connections"), "{error}");
        let reply = say(&running.address, b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
        assert!(reply.starts_with("HTTP/1.1 503"), "{reply}");
        stages.pop();
        // Its slot is free as soon as its connection has closed.
        let mut third = running.stage::<String, String>("echo");
        while third.send("c".into()).await.is_err() {
            dapple_io::time::sleep(Duration::from_millis(10)).await;
        }
        drop((stages, third));
        running.end().await;
    });
}

#[test]
fn a_server_that_is_no_stage_host_is_named_as_such() {
    let runtime = runtime();
    runtime.block_on(async {
        for words in [&b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..], b"SSH-2.0-OpenSSH_9.6\r\n", b""] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let server = dapple_sched::spawn(async move {
                let (stream, _) = listener.accept().await.unwrap();
                let _ = stream.write_all(words).await;
                let mut buf = [0; 1024];
                while let Ok(1..) = stream.read(&mut buf).await {
                    if words.is_empty() {
                        return;
                    }
                }
            });
            let peer = Peer::builder(address).connect_timeout(Duration::from_secs(30)).build().unwrap();
            let error = peer.stage::<String, String>("echo").send("a".into()).await.unwrap_err();
            let is_clear = matches!(error.downcast_ref(), Some(RemoteError::Unreachable { why, .. }) if why.contains("as a stage host"));
            assert!(is_clear, "{error}");
            server.await.unwrap();
        }
    });
}
