//! Changes that end in the middle, and callers that leave there.

use std::sync::mpsc;
use std::time::Duration;

use dapple::sync::oneshot;
use dapple::task::race;
use dapple::time::sleep;

use super::Tree;
use crate::lease::ClientId;
use crate::path::TreePath;

#[test]
fn a_change_lasts_until_its_work_has_ended_although_its_caller_left() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f"), "").expect("a file");
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let tree = Tree::open(dir.path()).await.expect("a tree");
        let path = TreePath::parse("f").expect("a path");
        let node = tree.stat(&path).await.expect("attributes").node;
        let client = tree.leases().client(ClientId(1)).expect("a client");
        let (began, has_begun) = oneshot::channel();
        let (go_on, waits) = mpsc::channel::<()>();
        let change = tree.change(None, std::slice::from_ref(&path), move |_| {
            let _ = began.send(());
            let _ = waits.recv();
            Ok(())
        });
        // The caller leaves while the job runs.
        race(
            async {
                let _ = change.await;
            },
            async {
                let _ = has_begun.await;
            },
        )
        .await;
        assert!(tree.leases().grant(&client, node).await.is_none(), "the change still runs");
        go_on.send(()).expect("the job waits");
        while tree.leases().grant(&client, node).await.is_none() {
            sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn a_file_that_cannot_take_its_place_leaves_no_hidden_name() {
    let dir = tempfile::tempdir().expect("a directory");
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let tree = Tree::open(dir.path()).await.expect("a tree");
        let place = TreePath::root();
        let hidden = tree.hidden_beside(&place);
        let upload = tree.upload_new(&hidden, 0o600).await.expect("an upload");
        let aside = tree.aside_file(&hidden, &place, upload.file()).expect("a file aside");
        upload.commit(None, true, false).await.expect("the hidden name");
        aside.commit().await.expect_err("the root stays");
        while std::fs::read_dir(dir.path()).expect("a directory").next().is_some() {
            sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn a_look_sees_the_writes_that_another_client_kept_before_and_sent_during_the_look() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f"), "old").expect("a file");
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let tree = Tree::open(dir.path()).await.expect("a tree");
        let path = TreePath::parse("f").expect("a path");
        let node = tree.stat(&path).await.expect("attributes").node;
        let [writer, reader] = [1, 2].map(|id| tree.leases().client(ClientId(id)).expect("a client"));
        let lease = tree.leases().grant_writes(&writer, node).await.expect("a lease");
        assert!(lease.writes);
        let look = || async {
            let found = std::fs::read_to_string(dir.path().join("f"));
            // The writer sends the write that it kept, and gives the lease back, before the reader looks for its delegation.
            std::fs::write(dir.path().join("f"), "new")?;
            tree.leases().release(&writer, &[(node, lease.grant)]).await;
            found
        };
        let found = tree.look_settled(Some(reader.id()), look, |_| vec![node]).await.expect("it can be read");
        assert_eq!(found, "new");
    });
}
