//! Servers that are no etcd, or that answer in an unlucky moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple_etcd::{Error, Etcd, Guard, Guarded, Put, Reason};
use dapple_io::net::{TcpListener, TcpStream};

use crate::run;

/// Reads one request, and says whether there was one.
async fn read(stream: &TcpStream) -> bool {
    let (mut text, mut buf) = (Vec::new(), [0; 4096]);
    while !text.ends_with(b"}") {
        match stream.read(&mut buf).await {
            Ok(count @ 1..) => text.extend_from_slice(&buf[..count]),
            _ => return false,
        }
    }
    true
}

/// A server that answers its requests with these in turn, and all further ones with the last. An empty one closes the connection.
fn serve(answers: &'static [&'static str]) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap().to_string(), Arc::new(AtomicUsize::new(0)));
    let counted = asked.clone();
    let _detached = dapple_sched::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let asked = counted.clone();
            let _detached = dapple_sched::spawn(async move {
                while read(&stream).await {
                    let number = asked.fetch_add(1, Ordering::Relaxed);
                    let answer = answers[number.min(answers.len() - 1)];
                    if answer.is_empty() || stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, asked)
}

fn of(address: &str) -> Etcd {
    Etcd::builder([address]).timeout(Duration::from_secs(30)).build().unwrap()
}

macro_rules! ok {
    ($json:literal) => {
        concat!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", $json, "\r\n0\r\n\r\n")
    };
}

#[test]
fn a_server_that_is_no_etcd_is_told_so() {
    run(async {
        let (address, _) = serve(&["HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\n\r\nnot found"]);
        let error = of(&address).get("a").await.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::Malformed));
        assert!(error.to_string().contains("is this an etcd"), "{error}");
        let (address, _) = serve(&[ok!("5\r\nhello")]);
        assert_eq!(of(&address).get("a").await.unwrap_err().reason(), Some(Reason::Malformed));
        assert!(matches!(of(&address).put(Put::new("a", "b")).await, Err(Error::Unknown { .. })));
    });
}

#[test]
fn a_plain_write_with_a_lost_reply_is_unknown_and_sent_once() {
    run(async {
        let (address, asked) = serve(&[""]);
        assert!(matches!(of(&address).put(Put::new("a", "b")).await, Err(Error::Unknown { .. })));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_read_with_a_lost_reply_is_sent_again() {
    run(async {
        let (address, asked) = serve(&["", ok!("2\r\n{}")]);
        assert_eq!(of(&address).get("a").await.unwrap(), None);
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    });
}

/// The first attempt is lost; the second finds the key changed: by the first one, if it has its value.
#[test]
fn a_guarded_write_with_a_lost_reply_finds_itself() {
    run(async {
        // The value is `b`.
        let (address, _) = serve(&[
            "",
            ok!(
                "85\r\n{\"header\":{\"revision\":\"9\"},\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"YQ==\",\"value\":\"Yg==\",\"mod_revision\":\"8\",\"version\":\"1\"}]}}]}"
            ),
        ]);
        let write = |value: &'static str| {
            let etcd = of(&address);
            async move { etcd.put_guarded(Put::new("a", value), Guard::Revision(5)).await }
        };
        assert_eq!(write("b").await, Ok(Guarded::Applied { revision: 8 }));
        // Without a lost reply, the same answer is a refusal.
        assert!(matches!(write("b").await, Ok(Guarded::Refused { current: Some(_) })));
    });
}

#[test]
fn a_guarded_write_that_finds_another_value_after_a_lost_reply_is_unknown() {
    run(async {
        let (address, _) = serve(&[
            "",
            ok!(
                "85\r\n{\"header\":{\"revision\":\"9\"},\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"YQ==\",\"value\":\"Yw==\",\"mod_revision\":\"8\",\"version\":\"1\"}]}}]}"
            ),
        ]);
        let written = of(&address).put_guarded(Put::new("a", "b"), Guard::Revision(5)).await;
        assert!(matches!(written, Err(Error::Unknown { .. })), "{written:?}");
    });
}

#[test]
fn where_no_member_listens_calls_end_at_their_deadline() {
    run(async {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let etcd = of(&free).timeout(Duration::from_millis(200));
        assert!(matches!(etcd.put(Put::new("a", "b")).await, Err(Error::Unavailable { .. })));
    });
}
