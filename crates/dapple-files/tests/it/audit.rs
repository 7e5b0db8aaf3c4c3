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
