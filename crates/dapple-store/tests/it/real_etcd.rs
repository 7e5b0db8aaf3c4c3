//! Stores in a real etcd, if there is one; `cargo xtask etcd` builds it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dapple_etcd::{Keys, Put};
use dapple_store::engine::{Change, Engine, Failure, Partition, Place, TableId};
use dapple_store::{Error, Etcd, Expect, OrderedTable, Refusal, Store, Table, TableOptions};

use crate::cluster::Cluster;
use crate::relay::Relay;
use crate::support::{options, run};

type Client = dapple_etcd::Etcd;

async fn opened(client: &Client) -> Store<Etcd> {
    // A killed owner's lease has ten seconds, and a new leader of etcd starts them again.
    let mut options = options(3);
    options.in_use_limit = Duration::from_secs(120);
    // No operation fails because the machine is busy.
    options.limit = Duration::from_secs(120);
    Store::open(Etcd::new(client.clone(), "shop"), options).await.unwrap()
}

/// Ends the lease of an owner that is gone, so that no other process waits for it.
async fn revoke(client: &Client) {
    if let Some(lease) = client.get("/shop//owner").await.unwrap().and_then(|owner| owner.lease) {
        client.revoke(lease).await.unwrap();
    }
}

fn is_lost<T>(result: Result<T, Error>) -> bool {
    matches!(result.map(drop), Err(Error::NotApplied(Refusal::Engine(Failure::Lost { .. }))))
}

#[test]
fn a_store_is_there_when_it_is_opened_again() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async {
        let client = cluster.client().await;
        let store = opened(&client).await;
        let users: Table<String, u32, _> = store.create("users", TableOptions::default()).await.unwrap();
        let words: OrderedTable<u32, String, _> = store.create_ordered("words", TableOptions::default()).await.unwrap();
        let first = users.put(&"ann".to_owned(), &1).await.unwrap().version;
        assert_eq!(users.put(&"ann".to_owned(), &2).await.unwrap().previous.map(|old| old.value), Some(1));
        assert!(users.cas(&"ann".to_owned(), Expect::Version(first), &3).await.is_err());
        for key in 0..300 {
            words.put(&key, &"word".repeat(key as usize % 7)).await.unwrap();
        }
        store.close().await;

        let store = opened(&client).await;
        let users: Table<String, u32, _> = store.table("users").await.unwrap();
        assert_eq!(users.get(&"ann".to_owned()).await.unwrap(), Some(2));
        let words: OrderedTable<u32, String, _> = store.ordered_table("words").await.unwrap();
        assert_eq!(words.count().await.unwrap(), 300);
        let mut found = words.range(10..20).unwrap();
        for key in 10..20 {
            assert_eq!(found.next().await.unwrap().map(|(key, _)| key), Some(key));
        }
        assert!(found.next().await.unwrap().is_none());
        store.verify().await.unwrap();
        store.destroy("words").await.unwrap();
        store.close().await;

        let store = opened(&client).await;
        assert!(store.ordered_table::<u32, String>("words").await.is_err());
        assert_eq!(client.find(dapple_etcd::Get::new(Keys::prefix("/shop//redo/"))).await.unwrap().count, 0);
    });
}

#[test]
fn what_etcd_cannot_take_in_one_transaction_is_still_one_commit() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async {
        let client = cluster.client().await;
        let store = opened(&client).await;
        let table: Table<u32, Vec<u8>, _> = store.create("t", TableOptions::default()).await.unwrap();
        let value = vec![7; 900_000];
        store
            .transaction(async |transaction| {
                (0..3).try_for_each(|key| transaction.put(&table, &key, &value))?;
                (10..400).try_for_each(|key| transaction.put(&table, &key, &Vec::new()))
            })
            .await
            .unwrap();
        let refused = table.put(&1, &vec![7; 1 << 20]).await.unwrap_err();
        assert!(matches!(refused, Error::NotApplied(Refusal::TooLong { .. })), "{refused:?}");
        store.close().await;

        let store = opened(&client).await;
        let table: Table<u32, Vec<u8>, _> = store.table("t").await.unwrap();
        assert_eq!(table.count().await.unwrap(), 393);
        let keys: Vec<_> = (0..3).collect();
        assert!(table.get_many(&keys).await.unwrap().into_iter().all(|found| found == Some(value.clone())));
    });
}

#[test]
fn a_transaction_of_several_partitions_may_be_larger_than_a_value() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async {
        let client = cluster.client().await;
        let store = opened(&client).await;
        let table: Table<u32, Vec<u8>, _> = store.create("t", TableOptions::default()).await.unwrap();
        let write = async |transaction: dapple_store::Transaction<Etcd>| {
            (0..12).try_for_each(|key| transaction.put(&table, &key, &vec![key as u8; 900_000]))
        };
        store.transaction(write).await.unwrap();
        store.close().await;

        let store = opened(&client).await;
        let table: Table<u32, Vec<u8>, _> = store.table("t").await.unwrap();
        for key in 0..12 {
            assert_eq!(table.get(&key).await.unwrap(), Some(vec![key as u8; 900_000]));
        }
    });
}

#[test]
fn one_process_at_a_time_has_a_store() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async {
        let client = cluster.client().await;
        let store = opened(&client).await;
        let table: Table<u8, u8, _> = store.create("t", TableOptions::default()).await.unwrap();
        table.put(&1, &1).await.unwrap();
        let mut short = options(3);
        short.in_use_limit = Duration::ZERO;
        let second = Store::open(Etcd::new(client.clone(), "shop"), short).await.map(drop).unwrap_err();
        assert!(second.to_string().contains(&format!("process {}", std::process::id())), "{second}");
        // Another name is another store.
        let other = Store::open(Etcd::new(client.clone(), "shop2"), options(1)).await.unwrap();
        assert!(other.table::<u8, u8>("t").await.is_err());

        let waiting = dapple_sched::spawn({
            let client = client.clone();
            async move { opened(&client).await }
        });
        store.close().await;
        let next = waiting.await.unwrap();
        assert!(is_lost(table.get(&1).await));
        table.put(&1, &2).await.unwrap_err();
        assert!(is_lost(table.get(&1).await));
        assert_eq!(next.table::<u8, u8>("t").await.unwrap().get(&1).await.unwrap(), Some(1));
    });
}

#[test]
fn watchers_learn_that_the_store_is_closed() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async {
        let client = cluster.client().await;
        let store = opened(&client).await;
        let table: Table<u8, u8, _> = store.create("t", TableOptions::default()).await.unwrap();
        let log: dapple_store::Log<u8, _> = store.create_log("l", TableOptions::default()).await.unwrap();
        let mut watch = table.watch(&table.cursor().await.unwrap()).await.unwrap();
        let mut tail = log.tail(0);
        let watching = dapple_sched::spawn(async move { is_lost(watch.next().await) });
        let tailing = dapple_sched::spawn(async move { is_lost(tail.next().await) });
        dapple_io::time::sleep(Duration::from_millis(50)).await;
        let waiting = dapple_sched::spawn({
            let store = store.clone();
            async move { store.lost().await }
        });
        store.close().await;
        assert!(watching.await.unwrap() && tailing.await.unwrap());
        assert!(matches!(waiting.await.unwrap(), Failure::Lost { .. }));
    });
}

#[test]
fn names_with_slashes_are_other_stores() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async {
        let client = cluster.client().await;
        for (at, name) in ["a", "a/data/catalog", "a/place", "/a//owner/"].into_iter().enumerate() {
            let store = Store::open(Etcd::new(client.clone(), name), options(1)).await.unwrap();
            let table: Table<u8, usize, _> = store.create("t", TableOptions::default()).await.unwrap();
            table.put(&1, &at).await.unwrap();
            store.close().await;
        }
        for (at, url) in ["a", "a/data/catalog", "a/place", "a/owner"].into_iter().enumerate() {
            let url: dapple_store::StoreUrl =
                format!("{}/{url}", cluster.endpoints()[0].replace("http", "etcd")).parse().unwrap();
            let store = Store::open(url.engine(), options(1)).await.unwrap();
            assert_eq!(store.table::<u8, usize>("t").await.unwrap().get(&1).await.unwrap(), Some(at));
            store.close().await;
        }
    });
}

#[test]
fn an_owner_that_was_stopped_changes_nothing_and_answers_nothing_old() {
    let Some(cluster) = Cluster::start(1) else { return };
    let stopped = dapple_io::runtime_builder().workers(1).build().unwrap();
    let client = run(cluster.client());
    let (table, client) = stopped.block_on(async move {
        let store = opened(&client).await;
        let table: Table<u8, u8, _> = store.create("t", TableOptions::default()).await.unwrap();
        table.put(&1, &1).await.unwrap();
        assert_eq!(table.get(&1).await.unwrap(), Some(1));
        (table, client)
    });
    // Its only worker does nothing until the other one has the store: as when the whole process is stopped.
    let (taken, wait) = std::sync::mpsc::channel::<()>();
    let (blocks, is_blocked) = std::sync::mpsc::channel::<()>();
    let asking = stopped.spawn(async move {
        blocks.send(()).unwrap();
        wait.recv().unwrap();
        (is_lost(table.get(&1).await), table.put(&1, &3).await.is_err())
    });
    is_blocked.recv().unwrap();
    run(async {
        let client = Client::new(cluster.endpoints()).unwrap();
        let store = opened(&client).await;
        let table: Table<u8, u8, _> = store.table("t").await.unwrap();
        table.put(&1, &2).await.unwrap();
        taken.send(()).unwrap();
        assert_eq!(asking.await.unwrap(), (true, true));
        assert_eq!(table.get(&1).await.unwrap(), Some(2));
    });
    drop(client);
}

#[test]
fn operations_go_on_while_one_member_of_three_is_dead() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    run(async {
        let client = cluster.client().await;
        let store = opened(&client).await;
        let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await.unwrap();
        let table = table.with_limit(Duration::from_secs(60));
        for member in 0..3 {
            cluster.kill(member);
            for key in 0..20 {
                table.put(&key, &(member as u32)).await.unwrap();
            }
            cluster.restart(member);
            cluster.back(member).await;
        }
        assert_eq!(table.get(&7).await.unwrap(), Some(2));
        store.verify().await.unwrap();
    });
}

const ENDPOINT: &str = "DAPPLE_STORE_TEST_ETCD";

/// The program that is killed: this test's binary, with a variable that says so. Each of its commits is too large for one
/// transaction of etcd.
#[test]
fn large_writer_that_is_killed() {
    let Ok(endpoint) = std::env::var(ENDPOINT) else { return };
    run(async {
        let store = opened(&Client::new([endpoint]).unwrap()).await;
        let table: Table<u32, u64, _> = store.table("t").await.unwrap();
        for number in table.get(&0).await.unwrap().unwrap_or(0) + 1.. {
            let write = async |transaction: dapple_store::Transaction<Etcd>| {
                (0..KEYS).try_for_each(|key| transaction.put(&table, &key, &number))
            };
            store.transaction(write).await.unwrap();
            println!("ack {number}");
        }
    });
}

const KEYS: u32 = 700;

#[test]
fn a_large_commit_is_there_as_a_whole_or_not_at_all_after_a_kill() {
    let Some(cluster) = Cluster::start(1) else { return };
    let mut last = 0;
    run(async {
        let client = cluster.client().await;
        let store = opened(&client).await;
        store.create::<u32, u64>("t", TableOptions::default()).await.unwrap();
        store.close().await;
        for round in 0..6 {
            let mut child = writer(&cluster.endpoints()[0]);
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let acks = lines.map_while(Result::ok).filter_map(|line| line.rsplit_once("ack ")?.1.parse::<u64>().ok());
            last = acks.take(2).last().unwrap_or(last);
            // Somewhere in the commit that follows.
            std::thread::sleep(Duration::from_millis(7 * round));
            child.kill().unwrap();
            child.wait().unwrap();
            revoke(&client).await;
            let store = opened(&client).await;
            let table: Table<u32, u64, _> = store.table("t").await.unwrap();
            let keys: Vec<_> = (0..KEYS).collect();
            let found = table.get_many(&keys).await.unwrap();
            assert!(found[0] >= Some(last) && found.iter().all(|one| *one == found[0]), "{last} {found:?}");
            assert_eq!(client.find(dapple_etcd::Get::new(Keys::prefix("/shop//redo/"))).await.unwrap().count, 0);
            store.close().await;
        }
    });
}

fn writer(endpoint: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "real_etcd::large_writer_that_is_killed", "--nocapture"])
        .env(ENDPOINT, endpoint)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_place_that_is_missing_or_damaged_is_found() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async {
        let client = cluster.client().await;
        let store = opened(&client).await;
        store.create::<u8, u8>("t", TableOptions::default()).await.unwrap();
        store.close().await;
        let mark = client.get("/shop//place/synced-1").await.unwrap().unwrap();
        client.delete(dapple_etcd::Delete::new("/shop//place/synced-1")).await.unwrap();
        let missing = Store::open(Etcd::new(client.clone(), "shop"), options(3)).await.map(drop).unwrap_err();
        assert!(missing.to_string().contains("place/synced-1 is missing"), "{missing}");
        client.put(Put::new("/shop//place/synced-1", "x")).await.unwrap();
        let damaged = Store::open(Etcd::new(client.clone(), "shop"), options(3)).await.map(drop).unwrap_err();
        assert!(matches!(damaged, Error::NotApplied(Refusal::Engine(Failure::Corrupt { .. }))), "{damaged:?}");
        client.put(Put::new("/shop//place/synced-1", mark.value)).await.unwrap();
        opened(&client).await.table::<u8, u8>("t").await.unwrap();
    });
}

#[test]
fn a_partition_is_a_map_in_the_order_of_its_keys() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async {
        let client = cluster.client().await;
        let done = dapple_io::blocking::spawn_blocking(move || {
            let engine = Etcd::new(client, "raw");
            let partition = engine.open(Place::Catalog).unwrap();
            let (one, last) = (TableId(1), TableId(u64::MAX));
            let put = |table, key: &[u8]| Change::Put(table, key.to_vec(), b"v".to_vec());
            partition.commit(&[put(one, b""), put(one, b"a"), put(one, b"a\0"), put(last, b"\xff")]).unwrap();
            assert_eq!(partition.tables().unwrap(), [one, last]);
            assert_eq!((partition.len(one).unwrap(), partition.len(TableId(2)).unwrap()), (3, 0));
            use std::ops::Bound::{Excluded, Included, Unbounded};
            let keys = |range, limit| {
                partition.scan(one, range, limit).unwrap().into_iter().map(|(key, _)| key).collect::<Vec<_>>()
            };
            assert_eq!(keys((Unbounded, Unbounded), 9), [&b""[..], b"a", b"a\0"]);
            assert_eq!(keys((Excluded(&b""[..]), Included(&b"a"[..])), 9), [b"a"]);
            assert_eq!(keys((Included(&b"a"[..]), Unbounded), 1), [b"a"]);
            assert_eq!(keys((Excluded(&b"a"[..]), Excluded(&b"a\0"[..])), 9), [b""; 0]);
            partition
                .commit(&[Change::DropTable(one), put(one, b"b"), Change::Remove(last, b"\xff".to_vec())])
                .unwrap();
            assert_eq!(keys((Unbounded, Unbounded), 9), [b"b"]);
            assert_eq!(partition.tables().unwrap(), [one]);
            engine.close();
            assert!(matches!(partition.get(one, b"b"), Err(Failure::Lost { .. })));
        });
        done.await.unwrap();
    });
}

/// Several transactions of etcd each; a member that was stopped gives etcd one of them late.
#[test]
fn a_request_that_comes_late_changes_nothing() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(cluster.client());
    let late = |place: usize| {
        let relay = Relay::to(&cluster.endpoints()[0]);
        let client = Client::new([relay.endpoint.clone()]).unwrap();
        dapple_io::blocking::spawn_blocking(move || {
            let table = TableId(1);
            let put = |key: u16, value: &str| Change::Put(table, key.to_be_bytes().to_vec(), value.into());
            let many = |value: &str| (0..150).map(|key| put(key, value)).collect::<Vec<_>>();
            let engine = Etcd::new(client, &format!("late{place}"));
            relay.hold("/v3/kv/txn", place);
            let partition = engine.open(Place::Catalog).unwrap();
            partition.commit(&many("old")).unwrap();
            partition.commit(&[put(7, "new")]).unwrap();
            let was_late = relay.deliver();
            let seen = |partition: &dapple_store::engine::EtcdPartition, key: u16| {
                String::from_utf8(partition.get(table, &key.to_be_bytes()).unwrap().unwrap()).unwrap()
            };
            assert_eq!((seen(&partition, 7), seen(&partition, 8)), ("new".to_owned(), "old".to_owned()), "{place}");
            partition.commit(&many("newer")).unwrap();
            engine.remove(Place::Catalog).unwrap();
            assert_eq!(engine.open(Place::Catalog).unwrap().len(table).unwrap(), 0);
            // A removal that comes late leaves its successor alone.
            relay.hold("/v3/kv/txn", 0);
            engine.remove(Place::Catalog).unwrap();
            let again = engine.open(Place::Catalog).unwrap();
            again.commit(&many("again")).unwrap();
            assert!(relay.deliver());
            assert_eq!(seen(&again, 7), "again");
            engine.close();
            was_late
        })
    };
    run(async {
        let all: Vec<_> = (0..9).map(late).collect();
        let mut held = 0;
        for one in all {
            held += usize::from(one.await.unwrap());
        }
        assert!(held >= 6, "{held}");
    });
}

/// Both are in one process, so their names do not tell them apart.
#[test]
fn an_owner_with_a_lost_request_does_not_take_another_one_for_itself() {
    let Some(cluster) = Cluster::start(1) else { return };
    let relay = Relay::to(&cluster.endpoints()[0]);
    run(async {
        let client = cluster.client().await;
        relay.hold("/v3/kv/txn", 0);
        let slow = Client::new([relay.endpoint.clone()]).unwrap();
        let mut short = options(1);
        short.in_use_limit = Duration::ZERO;
        let second = dapple_sched::spawn(async move { Store::open(Etcd::new(slow, "shop"), short).await.map(drop) });
        while !relay.holds() {
            dapple_io::time::sleep(Duration::from_millis(1)).await;
        }
        let store = opened(&client).await;
        let refused = second.await.unwrap().unwrap_err();
        assert!(matches!(refused, Error::NotApplied(Refusal::Engine(Failure::InUse { .. }))), "{refused:?}");
        store.create::<u8, u8>("t", TableOptions::default()).await.unwrap();
    });
}
