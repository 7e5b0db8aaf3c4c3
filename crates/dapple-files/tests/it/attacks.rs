//! Requests that once did harm.

use dapple_files::{May, Rules, Users};

use crate::served::Served;

fn served(may: May) -> Served {
    Served::new(Rules::all(may), Users::default())
}

fn rules(text: &str) -> Rules {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("rules");
    std::fs::write(&file, text).expect("rules");
    Rules::load(&file).expect("rules")
}

#[test]
fn nothing_is_moved_or_copied_onto_itself_or_what_holds_it() {
    let served = served(May::Write);
    std::fs::create_dir_all(served.path().join("d/e")).expect("directories");
    std::fs::write(served.path().join("d/f"), "kept").expect("a file");
    std::fs::write(served.path().join("d/e/g"), "kept").expect("a file");
    for method in ["MOVE", "COPY"] {
        for (from, to) in [("/d/e", "/d"), ("/d", "/d/e"), ("/d", "/d"), ("/d", "/d/new"), ("/d/e", "/")] {
            let destination = format!("Destination: http://{}{to}", served.addr());
            let reply = served.ask(method, from, &[&destination, "Overwrite: T"], b"");
            assert_eq!(reply.status, 403, "{method} {from} {to}: {}", reply.text());
        }
    }
    let elsewhere = served.ask("MOVE", "/d/f", &["Destination: http://elsewhere.example/d/g"], b"");
    assert_eq!(elsewhere.status, 502);
    assert_eq!(
        served.ask("MOVE", "/d/f", &["Destination: /d/f2"], b"").status,
        201,
        "a path alone is one of this server"
    );
    assert_eq!(std::fs::read(served.path().join("d/f2")).expect("the file"), b"kept");
    assert_eq!(std::fs::read(served.path().join("d/e/g")).expect("the file"), b"kept");
}

#[test]
fn what_may_not_be_removed_as_a_whole_loses_no_part() {
    let text = "default = \"write\"\n[[rule]]\npath = \"/p/secret\"\nmay = \"nothing\"\n";
    let served = Served::new(rules(text), Users::default());
    std::fs::create_dir_all(served.path().join("p/secret")).expect("directories");
    std::fs::write(served.path().join("p/a"), "kept").expect("a file");
    std::fs::write(served.path().join("q"), "other").expect("a file");
    assert_eq!(served.ask("DELETE", "/p", &[], b"").status, 403);
    for method in ["MOVE", "COPY"] {
        let destination = format!("Destination: http://{}/p", served.addr());
        assert_eq!(served.ask(method, "/q", &[&destination, "Overwrite: T"], b"").status, 403, "{method}");
    }
    assert_eq!(std::fs::read(served.path().join("p/a")).expect("the file"), b"kept");
}

#[test]
fn a_page_of_another_site_changes_nothing() {
    let served = served(May::Write);
    for fields in
        [&["Content-Type: text/plain"][..], &["Content-Type: application/x-dapple-mount", "Origin: https://x.example"]]
    {
        let reply = served.ask("POST", "/-/mount", fields, b"\x00\x00\x00\x00");
        assert_eq!(reply.status, 415, "{}", reply.text());
    }
    let made = served.ask("MKCOL", "/d", &["Sec-Fetch-Site: cross-site"], b"");
    assert!(made.status == 403 && !served.path().join("d").exists());
    assert_eq!(served.ask("MKCOL", "/d", &["Sec-Fetch-Site: same-origin"], b"").status, 201);
}

#[test]
fn a_reader_locks_nothing() {
    let served = served(May::Read);
    std::fs::write(served.path().join("f"), "").expect("a file");
    let body = b"<?xml version=\"1.0\"?><D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:exclusive/></D:lockscope>\
        <D:locktype><D:write/></D:locktype></D:lockinfo>";
    assert_eq!(served.ask("LOCK", "/f", &["Content-Type: application/xml"], body).status, 403);
}

#[test]
fn an_upload_in_the_place_of_a_setuid_file_is_none() {
    use std::os::unix::fs::PermissionsExt;
    let served = served(May::Write);
    let file = served.path().join("f");
    std::fs::write(&file, "").expect("a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o6755)).expect("set");
    assert_eq!(served.ask("PUT", "/f", &[], b"other bytes").status, 204);
    assert_eq!(std::fs::metadata(&file).expect("attributes").permissions().mode() & 0o7777, 0o755);
}

#[test]
fn an_upload_keeps_the_properties_of_the_file() {
    let served = served(May::Write);
    assert_eq!(served.ask("PUT", "/f", &[], b"first").status, 201);
    let patch =
        b"<?xml version=\"1.0\"?><D:propertyupdate xmlns:D=\"DAV:\" xmlns:x=\"urn:x\"><D:set><D:prop><x:color>red\
        </x:color></D:prop></D:set></D:propertyupdate>";
    assert_eq!(served.ask("PROPPATCH", "/f", &["Content-Type: application/xml"], patch).status, 207);
    assert_eq!(served.ask("PUT", "/f", &[], b"second").status, 204);
    let found = served.ask("PROPFIND", "/f", &["Depth: 0"], b"");
    assert!(found.text().contains("red"), "{}", found.text());
}
