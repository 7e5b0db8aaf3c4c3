//! Being registered, for as long as the host lives: under a lease that etcd ends by itself where nobody renews it.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use dapple_io::time::{sleep, timeout};
use dapple_sched::JoinHandle;
use dapple_sync::task::CancellationToken;
use dapple_sync::task::{First, race};
use serde_json::{Value, json};

use super::client::{Client, number};
use super::place::EtcdFolder;
use crate::backoff::Failures;
use crate::discovery::{Discovery, DiscoveryError};

/// A host's entry in etcd, one key for each stage. It is renewed by a task, made anew where etcd has lost it, and gone some
/// seconds after its process.
///
/// Dropped, it is taken out in the background; [`end`](Self::end) waits for that.
#[derive(Debug)]
pub struct Registration {
    ended: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Registration {
    /// Registers stages at the address under which others reach this host. Where etcd does not answer, it is tried again until it
    /// does. It takes `ttl`, from 2 s on and in whole seconds, until others learn of a host that has died.
    ///
    /// # Errors
    ///
    /// The discovery is not etcd.
    ///
    /// # Panics
    ///
    /// If no runtime is current.
    pub fn start<S: AsRef<str>>(
        discovery: &Discovery,
        stages: impl IntoIterator<Item = S>,
        address: &str,
        ttl: Duration,
    ) -> Result<Registration, DiscoveryError> {
        let no_etcd = || DiscoveryError(format!("hosts register themselves in etcd only; `{discovery}` is none"));
        let place = discovery.place().ok_or_else(no_etcd)?.clone();
        let entries = Entries {
            client: Client::new(place.endpoints.clone()),
            keys: stages.into_iter().map(|stage| place.key(stage.as_ref(), address)).collect(),
            address: address.to_owned(),
            ttl: Duration::from_secs(ttl.as_secs().max(TTL_MIN_S)),
            place,
        };
        let ended = CancellationToken::new();
        let task = dapple_sched::spawn(keep(Arc::new(entries), ended.clone()));
        Ok(Registration { ended, task: Some(task) })
    }

    /// Takes the entry out, so that nobody new comes. It takes no longer than two seconds: where etcd does not answer, the entry ends by
    /// itself later.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it resolves, the entry is taken out all the same.
    pub async fn end(mut self) {
        self.ended.cancel();
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }

    /// Leaves the entry to the process that has taken over: it has the same keys, and puts them under a lease of its own.
    pub(crate) fn leave_to_successor(mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

struct Entries {
    client: Client,
    keys: Vec<String>,
    address: String,
    ttl: Duration,
    place: EtcdFolder,
}

/// Registers, renews, and takes out at the end.
async fn keep(entries: Arc<Entries>, ended: CancellationToken) {
    let mut failures = Failures::new(BACKOFF_FIRST, BACKOFF_MAX);
    let mut is_told = false;
    loop {
        let lease = match race(ended.cancelled(), entries.register()).await {
            First::Left(()) => return,
            First::Right(Ok(lease)) => lease,
            First::Right(Err(problem)) => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(%problem, place = %entries.place, "this host is not registered; it is tried again");
                }
                match race(ended.cancelled(), sleep(failures.failed())).await {
                    First::Left(()) => return,
                    First::Right(()) => continue,
                }
            }
        };
        failures.reset();
        is_told = false;
        if let First::Left(()) = race(ended.cancelled(), entries.renew(lease)).await {
            let _ = timeout(END_MAX, entries.revoke(lease)).await;
            return;
        }
    }
}

impl Entries {
    /// Puts the keys in under a new lease.
    async fn register(&self) -> Result<i64, String> {
        let granted = self.client.ask("/v3/lease/grant", &json!({"TTL": self.ttl.as_secs().to_string()})).await?;
        let lease = number(&granted["ID"]).ok_or("etcd granted a lease without a number")?;
        for key in &self.keys {
            let put = json!({
                "key": BASE64_STANDARD.encode(key.as_bytes()), "value": BASE64_STANDARD.encode(self.address.as_bytes()), "lease": lease.to_string(),
            });
            self.client.ask("/v3/kv/put", &put).await?;
        }
        Ok(lease)
    }

    /// Renews the lease until that is no more. Three attempts fit into its time.
    async fn renew(&self, lease: i64) {
        loop {
            sleep(self.ttl / 3).await;
            let answer = self.client.ask("/v3/lease/keepalive", &json!({"ID": lease.to_string()})).await;
            match answer.map(|answer| is_alive(&answer)) {
                Ok(true) => {}
                Ok(false) => return,
                // Perhaps it still holds; if not, that is heard as soon as somebody answers.
                Err(problem) => tracing::debug!(%problem, "a lease is not renewed"),
            }
        }
    }

    async fn revoke(&self, lease: i64) {
        if let Err(problem) = self.client.ask("/v3/lease/revoke", &json!({"ID": lease.to_string()})).await {
            tracing::debug!(%problem, "a lease is left to end by itself");
        }
    }
}

/// Whether the lease holds, by the answer to its renewal.
fn is_alive(answer: &Value) -> bool {
    number(&answer["result"]["TTL"]).is_some_and(|ttl| ttl > 0)
}

const TTL_MIN_S: u64 = 2;
const END_MAX: Duration = Duration::from_secs(2);
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::is_alive;

    /// As etcd 3.4.23 has answered.
    #[test]
    fn a_lease_that_is_no_more_is_known_by_its_missing_time() {
        let parse = |text| serde_json::from_str(text).unwrap();
        assert!(is_alive(&parse(r#"{"result":{"header":{"revision":"3"},"ID":"12345","TTL":"10"}}"#)));
        assert!(!is_alive(&parse(r#"{"result":{"header":{"revision":"3"},"ID":"12345"}}"#)));
    }
}
