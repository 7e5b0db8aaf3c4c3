//! WebDAV, by a client that sends what it likes.

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::process::Command;

use dapple_files::{May, Rules, Users};

use crate::served::{Served, TOKEN};

fn served() -> Served {
    Served::new(Rules::all(May::Write), Users::default())
}

#[test]
fn litmus_passes_whole() {
    if Command::new("litmus").arg("--version").output().is_err() {
        let installed = Command::new("apt-get").args(["install", "-y", "-qq", "litmus"]).output();
        if installed.is_err() || Command::new("litmus").arg("--version").output().is_err() {
            println!("skipped: there is no litmus, and apt-get cannot install it");
            return;
        }
    }
    let served = served();
    let place = tempfile::tempdir().expect("a directory for its log");
    let url = format!("http://{}/", served.addr());
    let ran =
        Command::new("litmus").args(["-k", &url, "any", TOKEN]).current_dir(place.path()).output().expect("litmus");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let summaries: Vec<&str> = said.lines().filter(|line| line.starts_with("<- summary")).collect();
    assert!(summaries.len() == 5 && summaries.iter().all(|line| line.contains(" 0 failed")), "{said}");
}

#[test]
fn reading_with_ranges_and_preconditions() {
    let served = served();
    std::fs::write(served.path().join("a b.txt"), "0123456789").expect("a file");
    let get = |fields: &[&str]| served.ask("GET", "/a%20b.txt", fields, b"");
    let whole = get(&[]);
    assert_eq!((whole.status, whole.text().as_str()), (200, "0123456789"));
    assert_eq!(whole.field("content-type"), Some("text/plain; charset=utf-8"));
    let etag = whole.field("etag").expect("a tag").to_owned();
    assert_eq!(get(&[&format!("If-None-Match: {etag}")]).status, 304);
    assert_eq!(get(&["If-Match: \"other\""]).status, 412);
    let part = get(&["Range: bytes=2-4"]);
    assert_eq!((part.status, part.text().as_str(), part.field("content-range")), (206, "234", Some("bytes 2-4/10")));
    assert_eq!(get(&["Range: bytes=-3"]).text(), "789");
    assert_eq!(get(&["Range: bytes=20-"]).status, 416);
    assert_eq!(get(&["Range: bytes=2-4", "If-Range: \"old\""]).text(), "0123456789");
    let head = served.ask("HEAD", "/a%20b.txt", &[], b"");
    assert_eq!((head.status, head.body.len(), head.field("content-length")), (200, 0, Some("10")));
    assert_eq!(served.ask("GET", "/none", &[], b"").status, 404);
    assert_eq!(served.ask("GET", "/a%20b.txt/", &[], b"").status, 404);
}

#[test]
fn an_upload_appears_as_a_whole_or_not_at_all() {
    let served = served();
    let file = served.path().join("f");
    std::fs::write(&file, "old").expect("a file");
    let mut stream = TcpStream::connect(served.addr()).expect("a connection");
    let head =
        format!("PUT /f HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 1000\r\n\r\nnew");
    stream.write_all(head.as_bytes()).expect("a part");
    drop(stream);
    let put = served.ask("PUT", "/g", &[], &[7; 3_000_000]);
    assert_eq!(put.status, 201);
    assert_eq!(std::fs::read(served.path().join("g")).expect("the file"), vec![7; 3_000_000]);
    // The server has seen the end of the first connection by now or not: in both cases the old file is there.
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), "old");
    let names: Vec<_> =
        std::fs::read_dir(served.path()).expect("a list").map(|e| e.expect("an entry").file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(served.ask("PUT", "/f", &["If-None-Match: *"], b"x").status, 412);
    let put = served.ask("PUT", "/f", &[], b"new");
    assert_eq!(put.status, 204);
    assert_eq!(put.field("etag"), served.ask("HEAD", "/f", &[], b"").field("etag"));
}

#[test]
fn parts_of_a_file_are_written_in_place() {
    let served = served();
    std::fs::write(served.path().join("f"), "0123456789").expect("a file");
    let read = || std::fs::read_to_string(served.path().join("f")).expect("the file");
    assert_eq!(served.ask("PUT", "/f", &["Content-Range: bytes 2-4/10"], b"abc").status, 204);
    assert_eq!(read(), "01abc56789");
    let sabre = "Content-Type: application/x-sabredav-partialupdate";
    assert_eq!(served.ask("PATCH", "/f", &[sabre, "X-Update-Range: bytes=8-9"], b"xy").status, 204);
    assert_eq!(served.ask("PATCH", "/f", &[sabre, "X-Update-Range: append"], b"!").status, 204);
    assert_eq!(read(), "01abc567xy!");
    assert_eq!(served.ask("PATCH", "/f", &[sabre, "X-Update-Range: bytes=8-99"], b"xy").status, 416);
    assert_eq!(served.ask("PATCH", "/f", &["X-Update-Range: append"], b"!").status, 415);
}

#[test]
fn a_move_replaces_a_file_in_one_step() {
    let served = served();
    std::fs::write(served.path().join("from"), "new").expect("a file");
    std::fs::write(served.path().join("to"), "old").expect("a file");
    let destination = format!("Destination: http://{}/to", served.addr());
    assert_eq!(served.ask("MOVE", "/from", &[&destination, "Overwrite: F"], b"").status, 412);
    assert_eq!(std::fs::read_to_string(served.path().join("to")).expect("the file"), "old");
    assert_eq!(served.ask("MOVE", "/from", &[&destination], b"").status, 204);
    assert_eq!(std::fs::read_to_string(served.path().join("to")).expect("the file"), "new");
    assert!(!served.path().join("from").exists());
}

#[test]
fn no_path_leads_out() {
    let served = served();
    std::fs::create_dir(served.path().join("in")).expect("a directory");
    symlink("/etc", served.path().join("away")).expect("a link");
    symlink("in", served.path().join("inside")).expect("a link");
    for target in [
        "/../etc/passwd",
        "/%2e%2e/etc/passwd",
        "/in/%2e%2e/%2e%2e/etc/passwd",
        "/in/..%2f..%2fetc/passwd",
        "/a%00b",
        "/in//x",
        "/./in",
        "/.dapple-files-1",
    ] {
        assert_eq!(served.ask("GET", target, &[], b"").status, 400, "{target}");
        assert_eq!(served.ask("PUT", target, &[], b"x").status, 400, "{target}");
    }
    for target in ["/away/passwd", "/away", "/inside/x"] {
        assert!(matches!(served.ask("GET", target, &[], b"").status, 403 | 404), "{target}");
        assert!(matches!(served.ask("PUT", target, &[], b"x").status, 403 | 409), "{target}");
        let destination = format!("Destination: http://{}{target}", served.addr());
        let copied = served.ask("COPY", "/in/", &[&destination], b"");
        assert!(copied.status >= 400 || copied.status == 207 && !copied.text().contains("201"), "{target}: {copied:?}");
    }
    let up = format!("Destination: http://{}/../../tmp/x", served.addr());
    assert!(served.ask("MOVE", "/in/", &[&up], b"").status >= 400);
    assert!(served.path().join("in").is_dir());
    let listed = served.ask("PROPFIND", "/", &["Depth: 1"], b"").text();
    assert!(listed.contains("/in/") && !listed.contains("away"), "{listed}");
}

#[test]
fn hostile_xml_and_deep_trees_end_in_a_refusal() {
    let served = served();
    let deep = "<a>".repeat(5_000);
    assert_eq!(served.ask("PROPFIND", "/", &["Depth: 0"], deep.as_bytes()).status, 400);
    let hidden = format!("<a><![CDATA[{}]]>{}", "</a>".repeat(5_000), "<a>".repeat(5_000));
    assert_eq!(served.ask("PROPFIND", "/", &["Depth: 0"], hidden.as_bytes()).status, 400);
    let just_allowed = format!("{}{}", "<a>".repeat(64), "</a>".repeat(64));
    assert_eq!(served.ask("PROPFIND", "/", &["Depth: 0"], just_allowed.as_bytes()).status, 400);
    let bomb = "<?xml version=\"1.0\"?><!DOCTYPE a [<!ENTITY b \"bbbbbbbbbb\"><!ENTITY c \"&b;&b;&b;&b;\">]><a>&c;</a>";
    assert_eq!(served.ask("PROPFIND", "/", &["Depth: 0"], bomb.as_bytes()).status, 400);
    assert_eq!(served.ask("PROPFIND", "/", &["Depth: 0"], &[b' '; 70_000]).status, 413);
    assert_eq!(served.ask("PROPFIND", "/", &["Depth: infinity"], b"").status, 403);
    assert_eq!(served.ask("PROPFIND", "/", &[], b"").status, 403);
    let mut deepest = String::new();
    for _ in 0..200 {
        deepest.push_str("/d");
    }
    std::fs::create_dir_all(served.path().join(&deepest[1..])).expect("directories");
    assert_eq!(served.ask("MKCOL", &format!("{deepest}/d"), &[], b"").status, 400);
    assert_eq!(served.ask("COPY", "/d/", &[&format!("Destination: http://{}/e/", served.addr())], b"").status, 201);
    assert!(served.path().join(deepest[1..].replacen('d', "e", 1)).is_dir());
    assert_eq!(served.ask("DELETE", "/d/", &[], b"").status, 204);
    assert_eq!(served.ask("GET", "/", &[], b"").status, 200);
}

#[test]
fn users_get_what_the_rules_allow() {
    let dir = tempfile::tempdir().expect("a directory");
    let (rules, users) = (dir.path().join("rules.toml"), dir.path().join("users"));
    let text = "default = \"read\"\n[[rule]]\npath = \"/own\"\nusers = [\"ann\"]\nmay = \"write\"\n\
        [[rule]]\npath = \"/own\"\nmay = \"nothing\"\n";
    std::fs::write(&rules, text).expect("rules");
    Users::set(&users, "ann", "correct horse").expect("a password");
    Users::set(&users, "bob", "battery staple").expect("a password");
    let rules = Rules::load(&rules).expect("rules");
    let served = Served::new(rules, Users::load(&users).expect("users"));
    std::fs::create_dir(served.path().join("own")).expect("a directory");
    std::fs::write(served.path().join("all"), "all").expect("a file");
    // echo -n ann:correct horse | base64, and so on.
    let ann = "Authorization: Basic YW5uOmNvcnJlY3QgaG9yc2U=";
    let bob = "Authorization: Basic Ym9iOmJhdHRlcnkgc3RhcGxl";
    let ask = |login: &str, method: &str, target: &str| {
        let body: &[u8] = if method == "PUT" { b"x" } else { b"" };
        served.ask_as(&[login], method, target, body).status
    };
    assert_eq!(served.ask_as(&[], "GET", "/all", b"").status, 401);
    assert_eq!(ask(ann, "PUT", "/own/f"), 201);
    assert_eq!([ask(ann, "GET", "/all"), ask(bob, "GET", "/all")], [200, 200]);
    assert_eq!([ask(ann, "PUT", "/all"), ask(bob, "PUT", "/all"), ask(bob, "DELETE", "/all")], [403, 403, 403]);
    assert_eq!([ask(bob, "GET", "/own/f"), ask(bob, "PUT", "/own/f"), ask(bob, "DELETE", "/own")], [404, 409, 404]);
    let list = |login: &str| served.ask_as(&[login, "Depth: 1"], "PROPFIND", "/", b"").text();
    assert!(list(ann).contains("/own/") && !list(bob).contains("/own/"));
    let page = |login: &str| served.ask_as(&[login], "GET", "/", b"").text();
    assert!(page(ann).contains("own") && !page(bob).contains("own"));
    let take = format!("Destination: http://{}/own/mine", served.addr());
    assert_eq!(served.ask_as(&[ann, &take], "COPY", "/all", b"").status, 201);
    assert!(served.ask_as(&[bob, &take], "COPY", "/all", b"").status >= 400);
    let give = format!("Destination: http://{}/given", served.addr());
    assert!(served.ask_as(&[ann, &give], "MOVE", "/own/f", b"").status >= 400);
    assert!(served.path().join("own/f").exists());
}
