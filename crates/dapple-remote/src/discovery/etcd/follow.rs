//! The registered hosts, and their changes.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use dapple_etcd::{Error, Etcd, Event, Get, Keys, Reason, Record, Watching};
use dapple_io::time::{sleep, timeout};
use dapple_sync::task::{First, race};

use super::place::EtcdFolder;
use crate::backoff::Failures;
use crate::discovery::members::Publisher;

/// Publishes changes for as long as there is a reader.
pub(in crate::discovery) async fn follow(place: EtcdFolder, stage: String, mut publisher: Publisher) {
    let etcd = place.client();
    let prefix = place.of_stage(&stage);
    let mut failures = Failures::new(BACKOFF_FIRST, BACKOFF_MAX);
    let mut is_told = false;
    while !publisher.is_forsaken() {
        match round(&etcd, &prefix, &mut publisher).await {
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

/// Reads all entries, and then follows their changes for a while. The repeated read is needed if an
/// etcd was restored from an old copy, because it does not report what changed.
async fn round(etcd: &Etcd, prefix: &str, publisher: &mut Publisher) -> Result<(), Error> {
    let keys = Keys::prefix(prefix.to_owned());
    let found = etcd.find(Get::new(keys.clone())).await?;
    let mut known = Known::of(found.records, prefix);
    publisher.set(known.addresses()).await;
    let mut watch = match etcd.watch(Watching::new(keys).since(found.revision + 1)).await {
        Err(error) if is_compacted(&error) => return Ok(()),
        watch => watch?,
    };
    let following = async {
        loop {
            match race(publisher.forsaken(), watch.next()).await {
                First::Left(()) => return Ok(()),
                First::Right(Ok(events)) => {
                    events.into_iter().for_each(|event| known.heed(event, prefix));
                    publisher.set(known.addresses()).await;
                }
                First::Right(Err(error)) if is_compacted(&error) => return Ok(()),
                First::Right(Err(error)) => return Err(error),
            }
        }
    };
    timeout(READ_AGAIN_EVERY, following).await.unwrap_or(Ok(()))
}

/// The next round reads what etcd has forgotten to report.
fn is_compacted(error: &Error) -> bool {
    matches!(error.reason(), Some(Reason::Compacted { .. }))
}

/// The registered addresses, by key.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known(BTreeMap<Bytes, String>);

impl Known {
    fn of(records: impl IntoIterator<Item = Record>, prefix: &str) -> Known {
        let mut known = Known::default();
        records.into_iter().for_each(|record| known.put(record.key, &record.value, prefix));
        known
    }

    fn addresses(&self) -> Vec<String> {
        self.0.values().cloned().collect()
    }

    fn heed(&mut self, event: Event, prefix: &str) {
        match event {
            Event::Put { record, .. } => self.put(record.key, &record.value, prefix),
            event => drop(self.0.remove(event.key())),
        }
    }

    /// The value is the address; if it is empty, the rest of the key is.
    fn put(&mut self, key: Bytes, value: &[u8], prefix: &str) {
        let address = match value.is_empty() {
            true => key.strip_prefix(prefix.as_bytes()).unwrap_or_default(),
            false => value,
        };
        if let Ok(address) = String::from_utf8(address.to_vec()) {
            self.0.insert(key, address);
        }
    }
}

const READ_AGAIN_EVERY: Duration = Duration::from_secs(30);
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::Known;

    #[test]
    fn an_entry_without_a_value_has_its_address_in_the_key() {
        let mut known = Known::default();
        known.put("/x/echo/a:1".into(), b"a:2", "/x/echo/");
        known.put("/x/echo/b:1".into(), b"", "/x/echo/");
        known.put("/x/echo/c:1".into(), b"\xff", "/x/echo/");
        assert_eq!(known.addresses(), ["a:2", "b:1"]);
    }
}
