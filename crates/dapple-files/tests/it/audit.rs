//! The records of changes.

use std::sync::{Arc, Mutex};

use dapple_files::{May, Rules, Users};

use crate::served::Served;

/// A served directory, and the lines of its audit: call, path and result.
fn audited() -> (Served, Arc<Mutex<Vec<String>>>) {
    let served = Served::new(Rules::all(May::Write), Users::default());
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = lines.clone();
    served.files.audit(move |change| {
        let line = format!("{} {} {}", change.call, change.path, change.result);
        sink.lock().expect("the lines").push(line);
    });
    (served, lines)
}

#[test]
fn a_file_at_the_path_of_mounts_is_audited_and_refused_as_any_other() {
    let (served, lines) = audited();
    for method in ["MKCOL", "PUT", "DELETE"] {
        let target = if method == "MKCOL" { "/-" } else { "/-/mount" };
        let status = served.ask(method, target, &[], b"").status;
        assert!(matches!(status, 201 | 204), "{method}: {status}");
    }
    assert_eq!(*lines.lock().expect("the lines"), ["MKCOL /- done", "PUT /-/mount done", "DELETE /-/mount done"]);
    served.files.refuse_all(true);
    for method in ["PUT", "GET", "PROPFIND"] {
        assert_eq!(served.ask(method, "/-/mount", &[], b"").status, 503, "{method}");
    }
    for method in ["PUT", "PROPFIND"] {
        assert_eq!(served.ask(method, "/-/status", &[], b"").status, 503, "{method}");
    }
    assert_eq!(served.ask("POST", "/-/mount", &[], b"").status, 415, "a call of a mount is read");
    assert_ne!(served.ask("GET", "/-/status", &[], b"").status, 503);
}

#[test]
fn properties_that_were_refused_are_told_from_those_that_were_set() {
    let (served, lines) = audited();
    std::fs::write(served.path().join("f"), "").expect("a file");
    let patch = |properties: &str| {
        let body = format!(
            "<?xml version=\"1.0\"?><D:propertyupdate xmlns:D=\"DAV:\" xmlns:x=\"urn:x\" xmlns:w=\"urn:schemas-microsoft-com:\">\
             <D:set><D:prop>{properties}</D:prop></D:set></D:propertyupdate>"
        );
        let reply = served.ask("PROPPATCH", "/f", &["Content-Type: application/xml"], body.as_bytes());
        assert_eq!(reply.status, 207, "{}", reply.text());
        assert!(reply.text().contains("</D:multistatus>"), "{}", reply.text());
    };
    patch("<x:color><D:status>HTTP/1.1 403 Forbidden</D:status></x:color>");
    patch("<x:color>blue</x:color><D:getetag>1</D:getetag>");
    patch(&format!("<x:color>{}</x:color>", "long ".repeat(12_500)));
    patch("<w:Win32FileAttributes>0</w:Win32FileAttributes>");
    assert_eq!(
        *lines.lock().expect("the lines"),
        ["PROPPATCH /f done", "PROPPATCH /f refused 403", "PROPPATCH /f refused 507", "PROPPATCH /f done"]
    );
}

#[test]
fn changes_that_are_refused_before_they_begin_are_recorded() {
    let (served, lines) = audited();
    let other_site = "Sec-Fetch-Site: cross-site";
    assert_eq!(served.ask("PUT", "/f", &[other_site], b"x").status, 403);
    assert_eq!(served.ask("POST", "/-/mount", &[other_site], b"x").status, 403);
    served.files.refuse_all(true);
    assert_eq!(served.ask("MKCOL", "/d", &[], b"").status, 503);
    assert_eq!(*lines.lock().expect("the lines"), ["PUT /f refused 403", "MKCOL /d refused 503"]);
}
