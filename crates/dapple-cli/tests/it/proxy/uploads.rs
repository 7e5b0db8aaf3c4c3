//! Request bodies that are answered, or cancelled, before they are complete.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::reply;
use crate::support::{Server, noise};

/// An origin that reads only heads, and passes the connections to `answer`. Returns its address.
fn origin(answer: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{}/", listener.local_addr().unwrap().port());
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = answer.clone();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            thread::spawn(move || {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    head.push(byte[0]);
                }
                answer(stream);
            });
        }
    });
    url
}

#[test]
fn an_early_answer_reaches_the_client_while_it_sends() {
    let proxy = Server::start_proxy(&[]);
    for (status, framing, start) in [
        ("413 Content Too Large", "content-length: 1000000000\r\n", "some"),
        ("413 Content Too Large", "transfer-encoding: chunked\r\n", "4\r\nsome\r\n"),
        ("200 OK", "content-length: 1000000000\r\n", "some"),
        ("200 OK", "transfer-encoding: chunked\r\n", "4\r\nsome\r\n"),
        ("302 Found", "content-length: 1000000000\r\n", "some"),
    ] {
        let url = origin(move |mut stream| {
            stream.write_all(&reply(status, "", "early")).unwrap();
            // Until the other side ends it.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let mut client = proxy.connect();
        client.send(format!("POST {url} HTTP/1.1\r\nhost: x\r\n{framing}\r\n{start}"));
        let response = client.read_response();
        assert_eq!((response.status.to_string().as_str(), response.text()), (&status[..3], "early"), "{framing}");
        // After an error the server need not want more; after any other reply, the client may
        // continue.
        let is_error = response.status >= 400;
        assert_eq!(response.header("connection"), is_error.then_some("close"), "{status} {framing}");
        if is_error {
            assert_eq!(client.read_to_end().unwrap(), b"", "{status} {framing}");
        }
    }
}

/// A server that echoes each body in chunks as it arrives, for many requests.
fn echo() -> String {
    origin(|stream| {
        let mut reader = BufReader::new(stream);
        loop {
            let head = "HTTP/1.1 200 OK\r\ncache-control: no-store\r\ntransfer-encoding: chunked\r\n\r\n";
            reader.get_mut().write_all(head.as_bytes()).unwrap();
            loop {
                let mut chunk = String::new();
                reader.read_line(&mut chunk).unwrap();
                let len = usize::from_str_radix(chunk.trim(), 16).unwrap_or_else(|_| panic!("{chunk:?}"));
                let mut piece = vec![0; len + 2];
                reader.read_exact(&mut piece).unwrap();
                reader.get_mut().write_all(&[chunk.as_bytes(), &piece].concat()).unwrap();
                if len == 0 {
                    break;
                }
            }
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
            }
        }
    })
}

#[test]
fn an_echo_goes_both_ways() {
    let url = echo();
    let reverse = crate::proxy::reverse::start(url.trim_end_matches('/'), &["--cache-mb", "1"]);
    for (proxy, target) in [(Server::start_proxy(&[]), &*url), (reverse, "/")] {
        let mut client = proxy.connect();
        for _ in 0..2 {
            client.send(format!("POST {target} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"));
            for (number, piece) in ["one", "two", "three", "four"].into_iter().enumerate() {
                let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
                client.send(&chunk);
                if number == 0 {
                    let head = client.read_head();
                    assert_eq!((head.status, head.header("transfer-encoding")), (200, Some("chunked")));
                }
                // Each piece comes back before the next one is sent.
                let mut back = vec![0; chunk.len()];
                client.read_all(&mut back);
                assert_eq!(String::from_utf8_lossy(&back), chunk);
            }
            client.send("0\r\n\r\n");
            let mut end = [0; 5];
            client.read_all(&mut end);
            assert_eq!(&end, b"0\r\n\r\n");
        }
    }
}

#[test]
fn after_an_early_answer_the_rest_may_still_be_sent() {
    let proxy = Server::start_proxy(&[]);
    // Answers when a part has arrived, and then reads the rest.
    let sent = noise(100_000, 6);
    let expected = sent.clone();
    let url = origin(move |mut stream| {
        let mut body = [0; 100_000];
        for _ in 0..3 {
            stream.read_exact(&mut body[..10]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncache-control: no-store\r\ncontent-length: 5\r\n\r\n").unwrap();
            stream.read_exact(&mut body[10..]).unwrap();
            let is_whole = body[..] == expected[..];
            stream.write_all(if is_whole { b"early" } else { b"wrong" }).unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap_or(0) == 0 {
                    return;
                }
                head.push(byte[0]);
            }
        }
    });
    let mut client = proxy.connect();
    for _ in 0..3 {
        client.send(format!("POST {url} HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n"));
        client.send(&sent);
        let response = client.read_response();
        assert_eq!((response.status, response.text()), (200, "early"));
        assert_eq!(response.header("connection"), None);
    }
}

#[test]
fn a_client_may_wait_for_the_head_of_an_early_answer() {
    let url = origin(|mut stream| {
        let mut body = [0; 1_000];
        stream.read_exact(&mut body[..10]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncache-control: no-store\r\ncontent-length: 5\r\n\r\n").unwrap();
        stream.read_exact(&mut body[10..]).unwrap();
        stream.write_all(b"early").unwrap();
    });
    let reverse = crate::proxy::reverse::start(url.trim_end_matches('/'), &[]);
    for (proxy, target) in [(Server::start_proxy(&[]), &*url), (reverse, "/")] {
        let mut client = proxy.connect();
        client.send(format!("POST {target} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n"));
        client.send([b'x'; 10]);
        let head = client.read_head();
        assert_eq!((head.status, head.header("content-length")), (200, Some("5")));
        client.send([b'x'; 990]);
        let mut back = [0; 5];
        client.read_all(&mut back);
        assert_eq!(&back, b"early");
    }
}

#[test]
fn a_cancelled_upload_does_not_look_complete_to_the_server() {
    let proxy = Server::start_proxy(&[]);
    let (told, heard) = std::sync::mpsc::channel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{}/", listener.local_addr().unwrap().port());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut got = Vec::new();
            // A reset is an end too, and may arrive before the head.
            let _ = stream.read_to_end(&mut got);
            told.send(got).unwrap();
        }
    });
    for (framing, start) in [
        ("transfer-encoding: chunked\r\n", "4\r\nsome\r\n"),
        ("transfer-encoding: chunked\r\n", "4\r\nsome\r\nzz\r\n"),
        ("content-length: 10\r\n", "some"),
    ] {
        for _ in 0..5 {
            let mut client = proxy.connect();
            client.send(format!("POST {url} HTTP/1.1\r\nhost: x\r\n{framing}\r\n{start}"));
            client.end();
            let got = heard.recv_timeout(Duration::from_secs(60)).expect("the server learns of it");
            let body = got.windows(4).position(|window| window == b"\r\n\r\n").map_or(&[][..], |at| &got[at + 4..]);
            assert!(!body.ends_with(b"0\r\n\r\n") && body.len() < 10, "{framing}{start}: {}", body.escape_ascii());
            assert_eq!(client.read_response().status, 400, "{framing}{start}");
        }
    }
}
