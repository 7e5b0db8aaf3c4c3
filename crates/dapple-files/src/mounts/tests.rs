use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use dapple::time::sleep;
use futures_util::FutureExt as _;
use http::{HeaderMap, Method};
use rustix::io::Errno;

use super::{LARGE_OF_MOUNT_MAX, Mounts};
use crate::audit::{Audit, By};
use crate::dav::{Asked, Caller};
use crate::lease::{ClientId, Leases};
use crate::lock::lock;
use crate::path::TreePath;
use crate::rights::{May, Rules};
use crate::tree::{AttributeChange, Tree};
use crate::wire::{Action, Answer, Call, DATA_MAX, OpenHow};

fn caller(may: May) -> Caller {
    caller_of("ann", may)
}

fn caller_of(user: &str, may: May) -> Caller {
    let rules = Arc::new(Rules::all(may));
    let current = Arc::new(Mutex::new(rules.clone()));
    let asked = Asked::new(&Method::POST, &TreePath::root(), &HeaderMap::new(), current);
    Caller { user: user.into(), rules, asked: Arc::new(asked), room: Arc::default() }
}

/// No audit.
fn nowhere() -> By<'static> {
    static AUDIT: LazyLock<Audit> = LazyLock::new(Audit::default);
    By { audit: &AUDIT, address: None }
}

fn path(text: &str) -> TreePath {
    TreePath::parse(text).expect("a path")
}

fn open(name: &str) -> Action {
    let how = OpenHow { read: true, write: true, truncate: false, create: None, only_new: false, append: false };
    Action::Open { path: path(name), handle: 1, how }
}

fn put() -> Action {
    Action::Put { handle: 1, delegation: None, pieces: vec![(0, 3)], change: AttributeChange::default() }
}

/// A call of a mount, with the data of a write.
fn call(client: u128, number: u64, action: Action) -> (Call, Bytes) {
    let call = Call { client: ClientId(client), number, released: Vec::new(), action };
    (call, Bytes::from_static(b"new"))
}

#[test]
fn the_right_to_an_open_file_ends_with_the_rules() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f"), "old").expect("a file");
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let (tree, mounts) = (Tree::open(dir.path()).await.expect("a tree"), Mounts::new());
        let mut number = 0;
        let mut ask = async |caller: &Caller, action: Action| {
            number += 1;
            let (call, data) = call(1, number, action);
            mounts.answer(&tree, caller, nowhere(), call, data, false).await.expect("an answer").0
        };
        let read = || Action::Read { handle: 1, offset: 0, len: 10 };
        let [writer, reader, stranger] = [May::Write, May::Read, May::Nothing].map(caller);
        assert!(matches!(ask(&writer, open("f")).await, Answer::Opened(..)));
        assert!(matches!(ask(&writer, put()).await, Answer::Found(..)));
        let (access, none) =
            (Answer::Failed(Errno::ACCESS.raw_os_error()), Answer::Failed(Errno::NOENT.raw_os_error()));
        assert_eq!(ask(&reader, put()).await, access);
        assert_eq!(ask(&reader, read()).await, Answer::Data);
        assert_eq!(ask(&reader, put()).await, access, "the right to read is none to write");
        let longer = AttributeChange { len: Some(100), ..AttributeChange::default() };
        assert_eq!(ask(&reader, Action::SetOpen(1, longer)).await, access);
        // Another program renames it: the name that it has now counts.
        std::fs::rename(dir.path().join("f"), dir.path().join("g")).expect("renamed");
        assert_eq!(ask(&stranger, read()).await, none);
        std::fs::remove_file(dir.path().join("g")).expect("removed");
        assert_eq!(ask(&stranger, read()).await, none, "a removed file has the name that it was opened by");
        assert!(matches!(ask(&caller(May::Write), put()).await, Answer::Found(..)));
    });
}

#[test]
fn large_calls_that_wait_for_a_silent_client_hold_up_no_other_mount() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["held", "free"] {
        std::fs::write(dir.path().join(name), "").expect("a file");
    }
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let tree = Tree::with_leases(dir.path(), Leases::new(Duration::from_secs(3600))).await.expect("a tree");
        let (mounts, caller) = (Arc::new(Mounts::new()), caller(May::Write));
        let silent = tree.leases().client(ClientId(9)).expect("a client");
        let (found, lease) = tree.stat_leased(&path("held"), &silent).await.expect("attributes");
        assert!(lease.is_some());
        for (client, name) in [(1, "held"), (2, "free")] {
            let (call, data) = call(client, 1, open(name));
            mounts.answer(&tree, &caller, nowhere(), call, data, false).await.expect("an answer");
        }
        for number in 0..LARGE_OF_MOUNT_MAX as u64 {
            let (mounts, tree, caller) = (mounts.clone(), tree.clone(), caller.clone());
            let (call, data) = call(1, 2 + number, put());
            drop(dapple::spawn(async move { mounts.answer(&tree, &caller, nowhere(), call, data, true).await }));
        }
        while tree.leases().counts().waiting < LARGE_OF_MOUNT_MAX {
            sleep(Duration::from_millis(1)).await;
        }
        let ask = async |client, number| {
            let (call, data) = call(client, number, put());
            mounts.answer(&tree, &caller, nowhere(), call, data, true).await
        };
        assert!(ask(1, 1000).await.is_none(), "it is sent again");
        assert!(matches!(ask(2, 2).await, Some((Answer::Found(..), _))));
        tree.leases().release(&silent, &[(found.node, u64::MAX)]).await;
        while tree.leases().counts().waiting > 0 {
            sleep(Duration::from_millis(1)).await;
        }
        while ask(1, 1000).await.is_none() {
            sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn of_the_writes_to_an_open_file_the_failures_and_the_first_success_are_recorded_and_all_changes_of_attributes() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f"), "old").expect("a file");
    let (audit, lines) = (Audit::default(), Arc::new(Mutex::new(Vec::new())));
    let sink = lines.clone();
    audit.set(Box::new(move |change| {
        lock(&sink).push(format!("{} {}", change.call, change.result));
    }));
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let (tree, mounts) = (Tree::open(dir.path()).await.expect("a tree"), Mounts::new());
        let mut number = 0;
        let mut ask = async |caller: &Caller, action: Action| {
            number += 1;
            let (call, data) = call(1, number, action);
            mounts.answer(&tree, caller, By { audit: &audit, address: None }, call, data, false).await;
        };
        let [writer, reader] = [May::Write, May::Read].map(caller);
        let change = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
        ask(&writer, open("f")).await;
        for caller in [&reader, &writer, &writer, &reader] {
            ask(caller, put()).await;
        }
        for pieces in [vec![(0, 3)], Vec::new()] {
            ask(&writer, Action::Put { handle: 1, delegation: None, pieces, change }).await;
        }
        // With the number of another user's mount.
        ask(&caller_of("bob", May::Write), Action::RemoveFile(path("f"))).await;
    });
    let [access, removed] = ["write", "unlink"].map(|call| format!("{call} failed {}", Errno::ACCESS.raw_os_error()));
    let expected = [&access, "write done", &access, "set done", "set done", &removed];
    assert_eq!(*lock(&lines), expected);
}

#[test]
fn one_user_takes_its_own_share_of_open_files() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["f", "g", "h"] {
        std::fs::write(dir.path().join(name), "").expect("a file");
    }
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let (tree, mounts) = (Tree::open(dir.path()).await.expect("a tree"), Mounts::new());
        let [ann, bob] = ["ann", "bob"].map(|user| caller_of(user, May::Write));
        ann.room.open_files.set_max(1);
        let mut number = 0;
        let mut ask = async |caller: &Caller, client, action| {
            number += 1;
            let (call, data) = call(client, number, action);
            mounts.answer(&tree, caller, nowhere(), call, data, false).await.expect("an answer").0
        };
        assert!(matches!(ask(&ann, 1, open("f")).await, Answer::Opened(..)));
        let refused = Answer::Failed(Errno::MFILE.raw_os_error());
        assert_eq!(ask(&ann, 2, open("g")).await, refused, "in another mount of the user");
        assert!(matches!(ask(&bob, 3, open("h")).await, Answer::Opened(..)));
        assert_eq!(ask(&ann, 1, Action::Close(1)).await, Answer::Done);
        assert!(matches!(ask(&ann, 2, open("g")).await, Answer::Opened(..)));
        // All users together.
        assert_eq!(mounts.counts().1, 2);
        mounts.open_files.set_max(2);
        assert_eq!(ask(&bob, 4, open("h")).await, Answer::Failed(Errno::NFILE.raw_os_error()));
        assert_eq!((mounts.counts().1, bob.room.open_files.used()), (2, 1));
    });
}

#[test]
fn the_changes_of_one_user_that_go_on_without_a_client_are_limited() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["held", "free", "last"] {
        std::fs::write(dir.path().join(name), "").expect("a file");
    }
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let tree = Tree::with_leases(dir.path(), Leases::new(Duration::from_secs(3600))).await.expect("a tree");
        let mounts = Mounts::new();
        let [ann, bob] = ["ann", "bob"].map(|user| caller_of(user, May::Write));
        ann.room.changes.set_max(1);
        mounts.large.set_max(2);
        let silent = tree.leases().client(ClientId(9)).expect("a client");
        let (found, _) = tree.stat_leased(&path("held"), &silent).await.expect("attributes");
        let set = |name| Action::Set(path(name), AttributeChange { mode: Some(0o600), ..AttributeChange::default() });
        let ask = async |caller: &Caller, client, name| {
            let (call, data) = call(client, 1, set(name));
            mounts.answer(&tree, caller, nowhere(), call, data, true).await
        };
        let mut left = Box::pin(ask(&ann, 1, "held"));
        while tree.leases().counts().waiting == 0 {
            assert!(left.as_mut().now_or_never().is_none());
            sleep(Duration::from_millis(1)).await;
        }
        drop(left);
        assert_eq!((ann.room.changes.used(), mounts.large.used()), (1, 1));
        assert!(ask(&ann, 2, "free").await.is_none(), "a large call in another mount of the user");
        assert!(matches!(ask(&bob, 3, "free").await, Some((Answer::Found(..), _))));
        let (call, data) = call(2, 1, set("last"));
        let mut small = Box::pin(mounts.answer(&tree, &ann, nowhere(), call, data, false));
        while ann.room.changes.waiting_len() == 0 {
            assert!(small.as_mut().now_or_never().is_none());
        }
        tree.leases().release(&silent, &[(found.node, u64::MAX)]).await;
        assert!(matches!(small.await, Some((Answer::Found(..), _))), "it had to wait");
    });
}

#[test]
fn large_writes_that_a_mount_kept_do_not_wait_behind_other_large_calls() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["held", "own"] {
        std::fs::write(dir.path().join(name), "").expect("a file");
    }
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let tree = Tree::with_leases(dir.path(), Leases::new(Duration::from_secs(3600))).await.expect("a tree");
        let (mounts, caller) = (Mounts::new(), caller(May::Write));
        let silent = tree.leases().client(ClientId(9)).expect("a client");
        let (found, _) = tree.stat_leased(&path("held"), &silent).await.expect("attributes");
        let mut number = 0;
        let mut ask = |action| {
            number += 1;
            let (call, data) = call(1, number, action);
            let is_large = !data.is_empty() && matches!(call.action, Action::Put { .. });
            mounts.answer(&tree, &caller, nowhere(), call, data, is_large)
        };
        let put = |handle, delegation| Action::Put {
            handle,
            delegation,
            pieces: vec![(0, 3)],
            change: AttributeChange::default(),
        };
        let Action::Open { path, how, .. } = open("own") else { panic!("an action") };
        let Some((Answer::Opened(_, Some(lease)), _)) = ask(Action::Open { path, handle: 2, how }).await else {
            panic!("a lease")
        };
        assert!(lease.writes);
        ask(open("held")).await.expect("an answer");
        let mut waiting: Vec<_> = (0..LARGE_OF_MOUNT_MAX).map(|_| Box::pin(ask(put(1, None)))).collect();
        while tree.leases().counts().waiting < waiting.len() {
            waiting.iter_mut().for_each(|call| assert!(call.as_mut().now_or_never().is_none()));
            sleep(Duration::from_millis(1)).await;
        }
        mounts.large.set_max(LARGE_OF_MOUNT_MAX);
        assert!(ask(put(1, None)).await.is_none());
        assert!(matches!(ask(put(2, Some(lease.grant))).await, Some((Answer::Found(..), _))));
        // One that the service cannot have let it keep is no such write.
        assert!(ask(put(2, Some(0))).await.is_none());
        mounts.large_kept.set_max(0);
        assert!(ask(put(2, Some(lease.grant))).await.is_none(), "they are limited as well");
        mounts.large_kept.set_max(1);
        tree.leases().release(&silent, &[(found.node, u64::MAX)]).await;
        for call in waiting {
            assert!(matches!(call.await, Some((Answer::Found(..), _))));
        }
    });
}

#[test]
fn large_reads_take_room_until_they_are_sent() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f"), vec![7; DATA_MAX]).expect("a file");
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let (tree, mounts) = (Tree::open(dir.path()).await.expect("a tree"), Mounts::new());
        let [ann, bob] = ["ann", "bob"].map(|user| caller_of(user, May::Write));
        for (caller, client) in [(&ann, 1), (&ann, 2), (&bob, 3)] {
            let Action::Open { path, handle, how } = open("f") else { panic!("an action") };
            // Without a delegation, for which the others would wait.
            let action = Action::Open { path, handle, how: OpenHow { write: false, ..how } };
            let (call, data) = call(client, 1, action);
            mounts.answer(&tree, caller, nowhere(), call, data, false).await.expect("an answer");
        }
        let read = |caller, client, len| {
            let (call, _) = call(client, 2, Action::Read { handle: 1, offset: 0, len });
            Box::pin(mounts.answer(&tree, caller, nowhere(), call, Bytes::new(), false))
        };
        let whole = DATA_MAX as u32;
        let mut sent = Vec::new();
        for _ in 0..16 {
            let (_, data) = read(&ann, 1, whole).await.expect("an answer");
            assert_eq!(data.bytes.len(), DATA_MAX);
            sent.push(data.sent_as(Bytes::from_static(b"an answer")));
        }
        let mut waits = read(&ann, 1, whole);
        while ann.room.reads.waiting_len(&ClientId(1)) == 0 {
            assert!(waits.as_mut().now_or_never().is_none(), "a mount has half of what its user has");
            sleep(Duration::from_millis(1)).await;
        }
        // Another mount, another user, and small reads go on.
        for (caller, client, len) in [(&ann, 2, whole), (&bob, 3, whole), (&ann, 1, 4096)] {
            assert!(matches!(read(caller, client, len).await, Some((Answer::Data, _))));
        }
        // Part of an answer is still to be sent.
        let rest = sent[0].split_off(3);
        assert_eq!((&sent[0][..], &rest[..]), (&b"an "[..], &b"answer"[..]));
        sent.truncate(1);
        sent.clear();
        assert_eq!(mounts.reads.used(), 1);
        assert!(waits.await.is_some());
        drop(rest);
        assert_eq!((mounts.reads.used(), ann.room.reads.is_used()), (0, false));
    });
}
