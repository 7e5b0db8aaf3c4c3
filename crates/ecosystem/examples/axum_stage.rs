//! A `Stage` behind an axum route: if its queue is full, the client gets 503 and the reason at once.

use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode, header::RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use dapple::stage::{BoxError, Stage, StageError};
use tower::ServiceExt;

/// The error that axum turns into a reply; `dapple::serve` never sees it.
struct Failure(StageError<BoxError>);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Some(refused) = self.0.refused() else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
        let secs = refused.retry_after.as_secs_f64().ceil().max(1.0);
        (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, secs.to_string())], refused.to_string()).into_response()
    }
}

async fn row(State(rows): State<Stage<u64, String, BoxError>>, Path(id): Path<u64>) -> Result<String, Failure> {
    rows.ask(id).now().await.map_err(Failure)
}

#[dapple::main]
async fn main() -> Result<(), BoxError> {
    let rows = Stage::builder("rows").width(1).queue_len_max(1).wrap_fn(async |id: u64| match id {
        0 => std::future::pending().await,
        id => Ok::<_, BoxError>(format!("row {id}")),
    });
    let router = Router::new().route("/rows/{id}", get(row)).with_state(rows.clone());
    // One is in service, and one waits: there is room for no more.
    let _busy = [0, 0].map(|id| rows.ask(id).now());
    let reply = router.oneshot(Request::get("/rows/1").body(Body::empty())?).await?;
    assert!(reply.status() == 503 && reply.headers()[RETRY_AFTER] == "1", "{reply:?}");
    let reason = to_bytes(reply.into_body(), 1_000).await?;
    println!("503, try again after 1 s: {}", str::from_utf8(&reason)?);
    Ok(())
}
