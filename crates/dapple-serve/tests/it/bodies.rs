//! Bodies and heads of unusual or excessive size.

use std::io::Write;

use crate::support::{ask, connect, end, get, outside, reply, rest};

/// If a service states a length that its body does not have, the client gets the body's length, and
/// the connection goes on.
#[test]
fn the_length_of_a_reply_is_that_of_its_body() {
    let runtime = dapple::builder().workers(2).build().unwrap();
    let addr = runtime.block_on(async {
        let listener = dapple::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let service = tower::service_fn(async |request: http::Request<dapple::serve::Body>| {
            let body = if request.uri().path() == "/empty" { "" } else { "hello" };
            http::Response::builder().header("content-length", "10").body(body.to_owned())
        });
        drop(dapple::spawn(async move { dapple::serve(listener, service).no_admission().await }));
        addr
    });
    let mut client = connect(addr);
    for path in ["/", "/empty", "/"] {
        let body = if path == "/empty" { "" } else { "hello" };
        assert_eq!(ask(&mut client, path).1, body);
    }
    // If there is no body on the wire, only the service knows its length.
    client.write_all(b"HEAD / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    assert!(rest(&mut client).contains("content-length: 10\r\n"));
    runtime.shutdown(crate::support::LIMIT);
}

/// A client that waits for `100 Continue` before it sends its body.
#[test]
fn an_announced_body_is_requested_when_it_is_read() {
    let (runtime, server) = outside!();
    let mut client = connect(server.addr);
    client.write_all(b"POST /read HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n").unwrap();
    assert!(reply(&mut client).0.starts_with("HTTP/1.1 100 Continue\r\n"));
    client.write_all(b"hello").unwrap();
    assert_eq!(reply(&mut client).1, "5 bytes");
    assert_eq!(ask(&mut client, "/hello").1, "hello", "the connection goes on");
    // If the service does not read the body, the client may or may not send it, so the start of the
    // next request is unknown.
    client.write_all(b"POST /hello HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n").unwrap();
    let (head, body) = reply(&mut client);
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("connection: close") && body == "hello", "{head}");
    assert_eq!(rest(&mut client), "");
    end(runtime, server);
}

/// In HTTP/1.0 a reply of unknown length ends with its connection; one of known length does not, if
/// the client asks for that.
#[test]
fn old_clients_are_served() {
    let (runtime, server) = outside!();
    let mut client = connect(server.addr);
    client.write_all(b"GET /hello HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").unwrap();
    let (head, body) = reply(&mut client);
    assert!(head.contains("connection: keep-alive") && body == "hello", "{head}");
    client.write_all(b"POST /echo HTTP/1.0\r\ncontent-length: 5\r\n\r\nhello").unwrap();
    let all = rest(&mut client);
    assert!(
        all.contains("connection: close") && !all.contains("transfer-encoding") && all.ends_with("\r\n\r\nhello"),
        "{all}"
    );
    end(runtime, server);
}

#[test]
fn large_heads_are_refused() {
    let (runtime, server) = outside!(server => server.head_max_bytes(16 << 10));
    // Within the limit.
    let mut client = connect(server.addr);
    let some = format!("GET /hello HTTP/1.1\r\nhost: a\r\nx-long: {}\r\n\r\n", "x".repeat(12 << 10));
    client.write_all(some.as_bytes()).unwrap();
    assert_eq!(reply(&mut client).1, "hello");
    for head in [
        format!("GET /hello HTTP/1.1\r\nhost: a\r\nx-long: {}\r\n\r\n", "x".repeat(64 << 10)),
        format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(64 << 10)),
        format!("GET /hello HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(101)),
    ] {
        let mut client = connect(server.addr);
        // The server may close before all is sent.
        let _ = client.write_all(head.as_bytes());
        let reply = rest(&mut client);
        assert!(reply.starts_with("HTTP/1.1 431 ") || reply.starts_with("HTTP/1.1 414 "), "{reply:?}");
    }
    drop(client);
    end(runtime, server);
}

#[test]
fn malformed_requests_are_answered_and_not_served() {
    let (runtime, server) = outside!();
    for nonsense in [
        "nonsense\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "\u{16}\u{3}\u{1}xyz\r\n\r\n",
    ] {
        let mut client = connect(server.addr);
        client.write_all(nonsense.as_bytes()).unwrap();
        let reply = rest(&mut client);
        let is_refused = reply.starts_with("HTTP/1.1 400 ") || reply.starts_with("HTTP/1.1 505 ");
        assert!(is_refused, "{nonsense:?}: {reply:?}");
    }
    assert_eq!(server.handle.requests(), 0);
    end(runtime, server);
}

#[test]
fn half_a_request_and_gone() {
    let (runtime, server) = outside!();
    for half in [
        "",
        "G",
        "GET /hello HTTP/1.1\r\nhos",
        "POST /read HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf",
        "PRI * HTT",
    ] {
        let mut client = connect(server.addr);
        client.write_all(half.as_bytes()).unwrap();
        drop(client);
    }
    let mut client = connect(server.addr);
    assert_eq!(ask(&mut client, "/hello").1, "hello");
    drop(client);
    crate::support::eventually("nobody is left", || server.handle.connections() == 0);
    end(runtime, server);
}

#[test]
fn a_body_announced_as_too_large_is_not_read() {
    let (runtime, server) = outside!(server => server.body_max_bytes(1_000));
    let mut client = connect(server.addr);
    client.write_all(b"POST /read HTTP/1.1\r\nhost: a\r\ncontent-length: 1001\r\n\r\n").unwrap();
    let (head, body) = reply(&mut client);
    assert!(head.starts_with("HTTP/1.1 413 ") && head.contains("connection: close"), "{head}");
    assert_eq!(body, "The request's body is larger than this server accepts.\n");
    assert_eq!(rest(&mut client), "");
    // At the limit.
    let mut client = connect(server.addr);
    client
        .write_all(
            format!("POST /read HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{}", "x".repeat(1_000)).as_bytes(),
        )
        .unwrap();
    assert_eq!(reply(&mut client).1, "1000 bytes");
    assert_eq!(ask(&mut client, "/hello").1, "hello");
    drop(client);
    end(runtime, server);
}

#[test]
fn a_body_that_gets_too_large_ends_there() {
    let (runtime, server) = outside!(server => server.body_max_bytes(1_000));
    let mut client = connect(server.addr);
    client.write_all(b"POST /read HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    // More than buffers hold: the reply has to arrive although the server reads no further.
    for _ in 0..500 {
        if client.write_all(format!("3e8\r\n{}\r\n", "x".repeat(1_000)).as_bytes()).is_err() {
            break;
        }
    }
    let (head, _) = reply(&mut client);
    assert!(head.starts_with("HTTP/1.1 413 "), "the handler replies 418, and the client gets the true reason: {head}");
    drop(client);
    end(runtime, server);
}

/// Refusing a request while its body is in transit ends its connection; refusing one without a body
/// does not.
#[test]
fn a_refusal_does_not_wait_for_the_body() {
    let (runtime, server) = outside!();
    let mut client = connect(server.addr);
    assert!(!ask(&mut client, "/refuse").0.contains("connection: close"));
    client.write_all(b"POST /refuse HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n").unwrap();
    let (head, _) = reply(&mut client);
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("connection: close"), "{head}");
    assert_eq!(rest(&mut client), "");
    end(runtime, server);
}

/// A handler that answers without reading the body: the reply arrives, and the body is not taken
/// for a request.
#[test]
fn an_unread_body_is_not_a_request() {
    let (runtime, server) = outside!();
    let mut client = connect(server.addr);
    client.write_all(b"POST /hello HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n").unwrap();
    let smuggled = get("/panic").repeat(2_000);
    let _ = client.write_all(smuggled.as_bytes());
    assert_eq!(reply(&mut client).1, "hello");
    assert_eq!(rest(&mut client), "");
    assert_eq!(server.handle.requests(), 1);
    end(runtime, server);
}
