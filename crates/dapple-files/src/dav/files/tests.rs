use std::path::Path;
use std::sync::{Arc, Mutex};

use dapple::sync::Limit;
use dav_server::davpath::DavPath;
use dav_server::fs::{FsError, OpenOptions};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::{Caller, DavTree};
use crate::dav::Asked;
use crate::path::TreePath;
use crate::rights::{May, Rules};
use crate::room::Room;
use crate::tree::Tree;

/// Opens `f` to write a part of it, with a condition on its tag, after a change that comes between the judgment of the condition and that.
fn open_after(dir: &Path, condition: &'static str, change: impl FnOnce()) -> (Option<FsError>, Option<StatusCode>) {
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let tree = Tree::open(dir).await.expect("a tree");
        let path = TreePath::parse("f").expect("a path");
        let rules = Arc::new(Rules::all(May::Write));
        let mut fields = HeaderMap::new();
        fields.insert(condition, HeaderValue::from_static("\"1\""));
        let asked = Asked::new(&Method::PATCH, &path, &fields, Arc::new(Mutex::new(rules.clone())));
        asked.saw(&path, tree.stat(&path).await.ok());
        change();
        let caller = Caller { user: "ann".into(), rules, asked: Arc::new(asked), room: Arc::default() };
        let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
        let opened = DavTree(tree).open(&DavPath::new("/f").expect("a path"), options, &caller).await;
        (opened.err(), caller.asked.refusal().map(|(status, _)| status))
    })
}

#[test]
fn a_part_of_a_file_that_vanished_makes_none_and_of_one_that_came_changes_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("f");
    let refused = (Some(FsError::Forbidden), Some(StatusCode::PRECONDITION_FAILED));
    std::fs::write(&file, "old").expect("a file");
    assert_eq!(open_after(dir.path(), "if-match", || std::fs::remove_file(&file).expect("removed")), refused);
    assert!(!file.exists());
    assert_eq!(open_after(dir.path(), "if-none-match", || std::fs::write(&file, "newer").expect("a file")), refused);
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(open_after(dir.path(), "if-none-match", || ()), (None, None));
    assert!(file.exists());
}

#[test]
fn parts_of_files_that_are_written_count_as_changes_of_their_user() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f"), "old").expect("a file");
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let (tree, rules) = (Tree::open(dir.path()).await.expect("a tree"), Arc::new(Rules::all(May::Write)));
        let path = TreePath::parse("f").expect("a path");
        let asked = Asked::new(&Method::PATCH, &path, &HeaderMap::new(), Arc::new(Mutex::new(rules.clone())));
        let room = Room { changes: Limit::new(1).waiting_max(0), ..Room::default() };
        let caller = Caller { user: "ann".into(), rules, asked: Arc::new(asked), room: Arc::new(room) };
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let davpath = DavPath::new("/f").expect("a path");
        let mut file = DavTree(tree).open(&davpath, options, &caller).await.expect("it is there");
        file.write_bytes("n".into()).await.expect("there is room");
        let other = caller.room.changes.try_acquire().expect("the write has ended");
        assert_eq!(file.write_bytes("e".into()).await, Err(FsError::Forbidden));
        assert_eq!(caller.asked.refusal().map(|(status, _)| status), Some(StatusCode::SERVICE_UNAVAILABLE));
        drop(other);
        assert_eq!(std::fs::read_to_string(dir.path().join("f")).expect("the file"), "nld");
    });
}
