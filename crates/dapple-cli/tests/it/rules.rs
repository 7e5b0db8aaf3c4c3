//! Redirects, header rules and error pages of the configuration.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Client, Server, Site, dapple, eventually};

/// A server with this configuration.
fn start(site: &Site, config: &str) -> Server {
    site.write("serve.toml", format!("port = 0\nworkers = 2\ndir = \"root\"\n{config}"));
    let mut command = dapple();
    command.arg("serve").arg("--config").arg(site.path.join("serve.toml"));
    Server::spawn(command)
}

#[test]
fn redirects_lead_elsewhere() {
    let site = Site::new();
    site.write("root/new/a b.txt", "moved");
    site.write("root/old/kept.txt", "hidden by the rule");
    let config = r#"
        [[redirect]]
        from = "/old/*"
        to = "/new/*"
        status = 308

        [[redirect]]
        from = "/docs"
        to = "https://example.org/docs?from=here"
    "#;
    let server = start(&site, config);
    let mut client = server.connect();
    for (path, status, to) in [
        ("/old/a%20b.txt", 308, "/new/a%20b.txt"),
        ("/old/a?x=1&y", 308, "/new/a?x=1&y"),
        ("/old/kept.txt", 308, "/new/kept.txt"),
        ("/docs?x=1", 302, "https://example.org/docs?from=here"),
    ] {
        let reply = client.get(path);
        assert_eq!((reply.status, reply.header("location")), (status, Some(to)), "{path}");
        assert_eq!(client.request("HEAD", path, "").status, status);
    }
    // No way to redirect to another host, nor to add lines.
    assert_eq!(client.get("/old//example.org").status, 404);
    assert_eq!(client.get("/old/%0d%0aX:%20y").header("location"), Some("/new/%0D%0AX%3A%20y"));
    assert_eq!(client.get("/new/a%20b.txt").text(), "moved");
}

#[test]
fn header_rules_are_for_everything_below_a_path() {
    let site = Site::new();
    site.write("root/index.html", "start");
    site.write("root/assets/a.js", "x".repeat(5_000));
    site.write("root/assets/large.bin", vec![b'x'; 1_000_000]);
    let config = r#"
        cache_mb = 2

        [[header]]
        path = "*"
        set = { x-frame-options = "DENY" }

        [[header]]
        path = "/assets/*"
        set = { cache-control = "public, max-age=31536000, immutable", access-control-allow-origin = "*" }
        remove = ["x-frame-options", "accept-ranges"]
    "#;
    let server = start(&site, config);
    let mut client = server.connect();
    let start = client.get("/");
    assert_eq!((start.header("x-frame-options"), start.header("cache-control")), (Some("DENY"), Some("no-cache")));
    let etag = client.get("/assets/a.js").header("etag").unwrap().to_owned();
    for (path, lines) in [
        ("/assets/a.js", String::new()),
        ("/assets/a.js", "Accept-Encoding: gzip\r\n".to_owned()),
        ("/assets/a.js", "Range: bytes=0-9\r\n".to_owned()),
        ("/assets/a.js", "Range: bytes=0-9,1000-1009\r\n".to_owned()),
        ("/assets/a.js", format!("If-None-Match: {etag}\r\n")),
        ("/assets/large.bin", String::new()),
        ("/assets/missing", String::new()),
    ] {
        let reply = client.request("GET", path, &lines);
        let seen = (
            reply.header("x-frame-options"),
            reply.header("cache-control"),
            reply.header("access-control-allow-origin"),
        );
        assert_eq!(seen, (None, Some("public, max-age=31536000, immutable"), Some("*")), "{path} {lines}");
        assert_eq!(reply.header("accept-ranges"), None, "{path} {lines}");
    }
    assert_eq!(client.get("/missing").header("x-frame-options"), Some("DENY"), "errors too");
}

#[test]
fn errors_get_the_pages_of_the_site() {
    let site = Site::new();
    site.write("root/index.html", "start");
    site.write("root/errors/missing.html", "<h1>not here</h1>");
    let server = start(&site, "[error_pages]\n404 = \"errors/missing.html\"\n405 = \"errors/none.html\"\n");
    let mut client = server.connect();
    let missing = client.get("/nothing.txt");
    assert_eq!((missing.status, missing.text()), (404, "<h1>not here</h1>"));
    assert_eq!(missing.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(missing.header("etag"), None);
    let head = client.request("HEAD", "/nothing.txt", "");
    assert_eq!((head.status, head.header("content-length")), (404, Some("17")));
    // If that page is missing too, the built-in one is sent.
    let not_allowed = client.request("DELETE", "/", "");
    assert!(not_allowed.status == 405 && not_allowed.text().contains("Only for reading"));
    assert_eq!(client.get("/errors/missing.html").status, 200);
}

/// The configuration in state number `state`.
fn state(state: u32) -> String {
    format!(
        "[[header]]\npath = \"*\"\nset = {{ x-state = \"{state}\" }}\n[[redirect]]\nfrom = \"/old\"\nto = \"/{state}\"\n\
         [error_pages]\n404 = \"{}.html\"\n",
        state % 2
    )
}

/// The number of the state by which a reply was made.
fn state_of(client: &mut Client, path: &str) -> u32 {
    client.get(path).header("x-state").unwrap().parse().unwrap()
}

/// Tells the clients to stop, also if the test fails: otherwise the test would wait for them for
/// ever.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn rules_are_read_again_while_clients_go_on() {
    let site = Site::new();
    site.write("root/index.html", "start");
    site.write("root/0.html", "even");
    site.write("root/1.html", "odd");
    // Too long for a page, so it is streamed.
    site.write("root/large.bin", vec![b'x'; 300_000]);
    let server = start(&site, &format!("cache_mb = 4\n{}", state(0)));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = ["/", "/large.bin", "/missing", "/old"]
            .into_iter()
            .map(|path| {
                let (server, is_over) = (&server, &is_over);
                scope.spawn(move || {
                    let (mut client, mut newest, mut count) = (server.connect(), 0, 0_u32);
                    while !is_over.load(Ordering::Relaxed) {
                        newest = newest.max(state_of(&mut client, path));
                        count += 1;
                    }
                    (newest, count)
                })
            })
            .collect();
        let over = Over(&is_over);
        let mut client = server.connect();
        for number in 1..=8 {
            let options = format!("port = 0\nworkers = 2\ndir = \"root\"\ncache_mb = 4\n{}", state(number));
            site.write("serve.toml", options);
            server.signal(Signal::HUP);
            assert!(eventually(LIMIT, || state_of(&mut client, "/old") == number), "state {number}");
            for path in ["/", "/large.bin"] {
                assert!(eventually(LIMIT, || state_of(&mut client, path) == number), "state {number} of {path}");
            }
            let to = client.get("/old");
            assert_eq!(to.header("location"), Some(&*format!("/{number}")));
            let missing = client.get("/missing");
            assert_eq!((missing.status, missing.text()), (404, ["even", "odd"][number as usize % 2]));
        }
        drop(over);
        for client in clients {
            let (newest, count) = client.join().unwrap();
            assert!(newest >= 7 && count > 8, "state {newest} after {count} replies");
        }
    });
}

#[test]
fn broken_rules_change_nothing() {
    let site = Site::with_index();
    site.write("root/index.html", "start");
    site.write("serve.toml", format!("port = 0\ndir = \"root\"\n{}", state(3)));
    let errors = site.path.join("stderr");
    let mut command = dapple();
    command.arg("serve").arg("--config").arg(site.path.join("serve.toml"));
    command.stderr(Stdio::from(std::fs::File::create(&errors).unwrap()));
    let server = Server::spawn(command);
    let says = |part: &str| std::fs::read_to_string(&errors).unwrap().contains(part);
    for (config, why) in [
        ("dir = \"root\"\nport = 0\n[[header]]\npaht = \"/\"\n", "serve.toml:4:"),
        ("port = 0\n[[header]\n", "serve.toml:2:"),
        ("dir = \"root\"\n[error_pages]\n404 = \"../x\"\n", "from there"),
        ("port = 0\n", "<DIR>"),
    ] {
        site.write("serve.toml", config);
        server.signal(Signal::HUP);
        assert!(eventually(LIMIT, || says("options and rules stay unchanged") && says(why)), "{config}");
        assert_eq!(server.get("/").header("x-state"), Some("3"));
    }
    std::fs::remove_file(site.path.join("serve.toml")).unwrap();
    server.signal(Signal::HUP);
    assert!(eventually(LIMIT, || says("serve.toml: cannot read this file")));
    site.write("serve.toml", format!("port = 0\ndir = \"root\"\n{}", state(4)));
    server.signal(Signal::HUP);
    assert!(eventually(LIMIT, || server.get("/").header("x-state") == Some("4")));
}

#[test]
fn a_check_names_missing_error_pages() {
    let site = Site::with_index();
    site.write("there.html", "there");
    site.write("serve.toml", "[error_pages]\n404 = \"there.html\"\n405 = \"gone.html\"\n");
    let output =
        dapple().args(["serve", "--check", "--config"]).arg(site.path.join("serve.toml")).arg(&site.path).output();
    let output = output.unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "the server would start: {message}");
    assert!(message.contains("gone.html") && !message.contains("there.html"), "{message}");
}

/// A limit that only a bug reaches, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);

#[test]
fn a_mistake_in_a_rule_is_found_at_the_start() {
    let site = Site::with_index();
    for (config, place, advice) in [
        ("[[redirect]]\nfrom = \"old\"\nto = \"/new\"\n", "serve.toml:1:", "write \"/old\""),
        ("port = 0\n[[header]]\npath = \"/a\"\nset = { date = \"x\" }\n", "serve.toml:2:", "only the server sets"),
        ("[error_pages]\n404 = \"../x\"\n", "serve.toml:2:", "from there"),
        ("[[header]]\npaht = \"/a\"\n", "serve.toml:2:", "did you mean `path`"),
    ] {
        site.write("serve.toml", config);
        let output = dapple()
            .args(["serve", "--check", "--config"])
            .arg(site.path.join("serve.toml"))
            .arg(&site.path)
            .output()
            .unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && message.contains(place) && message.contains(advice), "{message}");
    }
}
