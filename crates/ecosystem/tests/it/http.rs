//! An axum router over hyper, as server and client, with HTTP/1.1 and HTTP/2.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use dapple::{Color, Colored};
use http_body_util::BodyExt;
use hyper::StatusCode;
use tokio::sync::{Notify, oneshot};

use crate::server::{Client, Server, read};
use crate::{Meeting, assert_no_tokio, run};

async fn twice(Path(number): Path<u64>) -> Json<Vec<u64>> {
    assert_no_tokio();
    dapple::yield_now().await;
    assert_no_tokio();
    Json(vec![number, 2 * number])
}

async fn many_requests(mut client: Client, first: u64) {
    for number in first..first + 20 {
        let (status, text) = client.get(&format!("/twice/{number}")).await;
        assert_eq!((status, text), (StatusCode::OK, Bytes::from(format!("[{number},{}]", 2 * number))));
    }
    assert_eq!(client.get("/nothing/here").await.0, StatusCode::NOT_FOUND);
    assert_eq!(client.get("/twice/a-word").await.0, StatusCode::BAD_REQUEST);
}

fn routes_answer(workers: usize) {
    run(workers, async {
        let server = Server::start(Router::new().route("/twice/{number}", get(twice)));
        let mut clients = Vec::new();
        for first in 0..4 {
            for client in server.connect_both().await {
                clients.push(dapple::spawn(many_requests(client, first * 100)));
            }
        }
        for client in clients {
            client.await.unwrap();
        }
        server.stop().await;
    });
}

#[test]
fn routes_answer_on_one_worker() {
    routes_answer(1);
}

#[test]
fn routes_answer_on_four_workers() {
    routes_answer(4);
}

#[test]
fn a_posted_json_is_read_and_a_wrong_one_is_refused() {
    run(2, async {
        let sum = post(async |Json(numbers): Json<Vec<u64>>| numbers.iter().sum::<u64>().to_string());
        let server = Server::start(Router::new().route("/sum", sum));
        for mut client in server.connect_both().await {
            // axum asks for the content type; without it that is 415.
            let response = client.send("POST", "/sum", Body::from("[1,2,3]")).await.unwrap();
            assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
            read(response).await;
            assert_eq!(client.get("/sum").await.0, StatusCode::METHOD_NOT_ALLOWED);
        }
    });
}

/// Sends each piece back as it arrives.
async fn echo(request: Request) -> Response {
    assert_no_tokio();
    Response::new(request.into_body())
}

fn large_bodies_go_both_ways(workers: usize) {
    run(workers, async {
        let server = Server::start(Router::new().route("/echo", post(echo)));
        let sent: Bytes = (0..LARGE).map(|at| (at % 251) as u8).collect::<Vec<u8>>().into();
        for mut client in server.connect_both().await {
            let response = client.send("POST", "/echo", Body::from(sent.clone())).await.unwrap();
            let (status, came_back) = read(response).await;
            assert_eq!(status, StatusCode::OK);
            assert!(came_back == sent, "{} bytes came back, of {LARGE}", came_back.len());
        }
        server.stop().await;
    });
}

#[test]
fn large_bodies_go_both_ways_on_one_worker() {
    large_bodies_go_both_ways(1);
}

#[test]
fn large_bodies_go_both_ways_on_four_workers() {
    large_bodies_go_both_ways(4);
}

/// Handlers of different connections, and of different streams of one connection, hold different
/// colors.
#[test]
fn requests_run_in_parallel() {
    run(2, async {
        for one_connection in [false, true] {
            let meeting = Arc::new(Meeting::default());
            let handler = get(move || {
                meeting.attend();
                async { "met" }
            });
            let server = Server::start(Router::new().route("/meet", handler));
            let mut one = if one_connection { server.connect_http2().await } else { server.connect_http1().await };
            let mut other = match &one {
                Client::Http2(sender) => Client::Http2(sender.clone()),
                Client::Http1(_) => server.connect_http1().await,
            };
            let other = dapple::spawn(async move { other.get("/meet").await });
            assert_eq!(one.get("/meet").await, (StatusCode::OK, "met".into()));
            assert_eq!(other.await.unwrap(), (StatusCode::OK, "met".into()));
        }
    });
}

/// State of a color needs no lock in a handler, however many connections there are.
#[test]
fn handlers_share_state_by_its_color() {
    run(4, async {
        let hits = Colored::new(0);
        let handler = get({
            let hits = hits.clone();
            async move || hits.with(|hits| *hits += 1).await
        });
        let server = Server::start(Router::new().route("/hit", handler));
        let mut clients = Vec::new();
        for _ in 0..8 {
            let mut client = server.connect_http1().await;
            clients.push(dapple::spawn(async move {
                for _ in 0..25 {
                    assert_eq!(client.get("/hit").await.0, StatusCode::OK);
                }
            }));
        }
        for client in clients {
            client.await.unwrap();
        }
        assert_eq!(hits.with(|hits| *hits).await, 200);
    });
}

/// Connections of one color take turns, and a request that waits does not keep the others from
/// theirs.
#[test]
fn clients_of_one_color_do_not_wait_for_one_another() {
    run(2, async {
        let opened = Arc::new(Notify::new());
        let gate = opened.clone();
        let wait = get(async move || gate.notified().await);
        let open = get(async move || opened.notify_one());
        let server = Server::start(Router::new().route("/wait", wait).route("/open", open));
        let color = Color::new();
        let [mut waiting, mut opening] = [server.connect_http1().await, server.connect_http1().await];
        let first = color.spawn(async move { waiting.get("/wait").await.0 });
        let second = color.spawn(async move { opening.get("/open").await.0 });
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (StatusCode::OK, StatusCode::OK));
    });
}

#[test]
fn a_shutdown_finishes_what_is_in_flight_and_closes_what_is_idle() {
    run(2, async {
        for second_version in [false, true] {
            let (begun_tx, begun_rx) = oneshot::channel();
            let gate = Arc::new(Notify::new());
            let begun_tx = Arc::new(std::sync::Mutex::new(Some(begun_tx)));
            let handler = get({
                let gate = gate.clone();
                async move || {
                    let begun = begun_tx.lock().unwrap().take();
                    begun.expect("it is asked once").send(()).unwrap();
                    gate.notified().await;
                    "finished"
                }
            });
            let server = Server::start(Router::new().route("/slow", handler).route("/", get(async || "page")));
            let connect = async || match second_version {
                false => server.connect_http1().await,
                true => server.connect_http2().await,
            };
            let (mut busy, mut idle) = (connect().await, connect().await);
            assert_eq!(idle.get("/").await.0, StatusCode::OK);
            let answer = dapple::spawn(async move { busy.get("/slow").await });
            begun_rx.await.unwrap();

            let addr = server.addr;
            let mut stopping = dapple::spawn(server.stop());
            // The idle one is closed first, while the other one is still being answered.
            while idle.send("GET", "/", Body::empty()).await.is_ok() {
                dapple::yield_now().await;
            }
            assert!(dapple::net::TcpStream::connect(addr).await.is_err(), "no server listens any more");
            assert!(dapple::time::timeout(std::time::Duration::ZERO, &mut stopping).await.is_err());
            gate.notify_one();
            assert_eq!(answer.await.unwrap(), (StatusCode::OK, "finished".into()));
            stopping.await.unwrap();
        }
    });
}

/// A body that the client no longer wants ends the handler's stream, and the server continues.
#[test]
fn a_client_that_leaves_in_the_middle_harms_no_other() {
    run(2, async {
        let endless = get(async || {
            let large = Bytes::from(vec![7; LARGE]);
            Body::new(http_body_util::Full::new(large))
        });
        let server = Server::start(Router::new().route("/large", endless).route("/", get(async || "page")));
        for mut client in server.connect_both().await {
            let mut response = client.send("GET", "/large", Body::empty()).await.unwrap();
            let frame = response.frame().await.unwrap().unwrap();
            assert!(frame.data_ref().is_some_and(|data| data.iter().all(|byte| *byte == 7)));
            drop((response, client));
        }
        let mut client = server.connect_http1().await;
        assert_eq!(client.get("/").await, (StatusCode::OK, "page".into()));
        server.stop().await;
    });
}

const LARGE: usize = 12 << 20;
