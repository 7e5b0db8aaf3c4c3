//! The request that dav-server's callbacks serve: dav-server judges its conditions and takes it apart, and says nothing of it to the
//! file system.

use std::io;
use std::sync::{Arc, Mutex};

use dav_server::fs::FsError;
use http::{HeaderMap, Method, StatusCode};

use super::guard::Refusal;
use super::node::failed;
use crate::lock::lock;
use crate::path::TreePath;
use crate::rights::Rules;
use crate::tree::{Aside, Attributes, Needed, is_changed};

/// A request for dav-server.
#[derive(Debug)]
pub(crate) struct Asked {
    target: TreePath,
    condition: Condition,
    /// The place that a copy or a move goes to.
    destination: Option<TreePath>,
    /// Whether it may replace what is there (`Overwrite`).
    overwrites: bool,
    /// Whether a copy takes a directory without its files.
    is_shallow: bool,
    /// The state of the target when dav-server judged the conditions.
    seen: Mutex<Option<Option<Attributes>>>,
    /// The directory that takes the place of the copy's target at the end.
    aside: Mutex<Option<Aside>>,
    refusal: Mutex<Option<Refusal>>,
    /// The rules of the service, which may change before the end of the request.
    rules: Arc<Mutex<Arc<Rules>>>,
}

/// The condition of a request on its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Condition {
    #[default]
    None,
    /// There is a file.
    Exists,
    /// The file is that of a tag or a time.
    Same,
}

impl Asked {
    pub(crate) fn new(method: &Method, target: &TreePath, fields: &HeaderMap, rules: Arc<Mutex<Arc<Rules>>>) -> Asked {
        let copies = matches!(method.as_str(), "COPY" | "MOVE");
        Asked {
            target: target.clone(),
            condition: Condition::of(fields),
            destination: copies.then(|| destination(fields)).flatten(),
            overwrites: fields.get("overwrite").is_none_or(|value| !value.as_bytes().eq_ignore_ascii_case(b"f")),
            is_shallow: fields.get("depth").is_some_and(|depth| depth.as_bytes() == b"0"),
            seen: Mutex::default(),
            aside: Mutex::default(),
            refusal: Mutex::default(),
            rules,
        }
    }

    /// The rules of this moment.
    pub(super) fn rules(&self) -> Arc<Rules> {
        lock(&self.rules).clone()
    }

    /// Notes the attributes that dav-server was given: the first ones of the target are those that it judges conditions by.
    pub(super) fn saw(&self, path: &TreePath, found: Option<Attributes>) {
        if self.condition == Condition::Same && *path == self.target {
            lock(&self.seen).get_or_insert(found);
        }
    }

    /// The state of a file that a change needs, so that the conditions are still true.
    pub(super) fn needed(&self, path: &TreePath) -> Needed {
        match self.condition {
            Condition::Exists if *path == self.target => Needed::Exists,
            Condition::Same if *path == self.target => (*lock(&self.seen)).map_or(Needed::Any, Needed::Same),
            _ => Needed::Any,
        }
    }

    /// Whether a copy or a move replaces this file.
    pub(super) fn replaces(&self, path: &TreePath) -> bool {
        self.overwrites && self.destination.as_ref() == Some(path)
    }

    /// Whether files that have come meanwhile stay.
    pub(super) fn overwrites(&self) -> bool {
        self.overwrites
    }

    pub(super) fn is_shallow(&self) -> bool {
        self.is_shallow
    }

    /// Lets what is copied below the target go to a directory that takes its place at the end.
    pub(super) fn put_aside(&self, aside: Aside) {
        *lock(&self.aside) = Some(aside);
    }

    /// The path that a part of a copy goes to.
    pub(super) fn place(&self, path: &TreePath) -> TreePath {
        lock(&self.aside).as_ref().map_or_else(|| path.clone(), |aside| aside.map(path))
    }

    /// The error for dav-server.
    pub(super) fn failed(&self, error: io::Error) -> FsError {
        if is_changed(&error) {
            lock(&self.refusal).get_or_insert((StatusCode::PRECONDITION_FAILED, CHANGED));
            return FsError::Forbidden;
        }
        failed(error)
    }

    /// As [`failed`](Self::failed), of what a copy or a move was to put at this path.
    pub(super) fn failed_at(&self, path: &TreePath, error: io::Error) -> FsError {
        if !self.overwrites && self.destination.as_ref() == Some(path) && error.kind() == io::ErrorKind::AlreadyExists {
            lock(&self.refusal).get_or_insert((StatusCode::PRECONDITION_FAILED, TAKEN));
        }
        self.failed(error)
    }

    /// The error for dav-server when too many changes of the user wait.
    pub(super) fn busy(&self) -> FsError {
        lock(&self.refusal).get_or_insert((StatusCode::SERVICE_UNAVAILABLE, BUSY));
        FsError::Forbidden
    }

    /// Ends a copy: what was put aside takes its place, or vanishes.
    pub(crate) async fn end(&self, is_done: bool) -> io::Result<()> {
        let aside = lock(&self.aside).take();
        match aside {
            Some(aside) if is_done => aside.commit().await,
            Some(aside) => {
                aside.give_up().await;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The reason for a reply that dav-server cannot give.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        *lock(&self.refusal)
    }
}

impl Condition {
    fn of(fields: &HeaderMap) -> Condition {
        let all = |name: &str| fields.get_all(name).into_iter().map(|value| value.as_bytes().trim_ascii());
        let is_same = all("if-match").chain(all("if-none-match")).any(|value| value != b"*")
            || fields.contains_key("if-unmodified-since")
            || all("if").any(|value| value.contains(&b'['));
        match is_same {
            true => Condition::Same,
            false if fields.contains_key("if-match") => Condition::Exists,
            false => Condition::None,
        }
    }
}

/// The place of a copy or a move.
fn destination(fields: &HeaderMap) -> Option<TreePath> {
    crate::service::path_of(&fields.get("destination")?.to_str().ok()?.parse().ok()?).ok()
}

const CHANGED: &str = "the file changed after this request began: its conditions no longer hold";

const TAKEN: &str = "another file has that name, and the request does not overwrite it";

const BUSY: &str = "too many changes of this user wait; try again";
