//! A fake etcd of one member: the JSON gateway's calls that Dapple's client makes. Answered writes outlive its crashes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use dapple::net::TcpListener;
use dapple::serve::Body;
use dapple::time::{Instant, Sleep, sleep};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Either, Full};
use serde_json::{Value, json};

use super::Bug;
use crate::disk::Log;

/// A line of its log.
#[derive(Clone, Debug)]
pub(super) enum Line {
    /// A change of a key: to a value and a lease, or to none.
    Key(i64, Vec<u8>, Option<(Vec<u8>, i64)>),
    Grant(i64, u64),
    Revoke(i64),
}

#[derive(Clone)]
struct Pair {
    value: Vec<u8>,
    created: i64,
    modified: i64,
    version: i64,
    lease: i64,
}

struct State {
    log: Log<Line>,
    revision: i64,
    pairs: BTreeMap<Vec<u8>, Pair>,
    /// How long each lease lasts, and when it ends.
    leases: BTreeMap<i64, (Duration, Instant)>,
    bug: Option<Bug>,
}

type Shared = Arc<Mutex<State>>;

fn lock(state: &Shared) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) async fn serve(log: Log<Line>, bug: Option<Bug>) {
    let mut state = State { revision: 1, pairs: BTreeMap::new(), leases: BTreeMap::new(), log: log.clone(), bug };
    log.open().into_iter().for_each(|line| state.apply(line));
    let state = Arc::new(Mutex::new(state));
    let of_leases = state.clone();
    let _detached = dapple::spawn(async move {
        loop {
            sleep(Duration::from_millis(100)).await;
            lock(&of_leases).end_leases();
        }
    });
    let service = tower::service_fn(move |request| answer(state.clone(), request));
    let listener = TcpListener::bind("0.0.0.0:2379").unwrap();
    dapple::serve(listener, service).no_admission().await.unwrap();
}

async fn answer(state: Shared, request: Request<Body>) -> Result<Response<Either<Full<Bytes>, Changes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let Ok(body) = request.into_body().collect().await else { return Ok(refused("the body is not whole")) };
    let Ok(question) = serde_json::from_slice::<Value>(&body.to_bytes()) else { return Ok(refused("no JSON")) };
    let mut of = lock(&state);
    let reply = match &*path {
        "/v3/watch" => {
            let asked = &question["create_request"];
            let from = match number(&asked["start_revision"]) {
                0 => of.revision + 1,
                _ if of.bug == Some(Bug::WatchFromNow) => of.revision + 1,
                from => from,
            };
            let (first, end) = range(asked);
            let created = line(&json!({"header": header(of.revision), "created": true}));
            drop(of);
            let changes = Changes { state, first, end, next: from, waits: None, created: Some(created) };
            return Ok(Response::new(Either::Right(changes)));
        }
        "/v3/kv/txn" => match of.transaction(&question) {
            Some(reply) => reply,
            None => return Ok(refused("etcdserver: requested lease not found")),
        },
        "/v3/lease/grant" => {
            let (id, ttl) = (number(&question["ID"]), number(&question["TTL"]) as u64);
            if of.leases.contains_key(&id) {
                return Ok(refused("etcdserver: lease already exists"));
            }
            of.write(Line::Grant(id, ttl));
            json!({"header": header(of.revision), "ID": id, "TTL": ttl})
        }
        "/v3/lease/keepalive" => {
            let id = number(&question["ID"]);
            let ttl = of.leases.get_mut(&id).map_or(0, |(lasts, ends)| {
                *ends = Instant::now() + *lasts;
                lasts.as_secs()
            });
            json!({"result": {"ID": id, "TTL": ttl}})
        }
        "/v3/lease/revoke" => {
            of.revoke(number(&question["ID"]));
            json!({"header": header(of.revision)})
        }
        path => match operation(path.strip_prefix("/v3/kv/").unwrap_or_default()) {
            Some(kind) => {
                let mut revision = None;
                of.operate(kind, &question, &mut revision)
            }
            None => return Ok(refused("unknown method")),
        },
    };
    of.sync();
    Ok(Response::new(Either::Left(Full::new(reply.to_string().into()))))
}

fn operation(name: &str) -> Option<&'static str> {
    ["range", "put", "deleterange"].into_iter().find(|known| *known == name)
}

impl State {
    fn apply(&mut self, change: Line) {
        match change {
            Line::Key(revision, key, value) => {
                self.revision = revision;
                let old = self.pairs.remove(&key);
                if let Some((value, lease)) = value {
                    let (created, version) = old.map_or((revision, 1), |old| (old.created, old.version + 1));
                    self.pairs.insert(key, Pair { value, created, modified: revision, version, lease });
                }
            }
            Line::Grant(id, ttl) => {
                let lasts = Duration::from_secs(ttl);
                self.leases.insert(id, (lasts, Instant::now() + lasts));
            }
            Line::Revoke(id) => _ = self.leases.remove(&id),
        }
    }

    fn write(&mut self, change: Line) {
        self.log.append(change.clone());
        self.apply(change);
    }

    fn sync(&self) {
        if self.bug != Some(Bug::NoSync) {
            self.log.sync();
        }
    }

    fn end_leases(&mut self) {
        if self.bug == Some(Bug::EndlessLeases) {
            return;
        }
        let over: Vec<i64> =
            self.leases.iter().filter(|(_, (_, ends))| *ends <= Instant::now()).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.revoke(id));
        self.sync();
    }

    fn revoke(&mut self, id: i64) {
        let keys: Vec<Vec<u8>> =
            self.pairs.iter().filter(|(_, pair)| pair.lease == id).map(|(key, _)| key.clone()).collect();
        let revision = self.revision + 1;
        keys.into_iter().for_each(|key| self.write(Line::Key(revision, key, None)));
        self.write(Line::Revoke(id));
    }

    fn found(&self, (first, end): (Vec<u8>, Vec<u8>)) -> Vec<(Vec<u8>, Pair)> {
        let is_in = |key: &Vec<u8>| is_within(key, &first, &end);
        self.pairs.iter().filter(|(key, _)| is_in(key)).map(|(key, pair)| (key.clone(), pair.clone())).collect()
    }

    /// `None` if a lease is over.
    fn transaction(&mut self, txn: &Value) -> Option<Value> {
        let holds = list(&txn["compare"]).iter().all(|compare| self.compare(compare));
        let holds = holds || self.bug == Some(Bug::NoCompare);
        let mut revision = None;
        let operations = list(&txn[if holds { "success" } else { "failure" }]);
        let mut leases = operations.iter().map(|operation| number(&operation["request_put"]["lease"]));
        if leases.any(|lease| lease != 0 && !self.leases.contains_key(&lease)) {
            return None;
        }
        let replies: Vec<Value> = operations
            .iter()
            .flat_map(|operation| operation.as_object().into_iter().flatten())
            .map(|(name, question)| match &**name {
                "request_range" => json!({"response_range": self.operate("range", question, &mut revision)}),
                "request_put" => json!({"response_put": self.operate("put", question, &mut revision)}),
                _ => json!({"response_delete_range": self.operate("deleterange", question, &mut revision)}),
            })
            .collect();
        Some(json!({"header": header(self.revision), "succeeded": holds, "responses": replies}))
    }

    fn compare(&self, compare: &Value) -> bool {
        let (key, none) = (bytes(&compare["key"]), (0, 0, 0, 0));
        let pair = self.pairs.get(&key);
        let (created, modified, version, lease) =
            pair.map_or(none, |pair| (pair.created, pair.modified, pair.version, pair.lease));
        let order = match compare["target"].as_str() {
            Some("MOD") => modified.cmp(&number(&compare["mod_revision"])),
            Some("CREATE") => created.cmp(&number(&compare["create_revision"])),
            Some("VERSION") => version.cmp(&number(&compare["version"])),
            Some("LEASE") => lease.cmp(&number(&compare["lease"])),
            _ => match pair {
                Some(pair) => pair.value.cmp(&bytes(&compare["value"])),
                None => return false,
            },
        };
        match compare["result"].as_str() {
            Some("GREATER") => order.is_gt(),
            Some("LESS") => order.is_lt(),
            Some("NOT_EQUAL") => order.is_ne(),
            _ => order.is_eq(),
        }
    }

    /// All changes of a transaction have one revision.
    fn operate(&mut self, kind: &str, question: &Value, revision: &mut Option<i64>) -> Value {
        let next = self.revision + 1;
        match kind {
            "range" => {
                let found = self.found(range(question));
                let limit = match number(&question["limit"]) {
                    0 => usize::MAX,
                    limit => limit as usize,
                };
                let pairs: Vec<Value> = found.iter().take(limit).map(|(key, pair)| written(key, pair)).collect();
                let more = found.len() > limit;
                json!({"header": header(self.revision), "kvs": pairs, "more": more, "count": found.len()})
            }
            "put" => {
                let (key, lease) = (bytes(&question["key"]), number(&question["lease"]));
                let at = *revision.get_or_insert(next);
                self.write(Line::Key(at, key, Some((bytes(&question["value"]), lease))));
                json!({"header": header(self.revision)})
            }
            _ => {
                let found = self.found(range(question));
                for (key, _) in &found {
                    let at = *revision.get_or_insert(next);
                    self.write(Line::Key(at, key.clone(), None));
                }
                json!({"header": header(self.revision), "deleted": found.len()})
            }
        }
    }
}

/// The changes from a revision on, as they happen.
struct Changes {
    state: Shared,
    first: Vec<u8>,
    end: Vec<u8>,
    next: i64,
    waits: Option<Pin<Box<Sleep>>>,
    created: Option<Bytes>,
}

impl http_body::Body for Changes {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if let Some(created) = this.created.take() {
            return Poll::Ready(Some(Ok(Frame::data(created))));
        }
        loop {
            let (events, revision) = this.events();
            if !events.is_empty() {
                this.next = revision + 1;
                let message = line(&json!({"header": header(revision), "events": events}));
                return Poll::Ready(Some(Ok(Frame::data(message))));
            }
            let waits = this.waits.get_or_insert_with(|| Box::pin(sleep(Duration::from_millis(100))));
            if waits.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            this.waits = None;
        }
    }
}

impl Changes {
    /// Those from the next revision on, and the last of them: the log has them all.
    fn events(&self) -> (Vec<Value>, i64) {
        let state = lock(&self.state);
        if state.revision < self.next {
            return (Vec::new(), 0);
        }
        let event = |change: &Line| match change {
            Line::Key(revision, key, value) if *revision >= self.next && is_within(key, &self.first, &self.end) => {
                let (kind, value) = match value {
                    Some((value, _)) => ("PUT", &value[..]),
                    None => ("DELETE", &[][..]),
                };
                let pair = json!({"key": text(key), "value": text(value), "mod_revision": revision});
                Some(json!({"type": kind, "kv": pair}))
            }
            _ => None,
        };
        (state.log.filter_map(event), state.revision)
    }
}

fn is_within(key: &[u8], first: &[u8], end: &[u8]) -> bool {
    if end.is_empty() { key == first } else { key >= first && (end == [0] || key < end) }
}

fn range(question: &Value) -> (Vec<u8>, Vec<u8>) {
    (bytes(&question["key"]), bytes(&question["range_end"]))
}

fn written(key: &[u8], pair: &Pair) -> Value {
    json!({
        "key": text(key),
        "value": text(&pair.value),
        "create_revision": pair.created,
        "mod_revision": pair.modified,
        "version": pair.version,
        "lease": pair.lease,
    })
}

fn header(revision: i64) -> Value {
    json!({"revision": revision})
}

fn line(result: &Value) -> Bytes {
    format!("{}\n", json!({"result": result})).into()
}

fn refused(why: &str) -> Response<Either<Full<Bytes>, Changes>> {
    let mut response = Response::new(Either::Left(Full::new(json!({"code": 9, "message": why}).to_string().into())));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

fn bytes(value: &Value) -> Vec<u8> {
    BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default()
}

fn text(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}
