//! Leases: what a holder may rely on, and what it costs the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dapple::time::Instant;
use dapple_files::{Access, ClientId, Leases, Recall, Tree};

use crate::path;

async fn tree(dir: &tempfile::TempDir, lease: Duration) -> Tree {
    Tree::with_leases(dir.path(), Leases::new(lease)).await.expect("a tree")
}

/// Long enough that no test waits for its end.
const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_change_waits_until_the_holder_gives_its_lease_back() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f"), "old").expect("a file");
    crate::runtime().block_on(async {
        let tree = tree(&dir, LONG).await;
        let holder = tree.leases().client(ClientId(1)).expect("a client");
        let (found, lease) = tree.stat_leased(&path("f"), &holder).await.expect("attributes");
        let lease = lease.expect("a lease");
        let is_done = Arc::new(AtomicBool::new(false));
        let (changing, flag) = (tree.clone(), is_done.clone());
        let change = dapple::spawn(async move {
            let upload = changing.upload(&path("f"), 0o644).await.expect("an upload");
            upload.file().write_all_at(0, "new").await.expect("written");
            upload.commit(Some(ClientId(2)), false, false).await.expect("committed");
            flag.store(true, Ordering::SeqCst);
        });
        // The recall arrives while the change waits.
        let recalls = holder.recalls(LONG).await;
        assert!(matches!(recalls[..], [Recall::Node(node, grant)] if node == found.node && grant >= lease.grant));
        assert!(!is_done.load(Ordering::SeqCst));
        assert_eq!(std::fs::read_to_string(dir.path().join("f")).expect("the file"), "old");
        // While it waits, there are no new leases, for anyone.
        let other = tree.leases().client(ClientId(3)).expect("a client");
        assert!(tree.stat_leased(&path("f"), &other).await.expect("attributes").1.is_none());
        tree.leases().release(&holder, &[(found.node, u64::MAX)]).await;
        change.await.expect("no panic");
        assert_eq!(std::fs::read_to_string(dir.path().join("f")).expect("the file"), "new");
        let counts = tree.leases().counts();
        assert_eq!((counts.recalled, counts.expired, counts.waiting), (1, 0, 0));
    });
}

#[test]
fn a_holder_that_does_not_answer_costs_the_duration_of_a_lease() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f"), "old").expect("a file");
    crate::runtime().block_on(async {
        let lease = Duration::from_millis(50);
        let tree = tree(&dir, lease).await;
        let holder = tree.leases().client(ClientId(1)).expect("a client");
        let asked = Instant::now();
        tree.stat_leased(&path("f"), &holder).await.expect("attributes").1.expect("a lease");
        tree.remove_file(&path("f"), Some(ClientId(2))).await.expect("removed");
        assert!(asked.elapsed() >= lease, "the lease was honored");
        assert_eq!(tree.leases().counts().waiting, 0);
        assert!(!dir.path().join("f").exists());
    });
}

#[test]
fn ones_own_changes_and_those_of_other_files_wait_for_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("d")).expect("a directory");
    std::fs::write(dir.path().join("d/f"), "old").expect("a file");
    crate::runtime().block_on(async {
        let tree = tree(&dir, LONG).await;
        let holder = tree.leases().client(ClientId(1)).expect("a client");
        let by = Some(ClientId(1));
        tree.stat_leased(&path("d/f"), &holder).await.expect("attributes").1.expect("a lease");
        tree.page_leased(&path("d"), &holder).await.expect("a list").1.expect("a lease");
        tree.rename(&path("d/f"), &path("d/g"), true, by).await.expect("renamed");
        let file = tree.open_file(&path("d/g"), Access { write: true, ..Access::default() }, by).await.expect("open");
        let node = tree.stat(&path("d/g")).await.expect("attributes").node;
        tree.write(&file, node, 0, "new", by).await.expect("written");
        // Another client, elsewhere.
        tree.make_dir(&path("e"), 0o755, Some(ClientId(2))).await.expect("made");
        assert_eq!(tree.leases().counts().recalled, 0);
    });
}

#[test]
fn a_rename_waits_for_both_directories() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["a", "b"] {
        std::fs::create_dir(dir.path().join(name)).expect("a directory");
    }
    std::fs::write(dir.path().join("a/f"), "").expect("a file");
    crate::runtime().block_on(async {
        let tree = tree(&dir, LONG).await;
        let holders = [1, 2].map(|id| tree.leases().client(ClientId(id)).expect("a client"));
        tree.page_leased(&path("a"), &holders[0]).await.expect("a list").1.expect("a lease");
        tree.page_leased(&path("b"), &holders[1]).await.expect("a list").1.expect("a lease");
        let moving = tree.clone();
        let change =
            dapple::spawn(async move { moving.rename(&path("a/f"), &path("b/f"), false, Some(ClientId(3))).await });
        for holder in &holders {
            for recall in holder.recalls(LONG).await {
                let Recall::Node(node, _) = recall else { panic!("{recall:?}") };
                assert!(dir.path().join("a/f").exists(), "no lease is left out");
                tree.leases().release(holder, &[(node, u64::MAX)]).await;
            }
        }
        change.await.expect("no panic").expect("renamed");
    });
    assert!(dir.path().join("b/f").exists());
}

#[test]
fn a_canceled_change_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f"), "").expect("a file");
    crate::runtime().block_on(async {
        let tree = tree(&dir, LONG).await;
        let holder = tree.leases().client(ClientId(1)).expect("a client");
        let (found, lease) = tree.stat_leased(&path("f"), &holder).await.expect("attributes");
        lease.expect("a lease");
        let removing = tree.clone();
        let change = dapple::spawn(async move { removing.remove_file(&path("f"), None).await });
        assert_eq!(holder.recalls(LONG).await.len(), 1);
        change.abort();
        assert!(change.await.is_err());
        assert!(dir.path().join("f").exists());
        tree.leases().release(&holder, &[(found.node, u64::MAX)]).await;
        assert!(
            tree.stat_leased(&path("f"), &holder).await.expect("attributes").1.is_some(),
            "leases are granted again"
        );
        assert_eq!(tree.leases().counts().waiting, 0);
    });
}

#[test]
fn a_client_that_does_not_listen_fills_a_bounded_queue() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f"), "").expect("a file");
    crate::runtime().block_on(async {
        let tree = tree(&dir, LONG).await;
        let holder = tree.leases().client(ClientId(1)).expect("a client");
        for _ in 0..2000 {
            let (found, _) = tree.stat_leased(&path("f"), &holder).await.expect("attributes");
            tree.leases().changed_elsewhere(found.node, b".", false);
        }
        let recalls = holder.recalls(LONG).await;
        assert!(recalls.len() <= 1025 && matches!(recalls[0], Recall::All(_)), "{}", recalls.len());
    });
}

#[test]
fn a_late_message_takes_no_newer_lease_back() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f"), "").expect("a file");
    crate::runtime().block_on(async {
        let tree = tree(&dir, LONG).await;
        let holder = tree.leases().client(ClientId(1)).expect("a client");
        let (found, first) = tree.stat_leased(&path("f"), &holder).await.expect("attributes");
        let (_, second) = tree.stat_leased(&path("f"), &holder).await.expect("attributes");
        let (first, second) = (first.expect("a lease"), second.expect("a lease"));
        assert!(second.grant > first.grant);
        tree.leases().release(&holder, &[(found.node, first.grant)]).await;
        let by = Some(ClientId(2));
        let writer = dapple::spawn({
            let tree = tree.clone();
            async move { tree.remove_file(&path("f"), by).await }
        });
        // The holder still has a lease, so the change asks for it.
        let recalls = holder.recalls(LONG).await;
        let recalled = |recall: &Recall| matches!(recall, Recall::Node(node, _) if *node == found.node);
        assert!(recalls.iter().any(recalled), "{recalls:?}");
        tree.leases().release(&holder, &[(found.node, second.grant)]).await;
        writer.await.expect("it ends").expect("removed");
    });
}
