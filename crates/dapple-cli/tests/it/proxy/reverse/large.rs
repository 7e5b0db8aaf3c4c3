//! Bodies that fit into no buffer.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::start;
use crate::proxy::origin::Origin;
use crate::proxy::reply;
use crate::support::{eventually, noise};

#[test]
fn a_client_that_reads_slowly_slows_its_upstream_down() {
    let sent = Arc::new(AtomicU64::new(0));
    let counted = sent.clone();
    let piece = noise(64 << 10, 1);
    let origin = Origin::start(move |_, stream| {
        let len = TOTAL;
        stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n").as_bytes()).unwrap();
        for _ in 0..TOTAL / piece.len() as u64 {
            if stream.write_all(&piece).is_err() {
                return false;
            }
            counted.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        true
    });
    let proxy = start(&origin.url(""), &[]);
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!(client.read_head().status, 200);
    // It stalls as soon as the kernel's buffers are full.
    let mut last = 0;
    assert!(eventually(Duration::from_secs(20), || {
        thread::sleep(Duration::from_millis(300));
        let now = sent.load(Ordering::Relaxed);
        std::mem::replace(&mut last, now) == now && now > 0
    }));
    assert!(last < TOTAL / 2, "{last}");
    let mut all = vec![0; 1 << 20];
    for _ in 0..TOTAL >> 20 {
        client.read_all(&mut all);
    }
    assert_eq!(sent.load(Ordering::Relaxed), TOTAL);
    assert!(proxy.resident_max() < 100 << 20, "{}", proxy.resident_max());
}

#[test]
fn an_upstream_that_reads_slowly_slows_its_client_down() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let sent = AtomicU64::new(0);
    let proxy = start(&url, &[]);
    thread::scope(|scope| {
        let mut client = proxy.connect();
        client.send(format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {TOTAL}\r\n\r\n"));
        let sent = &sent;
        let sending = scope.spawn(move || {
            let piece = noise(64 << 10, 2);
            for _ in 0..TOTAL / piece.len() as u64 {
                client.send(&piece);
                sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
            }
            client.read_response()
        });
        let (mut stream, _) = listener.accept().unwrap();
        let mut last = 0;
        assert!(eventually(Duration::from_secs(15), || {
            thread::sleep(Duration::from_millis(300));
            let now = sent.load(Ordering::Relaxed);
            std::mem::replace(&mut last, now) == now && now > 0
        }));
        assert!(last < TOTAL / 2, "{last}");
        let (mut buf, mut got, mut head_len) = (vec![0; 256 << 10], 0, 0);
        while head_len == 0 || got < head_len + TOTAL as usize {
            let len = stream.read(&mut buf).unwrap();
            assert!(len > 0, "it ended after {got} bytes");
            if head_len == 0 {
                head_len = buf[..len].windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
            }
            got += len;
        }
        stream.write_all(&reply("200 OK", "", "all")).unwrap();
        assert_eq!(sending.join().unwrap().text(), "all");
    });
    assert!(proxy.resident_max() < 100 << 20, "{}", proxy.resident_max());
}

const TOTAL: u64 = 64 << 20;
