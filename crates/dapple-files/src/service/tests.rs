use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use dapple::net::TcpListener;
use dapple::sync::limit::LimitError;
use dapple::time::sleep;
use futures_util::FutureExt as _;
use http::header::{AUTHORIZATION, CONTENT_RANGE, RETRY_AFTER};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::Full;

use super::Files;
use crate::dav::{Asked, Caller};
use crate::lease::{ClientId, Leases};
use crate::login::{Logins, TOKEN_USER, Users};
use crate::path::TreePath;
use crate::rights::{May, Rules};
use crate::tree::Tree;

/// A service of a directory with a file `f`, with leases that outlast the test.
async fn service(dir: &tempfile::TempDir) -> Files {
    std::fs::write(dir.path().join("f"), "").expect("a file");
    let tree = Tree::with_leases(dir.path(), Leases::new(Duration::from_secs(3600))).await.expect("a tree");
    Files::new(tree, Logins::new(None, Users::default()), Rules::all(May::Write))
}

/// Polls once; whether it waits.
fn waits<T>(call: &mut Pin<Box<impl Future<Output = T>>>) -> bool {
    call.as_mut().now_or_never().is_none()
}

#[test]
fn of_the_changes_of_trees_of_one_user_sixteen_run_and_a_line_waits() {
    let dir = tempfile::tempdir().expect("a directory");
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let files = service(&dir).await;
        let path = TreePath::parse("f").expect("a path");
        let silent = files.tree().leases().client(ClientId(1)).expect("a client");
        let (found, lease) = files.tree().stat_leased(&path, &silent).await.expect("attributes");
        assert!(lease.is_some());
        let delete = |user: &str| {
            let rules = Arc::new(Rules::all(May::Write));
            let asked = Asked::new(&Method::DELETE, &path, &HeaderMap::new(), Arc::new(Mutex::new(rules.clone())));
            let room = files.0.rooms.of(&user.into());
            let caller = Caller { user: user.into(), rules, asked: Arc::new(asked), room };
            let request = Request::delete("/f").body(Full::new(Bytes::new())).expect("a request");
            Box::pin(files.change_tree(caller, user.to_owned(), request))
        };
        let trees = &files.0.rooms.of(&"ann".into()).trees;
        // These wait for the lease, and those for them.
        let mut changes: Vec<_> = (0..16 + 1024).map(|_| delete("ann")).collect();
        assert!(changes.iter_mut().all(waits));
        assert_eq!((trees.used(), trees.waiting_len()), (16, 1024));
        let refused = delete("ann").now_or_never().expect("no place in the line");
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.headers().contains_key(RETRY_AFTER));
        let mut of_other = delete("bob");
        assert!(waits(&mut of_other));
        assert_eq!(files.0.rooms.of(&"bob".into()).trees.used(), 1, "another user has its own");
        // The clients of all leave; what has begun goes on to its end.
        drop((changes, of_other));
        assert_eq!((trees.used(), trees.waiting_len()), (16, 0));
        while files.tree().leases().counts().waiting < 17 {
            sleep(Duration::from_millis(1)).await;
        }
        files.tree().leases().release(&silent, &[(found.node, u64::MAX)]).await;
        while trees.used() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(!dir.path().join("f").exists());
    });
}

#[test]
fn of_the_large_calls_that_are_read_a_new_user_gets_some() {
    let dir = tempfile::tempdir().expect("a directory");
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let files = service(&dir).await;
        let [ann, bob, eve] = ["ann", "bob", "eve"].map(Arc::from);
        let calls = &files.0.large_calls;
        let read = |user| Box::pin(calls.acquire(user)).now_or_never();
        let read_now: Vec<_> = (0..32).map(|_| read(&ann).expect("room").expect("room")).collect();
        let mut line: Vec<_> = (0..2048).map(|_| Box::pin(calls.acquire(&ann))).collect();
        assert!(line.iter_mut().all(waits), "32 are read");
        assert!(matches!(read(&ann), Some(Err(LimitError::Full { waiting: 2048 }))));
        let of_bob: Vec<_> = std::iter::from_fn(|| read(&bob)?.ok()).collect();
        assert_eq!(of_bob.len(), 21, "one part in three");
        let of_eve: Vec<_> = std::iter::from_fn(|| read(&eve)?.ok()).collect();
        assert_eq!((of_eve.len(), calls.used()), (11, 64), "the others were quick, and have left her some");
        drop((read_now, of_bob, of_eve));
        assert!(line.swap_remove(0).await.is_ok());
        drop(line);
        assert!(calls.used() == 0 && !calls.is_used());
    });
}

#[test]
fn a_part_of_a_file_that_has_no_room_is_to_come_again() {
    let dir = tempfile::tempdir().expect("a directory");
    dapple::builder().workers(1).build().expect("a runtime").block_on(async {
        let token = "0123456789abcdef";
        std::fs::write(dir.path().join("f"), "old").expect("a file");
        let tree = Tree::open(dir.path()).await.expect("a tree");
        let files = Files::new(tree, Logins::new(Some(token.to_owned()), Users::default()), Rules::all(May::Write));
        let room = files.0.rooms.of(&TOKEN_USER.into());
        // As if the line were full.
        room.changes.close();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/f", listener.local_addr().expect("an address"));
        drop(dapple::spawn(async move { dapple::serve(listener, files).no_admission().await }));
        let request = dapple::http::Request::put(&url)
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .header(CONTENT_RANGE, "bytes 0-2/*");
        let client = dapple::http::Client::builder().build().expect("a client");
        let reply = client.request(request.body("new").expect("a request")).await.expect("a reply");
        assert_eq!(
            (reply.status(), std::fs::read_to_string(dir.path().join("f")).ok()),
            (StatusCode::SERVICE_UNAVAILABLE, Some("old".to_owned()))
        );
        assert!(reply.headers().contains_key(RETRY_AFTER));
    });
}
