//! tower-http's layers around a router behind `dapple::serve`. Of these only the timeout needs
//! tokio's context.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Response};
use axum::routing::get;
use dapple::JoinHandle;
use dapple::net::TcpListener;
use hyper::StatusCode;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

use crate::{LIMIT, assert_no_tokio, run, whole_runtime};

/// Serves a large page at `/page`, and nothing ever at `/never`.
fn start(responses: &Arc<AtomicU32>) -> (String, JoinHandle<()>) {
    // Around the handler that never ends, so that a busy machine makes no other handler late.
    let timeout = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_millis(5));
    let responses = Arc::clone(responses);
    let count = move |_: &Response<_>, _: Duration, _: &tracing::Span| {
        responses.fetch_add(1, Ordering::Relaxed);
    };
    let trace = TraceLayer::new_for_http().on_response(count);
    let router = Router::new()
        .route("/page", get(async || page()))
        .route("/never", get(pending::<Response<Body>>).layer(timeout))
        .layer(CompressionLayer::new())
        .layer(CorsLayer::new().allow_origin(HeaderValue::from_static(SHOP)))
        .layer(trace);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = dapple::spawn(async move { dapple::serve(listener, router).no_admission().await.unwrap() });
    (url, server)
}

fn page() -> String {
    "dapple ".repeat(1_000)
}

#[test]
fn trace_compression_cors_and_timeout() {
    whole_runtime::run(|| async {
        let responses = Arc::default();
        let (url, server) = start(&responses);
        // Without reqwest's feature for gzip, the body stays as the server has sent it.
        let client = reqwest::Client::builder().no_proxy().timeout(LIMIT).build().unwrap();
        let reply = client.get(format!("{url}/page")).header("accept-encoding", "gzip").send().await.unwrap();
        assert_eq!(reply.headers()["content-encoding"], "gzip");
        assert_eq!(reply.headers()["access-control-allow-origin"], SHOP);
        let body = reply.bytes().await.unwrap();
        assert!(body.starts_with(&[0x1f, 0x8b]) && body.len() < page().len() / 2, "{} bytes", body.len());
        let late = client.get(format!("{url}/never")).send().await.unwrap();
        assert_eq!(late.status(), StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(responses.load(Ordering::Relaxed), 2);
        server.abort();
    });
}

#[test]
fn without_tokio_all_but_the_timeout() {
    run(2, async {
        assert_no_tokio();
        let responses = Arc::default();
        let (url, server) = start(&responses);
        let client = dapple::http::Client::new().unwrap();
        let reply = client.get(&format!("{url}/page")).await.unwrap();
        assert_eq!(reply.headers()["access-control-allow-origin"], SHOP);
        // The client has undone the compression.
        assert_eq!(reply.text().await.unwrap(), page());
        let late = client.get(&format!("{url}/never")).await.unwrap();
        assert_eq!(late.status(), StatusCode::INTERNAL_SERVER_ERROR, "tokio's timer has panicked");
        server.abort();
    });
}

const SHOP: &str = "http://shop.example";
