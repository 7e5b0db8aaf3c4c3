//! Clients that change the same file at the same moment.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use dapple_files::{ClientId, May, Rules, Users};

use crate::path;
use crate::served::{Reply, Served, TOKEN};

/// An upload without its body: the server has judged its preconditions.
struct Begun {
    stream: TcpStream,
    body: &'static str,
}

impl Begun {
    fn new(served: &Served, method: &str, target: &str, fields: &[&str], body: &'static str) -> Begun {
        let mut stream = TcpStream::connect(served.addr()).expect("a connection");
        let mut head = format!(
            "{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\
             Expect: 100-continue\r\nContent-Length: {}\r\n",
            body.len()
        );
        fields.iter().for_each(|field| head.extend([field, "\r\n"]));
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).expect("the head is sent");
        // The server asks for the body only after it has found the preconditions true.
        let mut interim = [0; 25];
        stream.read_exact(&mut interim).expect("a reply");
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        Begun { stream, body }
    }

    fn end(mut self) -> Reply {
        self.stream.write_all(self.body.as_bytes()).expect("the body is sent");
        let mut reply = Vec::new();
        let _ = self.stream.read_to_end(&mut reply);
        Reply::parse(&reply)
    }
}

fn served() -> Served {
    Served::new(Rules::all(May::Write), Users::default())
}

#[test]
fn of_two_uploads_with_one_tag_the_second_fails() {
    let served = served();
    for (method, target, field) in [
        ("PUT", "/put", ""),
        ("PUT", "/part", "Content-Range: bytes 0-4/*"),
        ("PATCH", "/patch", "Content-Type: application/x-sabredav-partialupdate\r\nX-Update-Range: bytes=0-4"),
    ] {
        for (before, after) in [("If-Match: ", ""), ("If: ([", "])")] {
            std::fs::write(served.path().join(&target[1..]), "0123456789").expect("a file");
            let tag = served.ask("HEAD", target, &[], b"").field("etag").expect("a tag").to_owned();
            let condition = format!("{before}{tag}{after}");
            let fields: Vec<&str> = [condition.as_str(), field].into_iter().filter(|field| !field.is_empty()).collect();
            let first = Begun::new(&served, method, target, &fields, "first");
            let second = Begun::new(&served, method, target, &fields, "other");
            assert_eq!(first.end().status, 204, "{method} {fields:?}");
            let refused = second.end();
            assert_eq!(refused.status, 412, "{method} {fields:?}");
            assert!(refused.text().contains("changed"), "{}", refused.text());
            let left = std::fs::read_to_string(served.path().join(&target[1..])).expect("the file");
            assert!(left.starts_with("first"), "{method}: {left}");
        }
    }
}

#[test]
fn uploads_at_the_same_moment_with_one_tag_succeed_once() {
    let served = served();
    for _ in 0..20 {
        std::fs::write(served.path().join("f"), "old").expect("a file");
        let tag = served.ask("HEAD", "/f", &[], b"").field("etag").expect("a tag").to_owned();
        let condition = format!("If-Match: {tag}");
        let begun: Vec<Begun> =
            (0..4).map(|_| Begun::new(&served, "PUT", "/f", &[&condition], "new contents")).collect();
        let ended: Vec<_> = begun.into_iter().map(|one| std::thread::spawn(|| one.end().status)).collect();
        let mut statuses: Vec<u16> = ended.into_iter().map(|one| one.join().expect("a status")).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [204, 412, 412, 412]);
    }
}

#[test]
fn uploads_that_need_only_that_there_is_a_file_both_succeed() {
    let served = served();
    std::fs::write(served.path().join("f"), "old").expect("a file");
    let [first, second, third] = ["1", "2", "3"].map(|body| Begun::new(&served, "PUT", "/f", &["If-Match: *"], body));
    assert_eq!([first.end().status, second.end().status], [204, 204]);
    std::fs::remove_file(served.path().join("f")).expect("removed");
    assert_eq!(third.end().status, 412);
    assert!(!served.path().join("f").exists());
}

#[test]
fn a_part_beyond_the_end_of_all_files_is_refused_with_a_sentence() {
    let served = served();
    std::fs::write(served.path().join("f"), "0123456789").expect("a file");
    let sabre = "Content-Type: application/x-sabredav-partialupdate";
    let last = u64::MAX;
    let half = i64::MAX as u64;
    for range in [
        format!("Content-Range: bytes 0-{last}/*"),
        format!("Content-Range: bytes {}-{last}/*", last - 1),
        format!("Content-Range: bytes {}-{half}/*", half - 1),
        format!("Content-Range: bytes {half}-{}/*", half + 1),
        format!("Content-Range: bytes {}-{}/*", half - 2, half - 1),
        "Content-Range: bytes 0-18446744073709551616/*".to_owned(),
        "Content-Range: bytes 5-3/*".to_owned(),
        "Content-Range: bytes x".to_owned(),
    ] {
        let reply = served.ask("PUT", "/f", &[&range], b"xy");
        assert!(matches!(reply.status, 400 | 413 | 416), "{range}: {}", reply.status);
        assert!(reply.text().contains(' '), "{range}: {}", reply.text());
    }
    for range in [
        format!("bytes=0-{last}"),
        format!("bytes={}-{last}", last - 1),
        format!("bytes={last}-"),
        format!("bytes={half}-"),
        format!("bytes={}-", half - 1),
        format!("bytes={}-", half - 2),
        format!("bytes=-{last}"),
        "bytes=5-3".to_owned(),
        "bytes=-".to_owned(),
        "nonsense".to_owned(),
    ] {
        let reply = served.ask("PATCH", "/f", &[sabre, &format!("X-Update-Range: {range}")], b"xy");
        assert!(matches!(reply.status, 400 | 413 | 416), "{range}: {}", reply.status);
        assert!(reply.text().contains(' '), "{range}: {}", reply.text());
    }
    assert_eq!(std::fs::read_to_string(served.path().join("f")).expect("the file"), "0123456789");
}

#[test]
fn properties_of_a_locked_file_change_with_its_lock_only() {
    let served = served();
    std::fs::create_dir(served.path().join("d")).expect("a directory");
    std::fs::write(served.path().join("d/f"), "").expect("a file");
    let body = b"<?xml version=\"1.0\"?><D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:exclusive/></D:lockscope>\
        <D:locktype><D:write/></D:locktype></D:lockinfo>";
    let patch = b"<?xml version=\"1.0\"?><D:propertyupdate xmlns:D=\"DAV:\" xmlns:x=\"urn:x\"><D:set><D:prop>\
        <x:color>red</x:color></D:prop></D:set></D:propertyupdate>";
    for locked in ["/d/f", "/d"] {
        let lock = served.ask("LOCK", locked, &["Content-Type: application/xml"], body);
        let token = lock.field("lock-token").expect("a token").trim_matches(['<', '>']).to_owned();
        for target in ["/d/f", locked] {
            let refused = served.ask("PROPPATCH", target, &["Content-Type: application/xml"], patch);
            assert_eq!(refused.status, 423, "{target} {locked}");
        }
        let named = format!("If: <http://{}{locked}> (<{token}>)", served.addr());
        let done = served.ask("PROPPATCH", "/d/f", &["Content-Type: application/xml", &named], patch);
        assert_eq!(done.status, 207, "{locked}");
        assert_eq!(served.ask("UNLOCK", locked, &[&format!("Lock-Token: <{token}>")], b"").status, 204);
    }
}

#[test]
fn properties_that_two_clients_set_are_both_kept() {
    let served = served();
    std::fs::write(served.path().join("f"), "").expect("a file");
    std::thread::scope(|scope| {
        for number in 0..24 {
            let served = &served;
            scope.spawn(move || {
                let patch = format!(
                    "<?xml version=\"1.0\"?><D:propertyupdate xmlns:D=\"DAV:\" xmlns:x=\"urn:x\"><D:set><D:prop>\
                     <x:p{number}>{number}</x:p{number}></D:prop></D:set></D:propertyupdate>"
                );
                let reply = served.ask("PROPPATCH", "/f", &["Content-Type: application/xml"], patch.as_bytes());
                assert!(reply.status == 207 && reply.text().contains("200 OK"), "{}", reply.text());
            });
        }
    });
    let found = served.ask("PROPFIND", "/f", &["Depth: 0"], b"").text();
    let missing: Vec<u32> = (0..24).filter(|number| !found.contains(&format!("p{number}>"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Sends a request that changes the root, which waits for the lease of a silent client, and does something before it goes on.
fn meanwhile(served: &Served, method: &str, target: &str, fields: &[&str], body: &[u8], act: impl FnOnce()) -> Reply {
    let (tree, runtime) = (served.files.tree(), &served.runtime);
    let silent = tree.leases().client(ClientId(1)).expect("a client");
    let (root, lease) = runtime.block_on(tree.stat_leased(&path("/"), &silent)).expect("attributes");
    assert!(lease.is_some());
    std::thread::scope(|scope| {
        let reply = scope.spawn(|| served.ask(method, target, fields, body));
        while tree.leases().counts().waiting == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        act();
        runtime.block_on(tree.leases().release(&silent, &[(root.node, u64::MAX)]));
        reply.join().expect("a reply")
    })
}

#[test]
fn a_copy_or_a_move_that_overwrites_nothing_leaves_a_file_that_came_meanwhile() {
    let served = served();
    for (method, source) in [("COPY", "f"), ("MOVE", "f"), ("COPY", "d"), ("MOVE", "d")] {
        std::fs::create_dir_all(served.path().join("d")).expect("a directory");
        std::fs::write(served.path().join("f"), "old").expect("a file");
        let newer = served.path().join("to");
        let reply =
            meanwhile(&served, method, &format!("/{source}"), &["Destination: /to", "Overwrite: F"], b"", || {
                std::fs::write(&newer, "newer").expect("a file")
            });
        assert_eq!(reply.status, 412, "{method} {source}: {}", reply.text());
        assert_eq!(std::fs::read_to_string(&newer).expect("the file"), "newer", "{method} {source}");
        assert!(served.path().join(source).exists());
        std::fs::remove_file(&newer).expect("removed");
    }
}

#[test]
fn a_copy_has_its_properties_from_the_first_moment() {
    let served = served();
    std::fs::write(served.path().join("f"), "old").expect("a file");
    let patch = b"<?xml version=\"1.0\"?><D:propertyupdate xmlns:D=\"DAV:\" xmlns:x=\"urn:x\"><D:set><D:prop>\
        <x:color>red</x:color></D:prop></D:set></D:propertyupdate>";
    assert_eq!(served.ask("PROPPATCH", "/f", &["Content-Type: application/xml"], patch).status, 207);
    let source = served.path().join("f");
    let gone = || std::fs::remove_file(&source).expect("removed");
    assert_eq!(meanwhile(&served, "COPY", "/f", &["Destination: /to"], b"", gone).status, 201);
    assert!(served.ask("PROPFIND", "/to", &["Depth: 0"], b"").text().contains(">red<"));
}

#[test]
fn a_part_of_a_file_stops_where_the_rules_become_stricter() {
    let served = served();
    let file = served.path().join("f");
    for (method, field) in [
        ("PUT", "Content-Range: bytes 0-9/*"),
        ("PATCH", "Content-Type: application/x-sabredav-partialupdate\r\nX-Update-Range: bytes=0-9"),
    ] {
        std::fs::write(&file, "0123456789").expect("a file");
        served.files.reload(Users::default(), Rules::all(May::Write));
        let mut begun = Begun::new(&served, method, "/f", &[field], "abcdefghij");
        begun.stream.write_all(b"abcde").expect("the first half is sent");
        let now = || std::fs::read_to_string(&file).expect("the file");
        while now() != "abcde56789" {
            std::thread::sleep(Duration::from_millis(1));
        }
        served.files.reload(Users::default(), Rules::all(May::Read));
        begun.body = "fghij";
        assert_eq!((begun.end().status, now().as_str()), (403, "abcde56789"), "{method}");
    }
}
