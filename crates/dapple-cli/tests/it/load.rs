//! Many clients at once: every body is right, with and without parallelism.

use crate::support::{Server, Site, noise};

fn all_bodies_are_right(options: &[&str]) {
    let site = Site::new();
    let pages: Vec<Vec<u8>> = (0..64).map(|seed| noise(100 + 1_777 * seed, seed as u64 + 1)).collect();
    for (number, page) in pages.iter().enumerate() {
        site.write(&format!("{number}.bin"), page);
    }
    let server = Server::start(&site.path, options);
    std::thread::scope(|scope| {
        for thread in 0..50 {
            let (server, pages) = (&server, &pages);
            scope.spawn(move || {
                let mut client = server.connect();
                for step in 0..60 {
                    let number = (thread * 7 + step * 13) % pages.len();
                    assert!(client.get(&format!("/{number}.bin")).body == pages[number], "{number}");
                    if step % 20 == 19 {
                        client = server.connect();
                    }
                }
            });
        }
    });
    let status: serde_json::Value = serde_json::from_slice(&server.get("/-/status").body).unwrap();
    assert!(status["requests"].as_u64().unwrap() >= 3_000);
    assert_eq!(status["connections"]["total"], 201);
}

#[test]
fn with_a_color_each() {
    all_bodies_are_right(&[]);
}

#[test]
fn with_everything_on_the_default_color() {
    all_bodies_are_right(&["--serial"]);
}

#[test]
fn with_a_cache_that_is_too_small() {
    all_bodies_are_right(&["--cache-mb", "1"]);
}

#[test]
fn serial_serves_the_same_bytes() {
    let site = Site::with_index();
    site.write("a/b.css", noise(70_000, 3));
    let (parallel, serial) = (Server::start(&site.path, &[]), Server::start(&site.path, &["--serial"]));
    for path in ["/", "/a/b.css", "/a", "/missing", "/%00"] {
        let (one, other) = (parallel.get(path), serial.get(path));
        assert_eq!((one.status, &one.body), (other.status, &other.body), "{path}");
        assert_eq!(one.header("content-type"), other.header("content-type"), "{path}");
    }
}

#[test]
fn simultaneous_misses_all_get_the_page() {
    let site = Site::new();
    let page = noise(3 << 20, 9);
    site.write("page.bin", &page);
    let server = Server::start(&site.path, &[]);
    let before = server.resident_max();
    std::thread::scope(|scope| {
        for _ in 0..30 {
            scope.spawn(|| assert!(server.get("/page.bin").body == page));
        }
    });
    let grown = server.resident_max() - before;
    // Thirty copies would be 90 MB.
    assert!(grown < 30 << 20, "{grown}");
}
