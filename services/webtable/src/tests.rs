//! The front end before tables that answer as no real one does on demand.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use dapple::net::TcpListener;
use dapple::serve::bearer::Token;
use dapple::stage::BoxError;
use dapple::stage::remote::{Host, HostLimits};
use tower::ServiceExt;

use crate::front::{Front, Problem, TURNS_MAX};
use crate::http;
use crate::message::{Answer, Ask, File, MESSAGE_LEN_MAX, Stamp};

/// A front end before a table with these answers.
fn front(answer: impl Fn(Ask) -> Answer + Clone + Send + 'static) -> Front {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut limits = HostLimits::default();
    limits.body_max_bytes = MESSAGE_LEN_MAX;
    let host = Host::builder().limits(limits).register_fn("table", move |ask: Ask| {
        let answer = answer(ask);
        async move { Ok::<_, BoxError>(answer) }
    });
    drop(dapple::spawn(host.build().serve(listener)));
    Front::new(vec![address], Duration::from_secs(60), Some(Token::new("0123456789abcdef").unwrap())).unwrap()
}

fn file(len: usize, body_len_max: usize) -> Answer {
    let body = if len > body_len_max { Bytes::new() } else { vec![b'a'; len].into() };
    let file = File { kind: "text/plain".to_owned(), modified_s: 1, body };
    Answer::File(Some((Stamp { version: 1, modified_s: 1, len }, file)))
}

async fn status(front: &Front, request: Request<Body>) -> StatusCode {
    http::router(front.clone()).oneshot(request).await.unwrap().status()
}

#[dapple::test]
async fn a_head_leaves_the_body_in_the_table() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let front = front(move |ask| {
        let Ask::File { body_len_max, .. } = ask else { panic!("{ask:?}") };
        seen.lock().unwrap().push(body_len_max);
        file(9, body_len_max)
    });
    let head = Request::head("/a").header("range", "bytes=99-").body(Body::empty()).unwrap();
    let reply = http::router(front.clone()).oneshot(head).await.unwrap();
    assert_eq!((reply.status(), reply.headers()["content-length"].to_str().unwrap()), (StatusCode::OK, "9"));
    assert_eq!(*asked.lock().unwrap(), [0]);
}

#[dapple::test]
async fn a_request_that_others_come_before_each_time_ends() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let front = front(move |ask| {
        count.fetch_add(1, SeqCst);
        match ask {
            Ask::File { body_len_max, .. } => file(1, body_len_max),
            Ask::Rows { first, .. } => Answer::Rows(vec![(first, 1, "1".to_owned())]),
            Ask::Change { .. } | Ask::ChangeRows { .. } => Answer::Conflict,
        }
    });
    let post = Request::post("/run/counter/a").header("content-type", "application/x-www-form-urlencoded");
    let put = Request::put("/a").header("if-match", "*").header("authorization", "Bearer 0123456789abcdef");
    for request in [post, put] {
        assert_eq!(status(&front, request.body(Body::empty()).unwrap()).await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(asked.swap(0, SeqCst), 2 * TURNS_MAX);
    }
}

#[dapple::test]
async fn files_on_their_way_to_slow_clients_have_limited_room() {
    const LEN: usize = 4 << 20;
    let front = front(|ask| {
        let Ask::File { body_len_max, .. } = ask else { panic!("{ask:?}") };
        file(LEN, body_len_max)
    });
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(front.file("a").await.unwrap().unwrap().1.body.slice(LEN - 1..));
    }
    let refused = front.file("a").await.unwrap_err();
    assert!(matches!(&refused, Problem::Later { .. }), "{refused:?}");
    // Other requests need none.
    assert_eq!(status(&front, Request::head("/a").body(Body::empty()).unwrap()).await, StatusCode::OK);
    held.pop();
    assert_eq!(front.file("a").await.unwrap().unwrap().1.body.len(), LEN);
}
