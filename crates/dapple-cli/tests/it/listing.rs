//! Lists of directories, and the names that are shown and served.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::time::Duration;

use crate::support::{Server, Site, eventually};

#[test]
fn a_directory_is_listed_with_the_option() {
    let site = Site::new();
    site.write("folder/b.txt", vec![b'x'; 12_345]);
    site.write("folder/A.txt", "a");
    site.write("folder/zoo/file", "z");
    site.write("folder/.env", "secret");
    site.write("indexed/index.html", "index");
    let server = Server::start(&site.path, &["--list"]);
    let mut client = server.connect();
    let list = client.get("/folder/");
    assert_eq!((list.status, list.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let page = list.text();
    // Folders first, and then by name, whatever the case.
    let places: Vec<usize> = ["href=\"../\"", "href=\"zoo/\"", "href=\"A.txt\"", "href=\"b.txt\""]
        .iter()
        .map(|link| page.find(link).unwrap())
        .collect();
    assert!(places.is_sorted(), "{places:?}");
    assert!(page.contains("12.3 kB") && page.contains("3 entries"));
    assert!(!page.contains(".env"), "hidden files are not listed");
    let top = client.get("/");
    assert!(top.text().contains("href=\"folder/\"") && !top.text().contains("href=\"../\""));
    assert_eq!(client.get("/folder").status, 301);
    assert_eq!(client.get("/indexed/").text(), "index", "an index takes precedence");
    assert_eq!(client.get("/none/").status, 404);
    assert_eq!(client.get("/folder/b.txt/").status, 404);
    let etag = list.header("etag").unwrap();
    assert_eq!(client.request("GET", "/folder/", &format!("If-None-Match: {etag}\r\n")).status, 304);
    // A new file shows soon.
    site.write("folder/new.txt", "new");
    assert!(eventually(LIMIT, || server.get("/folder/").text().contains("new.txt")));
    assert_eq!(client.request("GET", "/folder/", &format!("If-None-Match: {etag}\r\n")).status, 200);
    // So does an index.
    site.write("folder/index.html", "index");
    assert!(eventually(LIMIT, || server.get("/folder/").text() == "index"));

    let server = Server::start(&site.path, &[]);
    assert_eq!(server.get("/").status, 404, "only when asked to");
}

#[test]
fn every_link_of_a_list_leads_to_its_file() {
    let site = Site::new();
    let names: Vec<Vec<u8>> = [
        "a b.txt",
        "a&b.txt",
        "<b>.txt",
        "\"quoted\".txt",
        "it's.txt",
        "100%.txt",
        "a?b#c.txt",
        "a:b.txt",
        "ü.txt",
        "javascript:x",
        "{rows}.txt",
        "back\\slash.txt",
        "+;=.txt",
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .chain([b"latin-\xfc.txt".to_vec(), b"new\nline.txt".to_vec()])
    .collect();
    for name in &names {
        std::fs::write(site.path.join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    let server = Server::start(&site.path, &["--list"]);
    let mut client = server.connect();
    let page = client.get("/");
    assert!(!page.text().contains("<b>.txt") && !page.text().contains("href=\"javascript:"));
    let links: Vec<&str> =
        page.text().split("<tr>").skip(1).filter_map(|row| row.split("href=\"").nth(1)?.split('"').next()).collect();
    let mut served: Vec<Vec<u8>> = links.iter().map(|link| client.get(&format!("/{link}")).body).collect();
    served.sort();
    let mut expected = names;
    expected.sort();
    assert_eq!(served, expected);
}

#[test]
fn files_that_are_not_served_are_not_listed() {
    let outer = Site::new();
    outer.write("outside.txt", "x");
    outer.write("site/folder/inside.txt", "x");
    let path = outer.path.join("site");
    symlink("../outside.txt", path.join("link-out")).unwrap();
    symlink("folder/inside.txt", path.join("link-in")).unwrap();
    symlink("../folder", path.join("folder/link-up")).unwrap();
    symlink("nothing", path.join("link-broken")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path.join("socket")).unwrap();
    let server = Server::start(&path, &["--list"]);
    let page = server.get("/");
    assert!(page.text().contains("link-in") && page.text().contains("folder"));
    for name in ["link-out", "link-broken", "socket"] {
        assert!(!page.text().contains(name), "{name}");
        assert_eq!(server.get(&format!("/{name}")).status, 404, "{name}");
    }
    assert!(server.get("/folder/").text().contains("href=\"link-up/\""));
    assert!(Server::start(&path, &["--list", "--follow"]).get("/").text().contains("link-out"));
}

#[test]
fn a_long_list_is_cut_and_says_so() {
    let site = Site::new();
    for number in 0..2_100 {
        site.write(&format!("{number}.txt"), "");
    }
    let server = Server::start(&site.path, &["--list"]);
    let page = server.get("/");
    assert!(page.text().contains("more than the 2000 entries"));
    assert_eq!(page.text().matches("<tr>").count(), 2_000);
}

#[test]
fn hidden_names_are_served_only_with_the_option() {
    let site = Site::with_index();
    site.write(".env", "secret");
    site.write(".git/config", "secret");
    site.write("a/.htpasswd", "secret");
    site.write(".well-known/security.txt", "contact");
    site.write(".well-known/.hidden", "secret");
    let hidden = ["/.env", "/.git/config", "/.git/", "/.git", "/a/.htpasswd", "/%2eenv", "/.well-known/.hidden"];
    let server = Server::start(&site.path, &["--list"]);
    for path in hidden {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    assert_eq!(server.get("/.well-known/security.txt").text(), "contact");
    assert!(server.get("/.well-known/").text().contains("security.txt"));
    let server = Server::start(&site.path, &["--hidden"]);
    for path in ["/.env", "/.git/config", "/a/.htpasswd", "/.well-known/.hidden"] {
        assert_eq!(server.get(path).text(), "secret", "{path}");
    }
}

/// A limit that only a bug reaches, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);
