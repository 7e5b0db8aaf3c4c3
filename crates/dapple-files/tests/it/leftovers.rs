//! Targets that a failed copy keeps, and names that a crash left.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use dapple_files::{May, Rules, Users};

use crate::served::Served;

fn served() -> Served {
    Served::new(Rules::all(May::Write), Users::default())
}

/// The names in a directory, hidden ones too.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn age(path: &Path) {
    let file = File::open(path).expect("a file");
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("an earlier time");
}

#[test]
fn a_copy_that_fails_keeps_its_target() {
    let served = served();
    // Below the target, which is one level lower, the last directory would be too deep.
    std::fs::create_dir_all(served.path().join("s/".repeat(200))).expect("directories");
    std::fs::create_dir_all(served.path().join("t/x/below")).expect("directories");
    std::fs::write(served.path().join("t/x/below/f"), "kept").expect("a file");
    let reply = served.ask("COPY", "/s", &["Destination: /t/x"], b"");
    assert!(reply.status == 207 || reply.status >= 400, "{}", reply.status);
    assert_eq!(std::fs::read_to_string(served.path().join("t/x/below/f")).expect("the file"), "kept");
    assert_eq!(
        (names(&served.path().join("t")), names(&served.path().join("t/x"))),
        (vec!["x".into()], vec!["below".into()])
    );
}

#[test]
fn a_copy_or_a_move_replaces_files_and_directories_of_any_kind() {
    let served = served();
    for method in ["COPY", "MOVE"] {
        for (from, to) in [("f", "f"), ("f", "d"), ("d", "f"), ("d", "d")] {
            let make = |name: &str, kind: &str, text: &str| {
                let path = served.path().join(name);
                match kind {
                    "f" => std::fs::write(path, text).expect("a file"),
                    _ => {
                        std::fs::create_dir_all(path.join("below")).expect("directories");
                        std::fs::write(path.join("below").join(text), text).expect("a file");
                    }
                }
            };
            make("from", from, "new");
            make("to", to, "old");
            let tag = |target: &str| served.ask("PROPFIND", target, &["Depth: 0"], b"").status;
            assert_eq!(served.ask(method, "/from", &["Destination: /to", "Overwrite: F"], b"").status, 412);
            let reply = served.ask(method, "/from", &["Destination: /to"], b"");
            assert_eq!(reply.status, 204, "{method} {from} {to}: {}", reply.text());
            let to = served.path().join("to");
            match from {
                "f" => assert_eq!(std::fs::read_to_string(&to).expect("the file"), "new"),
                _ => assert_eq!(names(&to.join("below")), ["new"]),
            }
            assert_eq!(tag("/from"), if method == "COPY" { 207 } else { 404 });
            let left: &[&str] = if method == "COPY" { &["from", "to"] } else { &["to"] };
            assert_eq!(names(served.path()), left, "{method} {from}");
            for name in left {
                assert_eq!(served.ask("DELETE", &format!("/{name}"), &[], b"").status, 204);
            }
        }
    }
}

#[test]
fn the_target_of_a_move_is_there_at_every_moment() {
    let served = served();
    let (to, stop) = (served.path().join("to"), AtomicBool::new(false));
    std::fs::create_dir_all(to.join("below")).expect("directories");
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(to.join("below").exists(), "the target is gone");
            }
        });
        for _ in 0..100 {
            std::fs::create_dir_all(served.path().join("from/below")).expect("directories");
            assert_eq!(served.ask("MOVE", "/from", &["Destination: /to"], b"").status, 204);
        }
        stop.store(true, Ordering::Relaxed);
        watch.join().expect("the target was always there");
    });
}

#[test]
fn names_that_a_crash_left_are_swept_and_hinder_no_upload() {
    let served = served();
    let dir = served.path().join("d");
    std::fs::create_dir(&dir).expect("a directory");
    for number in 0..50 {
        // Those of an earlier process with the same number.
        let left = dir.join(format!(".dapple-files-{:x}-{number:x}", std::process::id()));
        std::fs::write(&left, "left").expect("a file");
        age(&left);
    }
    let (tree, held) = (dir.join(".dapple-files-tree"), dir.join(".dapple-files-held"));
    std::fs::create_dir_all(tree.join("below")).expect("directories");
    std::fs::write(tree.join("below/f"), "left").expect("a file");
    age(&tree);
    std::fs::write(dir.join(".dapple-files-young"), "in use").expect("a file");
    std::fs::write(&held, "in use").expect("a file");
    age(&held);
    let lock = File::open(&held).expect("the file");
    lock.lock().expect("a lock");
    for body in ["first", "second", "third"] {
        assert!(matches!(served.ask("PUT", "/d/f", &[], body.as_bytes()).status, 201 | 204), "{body}");
    }
    let listed = served.ask("PROPFIND", "/d", &["Depth: 1"], b"").text();
    assert!(listed.contains("/d/f") && !listed.contains(".dapple-files"), "{listed}");
    assert_eq!(names(&dir), [".dapple-files-held", ".dapple-files-young", "f"]);
    drop(lock);
    std::fs::remove_file(dir.join(".dapple-files-young")).expect("removed");
    assert_eq!(served.ask("DELETE", "/d", &[], b"").status, 204);
    assert!(!dir.exists());
}
