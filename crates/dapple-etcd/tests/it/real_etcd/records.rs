//! Reads, writes and transactions.

use std::process::Command;

use dapple_etcd::{Compare, Delete, Error, Get, Guard, Guarded, Keys, OpResult, Put, Reason, Record, Sort, Txn};

use crate::cluster::Cluster;
use crate::run;

fn keys(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| std::str::from_utf8(&record.key).unwrap()).collect()
}

#[test]
fn records_are_written_read_and_removed() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async move {
        let etcd = cluster.client().await;
        assert_eq!(etcd.get("a").await.unwrap(), None);
        let first = etcd.put(Put::new("a", "1")).await.unwrap();
        let second = etcd.put(Put::new("a", &b"\0\xff"[..]).previous()).await.unwrap();
        assert_eq!(second.previous.unwrap().value, "1");
        let record = etcd.get("a").await.unwrap().unwrap();
        assert_eq!((&record.value[..], record.version, record.create_revision), (&b"\0\xff"[..], 2, first.revision));
        assert_eq!((record.mod_revision, record.lease), (second.revision, None));
        assert_eq!(etcd.find(Get::new("a").at(first.revision)).await.unwrap().records[0].value, "1");

        for key in ["u/c", "u/a", "u/b"] {
            etcd.put(Put::new(key, key)).await.unwrap();
        }
        let users = || Get::new(Keys::prefix("u/"));
        let found = etcd.find(users().limit(2)).await.unwrap();
        assert_eq!((keys(&found.records), found.count, found.has_more), (vec!["u/a", "u/b"], 3, true));
        let newest = etcd.find(users().sort(Sort::Created { descending: true }).keys_only()).await.unwrap();
        assert_eq!(keys(&newest.records), ["u/b", "u/a", "u/c"]);
        assert!(newest.records[0].value.is_empty());
        assert_eq!(etcd.find(users().count_only()).await.unwrap().count, 3);
        assert_eq!(etcd.find(users().stale()).await.unwrap().records.len(), 3);
        assert_eq!(keys(&etcd.find(Get::new(Keys::range("u/b", "u/c"))).await.unwrap().records), ["u/b"]);

        if let Some(etcdctl) = std::env::var_os("ETCDCTL") {
            let mut command = Command::new(etcdctl);
            command.args(["--endpoints", &cluster.endpoints().join(","), "get", "--print-value-only", "u/c"]);
            assert_eq!(String::from_utf8_lossy(&command.output().unwrap().stdout), "u/c\n");
        }

        let removed = etcd.delete(Delete::new(Keys::prefix("u/")).previous()).await.unwrap();
        assert_eq!((removed.count, keys(&removed.previous)), (3, vec!["u/a", "u/b", "u/c"]));
        assert_eq!(etcd.get("u/a").await.unwrap(), None);
    });
}

#[test]
fn a_transaction_takes_one_of_two_ways() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async move {
        let etcd = cluster.client().await;
        let move_on = |from: &'static str, to: &'static str| {
            let txn = Txn::new().when(Compare::value_equals("mark", from));
            txn.then(Put::new("mark", to).previous()).then(Delete::new("other")).otherwise(Get::new("mark"))
        };
        etcd.put(Put::new("mark", "1")).await.unwrap();
        let moved = etcd.txn(&move_on("1", "2")).await.unwrap();
        assert!(moved.succeeded);
        let [OpResult::Written(written), OpResult::Removed(removed)] = &moved.replies[..] else { panic!("{moved:?}") };
        assert_eq!((&written.previous.as_ref().unwrap().value[..], removed.count), (&b"1"[..], 0));
        let refused = etcd.txn(&move_on("1", "3")).await.unwrap();
        assert!(!refused.succeeded);
        let found = refused.replies.into_iter().next().unwrap().into_found().unwrap();
        assert_eq!((&found.records[0].value[..], found.records[0].mod_revision), (&b"2"[..], moved.revision));
        let numbers = Txn::new()
            .when(Compare::version("mark").is_above(1))
            .when(Compare::create_revision("mark").is_below(moved.revision))
            .when(Compare::mod_revision("mark").differs_from(0))
            .when(Compare::absent("other"));
        assert!(etcd.txn(&numbers).await.unwrap().succeeded);
    });
}

#[test]
fn guards_are_kept() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async move {
        let etcd = cluster.client().await;
        let put = |value: &'static str, guard| etcd.put_guarded(Put::new("g", value), guard);
        let Guarded::Applied { revision } = put("1", Guard::Absent).await.unwrap() else { panic!("it was absent") };
        let Guarded::Refused { current: Some(current) } = put("2", Guard::Absent).await.unwrap() else {
            panic!("applied")
        };
        assert_eq!((&current.value[..], current.mod_revision), (&b"1"[..], revision));
        assert!(matches!(put("2", Guard::Revision(revision)).await.unwrap(), Guarded::Applied { .. }));
        // The same value, but without a lost reply: it is refused.
        assert!(matches!(put("2", Guard::Revision(revision)).await.unwrap(), Guarded::Refused { current: Some(_) }));
    });
}

#[test]
fn refusals_say_why() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async move {
        let etcd = cluster.client().await;
        let reason = |error: Error| error.reason();
        let large = Put::new("large", vec![b'x'; 2 << 20]);
        assert_eq!(etcd.put(large).await.map_err(reason), Err(Some(Reason::TooLarge)));
        assert_eq!(etcd.put(Put::new("", "x")).await.map_err(reason), Err(Some(Reason::Malformed)));
        let revision = etcd.put(Put::new("a", "2")).await.unwrap().revision;
        etcd.compact(revision).await.unwrap();
        let old = etcd.find(Get::new("a").at(revision - 1)).await.map_err(reason);
        assert!(matches!(old, Err(Some(Reason::Compacted { .. }))), "{old:?}");
        let future = etcd.find(Get::new("a").at(revision + 100)).await.map_err(reason);
        assert_eq!(future, Err(Some(Reason::FutureRevision)));
    });
}
