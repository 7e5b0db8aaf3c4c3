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
    let call = Call { client: ClientId(client), number, oldest: 0, released: Vec::new(), action };
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

/// The calls that are made twice, of a mount that got no answer: with the name of a test that must hold afterwards.
fn changes() -> Vec<(&'static str, Action)> {
    let open = |name: &str, only_new: bool, append| Action::Open {
        path: path(name),
        handle: 1,
        how: OpenHow { read: true, write: true, truncate: false, create: only_new.then_some(0o600), only_new, append },
    };
    let mut put = put();
    if let Action::Put { pieces, .. } = &mut put {
        *pieces = vec![(0, 2), (2, 1)];
    }
    vec![
        ("mkdir", Action::MakeDir(path("new"), 0o700)),
        ("mknod", Action::MakeNode(path("new"), crate::tree::Kind::Pipe, 0o600)),
        ("symlink", Action::Symlink { path: path("new"), target: b"x".to_vec() }),
        ("link", Action::Link(path("f"), path("new"))),
        ("create", open("new", true, false)),
        ("unlink", Action::RemoveFile(path("f"))),
        ("rmdir", Action::RemoveDir(path("d"))),
        ("rename", Action::Rename { from: path("f"), to: path("new"), replace: false }),
        ("replace", Action::Rename { from: path("f"), to: path("g"), replace: true }),
        ("append", put),
    ]
}

/// The names, and the bytes, of a directory after its changes.
fn state(dir: &std::path::Path) -> Vec<(std::ffi::OsString, Option<Vec<u8>>)> {
    let entries = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
    let bytes = |entry: &std::fs::DirEntry| {
        entry.file_type().is_ok_and(|kind| kind.is_file()).then(|| std::fs::read(entry.path()).expect("a file"))
    };
    let mut state: Vec<_> = entries.map(|entry| (entry.file_name(), bytes(&entry))).collect();
    state.sort_unstable();
    state
}

/// Sends a change to a service, as a mount does; the answer.
fn send(place: &std::path::Path, action: Action) -> Answer {
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let tree = Tree::open(place.join("tree")).await.expect("a tree");
        let (mounts, caller) = (Mounts::new(), caller(May::Write));
        mounts.remember_changes(&tree, place.join("log")).await.expect("a log");
        let ask = async |number, action: Action| {
            let (mut call, data) = call(7, number, action);
            call.oldest = 5;
            let data = if matches!(call.action, Action::Put { .. }) { data } else { Bytes::new() };
            mounts.answer(&tree, &caller, nowhere(), call, data, false).await.expect("an answer").0
        };
        let answer = ask(5, action.clone()).await;
        if answer != Answer::UnknownHandle {
            return answer;
        }
        let how = OpenHow { read: true, write: true, truncate: false, create: None, only_new: false, append: true };
        let opened = ask(6, Action::Open { path: path("f"), handle: 1, how }).await;
        assert!(matches!(opened, Answer::Opened(..)), "{opened:?}");
        ask(5, action).await
    })
}

/// Not a test of its own: makes a change in a process that ends in the middle of it.
#[test]
fn a_server_that_is_killed() {
    let Some((place, name)) = std::env::var_os("DAPPLE_TEST_PLACE").zip(std::env::var("DAPPLE_TEST_CHANGE").ok())
    else {
        return;
    };
    let (_, action) = changes().into_iter().find(|(change, _)| *change == name).expect("a change");
    send(std::path::Path::new(&place), action);
}

#[test]
fn a_change_that_is_sent_again_happens_once_however_the_server_ended() {
    for ((name, action), step) in
        changes().into_iter().flat_map(|change| ["begun", "changed", "ended"].map(|step| (change.clone(), step)))
    {
        let place = tempfile::tempdir().expect("a directory");
        let tree = place.path().join("tree");
        std::fs::create_dir_all(tree.join("d")).expect("a directory");
        std::fs::write(tree.join("f"), "old").expect("a file");
        std::fs::write(tree.join("g"), "other").expect("a file");
        if name == "append" && step == "ended" {
            continue;
        }
        let output = std::process::Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "mounts::tests::a_server_that_is_killed"])
            .env("DAPPLE_TEST_PLACE", place.path())
            .env("DAPPLE_TEST_CHANGE", name)
            .env("DAPPLE_TEST_CRASH_AT", step)
            .output()
            .expect("it runs");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(9), "{name} {step}: {output:?}");
        let before = state(&tree);
        let answer = send(place.path(), action.clone());
        assert!(!matches!(answer, Answer::Failed(_)), "{name}, killed when it had {step}: {answer:?}");
        let after = state(&tree);
        assert_eq!(before != after, step == "begun", "{name} {step}: it happens once");
        if name == "append" {
            assert_eq!(std::fs::read(tree.join("f")).expect("the file"), b"oldnew");
        }
        // And once more, to a third service.
        assert!(!matches!(send(place.path(), action), Answer::Failed(_)), "{name} {step}");
        assert_eq!(after, state(&tree));
    }
}

#[test]
fn an_append_goes_on_where_the_server_was_killed() {
    let place = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(place.path().join("tree")).expect("a directory");
    let file = place.path().join("tree/f");
    std::fs::write(&file, "old").expect("a file");
    let (_, append) = changes().pop().expect("a change");
    let mut child = std::process::Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", "mounts::tests::a_server_that_is_killed"]);
    child
        .env("DAPPLE_TEST_PLACE", place.path())
        .env("DAPPLE_TEST_CHANGE", "append")
        .env("DAPPLE_TEST_CRASH_AT", "begun");
    assert!(!child.output().expect("it runs").status.success());
    // As the kernel leaves it if the process ends during the second piece.
    std::fs::write(&file, "oldne").expect("written");
    assert!(matches!(send(place.path(), append), Answer::Found(..)));
    assert_eq!(std::fs::read(&file).expect("the file"), b"oldnew");
}

#[test]
fn a_change_that_others_hid_is_not_made_again() {
    let place = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(place.path().join("tree")).expect("a directory");
    std::fs::write(place.path().join("tree/f"), "old").expect("a file");
    let mut child = std::process::Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", "mounts::tests::a_server_that_is_killed"]);
    child
        .env("DAPPLE_TEST_PLACE", place.path())
        .env("DAPPLE_TEST_CHANGE", "rename")
        .env("DAPPLE_TEST_CRASH_AT", "changed");
    assert!(!child.output().expect("it runs").status.success());
    // Another program on the server takes both names.
    std::fs::remove_file(place.path().join("tree/new")).expect("removed");
    std::fs::write(place.path().join("tree/f"), "a new one").expect("a file");
    let rename = Action::Rename { from: path("f"), to: path("new"), replace: false };
    let answer = send(place.path(), rename);
    let is_new_file = matches!(answer, Answer::Failed(errno) if errno == Errno::IO.raw_os_error());
    assert!(is_new_file && place.path().join("tree/f").exists(), "{answer:?}");
}
