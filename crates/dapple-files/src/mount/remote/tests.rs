use std::sync::Arc;
use std::time::Duration;

use dapple::net::TcpListener;
use dapple::time::{sleep, timeout};

use super::{CONNECTIONS, MountOptions, Remote};
use crate::lease::{ClientId, Leases};
use crate::login::{Logins, Users};
use crate::path::TreePath;
use crate::rights::{May, Rules};
use crate::service::Files;
use crate::tree::{AttributeChange, Tree};
use crate::wire::{Action, Answer, OpenHow};

const TOKEN: &str = "0123456789abcdef";

#[test]
fn kept_writes_are_sent_though_all_connections_are_full_of_calls_that_wait() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["held", "own"] {
        std::fs::write(dir.path().join(name), "").expect("a file");
    }
    dapple::builder().workers(2).build().expect("a runtime").block_on(async {
        let tree = Tree::with_leases(dir.path(), Leases::new(Duration::from_secs(3600))).await.expect("a tree");
        let files =
            Files::new(tree.clone(), Logins::new(Some(TOKEN.to_owned()), Users::default()), Rules::all(May::Write));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let options = MountOptions {
            url: format!("http://{}", listener.local_addr().expect("an address")),
            token: Some(TOKEN.to_owned()),
            login: None,
            tls: None,
            patience: Duration::from_secs(3600),
            server_owners: false,
            allow_other: false,
        };
        drop(dapple::spawn(async move { dapple::serve(listener, files).no_admission().await }));
        let remote = Arc::new(Remote::new(&options).expect("a client"));
        let [held, own] = ["held", "own"].map(|name| TreePath::parse(name).expect("a path"));
        let silent = tree.leases().client(ClientId(1)).expect("a client");
        let (found, _) = tree.stat_leased(&held, &silent).await.expect("attributes");
        let how = OpenHow { read: true, write: true, truncate: false, create: None, only_new: false, append: false };
        let opened = remote.call(Action::Open { path: own, handle: 1, how }, &[]).await;
        let Ok((Answer::Opened(_, Some(lease)), _)) = opened else { panic!("{opened:?}") };
        assert!(lease.writes);
        let change = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
        let waiting: Vec<_> = (0..CONNECTIONS * STREAMS)
            .map(|_| {
                let (remote, held) = (remote.clone(), held.clone());
                dapple::spawn(async move { remote.call(Action::Set(held, change), &[]).await })
            })
            .collect();
        while tree.leases().counts().waiting < waiting.len() {
            sleep(Duration::from_millis(1)).await;
        }
        let (delegation, change) = (Some(lease.grant), AttributeChange::default());
        let kept = remote.call(Action::Put { handle: 1, delegation, pieces: vec![(0, 3)], change }, b"new");
        let written = timeout(Duration::from_secs(60), kept).await.expect("it waits for none of them");
        assert!(matches!(written, Ok((Answer::Found(..), _))), "{written:?}");
        tree.leases().release(&silent, &[(found.node, u64::MAX)]).await;
        for call in waiting {
            call.await.expect("no panic").expect("changed");
        }
    });
}

/// The calls that one connection of the client carries.
const STREAMS: usize = 100;
