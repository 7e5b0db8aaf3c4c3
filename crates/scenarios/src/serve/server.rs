//! The server: it counts numbers, each once, and is stopped and started again until the clients are done.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use dapple::net::TcpListener;
use dapple::serve::Body;
use dapple::time::{Instant, sleep};
use dapple_sched::environment;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};

use super::{Bug, CLIENTS, CONNECTIONS_MAX, DRAIN, NUMBERS, PATIENCE, Shared};

type Reply = Response<Full<Bytes>>;

pub(super) async fn run(shared: Shared, bug: Option<Bug>) {
    while shared.lock().clients > 0 {
        let listener = TcpListener::bind("0.0.0.0:80").unwrap();
        let limit = |of: Bug| if bug == Some(of) { AGES } else { PATIENCE };
        let service = Counter { shared: shared.clone(), current: Arc::default(), bug };
        let server = dapple::serve(listener, tower::service_fn(move |request| service.clone().answer(request)))
            .connections_max(if bug == Some(Bug::NoConnectionLimit) { 10_000 } else { CONNECTIONS_MAX })
            .head_timeout(limit(Bug::NoHeadLimit))
            .body_timeout(PATIENCE)
            .pause_timeout(limit(Bug::NoPauseLimit))
            .idle_timeout(PATIENCE)
            .head_max_bytes(8 << 10)
            .drain(match bug {
                Some(Bug::NoDrainLimit) => AGES,
                Some(Bug::NoDrain) => Duration::ZERO,
                _ => DRAIN,
            });
        let handle = server.handle();
        shared.lock().handle = Some(handle.clone());
        let answers_before = shared.lock().answers;
        let server = dapple::spawn(async move { server.await });
        sleep(Duration::from_millis(1_000 + environment::random() % 8_000)).await;
        let stopped_at = Instant::now();
        handle.stop();
        server.await.unwrap().unwrap();
        let took = stopped_at.elapsed();
        assert!(took < DRAIN + Duration::from_millis(500), "the end took {took:?}");
        // The last ones are cut at the end.
        sleep(Duration::from_millis(100)).await;
        assert_eq!(handle.connections(), 0, "connections are left after the end");
        let answers = shared.lock().answers - answers_before;
        assert!(handle.requests() >= answers, "{} requests had {answers} answers", handle.requests());
    }
}

#[derive(Clone)]
struct Counter {
    shared: Shared,
    /// The number of the latest request: each handler should have its own.
    current: Arc<AtomicU64>,
    bug: Option<Bug>,
}

impl Counter {
    async fn answer(self, request: Request<Body>) -> Result<Reply, Infallible> {
        Ok(match request.uri().path() {
            "/count" => {
                let name = request.uri().query().and_then(|query| query.parse().ok());
                self.count(name, request.into_body()).await
            }
            "/large" => reply(StatusCode::OK, vec![b'x'; LARGE]),
            _ => reply(StatusCode::NOT_FOUND, Vec::new()),
        })
    }

    /// The body is a number, repeated. The reply is what the number becomes, repeated as often.
    async fn count(self, name: Option<u64>, mut body: Body) -> Reply {
        let mut bytes = Vec::new();
        loop {
            match body.frame().await {
                Some(Ok(frame)) => bytes.extend(frame.into_data().unwrap_or_default()),
                Some(Err(_)) if self.bug == Some(Bug::CutBodyCounts) => break,
                Some(Err(_)) => return reply(StatusCode::BAD_REQUEST, Vec::new()),
                None => break,
            }
        }
        let Some(number) = bytes.first_chunk().map(|first| u64::from_be_bytes(*first)) else {
            return reply(StatusCode::BAD_REQUEST, Vec::new());
        };
        self.current.store(number, Relaxed);
        let mut work = Work { shared: self.shared.clone(), number, is_done: false };
        sleep(Duration::from_micros(environment::random() % 20_000)).await;
        let number = if self.bug == Some(Bug::SharedRequest) { self.current.load(Relaxed) } else { number };
        let mut seen = self.shared.lock();
        seen.counted.insert(number);
        if let Some(name) = name {
            *seen.runs.entry(name).or_default() += 1;
        }
        drop(seen);
        work.is_done = true;
        reply(StatusCode::OK, becomes(number).to_be_bytes().repeat(bytes.len() / 8))
    }
}

/// A request of a client that does not go away.
struct Work {
    shared: Shared,
    number: u64,
    is_done: bool,
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.is_done && self.number / NUMBERS < CLIENTS.len() as u64 - 1 {
            self.shared.fault(format!("the server dropped request {} while it ran", self.number));
        }
    }
}

pub(super) fn becomes(number: u64) -> u64 {
    number.wrapping_mul(31).rotate_left(7)
}

fn reply(status: StatusCode, body: Vec<u8>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    reply
}

/// Longer than the window of a connection.
pub(super) const LARGE: usize = 400_000;

const AGES: Duration = Duration::from_secs(3_600);
