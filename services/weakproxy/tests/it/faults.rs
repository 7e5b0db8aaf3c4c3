//! Mistakes of origins, devices and others.

use std::io::{Read, Write};
use std::net::TcpStream;

use image::ImageFormat;

use super::origin::{encoded, jpeg, logo, photo};
use super::programs::{Program, curl, weakproxy};
use super::{KEPT, Scene};

#[test]
fn what_cannot_be_fitted_passes_unchanged_with_a_note() {
    let Some(scene) = Scene::new(&[]) else { return };
    let Scene { origin, proxy, .. } = &scene;
    let image = jpeg(&photo(400, 300), 90);
    // A head of PNG that promises four thousand million pixels.
    let mut bomb = encoded(&logo(8, 8), ImageFormat::Png);
    bomb[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
    let mut gif = encoded(&logo(8, 8), ImageFormat::Gif);
    gif[6..10].copy_from_slice(&[0xff; 4]);
    let long = format!("<p><!-- {} -->", "c".repeat(3 << 20));
    for (path, fields, body, why) in [
        ("/cut.jpg", &["Content-Type: image/jpeg", KEPT][..], image[..100].to_vec(), ""),
        ("/no.png", &["Content-Type: image/png", KEPT], b"<html>".to_vec(), ""),
        ("/empty.png", &["Content-Type: image/png", KEPT], Vec::new(), ""),
        ("/bomb.png", &["Content-Type: image/png", KEPT], bomb, ""),
        ("/bomb.gif", &["Content-Type: image/gif", KEPT], gif, ""),
        ("/utf16", &["Content-Type: text/html; charset=utf-16", KEPT], b"\xff\xfe<\0p\0>\0".to_vec(), "single bytes"),
        ("/martian", &["Content-Type: text/html; charset=\"martian\"", KEPT], b"<p>".to_vec(), "not known"),
        ("/long", &["Content-Type: text/html", KEPT], long.into_bytes(), "too long"),
        ("/coded", &["Content-Type: text/html", "Content-Encoding: martian", KEPT], b"<!-- -->".to_vec(), "coding"),
        ("/kept", &["Content-Type: text/html", "Cache-Control: no-transform"], b"<!-- -->".to_vec(), "no-transform"),
        ("/file", &["Content-Type: image/jpeg", "Content-Disposition: attachment"], image.clone(), "a file"),
    ] {
        origin.set(path, fields, body.clone());
        for login in ["phone", "pager"] {
            let reply = proxy.get(login, &[], &origin.url(path));
            let note = reply.field("fit");
            assert!(note.starts_with("unchanged; why=\"") && note.contains(why), "{path}: {note}");
            assert!(reply.status == 200 && reply.body == body, "{path}: {} of {}", reply.body.len(), body.len());
        }
    }
    assert_eq!(proxy.get("phone", &[], &origin.url("/bomb.png")).status, 200);
    // A client that wants no change, or a part, gets what it wants.
    origin.set("/a.jpg", &["Content-Type: image/jpeg", KEPT], image.clone());
    assert_eq!(proxy.get("phone", &["-H", "Cache-Control: no-transform"], &origin.url("/a.jpg")).body, image);
    origin.set(
        "/part",
        &["HTTP/1.1 206 Partial Content", "Content-Type: image/jpeg", "Content-Range: bytes 0-9/99"],
        "0123456789",
    );
    assert_eq!(proxy.get("phone", &["-r", "0-9"], &origin.url("/part")).text(), "0123456789");
    // A body that ends early is an error, not a picture.
    origin.set_cut("/early.jpg", &["Content-Type: image/jpeg", KEPT], image[..1000].to_vec(), image.len());
    assert_eq!(proxy.get("phone", &[], &origin.url("/early.jpg")).status, 502);
    let head = proxy.get("phone", &["--head"], &origin.url("/a.jpg"));
    assert_eq!((head.status, head.field("content-length")), (200, image.len().to_string().as_str()));
}

#[test]
fn requests_that_a_proxy_must_not_serve_get_a_sentence() {
    let Some(Scene { folder, origin, registry, proxy }) = Scene::new(&[]) else { return };
    origin.set("/", &["Content-Type: text/html"], "<p>");
    let says = |reply: super::programs::Reply, status: u16, text: &str| {
        assert!(reply.status == status && reply.text().contains(text), "{status} {text}: {reply:?}");
    };
    let raw = |text: &str| {
        let mut stream = TcpStream::connect(proxy.base.strip_prefix("http://").unwrap()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut reply = String::new();
        let _ = stream.read_to_string(&mut reply);
        reply
    };
    let tunnel = raw("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nConnection: close\r\n\r\n");
    assert!(tunnel.starts_with("HTTP/1.1 501 ") && tunnel.contains("http:// only"), "{tunnel}");
    let https = raw("GET https://example.com/ HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n");
    assert!(https.starts_with("HTTP/1.1 501 "), "{https}");
    let user = raw("GET http://a@127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    assert!(user.starts_with("HTTP/1.1 400 "), "{user}");
    says(curl(&["-x", &proxy.base, &origin.url("/")]), 407, "name the device");
    says(proxy.get("a b", &[], &origin.url("/")), 407, "name the device");
    let unknown = proxy.get("other", &[], &origin.url("/"));
    assert!(unknown.field("proxy-authenticate").starts_with("Basic "), "{unknown:?}");
    says(unknown, 407, "has no /devices/other");
    says(curl(&[&format!("{}/", proxy.base)]), 400, "for weak devices");
    let via = origin.requests("/").len();
    proxy.get("phone", &[], &origin.url("/"));
    let via =
        origin.requests("/")[via].lines().find(|line| line.to_ascii_lowercase().starts_with("via")).unwrap().to_owned();
    says(proxy.get("phone", &["-H", &via], &origin.url("/")), 508, "before");
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    says(proxy.get("phone", &[], &format!("http://{gone}/")), 502, "no connection");
    says(proxy.get("phone", &[], "http://169.254.169.254/"), 403, "not allowed");

    // Without the option, the machine's own servers are out of reach.
    let start = |args: &[&str]| {
        let output = weakproxy(folder.path()).args(args).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(start(&["--listen", "0.0.0.0:0"]).contains("can be reached from other machines"));
    let token = folder.path().join("token");
    std::fs::write(&token, "0123456789abcdef\n").unwrap();
    proxy.end();
    let proxy =
        Program::proxy(folder.path(), &registry, &["--token-file", token.to_str().unwrap(), "--device", "phone"]);
    says(proxy.get("phone", &[], &origin.url("/")), 407, "the password");
    says(proxy.get("phone:0123456789abcdeX", &[], &origin.url("/")), 407, "the password");
    assert_eq!(curl(&["-x", &proxy.base, "-U", ":0123456789abcdef", &origin.url("/")]).status, 200);
    assert_eq!(curl(&["-x", &proxy.base, "-U", "ann/phone:0123456789abcdef", &origin.url("/")]).status, 200);
}

#[test]
fn a_registry_that_is_away_leaves_the_known_devices() {
    let Some(Scene { origin, registry, proxy, folder: _folder }) = Scene::new(&[]) else { return };
    origin.set("/", &["Content-Type: text/html"], "<p><!-- -->");
    assert_eq!(proxy.get("phone", &[], &origin.url("/")).text(), "<p>");
    registry.end();
    std::thread::sleep(std::time::Duration::from_millis(2_100));
    assert_eq!(proxy.get("phone", &[], &origin.url("/")).text(), "<p>");
    let new = proxy.get("browser", &[], &origin.url("/"));
    assert!(new.status == 502 && new.text().contains("registry"), "{new:?}");
}

#[test]
fn an_old_answer_replaces_that_of_a_broken_origin() {
    let Some(scene) = Scene::new(&[]) else { return };
    let Scene { origin, proxy, .. } = &scene;
    let fields = ["Content-Type: text/html", "Cache-Control: max-age=0, stale-if-error=60", "ETag: \"1\""];
    origin.set("/", &fields, "<p><!-- -->");
    assert_eq!(proxy.get("phone", &[], &origin.url("/")).text(), "<p>");
    origin.set("/", &["HTTP/1.1 500 Internal Server Error"], "no");
    let old = proxy.get("phone", &[], &origin.url("/"));
    assert_eq!((old.status, old.text()), (200, "<p>"), "{old:?}");
}

#[test]
fn the_table_has_a_limit() {
    let Some(scene) = Scene::new(&["--cache-mb", "1"]) else { return };
    let Scene { origin, proxy, .. } = &scene;
    // Without pages to strip nothing gets smaller: 12 of 150 KB are more than there is room for.
    let page = |number: usize| format!("<!-- -->{}", format!("<p>{number}").repeat(40_000));
    for number in 0..12 {
        origin.set(&format!("/{number}"), &["Content-Type: text/html", KEPT], page(number));
        assert_eq!(proxy.get("phone", &[], &origin.url(&format!("/{number}"))).status, 200);
    }
    let is_kept = |number: usize| {
        let only = ["-H", "Cache-Control: only-if-cached"];
        proxy.get("phone", &only, &origin.url(&format!("/{number}"))).status == 200
    };
    let kept: Vec<usize> = (0..12).filter(|number| is_kept(*number)).collect();
    assert!((3..9).contains(&kept.len()) && kept.last() == Some(&11), "{kept:?}");
}

#[test]
fn many_clients_get_the_same_picture() {
    let Some(scene) = Scene::new(&[]) else { return };
    let Scene { origin, proxy, .. } = &scene;
    origin.set("/a.jpg", &["Content-Type: image/jpeg", KEPT], jpeg(&photo(800, 600), 90));
    let url = origin.url("/a.jpg");
    let get = || proxy.get("phone", &[], &url).body;
    let bodies: Vec<_> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..12).map(|_| scope.spawn(get)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert!(!bodies[0].is_empty() && bodies.iter().all(|body| *body == bodies[0]));
}
