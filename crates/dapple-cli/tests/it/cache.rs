//! The caches: changes show, memory stays bounded, a file is read once.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::support::{Server, Site, eventually, noise, shows_within_a_second};

#[test]
fn a_changed_file_shows_within_a_second() {
    let site = Site::new();
    site.write("page.txt", "one");
    let server = Server::start(&site.path, &[]);
    assert_eq!(server.get("/page.txt").text(), "one");
    let mut client = server.connect();
    let mut shows = |content: &str| shows_within_a_second(|| client.get("/page.txt").text() == content);
    // Of equal length, in quick succession, several times: time stamps alone could not distinguish
    // these.
    for content in ["two", "six", "ten"] {
        site.write("page.txt", content);
        assert!(shows(content), "{content}");
    }
    site.write("new.txt", "seven");
    std::fs::rename(site.path.join("new.txt"), site.path.join("page.txt")).unwrap();
    assert!(shows("seven"));
}

#[test]
fn a_file_that_appears_or_goes_shows_within_a_second() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    assert_eq!(server.get("/late.txt").status, 404);
    site.write("late.txt", "here");
    assert!(shows_within_a_second(|| server.get("/late.txt").status == 200));
    std::fs::remove_file(site.path.join("late.txt")).unwrap();
    assert!(shows_within_a_second(|| server.get("/late.txt").status == 404));
}

#[test]
fn a_large_file_is_streamed_in_bounded_memory() {
    let site = Site::with_index();
    let large = noise(64 << 20, 1);
    site.write("large.bin", &large);
    let server = Server::start(&site.path, &["--cache-mb", "4"]);
    assert_eq!(server.get("/").status, 200);
    let before = server.resident_max();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(server.get("/large.bin").body == large, "the body is right"));
        }
    });
    let grown = server.resident_max() - before;
    assert!(grown < 16 << 20, "four downloads of 64 MB took {grown} bytes more");
    assert_eq!(server.connect().request("HEAD", "/large.bin", "").header("content-length"), Some("67108864"));
}

#[test]
fn a_slow_reader_does_not_make_the_server_buffer() {
    let site = Site::new();
    site.write("large.bin", noise(64 << 20, 1));
    let server = Server::start(&site.path, &["--cache-mb", "4"]);
    let mut readers: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for reader in &mut readers {
        reader.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(reader.read_head().status, 200);
    }
    // Each client now has an open response that it stops reading; another client is served as
    // usual.
    assert_eq!(server.get("/large.bin").body.len(), 64 << 20);
    let resident = server.resident_max();
    assert!(resident < 64 << 20, "{resident} bytes for 20 slow readers");
}

#[test]
fn a_file_that_shrinks_ends_the_response_visibly() {
    let site = Site::new();
    site.write("large.bin", noise(32 << 20, 1));
    let server = Server::start(&site.path, &["--cache-mb", "1"]);
    let mut client = server.connect();
    client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_head().header("content-length"), Some("33554432"));
    std::fs::File::options().write(true).open(site.path.join("large.bin")).unwrap().set_len(1 << 20).unwrap();
    // An error or an early end: the client must not take it for the whole file.
    if let Ok(body) = client.read_to_end() {
        assert!(body.len() < 32 << 20);
    }
}

/// The server cannot tell whether only the end of the file is new.
#[test]
fn writing_to_a_file_ends_its_response_visibly() {
    let site = Site::new();
    let content = noise(32 << 20, 1);
    site.write("large.log", &content);
    let server = Server::start(&site.path, &["--cache-mb", "1"]);
    let mut client = server.connect();
    client.send("GET /large.log HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_head().header("content-length"), Some("33554432"));
    let log = std::fs::File::options().append(true).open(site.path.join("large.log"));
    log.unwrap().write_all(&noise(1 << 20, 2)).unwrap();
    if let Ok(body) = client.read_to_end() {
        assert!(body.len() < content.len() && content.starts_with(&body));
    }
    // A file that is no longer written to is sent again.
    assert!(eventually(LIMIT, || server.get("/large.log").body.len() == 33 << 20));
}

#[test]
fn a_small_cache_evicts_and_stays_right() {
    let site = Site::new();
    let pages: Vec<Vec<u8>> = (0..400).map(|seed| noise(20_000, seed + 1)).collect();
    for (number, page) in pages.iter().enumerate() {
        site.write(&format!("{number}.bin"), page);
    }
    let server = Server::start(&site.path, &["--cache-mb", "2"]);
    let mut client = server.connect();
    for round in 0..3 {
        for (number, page) in pages.iter().enumerate() {
            assert!(client.get(&format!("/{number}.bin")).body == *page, "{number} in round {round}");
        }
    }
    let status: serde_json::Value = serde_json::from_slice(&client.get("/-/status").body).unwrap();
    let shards = status["page_cache"].as_array().unwrap();
    let bytes: u64 = shards.iter().map(|shard| shard["bytes"].as_u64().unwrap()).sum();
    let evictions: u64 = shards.iter().map(|shard| shard["evictions"].as_u64().unwrap()).sum();
    assert!(bytes <= 2 << 20 && bytes > 1 << 20, "{bytes}");
    assert!(evictions > 400, "{evictions}");
}

#[test]
fn no_cache_at_all_works_too() {
    let site = Site::new();
    site.write("page.txt", "page");
    site.write("empty.txt", "");
    let server = Server::start(&site.path, &["--cache-mb", "0"]);
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/page.txt").text(), "page");
        assert_eq!(client.get("/empty.txt").header("content-length"), Some("0"));
    }
}

#[test]
fn parts_of_a_file_are_served() {
    let site = Site::new();
    let content = noise(2_000_000, 4);
    site.write("film.mp4", &content);
    // Both from memory and streamed.
    for cache_mb in ["100", "1"] {
        let server = Server::start(&site.path, &["--cache-mb", cache_mb]);
        let mut client = server.connect();
        let whole = client.get("/film.mp4");
        assert_eq!((whole.status, whole.header("accept-ranges")), (200, Some("bytes")));
        let etag = whole.header("etag").unwrap();
        for (range, part, shown) in [
            ("0-99", 0..100, "bytes 0-99/2000000"),
            ("1000000-", 1_000_000..2_000_000, "bytes 1000000-1999999/2000000"),
            ("-5", 1_999_995..2_000_000, "bytes 1999995-1999999/2000000"),
        ] {
            let headers = format!("Range: bytes={range}\r\nIf-Range: {etag}\r\n");
            let response = client.request("GET", "/film.mp4", &headers);
            assert_eq!((response.status, response.header("content-range")), (206, Some(shown)), "{range}");
            assert!(response.body == content[part], "{range}");
        }
        let outside = client.request("GET", "/film.mp4", "Range: bytes=2000000-\r\n");
        assert_eq!((outside.status, outside.header("content-range")), (416, Some("bytes */2000000")));
        let changed = client.request("GET", "/film.mp4", "Range: bytes=0-9\r\nIf-Range: \"other\"\r\n");
        assert_eq!((changed.status, changed.body.len()), (200, 2_000_000));
    }
}

/// Not even for a moment, as it would if the page were in memory.
#[test]
fn a_removed_file_stays_gone() {
    let site = Site::new();
    site.write("page.txt", "here");
    site.write("other.txt", "here");
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    assert_eq!((client.get("/page.txt").status, client.get("/other.txt").status), (200, 200));
    std::fs::remove_file(site.path.join("page.txt")).unwrap();
    std::fs::remove_file(site.path.join("other.txt")).unwrap();
    std::fs::create_dir(site.path.join("other.txt")).unwrap();
    assert!(eventually(LIMIT, || server.get("/page.txt").status == 404));
    assert!(eventually(LIMIT, || server.get("/other.txt").status == 301));
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1_200) {
        assert_eq!((client.get("/page.txt").status, client.get("/other.txt").status), (404, 301));
    }
}

/// A limit that only a bug reaches, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);
