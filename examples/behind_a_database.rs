//! A service that waits for a database with four connections. A stage in front of it determines how
//! many concurrent queries raise the throughput.
//!
//! ```text
//! cargo run --example behind_a_database -- 7008
//! curl -i http://127.0.0.1:7008/17
//! ```
//!
//! The handler awaits, so the workers have almost nothing to do, and admission by the workers' time
//! has nothing to refuse. The scarce resource is elsewhere. The stage learns from latency and
//! throughput how many queries to have in flight, and refuses a query that would wait longer than
//! [`WAIT_MAX`]; its client gets 503 at once, with `retry-after`.

use std::sync::Arc;
use std::time::Duration;

use dapple::net::TcpListener;
use dapple::serve::{Body, BoxError};
use dapple::stage::{Reason, Refused, Stage, Width};
use dapple::sync::Semaphore;
use dapple::time::sleep;
use http::{Request, Response};
use tower::service_fn;

/// A substitute for a database and its pool of connections. The service knows neither number.
pub(crate) struct Database {
    connections: Semaphore,
}

impl Database {
    pub(crate) fn new() -> Database {
        Database { connections: Semaphore::new(4) }
    }

    pub(crate) async fn row(&self, id: u64) -> Result<String, BoxError> {
        let _connection = self.connections.acquire().await?;
        sleep(Duration::from_millis(20)).await;
        Ok(format!("row {id}\n"))
    }
}

/// How long a reply may take; for half of that time the query may wait before it begins.
pub(crate) const REPLY_MAX: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_millis(50);

/// The rows, with the measured number of concurrent queries.
pub(crate) fn rows(database: Arc<Database>) -> Stage<u64, String, BoxError> {
    Stage::builder("rows")
        .width(Width::adaptive(1..=64))
        .admission(|_id, load| match load.delay > WAIT_MAX {
            true => Err(Refused::new(Reason::Delay { predicted: load.delay, target: WAIT_MAX }, load.delay)),
            false => Ok(()),
        })
        // The delay is an estimate; this is a hard limit.
        .deadline(REPLY_MAX)
        .wrap_fn(move |id| {
            let database = database.clone();
            async move { database.row(id).await }
        })
}

#[dapple::main]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).unwrap_or_else(|| "7008".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    let address = listener.local_addr()?;
    println!("behind_a_database listens on {address}; try: curl -i http://{address}/17");
    let rows = rows(Arc::new(Database::new()));
    let handler = move |request: Request<Body>| {
        let rows = rows.clone();
        async move {
            let id = request.uri().path().trim_start_matches('/').parse()?;
            // The refusal passes unchanged: `dapple::serve` recognizes it, and answers 503.
            let row = rows.ask(id).now().await?;
            Ok::<_, BoxError>(Response::new(row))
        }
    };
    dapple::serve(listener, service_fn(handler)).with_signals().await
}
