//! Ranges against the real server: RFC 9110, section 14.

use std::ops::Range;

use crate::support::{Response, Server, Site, noise};

/// The parts of a `multipart/byteranges` body: type, range and content of each.
fn parts(reply: &Response) -> Vec<(String, String, Vec<u8>)> {
    let kind = reply.header("content-type").unwrap();
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let mut rest = &reply.body[..];
    let mut parts = Vec::new();
    let opening = format!("--{boundary}\r\n");
    rest = rest.strip_prefix(opening.as_bytes()).expect("the first part");
    loop {
        let head_len = rest.windows(4).position(|four| four == b"\r\n\r\n").expect("the end of a part's head");
        let head = std::str::from_utf8(&rest[..head_len]).unwrap();
        let value = |name: &str| {
            let line =
                head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name} in {head}"));
            line.to_owned()
        };
        let (kind, range) = (value("content-type: "), value("content-range: "));
        let numbers = range.strip_prefix("bytes ").unwrap().split('/').next().unwrap();
        let (first, last) = numbers.split_once('-').unwrap();
        let len = last.parse::<usize>().unwrap() - first.parse::<usize>().unwrap() + 1;
        rest = &rest[head_len + 4..];
        parts.push((kind, range, rest[..len].to_vec()));
        rest = &rest[len..];
        if let Some(next) = rest.strip_prefix(format!("\r\n--{boundary}\r\n").as_bytes()) {
            rest = next;
        } else {
            assert_eq!(rest, format!("\r\n--{boundary}--\r\n").as_bytes());
            return parts;
        }
    }
}

#[test]
fn several_ranges_come_as_several_parts() {
    let site = Site::new();
    let content = noise(2_000_000, 9);
    site.write("film.mp4", &content);
    // From memory, and streamed from the disk.
    for cache_mb in ["100", "1"] {
        let server = Server::start(&site.path, &["--cache-mb", cache_mb]);
        let mut client = server.connect();
        let check = |reply: &Response, expected: &[Range<usize>]| {
            assert_eq!(reply.status, 206);
            assert!(reply.header("content-range").is_none(), "each part has its own");
            let parts = parts(reply);
            assert_eq!(parts.len(), expected.len());
            for ((kind, range, body), expected) in parts.iter().zip(expected) {
                assert_eq!(kind, "video/mp4");
                assert_eq!(*range, format!("bytes {}-{}/2000000", expected.start, expected.end - 1));
                assert!(*body == content[expected.clone()]);
            }
        };
        let reply = client.request("GET", "/film.mp4", "Range: bytes=0-9,1000-200999,-100\r\n");
        check(&reply, &[0..10, 1_000..201_000, 1_999_900..2_000_000]);
        assert_eq!(client.request("GET", "/film.mp4", "").header("etag"), reply.header("etag"));
        // In the requested order.
        let reply = client.request("GET", "/film.mp4", "Range: bytes=500000-500009, 0-9\r\n");
        check(&reply, &[500_000..500_010, 0..10]);
        // Missing ranges are left out; overlapping ones are joined.
        let reply = client.request("GET", "/film.mp4", "Range: bytes=0-9,5000-5099,5050-5199,9999999-\r\n");
        check(&reply, &[0..10, 5_000..5_200]);
        // The connection is still in step.
        assert_eq!(client.request("HEAD", "/film.mp4", "").status, 200);
    }
}

#[test]
fn one_part_is_not_sent_as_multipart() {
    let site = Site::new();
    let content = noise(10_000, 3);
    site.write("a.bin", &content);
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    for (range, part, shown) in [
        ("0-99,100-199", 0..200, "bytes 0-199/10000"),
        ("0-0,99999-", 0..1, "bytes 0-0/10000"),
        ("5-9,0-6", 0..10, "bytes 0-9/10000"),
    ] {
        let reply = client.request("GET", "/a.bin", &format!("Range: bytes={range}\r\n"));
        assert_eq!((reply.status, reply.header("content-range")), (206, Some(shown)), "{range}");
        assert_eq!(reply.header("content-type"), Some("application/octet-stream"));
        assert!(reply.body == content[part], "{range}");
    }
}

#[test]
fn invalid_ranges_are_ignored() {
    let site = Site::new();
    site.write("a.txt", "0123456789");
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    let many: Vec<String> = (0..500).map(|at| format!("{at}-{at}")).collect();
    for range in
        ["bytes=5-2", "bytes=x", "pages=1-2", "bytes=", "bytes=0-,0-,0-,0-,0-", "bytes=1-2\r\nRange: bytes=3-4"]
            .into_iter()
            .chain([format!("bytes={}", many.join(",")).as_str()])
    {
        let reply = client.request("GET", "/a.txt", &format!("Range: {range}\r\n"));
        assert_eq!((reply.status, reply.text()), (200, "0123456789"), "{range}");
    }
    let head = client.request("HEAD", "/a.txt", "Range: bytes=0-1\r\n");
    assert_eq!((head.status, head.header("content-length")), (200, Some("10")), "for GET only");
    let outside = client.request("GET", "/a.txt", "Range: bytes=10-,20-30\r\n");
    assert_eq!((outside.status, outside.header("content-range")), (416, Some("bytes */10")));
    assert_eq!(client.get("/a.txt").status, 200);
}

#[test]
fn an_empty_file_has_no_parts() {
    let site = Site::new();
    site.write("empty.bin", "");
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    let first = client.request("GET", "/empty.bin", "Range: bytes=0-\r\n");
    assert_eq!((first.status, first.header("content-range")), (416, Some("bytes */0")));
    let last = client.request("GET", "/empty.bin", "Range: bytes=-5\r\n");
    assert_eq!((last.status, last.body.len()), (200, 0));
}
