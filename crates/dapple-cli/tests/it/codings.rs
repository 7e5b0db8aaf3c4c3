//! Content codings: neighbor files, pages compressed by the server, and the choice between them.

use std::io::Read;
use std::time::{Duration, SystemTime};

use crate::support::{Response, Server, Site, eventually, noise};

fn decoded(reply: &Response) -> Vec<u8> {
    let mut content = Vec::new();
    match reply.header("content-encoding") {
        Some("br") => brotli::Decompressor::new(&reply.body[..], 4_096).read_to_end(&mut content).unwrap(),
        Some("zstd") => zstd::stream::read::Decoder::new(&reply.body[..]).unwrap().read_to_end(&mut content).unwrap(),
        Some("gzip") => flate2::read::GzDecoder::new(&reply.body[..]).read_to_end(&mut content).unwrap(),
        other => panic!("{other:?} is not a coding"),
    };
    content
}

/// Text that becomes much shorter.
fn text(lines: usize) -> Vec<u8> {
    (0..lines).flat_map(|number| format!("This is line {number} of a text.\n").into_bytes()).collect()
}

fn accept(coding: &str) -> String {
    format!("Accept-Encoding: {coding}\r\n")
}

fn set_modified(site: &Site, name: &str, time: SystemTime) {
    std::fs::File::options().write(true).open(site.path.join(name)).unwrap().set_modified(time).unwrap();
}

#[test]
fn text_is_compressed_for_clients_that_accept_it() {
    let site = Site::new();
    let content = text(5_000);
    site.write("a.txt", &content);
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    let plain = client.get("/a.txt");
    assert!(plain.body == content);
    assert_eq!((plain.header("content-encoding"), plain.header("vary")), (None, Some("accept-encoding")));
    let mut tags = vec![plain.header("etag").unwrap().to_owned()];
    for coding in ["br", "zstd", "gzip"] {
        let reply = client.request("GET", "/a.txt", &accept(coding));
        assert_eq!((reply.status, reply.header("content-encoding")), (200, Some(coding)));
        assert!(decoded(&reply) == content, "{coding}");
        assert!(reply.body.len() < content.len() / 4, "{coding}: {}", reply.body.len());
        assert_eq!(reply.header("content-type"), plain.header("content-type"));
        assert_eq!(reply.header("last-modified"), plain.header("last-modified"));
        assert_eq!(reply.header("vary"), Some("accept-encoding"));
        tags.push(reply.header("etag").unwrap().to_owned());
        // The same bytes again, for the same state, also for HEAD.
        let again = client.request("GET", "/a.txt", &accept(coding));
        assert!(again.body == reply.body && again.header("etag") == reply.header("etag"));
        let head = client.request("HEAD", "/a.txt", &accept(coding));
        assert_eq!(head.header("content-length").unwrap(), reply.body.len().to_string());
        // A client's copy is current if it is the variant that it would get now.
        let lines = format!("{}If-None-Match: {}\r\n", accept(coding), tags.last().unwrap());
        let unchanged = client.request("GET", "/a.txt", &lines);
        assert_eq!((unchanged.status, unchanged.header("vary")), (304, Some("accept-encoding")));
        assert_eq!(unchanged.header("etag"), Some(tags.last().unwrap().as_str()));
        let other = format!("{}If-None-Match: {}\r\n", accept("identity"), tags.last().unwrap());
        assert_eq!(client.request("GET", "/a.txt", &other).status, 200);
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 4, "each variant has its own tag");
    assert!(tags.iter().all(|tag| tag.starts_with('"')), "all are strong");
}

#[test]
fn weights_choose() {
    let site = Site::new();
    site.write("a.css", text(100));
    site.write("short.css", "a{}");
    site.write("photo.jpg", text(100));
    site.write("noise.txt", noise(5_000, 1));
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    let mut coding = |path: &str, accepted: &str| {
        let reply = client.request("GET", path, &accept(accepted));
        (reply.status, reply.header("content-encoding").map(str::to_owned))
    };
    let with = |coding: &str| (200, Some(coding.to_owned()));
    assert_eq!(coding("/a.css", "gzip, deflate, br, zstd"), with("br"));
    assert_eq!(coding("/a.css", "gzip, zstd"), with("zstd"));
    assert_eq!(coding("/a.css", "br;q=0.5, gzip;q=0.8"), with("gzip"));
    assert_eq!(coding("/a.css", "br;q=0, *"), with("zstd"));
    assert_eq!(coding("/a.css", "gzip;q=0.5, identity"), (200, None));
    assert_eq!(coding("/a.css", "deflate"), (200, None));
    assert_eq!(coding("/a.css", ""), (200, None));
    assert_eq!(coding("/a.css", "identity;q=0, gzip"), with("gzip"));
    assert_eq!(coding("/a.css", "identity;q=0, deflate"), (406, None));
    assert_eq!(coding("/a.css", "*;q=0"), (406, None));
    // Content that is short, compressed already, or does not become shorter, stays as it is.
    assert_eq!(coding("/short.css", "br"), (200, None));
    assert_eq!(coding("/photo.jpg", "br"), (200, None));
    assert_eq!(coding("/noise.txt", "gzip"), (200, None));
}

#[test]
fn ranges_refer_to_the_encoded_content() {
    let site = Site::new();
    site.write("a.txt", text(5_000));
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    let whole = client.request("GET", "/a.txt", &accept("gzip"));
    let (len, etag) = (whole.body.len(), whole.header("etag").unwrap());
    let lines = format!("{}Range: bytes=100-\r\nIf-Range: {etag}\r\n", accept("gzip"));
    let rest = client.request("GET", "/a.txt", &lines);
    assert_eq!((rest.status, rest.header("content-encoding")), (206, Some("gzip")));
    assert_eq!(rest.header("content-range").unwrap(), format!("bytes 100-{}/{len}", len - 1));
    assert!(rest.body == whole.body[100..]);
    // A client that has the start of the compressed variant gets no bytes of another variant.
    let lines = format!("Range: bytes=100-\r\nIf-Range: {etag}\r\n");
    assert_eq!(client.request("GET", "/a.txt", &lines).status, 200);
}

#[test]
fn neighbors_replace_the_file() {
    let site = Site::new();
    // No compressor makes these bytes, so they show their source.
    site.write("a.js", text(100));
    site.write("a.js.br", "brotli");
    site.write("a.js.gz", "gzip");
    site.write("index.html", text(100));
    site.write("index.html.gz", "index");
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    for (accepted, coding, body) in [
        ("gzip, br", "br", "brotli"),
        ("gzip", "gzip", "gzip"),
        ("zstd, gzip", "gzip", "gzip"),
        ("br;q=0.1, gzip", "gzip", "gzip"),
    ] {
        let reply = client.request("GET", "/a.js", &accept(accepted));
        assert_eq!((reply.header("content-encoding"), reply.text()), (Some(coding), body), "{accepted}");
        assert_eq!(reply.header("content-type"), Some("text/javascript; charset=utf-8"));
        assert_eq!(reply.header("vary"), Some("accept-encoding"));
        let etag = reply.header("etag").unwrap().to_owned();
        assert!(etag.ends_with(&format!("-{coding}\"")), "{etag}");
        let lines = format!("{}If-None-Match: {etag}\r\n", accept(accepted));
        assert_eq!(client.request("GET", "/a.js", &lines).status, 304);
        let part = client.request("GET", "/a.js", &format!("{}Range: bytes=1-2\r\n", accept(accepted)));
        assert_eq!((part.status, part.text()), (206, &body[1..3]));
    }
    assert_eq!(client.request("GET", "/", &accept("gzip")).text(), "index");
    // Under its own name it is a file like any other.
    let itself = client.request("GET", "/a.js.gz", &accept("gzip"));
    assert_eq!((itself.text(), itself.header("content-encoding")), ("gzip", None));
    assert_eq!((itself.header("content-type"), itself.header("vary")), (Some("application/gzip"), None));
}

#[test]
fn outdated_neighbors_are_ignored() {
    let site = Site::new();
    let content = text(100);
    site.write("a.js", &content);
    site.write("a.js.gz", "old");
    let now = SystemTime::now();
    set_modified(&site, "a.js", now - Duration::from_secs(10));
    set_modified(&site, "a.js.gz", now - Duration::from_secs(20));
    std::fs::create_dir(site.path.join("a.js.br")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        site.path.join("a.js.zst"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    let server = Server::start(&site.path, &[]);
    let get = |accepted: &str| server.connect().request("GET", "/a.js", &accept(accepted));
    for coding in ["gzip", "br", "zstd"] {
        assert!(decoded(&get(coding)) == content, "{coding}");
    }
    // A new one is sent at once, and no longer when it is removed.
    site.write("a.js.gz", "new");
    assert!(eventually(LIMIT, || get("gzip").body == b"new"));
    std::fs::remove_file(site.path.join("a.js.gz")).unwrap();
    assert!(eventually(LIMIT, || get("gzip").body != b"new"));
    assert!(decoded(&get("gzip")) == content);
    // A new version of the file invalidates everything made of the old one.
    site.write("a.js", text(200));
    assert!(eventually(LIMIT, || decoded(&get("zstd")) == text(200)));
}

#[test]
fn large_neighbors_are_streamed() {
    let site = Site::new();
    let packed = noise(1_000_000, 5);
    site.write("a.txt", text(100_000));
    site.write("a.txt.zst", &packed);
    let server = Server::start(&site.path, &["--cache-mb", "1"]);
    let reply = server.connect().request("GET", "/a.txt", &accept("zstd"));
    assert_eq!(reply.header("content-encoding"), Some("zstd"));
    assert!(reply.body == packed);
    // Streamed files are not compressed by the server.
    assert_eq!(server.connect().request("GET", "/a.txt", &accept("br")).header("content-encoding"), None);
}

#[test]
fn simultaneous_requests_get_the_same() {
    let site = Site::new();
    let content = text(20_000);
    site.write("a.txt", &content);
    let server = Server::start(&site.path, &[]);
    std::thread::scope(|scope| {
        for client in 0..24 {
            let (server, content) = (&server, &content);
            scope.spawn(move || {
                let coding = ["br", "zstd", "gzip"][client % 3];
                let reply = server.connect().request("GET", "/a.txt", &accept(coding));
                // When all compression places are taken, the page is sent as it is.
                let body = if reply.header("content-encoding").is_some() { decoded(&reply) } else { reply.body };
                assert!(body == *content, "{coding}");
            });
        }
    });
}

#[test]
fn compressed_pages_count_as_cached() {
    let site = Site::new();
    for page in 0..50 {
        site.write(&format!("{page}.txt"), [noise(30_000, page + 1), text(1_000)].concat());
    }
    let server = Server::start(&site.path, &["--cache-mb", "4"]);
    let mut client = server.connect();
    for page in (0..50).chain(0..50) {
        for coding in ["br", "gzip", "zstd", "identity"] {
            let reply = client.request("GET", &format!("/{page}.txt"), &accept(coding));
            let body = if reply.header("content-encoding").is_some() { decoded(&reply) } else { reply.body };
            assert!(body[..30_000] == noise(30_000, page + 1), "{page} {coding}");
        }
    }
    let status: serde_json::Value = serde_json::from_slice(&client.get("/-/status").body).unwrap();
    let bytes: u64 =
        status["page_cache"].as_array().unwrap().iter().map(|shard| shard["bytes"].as_u64().unwrap()).sum();
    assert!(bytes <= 4 << 20 && bytes > 1 << 20, "{bytes}");
}

#[test]
fn compression_can_be_switched_off() {
    let site = Site::new();
    site.write("a.txt", text(1_000));
    site.write("a.txt.gz", "gzip");
    let server = Server::start(&site.path, &["--no-compress"]);
    let reply = server.connect().request("GET", "/a.txt", &accept("gzip, br, zstd"));
    assert!(reply.body == text(1_000));
    assert_eq!((reply.header("content-encoding"), reply.header("vary")), (None, None));
}

/// A limit that only a bug reaches, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);
