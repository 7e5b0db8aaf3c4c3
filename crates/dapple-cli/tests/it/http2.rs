//! HTTP/2 by prior knowledge: bodies, rules, and slow or hostile peers.

use std::time::Duration;

use bytes::Bytes;
use dapple::hyper_rt::{Executor, Timer};
use dapple::net::TcpStream;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use rustix::process::Signal;

use soak::{DATA, Frames, GOAWAY, HEADERS, RST_STREAM, Wire};

use crate::support::{Server, Site, noise};

type Sender = http2::SendRequest<Empty<Bytes>>;

fn frames(port: u16, window: u32) -> Frames {
    Frames::begin(Wire::plain(port).unwrap(), window).unwrap()
}

/// The status of the next reply, if HPACK has a number for it.
fn next_status(client: &mut Frames) -> u16 {
    let frame = client.until(HEADERS).unwrap().expect("a reply");
    match frame.payload[0] {
        0x88 => 200,
        0x8b => 304,
        0x8c => 400,
        0x8d => 404,
        0x8e => 500,
        other => panic!("{other:x} is none of them"),
    }
}

async fn connect(port: u16) -> Sender {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (sender, connection) =
        http2::Builder::new(Executor::new()).timer(Timer::new()).handshake(stream).await.unwrap();
    drop(dapple::spawn(connection));
    sender
}

async fn get(mut sender: Sender, path: &str) -> (u16, Bytes) {
    let request = Request::get(format!("http://test{path}")).body(Empty::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    (status, response.into_body().collect().await.unwrap().to_bytes())
}

fn all_streams_get_their_bodies(options: &[&str]) {
    let site = Site::new();
    let pages: Vec<Vec<u8>> = (0..40).map(|seed| noise(10 + 7_000 * seed, seed as u64 + 1)).collect();
    for (number, page) in pages.iter().enumerate() {
        site.write(&format!("{number}.bin"), page);
    }
    let server = Server::start(&site.path, options);
    let port = server.port;
    dapple::block_on(async move {
        let sender = connect(port).await;
        let tasks: Vec<_> = (0..200)
            .map(|number| {
                let sender = sender.clone();
                let number = number % pages.len();
                dapple::spawn(async move { (number, get(sender, &format!("/{number}.bin")).await) })
            })
            .collect();
        for task in tasks {
            let (number, (status, body)) = task.await.unwrap();
            assert_eq!(status, 200);
            assert!(body == pages[number], "{number}: {} bytes", body.len());
        }
        assert_eq!(get(sender, "/missing").await.0, 404);
    });
}

#[test]
fn all_streams_of_a_connection_get_their_bodies() {
    all_streams_get_their_bodies(&[]);
}

#[test]
fn all_streams_get_their_bodies_from_the_disk_and_with_one_color() {
    all_streams_get_their_bodies(&["--cache-mb", "0", "--serial"]);
}

#[test]
fn the_host_is_given_once() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let mut client = frames(server.port, 65_535);
    let cases: [(&[(&str, &str)], u16); 6] = [
        (&[(":authority", "a.example")], 200),
        (&[("host", "a.example")], 200),
        (&[(":authority", "a.example"), ("host", "A.example")], 200),
        (&[(":authority", "a.example"), ("host", "b.example")], 400),
        (&[(":authority", "user@a.example")], 400),
        (&[], 400),
    ];
    for (index, (fields, status)) in cases.into_iter().enumerate() {
        client.get(2 * index as u32 + 1, "/", fields).unwrap();
        assert_eq!(next_status(&mut client), status, "{fields:?}");
    }
}

#[test]
fn a_peer_that_opens_no_window_is_dropped() {
    let site = Site::new();
    site.write("page.bin", noise(100_000, 1));
    site.write("large.bin", noise(20 << 20, 1));
    // One page from the cache, and one that is streamed.
    let server = Server::start(&site.path, &["--cache-mb", "20", "--pause-timeout-s", "1", "--idle-timeout-s", "5"]);
    for path in ["/page.bin", "/large.bin"] {
        let mut client = frames(server.port, 0);
        client.get(1, path, &[(":authority", "a")]).unwrap();
        assert_eq!(next_status(&mut client), 200);
        let mut kinds = Vec::new();
        while let Some(frame) = client.receive().unwrap() {
            kinds.push(frame.kind);
        }
        assert!(kinds.contains(&RST_STREAM) && kinds.contains(&GOAWAY), "{path}: {kinds:?}");
        assert!(!kinds.contains(&DATA), "{path}: {kinds:?}");
    }
    assert_eq!(server.get("/page.bin").status, 200);
}

#[test]
fn an_idle_connection_ends_with_goaway() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &["--idle-timeout-s", "1"]);
    let mut client = frames(server.port, 65_535);
    client.get(1, "/", &[(":authority", "a")]).unwrap();
    assert_eq!(next_status(&mut client), 200);
    assert!(client.until(GOAWAY).unwrap().is_some());
    while client.receive().unwrap().is_some() {}
}

#[test]
fn repeated_stream_resets_end_the_connection() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let mut client = frames(server.port, 65_535);
    for number in 0..20_000 {
        let stream = 2 * number + 1;
        if client.get(stream, "/", &[(":authority", "a")]).and_then(|()| client.reset(stream)).is_err() {
            break;
        }
    }
    let mut replies = 0;
    while let Some(frame) = client.receive().unwrap() {
        replies += usize::from(frame.kind == HEADERS);
        if frame.kind == GOAWAY {
            // ENHANCE_YOUR_CALM
            assert_eq!(frame.payload[4..8], 11_u32.to_be_bytes());
        }
    }
    assert!(replies < 20_000, "{replies}");
    assert_eq!(server.get("/").status, 200, "others are served");
}

#[test]
fn a_download_in_flight_is_finished_at_the_end() {
    let site = Site::new();
    let large = noise(30 << 20, 5);
    site.write("large.bin", &large);
    let mut server = Server::start(&site.path, &["--cache-mb", "1"]);
    let port = server.port;
    let runtime = dapple::builder().workers(2).build().unwrap();
    let body = runtime.block_on(async {
        let mut sender = connect(port).await;
        let request = Request::get("http://test/large.bin").body(Empty::new()).unwrap();
        let mut response = sender.send_request(request).await.unwrap();
        let mut body = response.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
        server.signal(Signal::TERM);
        body.extend_from_slice(&response.into_body().collect().await.unwrap().to_bytes());
        body
    });
    assert!(body == large, "{} of {} bytes", body.len(), large.len());
    assert_eq!(server.wait(Duration::from_secs(40)).expect("it stops").code(), Some(0));
}
