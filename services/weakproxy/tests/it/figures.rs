//! The figures of the README.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use image::ImageFormat;

use super::origin::{encoded, jpeg, logo, photo};
use super::{KEPT, Scene};

#[test]
#[ignore = "figures are measured on their own: cargo test --release -p weakproxy figures -- --ignored --nocapture"]
fn figures() {
    let Some(scene) = Scene::new(&[]) else { return };
    let Scene { origin, proxy, .. } = &scene;
    let script = format!("<script>{}</script>", "f(1);".repeat(8_000));
    let page =
        format!("<!doctype html><title>T</title>{script}{}", "<p>A line of text.</p><!-- a comment -->".repeat(500));
    let mut files = vec![("/".to_owned(), "text/html", page.into_bytes())];
    for number in 0..6 {
        files.push((format!("/{number}.jpg"), "image/jpeg", jpeg(&photo(1600 + number * 8, 1200), 85)));
    }
    files.push(("/logo.png".to_owned(), "image/png", encoded(&logo(600, 200), ImageFormat::Png)));
    for login in ["browser", "phone", "pager"] {
        let (mut before, mut after) = (0, 0);
        for (path, kind, body) in &files {
            origin.set(path, &[&format!("Content-Type: {kind}"), KEPT], body.clone());
            before += body.len();
            after += proxy.get(login, &[], &origin.url(path)).body.len();
        }
        println!(
            "{login}: a page with 7 pictures, {before} bytes before and {after} after, {:.1} %",
            100.0 * after as f64 / before as f64
        );
    }
    for path in ["/", "/0.jpg"] {
        let len = proxy.get("phone", &[], &origin.url(path)).body.len();
        let address = proxy.base.strip_prefix("http://").unwrap();
        let login = "cGhvbmU6"; // phone:
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nProxy-Authorization: Basic {login}\r\n\r\n",
            origin.url(path),
            origin.base.strip_prefix("http://").unwrap()
        );
        let (count, begin) = (AtomicU64::new(0), Instant::now());
        thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(|| {
                    let mut stream = TcpStream::connect(address).unwrap();
                    while begin.elapsed() < TIME {
                        stream.write_all(request.as_bytes()).unwrap();
                        let head = answer(&mut stream, len);
                        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("weakproxy; hit"), "{head}");
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let rate = count.into_inner() as f64 / begin.elapsed().as_secs_f64();
        println!("{path}: {rate:.0} answers a second from the table, of {len} bytes, to {CONNECTIONS} connections");
    }
}

/// Reads a whole answer, and returns its head.
fn answer(stream: &mut TcpStream, len: usize) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 64 << 10];
    loop {
        let count = stream.read(&mut chunk).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&chunk[..count]);
        if let Some(end) = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n")
            && bytes.len() >= end + 4 + len
        {
            return String::from_utf8_lossy(&bytes[..end]).into_owned();
        }
    }
}

const CONNECTIONS: usize = 16;
const TIME: Duration = Duration::from_secs(5);
