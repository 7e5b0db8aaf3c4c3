//! Connections that change their protocol.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::http2::Upstream;
use super::start;
use crate::proxy::origin::Origin;
use crate::proxy::reply;
use crate::support::{Server, eventually, noise};

/// Accepts WebSocket, and sends each frame back unmasked, until it gets a close frame.
fn echo() -> Origin {
    Origin::start(|asked, stream| {
        let is_wanted = asked.header("upgrade").is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"));
        if !is_wanted || asked.header("sec-websocket-key").is_none() {
            return stream.write_all(&reply("426 Upgrade Required", "upgrade: websocket\r\n", "no")).is_ok();
        }
        // The value for the key of RFC 6455, section 1.3; with a first frame in the same packet.
        let head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
            Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\x81\x05hello";
        stream.write_all(head).unwrap();
        while let Some((opcode, payload)) = receive(stream) {
            send(stream, opcode, None, &payload);
            if opcode == CLOSE {
                break;
            }
        }
        false
    })
}

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;

/// Sends one frame (RFC 6455, section 5.2).
fn send(stream: &mut TcpStream, opcode: u8, mask: Option<[u8; 4]>, payload: &[u8]) {
    let mut frame = vec![0x80 | opcode];
    let masked = if mask.is_some() { 0x80 } else { 0 };
    match payload.len() {
        len @ 0..=125 => frame.push(masked | len as u8),
        len @ 126..=65_535 => {
            frame.push(masked | 126);
            frame.extend((len as u16).to_be_bytes());
        }
        len => {
            frame.push(masked | 127);
            frame.extend((len as u64).to_be_bytes());
        }
    }
    frame.extend(mask.unwrap_or_default().iter().filter(|_| mask.is_some()));
    let key = mask.unwrap_or_default();
    frame.extend(payload.iter().enumerate().map(|(index, byte)| byte ^ key[index % 4]));
    stream.write_all(&frame).unwrap();
}

/// Receives the next frame, unmasked.
fn receive(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).ok()?;
    let mut number = |len: usize| {
        let mut bytes = [0; 8];
        stream.read_exact(&mut bytes[8 - len..]).ok()?;
        Some(u64::from_be_bytes(bytes) as usize)
    };
    let len = match head[1] & 0x7f {
        126 => number(2)?,
        127 => number(8)?,
        len => usize::from(len),
    };
    let mut key = [0; 4];
    if head[1] & 0x80 != 0 {
        stream.read_exact(&mut key).ok()?;
    }
    let mut payload = vec![0; len];
    stream.read_exact(&mut payload).ok()?;
    payload.iter_mut().enumerate().for_each(|(index, byte)| *byte ^= key[index % 4]);
    Some((head[0] & 0xf, payload))
}

/// Asks for WebSocket, with more fields; returns the connection after the head of the response.
fn handshake(proxy: &Server, fields: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET /chat HTTP/1.1\r\nHost: x\r\n{fields}\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    (stream, String::from_utf8(head).unwrap().to_ascii_lowercase())
}

const ASKED: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[test]
fn websocket_goes_through_both_ways() {
    let origin = echo();
    let proxy = start(&origin.url(""), &[]);
    let (mut stream, head) = handshake(&proxy, ASKED);
    assert!(head.starts_with("http/1.1 101 switching protocols\r\n"), "{head}");
    for line in ["connection: upgrade", "upgrade: websocket", "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="] {
        assert_eq!(head.lines().filter(|found| *found == line).count(), 1, "{line} in {head}");
    }
    assert!(!head.contains("content-length") && !head.contains("transfer-encoding"), "{head}");
    assert_eq!(receive(&mut stream), Some((TEXT, b"hello".to_vec())), "what came with the head is not lost");
    for len in [0, 1, 125, 126, 70_000, 1 << 20] {
        let payload = noise(len, 3);
        send(&mut stream, BINARY, Some([7, 1, 9, 200]), &payload);
        let (opcode, back) = receive(&mut stream).unwrap();
        assert!(opcode == BINARY && back == payload, "{len}: {opcode}, {} bytes", back.len());
    }
    send(&mut stream, CLOSE, Some([1, 2, 3, 4]), &[3, 0xe8]);
    assert_eq!(receive(&mut stream), Some((CLOSE, vec![3, 0xe8])));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    let asked = &origin.asked()[0];
    assert_eq!(asked.header("connection"), Some("upgrade"));
    assert_eq!(asked.header("x-forwarded-for"), Some("127.0.0.1"));
}

#[test]
fn an_upstream_without_upgrades_is_not_asked_for_one() {
    let (able, unable) = (echo(), Upstream::start());
    let proxy = start(&format!("{},{}", unable.url(), able.url("")), &[]);
    // Other requests go to both.
    let is_unable = || proxy.get("/x").text().starts_with("GET http://");
    assert!(eventually(Duration::from_secs(20), is_unable));
    assert!(eventually(Duration::from_secs(20), || !is_unable()));
    for _ in 0..20 {
        let (_, head) = handshake(&proxy, ASKED);
        assert!(head.starts_with("http/1.1 101 "), "{head}");
    }
    // If there is no other upstream, it may refuse by itself.
    let (_, head) = handshake(&start(&unable.url(), &[]), ASKED);
    assert!(head.starts_with("http/1.1 200 "), "{head}");
}

#[test]
fn an_upstream_may_refuse_an_upgrade() {
    let origin = echo();
    let proxy = start(&origin.url(""), &[]);
    let (_, head) = handshake(&proxy, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    assert!(head.starts_with("http/1.1 426 ") && head.contains("content-length: 2"), "{head}");
    // HTTP inside would bypass all rules, so the proxy does not even ask for it.
    for protocol in ["h2c", "HTTP/2.0", "TLS/1.0"] {
        let fields =
            format!("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\nHTTP2-Settings: AAMAAABk\r\n");
        let (_, head) = handshake(&proxy, &fields);
        assert!(head.starts_with("http/1.1 426 "), "{head}");
        let last = origin.asked().pop().unwrap();
        assert_eq!(
            (last.header("upgrade"), last.header("connection"), last.header("http2-settings")),
            (None, None, None)
        );
    }
    let (_, head) = handshake(&proxy, &ASKED.replace("websocket", "h2c, websocket"));
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert_eq!(origin.asked().pop().unwrap().header("upgrade"), Some("websocket"));
}

#[test]
fn another_protocol_than_was_asked_for_is_refused() {
    let origin = Origin::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n").is_err()
    });
    let proxy = start(&origin.url(""), &[]);
    let (_, head) = handshake(&proxy, ASKED);
    assert!(head.starts_with("http/1.1 502 "), "{head}");
}

#[test]
fn such_connections_are_bounded_and_end_when_nothing_moves() {
    let origin = echo();
    let proxy = start(&origin.url(""), &["--tunnels", "1", "--tunnel-timeout-s", "2"]);
    let (mut first, head) = handshake(&proxy, ASKED);
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    let (_, head) = handshake(&proxy, ASKED);
    assert!(head.starts_with("http/1.1 503 ") && head.contains("retry-after: "), "{head}");
    assert_eq!(receive(&mut first), Some((TEXT, b"hello".to_vec())));
    assert_eq!(first.read(&mut [0]).unwrap_or(0), 0, "the tunnel is idle");
    assert!(eventually(Duration::from_secs(20), || handshake(&proxy, ASKED).1.starts_with("http/1.1 101 ")));
}
