//! An axum router behind Dapple's own middleware: a shed, a limit and a time limit, which need no
//! tokio runtime.

use std::time::Duration;

use axum::body::Body;
use axum::error_handling::HandleErrorLayer;
use axum::http::{Request, StatusCode};
use axum::{Router, routing::get};
use dapple::stage::middleware::{GlobalConcurrencyLimitLayer, ShedLayer, TimeoutLayer};
use dapple::stage::{BoxError, Refused};
use tower::{ServiceBuilder, ServiceExt};

/// 503 for a refused request, 504 for one that took too long.
async fn status(error: BoxError) -> (StatusCode, String) {
    let is_refusal = Refused::find(&*error).is_some();
    (if is_refusal { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::GATEWAY_TIMEOUT }, error.to_string())
}

#[dapple::main]
async fn main() {
    // Global, because axum may apply layers again for each request, and all requests must have one
    // limit.
    let layers = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(status))
        .layer(ShedLayer::new())
        .layer(GlobalConcurrencyLimitLayer::new(2))
        .layer(TimeoutLayer::new(Duration::from_millis(200)));
    let router = Router::new().route("/slow", get(std::future::pending::<()>)).route_layer(layers);

    let ask = || Request::get("/slow").body(Body::empty()).expect("it is a request");
    let asks: Vec<_> = (0..5).map(|_| dapple::spawn(router.clone().oneshot(ask()))).collect();
    let mut statuses = Vec::new();
    for reply in asks {
        statuses.push(reply.await.expect("no panic").expect("the router cannot fail").status().as_u16());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [503, 503, 503, 504, 504]);
    println!("refused: 3; took too long: 2");
}
