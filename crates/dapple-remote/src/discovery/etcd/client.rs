//! Questions to etcd, over HTTP/1.1.
//!
//! Each has a connection of its own: there are a few a minute, and one that fails takes no other along.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dapple_io::net::TcpStream;
use dapple_io::time::timeout;
use dapple_tower::with_causes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use serde_json::Value;

/// Asks one of the endpoints; the next time another, where that failed.
pub(super) struct Client {
    endpoints: Vec<String>,
    at: AtomicUsize,
}

/// A reply that goes on: one JSON value a line.
pub(super) struct Lines {
    body: Incoming,
    rest: BytesMut,
}

impl Client {
    pub(super) fn new(endpoints: Vec<String>) -> Client {
        Client { endpoints, at: AtomicUsize::new(0) }
    }

    /// Asks, and yields the whole answer. An answer of any endpoint will do; all are asked in turn.
    ///
    /// # Errors
    ///
    /// Nobody answered, or the last who did had an error: what it was.
    pub(super) async fn ask(&self, path: &str, question: &Value) -> Result<Value, String> {
        let mut problem = String::new();
        for _ in 0..self.endpoints.len() {
            let endpoint = self.endpoint();
            let asked = timeout(ANSWER_MAX, ask(endpoint, path, question)).await;
            match asked.unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER_MAX.as_secs()))) {
                Ok(answer) => return Ok(answer),
                Err(error) => problem = format!("etcd at {endpoint}: {error}"),
            }
            self.turn();
        }
        Err(problem)
    }

    /// Asks for a reply that goes on.
    ///
    /// # Errors
    ///
    /// The endpoint whose turn it was does not answer; the next call asks another.
    pub(super) async fn stream(&self, path: &str, question: &Value) -> Result<Lines, String> {
        let endpoint = self.endpoint();
        let asked = timeout(ANSWER_MAX, post(endpoint, path, question)).await;
        match asked.unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER_MAX.as_secs()))) {
            Ok(response) if response.status().is_success() => {
                Ok(Lines { body: response.into_body(), rest: BytesMut::new() })
            }
            Ok(response) => {
                self.turn();
                Err(format!("etcd at {endpoint}: {}", response.status()))
            }
            Err(error) => {
                self.turn();
                Err(format!("etcd at {endpoint}: {error}"))
            }
        }
    }

    fn endpoint(&self) -> &str {
        &self.endpoints[self.at.load(Ordering::Relaxed) % self.endpoints.len()]
    }

    /// The next endpoint is asked from now on.
    pub(super) fn turn(&self) {
        self.at.fetch_add(1, Ordering::Relaxed);
    }
}

impl Lines {
    /// The next value; `None` at the end, however it came. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line = self.rest.split_to(end + 1);
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return serde_json::from_slice(&line).ok();
            }
            if self.rest.len() > ANSWER_LEN_MAX {
                return None;
            }
            let data = self.body.frame().await?.ok()?.into_data();
            self.rest.extend_from_slice(&data.unwrap_or_default());
        }
    }
}

async fn ask(endpoint: &str, path: &str, question: &Value) -> Result<Value, String> {
    let response = post(endpoint, path, question).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_LEN_MAX).collect().await;
    let bytes = body.map_err(|error| with_causes(&*error))?.to_bytes();
    let answer: Value = serde_json::from_slice(&bytes).map_err(|error| format!("{status}, and no JSON: {error}"))?;
    match answer.get("error").map(|error| error.as_str().map_or_else(|| error.to_string(), str::to_owned)) {
        Some(error) => Err(error),
        None if status.is_success() => Ok(answer),
        None => Err(status.to_string()),
    }
}

async fn post(endpoint: &str, path: &str, question: &Value) -> Result<Response<Incoming>, String> {
    let stream = TcpStream::connect(endpoint).await.map_err(|error| error.to_string())?;
    let mut builder = http1::Builder::new();
    builder.max_headers(100);
    let handshake = builder.handshake::<_, Full<Bytes>>(stream).await;
    let (mut sender, connection) = handshake.map_err(|error| with_causes(&error))?;
    // It ends when both the reply and who could ask more are gone.
    let _detached = dapple_sched::spawn(connection);
    let mut request = Request::new(Full::new(Bytes::from(question.to_string())));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = path.parse::<Uri>().map_err(|error| error.to_string())?;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let host = HeaderValue::from_str(endpoint).map_err(|error| error.to_string())?;
    request.headers_mut().insert(HOST, host);
    sender.send_request(request).await.map_err(|error| with_causes(&error))
}

/// A number, which the gateway writes as a text.
pub(super) fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

const ANSWER_MAX: Duration = Duration::from_secs(5);
const ANSWER_LEN_MAX: usize = 16 << 20;
