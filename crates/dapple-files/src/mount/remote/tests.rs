use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple::net::TcpListener;
use dapple::time::{sleep, timeout};
use http::StatusCode;
use tower_service::Service;

use super::{CONNECTIONS, MountOptions, Remote, Sent};
use crate::lease::{ClientId, Leases};
use crate::login::{Logins, Users};
use crate::path::TreePath;
use crate::rights::{May, Rules};
use crate::service::Files;
use crate::tree::{AttributeChange, Tree};
use crate::wire::{Action, Answer, OpenHow};

const TOKEN: &str = "0123456789abcdef";

/// A service of a directory with the files `held` and `own`, with leases that outlast the test; and a mount's connections to it.
async fn served(dir: &tempfile::TempDir) -> (Files, Arc<Remote>) {
    for name in ["held", "own"] {
        std::fs::write(dir.path().join(name), "").expect("a file");
    }
    let tree = Tree::with_leases(dir.path(), Leases::new(Duration::from_secs(3600))).await.expect("a tree");
    let (files, listener, options) = service(tree);
    let service = files.clone();
    drop(dapple::spawn(async move { dapple::serve(listener, service).no_admission().await }));
    (files, Arc::new(Remote::new(&options).expect("a client")))
}

/// A service of a tree, a port for it, and the options of a mount of it.
fn service(tree: Tree) -> (Files, TcpListener, MountOptions) {
    let logins = Logins::new(Some(TOKEN.to_owned()), Users::default());
    let files = Files::new(tree, logins, Rules::all(May::Write));
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
    (files, listener, options)
}

/// Opens the file `own`; returns the grant by which its writes may be kept.
async fn open(remote: &Remote) -> u64 {
    let how = OpenHow { read: true, write: true, truncate: false, create: None, only_new: false, append: false };
    let path = TreePath::parse("own").expect("a path");
    let opened = remote.call(Action::Open { path, handle: 1, how }, &[]).await;
    let Ok((Answer::Opened(_, Some(lease)), _)) = opened else { panic!("{opened:?}") };
    assert!(lease.writes);
    lease.grant
}

fn put(delegation: Option<u64>, len: u32) -> Action {
    Action::Put { handle: 1, delegation, pieces: vec![(0, len)], change: AttributeChange::default() }
}

#[test]
fn kept_writes_are_sent_though_all_connections_are_full_of_calls_that_wait() {
    let dir = tempfile::tempdir().expect("a directory");
    dapple::builder().workers(2).build().expect("a runtime").block_on(async {
        let (files, remote) = served(&dir).await;
        let tree = files.tree();
        let held = TreePath::parse("held").expect("a path");
        let silent = tree.leases().client(ClientId(1)).expect("a client");
        let (found, _) = tree.stat_leased(&held, &silent).await.expect("attributes");
        let grant = open(&remote).await;
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
        let kept = remote.call(put(Some(grant), 3), b"new");
        let written = timeout(Duration::from_secs(60), kept).await.expect("it waits for none of them");
        assert!(matches!(written, Ok((Answer::Found(..), _))), "{written:?}");
        tree.leases().release(&silent, &[(found.node, u64::MAX)]).await;
        for call in waiting {
            call.await.expect("no panic").expect("changed");
        }
    });
}

#[test]
fn large_writes_that_were_kept_are_taken_while_memory_is_short_and_others_are_not() {
    let dir = tempfile::tempdir().expect("a directory");
    dapple::builder().workers(2).build().expect("a runtime").block_on(async {
        let (files, remote) = served(&dir).await;
        let grant = open(&remote).await;
        files.refuse_all(true);
        let data = vec![b'x'; 1 << 20];
        let once = async |delegation| {
            let body = {
                let action = put(delegation, 1 << 20);
                remote.body(&remote.number(&action), action, Vec::new(), &data)
            }
            .expect("a call");
            remote.send(super::Lane::Most, body).await
        };
        let kept = once(Some(grant)).await;
        assert!(matches!(kept, Ok((Answer::Found(..), _))));
        for delegation in [None, Some(0)] {
            assert!(matches!(once(delegation).await, Err(Sent::Refused(StatusCode::SERVICE_UNAVAILABLE, Some(_)))));
        }
        assert_eq!(std::fs::metadata(dir.path().join("own")).expect("the file").len(), 1 << 20);
    });
}

/// The calls that one connection of the client carries.
const STREAMS: usize = 100;

/// A service that has no room for its first two requests.
#[derive(Clone)]
struct BusyAtFirst(Files, Arc<AtomicUsize>);

impl Service<http::Request<dapple::serve::Body>> for BusyAtFirst {
    type Response = http::Response<crate::dav::ReplyBody>;
    type Error = std::convert::Infallible;
    type Future = futures_util::future::Either<
        std::future::Ready<Result<Self::Response, Self::Error>>,
        <Files as Service<http::Request<dapple::serve::Body>>>::Future,
    >;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<dapple::serve::Body>) -> Self::Future {
        if self.1.fetch_add(1, Ordering::Relaxed) >= 2 {
            return futures_util::future::Either::Right(self.0.call(request));
        }
        let mut busy = http::Response::new(crate::dav::ReplyBody::empty());
        *busy.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        busy.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from(0));
        futures_util::future::Either::Left(std::future::ready(Ok(busy)))
    }
}

#[test]
fn a_mount_begins_although_the_server_has_no_room_for_a_moment() {
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let dir = tempfile::tempdir().expect("a directory");
        let (files, listener, options) = service(Tree::open(dir.path()).await.expect("a tree"));
        let asked = Arc::new(AtomicUsize::new(0));
        let service = BusyAtFirst(files, asked.clone());
        drop(dapple::spawn(async move { dapple::serve(listener, service).no_admission().await }));
        let remote = Remote::new(&options).expect("a client");
        assert!(remote.hello().await.is_ok());
        assert_eq!(asked.load(Ordering::Relaxed), 4);
    });
}
