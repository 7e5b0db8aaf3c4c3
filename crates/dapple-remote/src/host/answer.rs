//! Answers a request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dapple_io::time::{Instant, timeout_at};
use dapple_serve::Body;
use dapple_tower::{Reason, Refused};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use super::registered::{Answer, Registered};
use super::{Shared, body};
use crate::deadline::within;
use crate::encoding::Encoding;
use crate::percent::name_in;
use crate::wire::{HEALTH, LIST, OUTCOME, Outcome, Problem, SCHEMA, STAGES, STOPPING, retry_after_s, time_left};

/// A reply in one piece.
pub(crate) type Reply = Response<Full<Bytes>>;

/// Answers one request.
pub(crate) async fn answer(shared: Arc<Shared>, request: Request<Body>) -> Reply {
    let path = request.uri().path().to_owned();
    match path.as_str() {
        _ if path.starts_with(STAGES) => match request.method() {
            &Method::POST => call(&shared, &path[STAGES.len()..], request).await,
            _ => wrong_method("POST"),
        },
        HEALTH | LIST | STOPPING if !matches!(request.method(), &Method::GET | &Method::HEAD) => wrong_method("GET"),
        HEALTH if shared.stopper.is_stopping() => problem(&stopping()),
        HEALTH => json(StatusCode::OK, Outcome::Done, &Health { status: "serving" }),
        LIST => json(StatusCode::OK, Outcome::Done, &list(&shared)),
        STOPPING => {
            shared.stopper.stopped().await;
            json(StatusCode::OK, Outcome::Done, &Health { status: "stopping" })
        }
        _ => problem(&Problem::new(
            Outcome::NotFound,
            format!("there is no such path; {STAGES}NAME takes requests, and {LIST} has the names"),
        )),
    }
}

/// The reply to each request on a connection beyond the limit.
pub(crate) fn full(connections_max: usize) -> Response<String> {
    let refused = Refused::new(Reason::Full { len: connections_max }, Duration::from_secs(1));
    let message = format!("this host has all of its {connections_max} connections");
    let told = Problem { message, ..Problem::refused(&refused) };
    problem(&told).map(|_| serde_json::to_string(&told).unwrap_or_default())
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    schema: &'a str,
    replicas: usize,
    requests: usize,
}

fn list(shared: &Shared) -> Vec<Listed<'_>> {
    let stages = shared.stages.iter().map(|(name, stage)| {
        let (replicas, requests) = stage.load();
        Listed { name, schema: stage.schema(), replicas, requests }
    });
    stages.collect()
}

async fn call(shared: &Shared, name: &str, request: Request<Body>) -> Reply {
    let arrival = Instant::now();
    let result = match admit(shared, name, request.headers()) {
        Ok(admitted) => run(shared, admitted, request.into_body(), arrival).await,
        Err(problem) => Err(problem),
    };
    match result {
        Ok((encoding, bytes)) => done(encoding, bytes),
        Err(told) => problem(&told),
    }
}

/// A request with valid headers.
struct Admitted<'a> {
    stage: &'a dyn Registered,
    encoding: Encoding,
    time_left: Option<Duration>,
}

fn admit<'a>(shared: &'a Shared, part: &str, headers: &HeaderMap) -> Result<Admitted<'a>, Problem> {
    let name = name_in(part).ok_or_else(|| Problem::new(Outcome::Malformed, "the name in the path is no text"))?;
    let Some(stage) = shared.stages.get(&name) else {
        let names: Vec<&str> = shared.stages.keys().map(String::as_str).collect();
        return Err(Problem::new(Outcome::NotFound, format!("this host has {}", in_words(&names))));
    };
    if let Some(theirs) = headers.get(SCHEMA)
        && theirs.as_bytes() != stage.schema().as_bytes()
    {
        let theirs = theirs.to_str().unwrap_or("(no text)");
        let text = format!("the host has `{}`, and the sender `{theirs}`", stage.schema());
        return Err(Problem::new(Outcome::Mismatch, text));
    }
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let encoding = Encoding::of_media_type(media_type).ok_or_else(|| {
        let [postcard, json] = [Encoding::Postcard, Encoding::Json].map(Encoding::media_type);
        Problem::new(
            Outcome::Mismatch,
            format!("the content type has to be `{postcard}` or `{json}`, and is `{media_type}`"),
        )
    })?;
    let time_left = time_left(headers).map_err(|text| Problem::new(Outcome::Malformed, text))?;
    Ok(Admitted { stage: stage.as_ref(), encoding, time_left })
}

async fn run(
    shared: &Shared,
    admitted: Admitted<'_>,
    incoming: Body,
    arrival: Instant,
) -> Result<(Encoding, Bytes), Problem> {
    let Admitted { stage, encoding, time_left } = admitted;
    let requests_max = shared.limits.requests_max;
    let full = || Problem::refused(&Refused::new(Reason::Full { len: requests_max }, RETRY_AFTER_FULL));
    let _place = shared.gauges.requests.clone().try_acquire_owned().map_err(|_| full())?;
    let until = time_left.and_then(|left| arrival.checked_add(left));
    let expired = || Problem::refused(&Refused::new(Reason::Deadline, Duration::ZERO));
    let read = match until {
        Some(until) => timeout_at(until, body::read(shared, incoming)).await.map_err(|_| expired())??,
        None => body::read(shared, incoming).await?,
    };
    if until.is_some_and(|until| Instant::now() >= until) {
        return Err(expired());
    }
    let _memory = read.memory;
    let answering = stage.call(encoding, read.message);
    let answer: Answer = match until {
        Some(until) => match timeout_at(until, within(until, answering)).await {
            Ok(answer) => answer,
            Err(_) => Err(Problem::new(Outcome::TimedOut, "its time passed while it ran; it was dropped")),
        },
        None => answering.await,
    };
    let (bytes, len_max) = (answer?, shared.limits.body_max_bytes);
    if bytes.len() > len_max {
        let text = format!("the reply has {} bytes, and this host sends {len_max} at most", bytes.len());
        return Err(Problem::new(Outcome::Failed, text));
    }
    Ok((encoding, bytes))
}

fn done(encoding: Encoding, bytes: Bytes) -> Reply {
    reply(StatusCode::OK, Outcome::Done, HeaderValue::from_static(encoding.media_type()), bytes)
}

fn stopping() -> Problem {
    Problem::refused(&Refused::new(Reason::Stopping, Duration::from_secs(1)))
}

fn wrong_method(allowed: &'static str) -> Reply {
    let told = Problem::new(Outcome::Malformed, format!("this path takes {allowed}"));
    let mut reply = json(StatusCode::METHOD_NOT_ALLOWED, told.outcome, &told);
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    reply
}

fn problem(told: &Problem) -> Reply {
    let mut reply = json(told.outcome.status(), told.outcome, told);
    if let Some(ms) = told.retry_after_ms {
        let seconds = retry_after_s(Duration::from_millis(ms));
        reply.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    reply
}

fn json(status: StatusCode, outcome: Outcome, body: &impl Serialize) -> Reply {
    let text = serde_json::to_vec(body).unwrap_or_default();
    reply(status, outcome, HeaderValue::from_static(Encoding::Json.media_type()), text.into())
}

fn reply(status: StatusCode, outcome: Outcome, media_type: HeaderValue, bytes: Bytes) -> Reply {
    let mut reply = Response::new(Full::new(bytes));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, media_type);
    reply.headers_mut().insert(OUTCOME, HeaderValue::from_static(outcome.word()));
    reply
}

fn in_words(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// A request's slot becomes free as soon as any request ends.
const RETRY_AFTER_FULL: Duration = Duration::from_millis(50);
