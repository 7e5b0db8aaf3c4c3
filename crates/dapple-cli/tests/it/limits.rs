//! Limits of connections, and the kernel's effects on a process.

use std::os::unix::fs::symlink;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Client, Response, Server, Site, eventually, noise};

#[test]
fn one_address_gets_its_share() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &["--connections-per-address", "3"]);
    let mut clients = [server.connect(), server.connect(), server.connect()];
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    let mut one_more = server.connect();
    let refusal = one_more.read_response();
    assert_eq!(refusal.status, 503);
    assert!(refusal.text().contains("Your address"), "{}", refusal.text());
    assert_eq!(one_more.read_to_end().unwrap(), b"", "closed, not reset");
    let status: serde_json::Value = serde_json::from_slice(&clients[0].get("/-/status").body).unwrap();
    assert_eq!(
        (&status["connections"]["refused"], &status["connections"]["refused_for"]["address"]),
        (&1.into(), &1.into())
    );
    drop(clients);
    let back = || server.connect().try_get("/").is_ok_and(|status| status == 200);
    assert!(eventually(LIMIT, back), "there is room again");
}

/// When all places are taken, one that becomes free within a moment goes to a waiting client;
/// otherwise the client is refused at once.
#[test]
fn a_client_waits_for_a_place_that_becomes_free() {
    let site = Site::with_index();
    site.write("large.bin", noise(16 << 20, 9));
    let server = Server::start(&site.path, &["--connections", "2", "--cache-mb", "1"]);
    // Takes both places as soon as they are free, and keeps them in use: an idle connection would
    // make room.
    let both = || loop {
        let mut clients = [server.connect(), server.connect()];
        if clients.iter_mut().all(|client| client.try_get("/large.bin").is_ok_and(|status| status == 200)) {
            return clients;
        }
    };
    // If the machine stalls for longer than the moment, the attempt does not count.
    let served = (0..20).any(|_| {
        let clients = both();
        let mut waiting = server.connect();
        // Time enough to be refused if the server did not wait.
        thread::sleep(Duration::from_millis(20));
        drop(clients);
        waiting.try_get("/").is_ok_and(|status| status == 200)
    });
    assert!(served);
    let _clients = both();
    assert_eq!(server.connect().read_response().status, 503);
}

/// A long list takes a while to make, and for each name of the same directory the server makes it
/// anew.
fn with_lists(names: usize) -> Site {
    let site = Site::with_index();
    (0..2_000).for_each(|file| site.write(&format!("many/{file}"), ""));
    (0..names).for_each(|name| symlink("many", site.path.join(format!("list{name}"))).unwrap());
    site
}

/// Asks for all of them at once, each on a connection of its own.
fn ask_for_lists(server: &Server, names: usize) -> (Vec<Client>, Vec<Response>) {
    let mut clients: Vec<Client> = (0..names).map(|_| server.connect()).collect();
    for (name, client) in clients.iter_mut().enumerate() {
        client.send(format!("GET /list{name}/ HTTP/1.1\r\nHost: test\r\n\r\n"));
    }
    let responses = clients.iter_mut().map(Client::read_response).collect();
    (clients, responses)
}

#[test]
fn excess_disk_reads_are_refused_with_the_reason() {
    let site = with_lists(300);
    let server = Server::start(&site.path, &["--list", "--target-delay-ms", "1"]);
    // From this request the server learns the cost of a list.
    assert_eq!(server.get("/many/").status, 200);
    let (mut clients, responses) = ask_for_lists(&server, 300);
    let responses = responses.into_iter();
    let (served, refused): (Vec<_>, Vec<_>) = responses.partition(|response| response.status == 200);
    assert!(!served.is_empty() && !refused.is_empty(), "{} and {}", served.len(), refused.len());
    for refusal in &refused {
        let retry_after = refusal.header("retry-after").map(|seconds| seconds.parse::<u64>().unwrap());
        assert!(refusal.status == 503 && retry_after >= Some(1), "{refusal:?}");
        let words = "which is so busy that it would take about";
        assert!(refusal.text().contains(words), "{}", refusal.text());
    }
    assert_eq!(clients[0].get("/").status, 200, "pages in memory are never refused");
    let status: serde_json::Value = serde_json::from_slice(&clients[0].get("/-/status").body).unwrap();
    assert_eq!(status["disk"]["refused"], refused.len(), "{status}");
}

/// A page of the site has no place for the reason.
#[test]
fn a_refusal_with_a_page_of_the_site_has_the_reason_in_a_field() {
    let site = with_lists(300);
    site.write("busy.html", "please come back");
    site.write("serve.toml", "[error_pages]\n503 = \"busy.html\"\n");
    let config = site.path.join("serve.toml").display().to_string();
    let server = Server::start(&site.path, &["--list", "--target-delay-ms", "1", "--config", &config]);
    assert_eq!(server.get("/busy.html").status, 200);
    // From this request the server learns the cost of a list.
    assert_eq!(server.get("/many/").status, 200);
    let (_clients, responses) = ask_for_lists(&server, 300);
    let refused: Vec<_> = responses.iter().filter(|response| response.status == 503).collect();
    assert!(!refused.is_empty());
    for refusal in refused {
        let reason = refusal.header("refused-reason").expect("it says why");
        assert!(reason.starts_with("This page has to be read from the disk, "), "{reason}");
        assert_eq!(refusal.text(), "please come back");
    }
}

/// A page in memory that only needs a check is sent unchecked while the disk has no time.
#[test]
fn pages_in_memory_are_served_while_the_disk_is_busy() {
    let site = with_lists(100);
    let server = Server::start(&site.path, &["--list", "--target-delay-ms", "1"]);
    for name in 0..100 {
        let path = format!("/list{name}/");
        assert!(eventually(LIMIT, || server.get(&path).status == 200), "it is listed");
    }
    // Long enough that all of them need a check.
    thread::sleep(Duration::from_millis(500));
    let (mut clients, responses) = ask_for_lists(&server, 100);
    let refused = responses.iter().filter(|response| response.status != 200).count();
    assert_eq!(refused, 0, "all are in memory");
    let status: serde_json::Value = serde_json::from_slice(&clients[0].get("/-/status").body).unwrap();
    assert!(status["disk"]["served_stale"].as_u64() > Some(0), "{status}");
}

#[test]
fn several_addresses_of_both_kinds() {
    let site = Site::with_index();
    let server = Server::start_at(&site.path, &["--addr", "127.0.0.1:0", "--addr", "[::1]:0"]);
    let ports = |prefix: &str| -> Vec<u16> {
        let after = |word: &str| word.strip_prefix(prefix).map(|port| port.parse().unwrap());
        server.line.split_whitespace().filter_map(after).collect()
    };
    let (v4, v6) = (ports("http://127.0.0.1:"), ports("http://[::1]:"));
    assert_eq!((v4.len(), v6.len()), (1, 1), "{}", server.line);
    assert_eq!(server.get("/").status, 200);
    assert_eq!(Server::get_at(("::1", v6[0]), "/").status, 200);
}

#[test]
fn a_port_is_shared_if_both_processes_ask_for_it() {
    let site = Site::with_index();
    let first = Server::start(&site.path, &["--reuse-port"]);
    let addr = format!("127.0.0.1:{}", first.port);
    let second = Server::start_at(&site.path, &["--addr", &addr, "--reuse-port"]);
    let mut counts = [0, 0];
    let both = eventually(LIMIT, || {
        assert_eq!(first.get("/").status, 200);
        let totals = first.get("/-/status");
        let status: serde_json::Value = serde_json::from_slice(&totals.body).unwrap();
        let total = status["connections"]["total"].as_u64().unwrap();
        // Each of the two has seen only a part of the connections.
        counts = if total == 0 { counts } else { [counts[0] + 1, total] };
        counts[0] > 20 && counts[1] < 2 * counts[0]
    });
    assert!(both, "{counts:?}");
    drop(second);
}

#[test]
fn signals_that_stop_and_reload_end_nothing() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    assert_eq!(client.get("/").status, 200);
    server.signal(Signal::STOP);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    std::thread::sleep(Duration::from_millis(500));
    server.signal(Signal::CONT);
    assert_eq!(client.read_response().status, 200, "the server answers as before");
    for signal in [Signal::HUP, Signal::USR1] {
        server.signal(signal);
        assert_eq!(client.get("/").status, 200);
    }
}

#[test]
fn time_in_which_the_process_is_stopped_does_not_count() {
    let site = Site::with_index();
    let len = 16 << 20;
    site.write("large.bin", noise(len, 9));
    let seconds: Vec<String> =
        ["head", "idle", "pause", "request"].map(|name| format!("--{name}-timeout-s=8")).to_vec();
    let mut options: Vec<&str> = seconds.iter().map(String::as_str).collect();
    options.extend(["--send-rate-min", "1", "--rate-grace-s", "8", "--cache-mb", "1"]);
    let mut server = Server::start_with_log(&site.path, &options);
    let [mut idle, mut begun, mut silent] = [server.connect(), server.connect(), server.connect()];
    let mut loading = server.connect();
    assert_eq!(idle.get("/").status, 200);
    begun.send("GET / HTTP/1.1\r\nHost: a\r\n");
    loading.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(loading.read_head().status, 200);
    // The first beat has happened, and the sent bytes have arrived.
    std::thread::sleep(Duration::from_millis(1_500));
    server.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(11));
    server.signal(Signal::CONT);
    // Late enough for every earlier timer to have fired.
    std::thread::sleep(Duration::from_secs(1));
    begun.send("\r\n");
    assert_eq!(begun.read_response().status, 200);
    assert_eq!(idle.get("/").status, 200);
    let (mut content, mut filled) = (vec![0; len], 0);
    while filled < len {
        let count = loading.read(&mut content[filled..]).unwrap();
        assert!(count > 0, "cut after {filled} bytes");
        filled += count;
    }
    assert!(content == noise(len, 9));
    // Clients that are too late even so are dropped.
    assert_eq!(silent.read_to_end().unwrap_or_default(), b"");
    server.signal(Signal::TERM);
    assert_eq!(server.wait(LIMIT).expect("it stops").code(), Some(0));
    let log = server.log_to_end();
    assert!(log.contains("the process did not run for a while"), "{log}");
}

/// A limit that only a bug reaches, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);
