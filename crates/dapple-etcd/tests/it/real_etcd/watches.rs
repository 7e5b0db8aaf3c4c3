//! Watches over lost connections.

use dapple_etcd::{Delete, Event, Get, Keys, Put, Reason, Txn, Watch, Watching};

use crate::cluster::Cluster;
use crate::run;

/// The next changes, until there are this many, as `key=value`; a removal has no value.
async fn take(watch: &mut Watch, count: usize) -> Vec<String> {
    let mut taken = Vec::new();
    while taken.len() < count {
        for event in watch.next().await.unwrap() {
            let key = String::from_utf8_lossy(event.key()).into_owned();
            taken.push(match event {
                Event::Put { record, .. } => format!("{key}={}", String::from_utf8_lossy(&record.value)),
                _ => key,
            });
        }
    }
    taken
}

#[test]
fn changes_come_in_order_and_once_while_members_die() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    run(async move {
        let etcd = cluster.client().await;
        let revision = etcd.find(Get::new("w/0")).await.unwrap().revision;
        let mut watch = etcd.watch(Watching::new(Keys::prefix("w/")).since(revision + 1)).await.unwrap();
        let mut number = 0;
        // Each member dies once, so the stream is lost at least once.
        for member in 0..3 {
            cluster.kill(member);
            for _ in 0..20 {
                let txn =
                    Txn::new().then(Put::new(format!("w/{number}"), "a")).then(Put::new(format!("w/{number}b"), "b"));
                etcd.txn_guarded(&txn).await.unwrap();
                number += 1;
            }
            cluster.restart(member);
            cluster.back(member).await;
        }
        // A write that was sent twice is two changes of the same key: they are in order, too.
        let mut taken = take(&mut watch, 2 * number).await;
        taken.dedup();
        let mut expected: Vec<String> = Vec::new();
        (0..number).for_each(|number| expected.extend([format!("w/{number}=a"), format!("w/{number}b=b")]));
        let missed: Vec<&String> = expected.iter().filter(|change| !taken.contains(change)).collect();
        assert!(missed.is_empty(), "{missed:?}");
    });
}

#[test]
fn a_watch_has_the_past_removals_and_what_was_before() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async move {
        let etcd = cluster.client().await;
        let first = etcd.put(Put::new("k", "1")).await.unwrap().revision;
        etcd.put(Put::new("k", "2")).await.unwrap();
        etcd.delete(Delete::new("k")).await.unwrap();
        etcd.put(Put::new("not", "watched")).await.unwrap();
        let mut watch = etcd.watch(Watching::new("k").since(first).previous()).await.unwrap();
        let mut events = Vec::new();
        while events.len() < 3 {
            events.extend(watch.next().await.unwrap());
        }
        let Event::Delete { previous: Some(previous), revision, .. } = &events[2] else { panic!("{events:?}") };
        assert_eq!((&previous.value[..], *revision), (&b"2"[..], first + 2));
        assert_eq!(watch.revision(), first + 3);
        etcd.put(Put::new("k", "3")).await.unwrap();
        assert_eq!(take(&mut watch, 1).await, ["k=3"]);
    });
}

#[test]
fn forgotten_changes_are_an_error() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async move {
        let etcd = cluster.client().await;
        let first = etcd.put(Put::new("k", "1")).await.unwrap().revision;
        let last = etcd.put(Put::new("k", "2")).await.unwrap().revision;
        etcd.compact(last).await.unwrap();
        let reason = match etcd.watch(Watching::new("k").since(first)).await {
            Ok(mut watch) => watch.next().await.unwrap_err().reason(),
            Err(error) => error.reason(),
        };
        assert_eq!(reason, Some(Reason::Compacted { revision: last }));
    });
}

/// Longer than etcd's limit for one message, so that it is cut, and longer than one revision's worth.
#[test]
fn a_long_past_comes_whole() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async move {
        let etcd = cluster.client().await;
        let first = etcd.put(Put::new("l/0", "")).await.unwrap().revision;
        for round in 0..4 {
            let key = |number: usize| format!("l/{round}/{number}");
            let txn = (0..10).fold(Txn::new(), |txn, number| txn.then(Put::new(key(number), vec![b'x'; 100_000])));
            etcd.txn(&txn).await.unwrap();
        }
        let mut watch = etcd.watch(Watching::new(Keys::prefix("l/")).since(first)).await.unwrap();
        let taken = take(&mut watch, 41).await;
        let mut keys: Vec<&str> = taken.iter().filter_map(|change| change.split('=').next()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!((taken.len(), keys.len()), (41, 41));
    });
}
