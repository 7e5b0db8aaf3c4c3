use std::path::Path;
use std::sync::{Arc, Mutex};

use dav_server::davpath::DavPath;
use dav_server::fs::{FsError, OpenOptions};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::{Caller, DavTree};
use crate::dav::Asked;
use crate::path::TreePath;
use crate::rights::{May, Rules};
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
