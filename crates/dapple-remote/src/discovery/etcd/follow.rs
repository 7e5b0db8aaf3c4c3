//! Who is registered, and who comes and goes.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use dapple_io::time::{sleep, timeout};
use dapple_sync::task::{First, race};
use serde_json::{Value, json};

use super::client::{Client, number};
use super::place::{EtcdFolder, range_end};
use crate::backoff::Failures;
use crate::discovery::members::Publisher;

/// Tells of changes until nobody wants to know.
pub(in crate::discovery) async fn follow(place: EtcdFolder, stage: String, mut publisher: Publisher) {
    let client = Client::new(place.endpoints.clone());
    let prefix = place.of_stage(&stage);
    let mut failures = Failures::new(BACKOFF_FIRST, BACKOFF_MAX);
    let mut is_told = false;
    while !publisher.is_forsaken() {
        match round(&client, &prefix, &mut publisher).await {
            Ok(()) => {
                failures.reset();
                is_told = false;
            }
            Err(problem) => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(%problem, "hosts of a stage are not told of; those that are known stay, and it is tried again");
                }
                if let First::Left(()) = race(publisher.forsaken(), sleep(failures.failed())).await {
                    return;
                }
            }
        }
    }
}

/// Asks for all, and then follows what changes, for a while: asking again mends what an etcd that has gone silently has not told.
async fn round(client: &Client, prefix: &str, publisher: &mut Publisher) -> Result<(), String> {
    let range = json!({"key": BASE64_STANDARD.encode(prefix.as_bytes()), "range_end": BASE64_STANDARD.encode(range_end(prefix))});
    let answer = client.ask("/v3/kv/range", &range).await?;
    let mut known = Known::of(&answer, prefix);
    publisher.set(known.addresses()).await;
    let revision = known.revision + 1;
    let watch = json!({"create_request": {
        "key": BASE64_STANDARD.encode(prefix.as_bytes()), "range_end": BASE64_STANDARD.encode(range_end(prefix)), "start_revision": revision.to_string(),
    }});
    let mut lines = client.stream("/v3/watch", &watch).await?;
    let following = async {
        loop {
            match race(publisher.forsaken(), lines.next()).await {
                First::Left(()) => return Ok(()),
                First::Right(None) => {
                    client.turn();
                    return Err("etcd has ended the stream of news".to_owned());
                }
                First::Right(Some(line)) => match known.heed(&line, prefix) {
                    Heeded::Changed => publisher.set(known.addresses()).await,
                    Heeded::Nothing => {}
                    // What is missing is asked for.
                    Heeded::Over => return Ok(()),
                },
            }
        }
    };
    timeout(ASK_AGAIN_EVERY, following).await.unwrap_or(Ok(()))
}

/// What is registered: the address by its key.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    hosts: BTreeMap<Vec<u8>, String>,
    revision: i64,
}

#[derive(Debug, PartialEq, Eq)]
enum Heeded {
    Changed,
    Nothing,
    /// etcd tells no more on this stream.
    Over,
}

impl Known {
    fn of(answer: &Value, prefix: &str) -> Known {
        let mut known = Known { revision: number(&answer["header"]["revision"]).unwrap_or(0), ..Known::default() };
        for pair in answer["kvs"].as_array().into_iter().flatten() {
            known.put(pair, prefix);
        }
        known
    }

    fn addresses(&self) -> Vec<String> {
        self.hosts.values().cloned().collect()
    }

    /// Heeds one line of news.
    fn heed(&mut self, line: &Value, prefix: &str) -> Heeded {
        let result = &line["result"];
        if result.is_null() || result["canceled"] == Value::Bool(true) {
            return Heeded::Over;
        }
        let mut heeded = Heeded::Nothing;
        for event in result["events"].as_array().into_iter().flatten() {
            heeded = Heeded::Changed;
            match event["type"].as_str() {
                Some("DELETE") => drop(key_of(&event["kv"]).and_then(|key| self.hosts.remove(&key))),
                // PUT is 0, which is left out.
                _ => self.put(&event["kv"], prefix),
            }
        }
        heeded
    }

    /// The value is the address; where it is empty, the rest of the key is.
    fn put(&mut self, pair: &Value, prefix: &str) {
        let Some(key) = key_of(pair) else { return };
        let value = bytes(&pair["value"]).unwrap_or_default();
        let address = match value.is_empty() {
            true => key.strip_prefix(prefix.as_bytes()).unwrap_or_default().to_vec(),
            false => value,
        };
        if let Ok(address) = String::from_utf8(address) {
            self.hosts.insert(key, address);
        }
    }
}

fn key_of(pair: &Value) -> Option<Vec<u8>> {
    bytes(&pair["key"])
}

/// Keys and values stand in JSON as Base64.
fn bytes(text: &Value) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(text.as_str()?).ok()
}

const ASK_AGAIN_EVERY: Duration = Duration::from_secs(30);
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::{Heeded, Known};
    use serde_json::{Value, json};

    fn parse(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    /// As etcd 3.4.23 has answered.
    #[test]
    fn what_etcd_says_is_heeded() {
        let answer = parse(
            r#"{"header":{"cluster_id":"14841639068965178418","revision":"7","raft_term":"2"},
                "kvs":[{"key":"L3gvZWNoby9hOjE=","create_revision":"2","mod_revision":"2","version":"1","value":"YToy"}],
                "count":"1"}"#,
        );
        let mut known = Known::of(&answer, "/x/echo/");
        assert_eq!((known.addresses(), known.revision), (vec!["a:2".to_owned()], 7));
        let created = parse(r#"{"result":{"header":{"revision":"1"},"created":true}}"#);
        assert_eq!(known.heed(&created, "/x/echo/"), Heeded::Nothing);
        let put = parse(
            r#"{"result":{"header":{"revision":"8"},"events":[{"kv":{"key":"L3gvZWNoby9iOjE=","create_revision":"8",
                "mod_revision":"8","version":"1"}}]}}"#,
        );
        assert_eq!(known.heed(&put, "/x/echo/"), Heeded::Changed);
        assert_eq!(known.addresses(), ["a:2", "b:1"]);
        let delete = parse(
            r#"{"result":{"header":{"revision":"9"},"events":[{"type":"DELETE","kv":{"key":"L3gvZWNoby9hOjE=","mod_revision":"9"}}]}}"#,
        );
        assert_eq!(known.heed(&delete, "/x/echo/"), Heeded::Changed);
        assert_eq!(known.addresses(), ["b:1"]);
        let compacted = parse(r#"{"result":{"header":{"raft_term":"2"},"canceled":true,"compact_revision":"3"}}"#);
        assert_eq!(known.heed(&compacted, "/x/echo/"), Heeded::Over);
        assert_eq!(known.heed(&parse(r#"{"error":{"grpc_code":14}}"#), "/x/echo/"), Heeded::Over);
    }

    #[test]
    fn nonsense_is_no_host() {
        for answer in [json!(null), json!([]), json!({"kvs": 3}), json!({"kvs": [{"key": "*"}, {"value": "YQ=="}, 7]})]
        {
            assert_eq!(Known::of(&answer, "/x/"), Known::default());
        }
    }
}
