//! A limit on memory.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Client, Server, Site, eventually, noise};

fn status(client: &mut Client) -> Value {
    serde_json::from_slice(&client.get("/-/status").body).unwrap()
}

#[test]
fn close_to_its_limit_the_cache_gives_up_memory_and_new_clients_wait() {
    let site = Site::with_index();
    let content = noise(1 << 20, 5);
    for index in 0..120 {
        site.write(&format!("{index}.bin"), &content);
    }
    let mut server = Server::start_with_log(&site.path, &["--memory-limit-mb", "64", "--cache-mb", "512"]);
    let mut client = server.connect();
    assert_eq!(client.get("/").status, 200);
    let mut index = 0;
    let refused = || {
        for _ in 0..30 {
            index = (index + 1) % 120;
            assert_eq!(client.get(&format!("/{index}.bin")).body.len(), content.len(), "a connected client is served");
        }
        let mut stranger = server.connect();
        // A refusal arrives without a request.
        stranger.try_get("/").is_ok_and(|status| status == 503)
    };
    assert!(eventually(LIMIT, refused), "a new client is refused");
    let memory = status(&mut client)["memory"].clone();
    assert_eq!(memory["limit_bytes"], 64 << 20, "{memory}");
    let over = || {
        let memory = status(&mut client)["memory"].clone();
        memory["is_short"] == false && memory["used_bytes"].as_u64() < Some(60 << 20)
    };
    assert!(eventually(LIMIT, over), "{}", status(&mut client));
    assert!(eventually(LIMIT, || server.connect().try_get("/").is_ok_and(|status| status == 200)));
    let seen = status(&mut client);
    assert!(seen["memory"]["page_cache_shrinks"].as_u64() > Some(0), "{seen}");
    assert!(seen["connections"]["refused_for"]["memory"].as_u64() > Some(0), "{seen}");
    let grows = || status(&mut client)["memory"]["page_cache_max_bytes"].as_u64() > Some(100 << 20);
    assert!(eventually(LIMIT, grows), "there is room again: {}", status(&mut client));
    server.signal(Signal::TERM);
    assert_eq!(server.wait(LIMIT).expect("it stops").code(), Some(0));
    let log = server.log_to_end();
    for once in ["memory is short; new connections are refused", "there is enough memory again"] {
        assert!((1..=3).contains(&log.matches(once).count()), "{once}: {log}");
    }
}

// If many clients read nothing, the server frees the data for them, and reads it again when they
// continue.
#[test]
fn a_thousand_clients_that_read_nothing_take_little_memory() {
    let site = Site::new();
    let content = noise(16 << 20, 9);
    site.write("large.bin", &content);
    let server = Server::start(&site.path, &["--cache-mb", "1"]);
    let mut clients: Vec<Client> = (0..1_000).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.read_head().status, 200);
    }
    // Others continue meanwhile, and later so do they.
    assert!(server.get("/large.bin").body == content);
    for client in clients.iter_mut().step_by(100) {
        let mut body = vec![0; content.len()];
        client.read_all(&mut body);
        assert!(body == content);
    }
    let most = server.resident_max();
    assert!(most < 100 << 20, "{most} bytes");
}

#[test]
fn a_cache_is_a_quarter_of_a_low_limit() {
    let site = Site::new();
    for index in 0..64 {
        site.write(&format!("{index}.bin"), noise(512 << 10, index));
    }
    // A page may have half a megabyte in a cache of 16 MB, but not in one of 4 MB.
    let server = Server::start(&site.path, &["--memory-limit-mb", "64"]);
    let mut client = server.connect();
    for index in 0..64 {
        assert_eq!(client.get(&format!("/{index}.bin")).status, 200);
    }
    let seen = status(&mut client);
    let bytes: u64 = seen["page_cache"].as_array().unwrap().iter().map(|shard| shard["bytes"].as_u64().unwrap()).sum();
    assert!((4 << 20..=16 << 20).contains(&bytes), "{seen}");
}

/// A limit that only a bug reaches, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);
