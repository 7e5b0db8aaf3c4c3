//! Files: reopening, kills of the process, damage.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use dapple_io::time::timeout;
use dapple_store::engine::{Engine, Failure};
use dapple_store::{Durability, Error, Redb, Refusal, Store, Table, TableOptions};

use crate::support::{on_disk, options, run};

#[test]
fn a_store_that_is_opened_again_has_everything() {
    reopened(|path| Redb::new(path));
    #[cfg(feature = "fjall")]
    reopened(|path| dapple_store::Fjall::new(path));
}

fn reopened<E: Engine>(engine: fn(&Path) -> E) {
    let directory = tempfile::tempdir().unwrap();
    let version = run(async {
        let store = Store::open(engine(directory.path()), options(3)).await.unwrap();
        let table: Table<u32, String, _> = store.create("kept", TableOptions::default()).await.unwrap();
        store.create::<u32, u32>("gone", TableOptions::default()).await.unwrap().put(&1, &1).await.unwrap();
        store.destroy("gone").await.unwrap();
        for key in 0..100 {
            table.put(&key, &key.to_string()).await.unwrap();
        }
        table.remove(&7).await.unwrap();
        table.put(&8, &"eight".to_owned()).await.unwrap().version
    });
    run(async {
        // A store keeps its number of partitions.
        let store = Store::open(engine(directory.path()), options(5)).await.unwrap();
        assert_eq!(store.partitions(), 3);
        assert_eq!(store.list().await.len(), 1);
        let table: Table<u32, String, _> = store.table("kept").await.unwrap();
        assert_eq!(table.get(&7).await.unwrap(), None);
        assert_eq!(table.get(&99).await.unwrap(), Some("99".to_owned()));
        assert_eq!(table.count().await.unwrap(), 99);
        assert!(table.put(&8, &String::new()).await.unwrap().version > version);
        store.verify().await.unwrap();
    });
}

#[test]
fn a_directory_in_use_is_refused() {
    in_use(|path| Redb::new(path));
    #[cfg(feature = "fjall")]
    in_use(|path| dapple_store::Fjall::new(path));
}

fn in_use<E: Engine>(engine: fn(&Path) -> E) {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let store = Store::open(engine(directory.path()), options(3)).await.unwrap();
        let mut options = options(3);
        options.in_use_limit = Duration::from_millis(20);
        let second = Store::open(engine(directory.path()), options.clone()).await.map(drop);
        assert!(matches!(second, Err(Error::NotApplied(Refusal::Engine(Failure::InUse { .. })))), "{second:?}");
        // With a long limit it waits until the first is gone.
        options.in_use_limit = Duration::MAX;
        let mut second = std::pin::pin!(Store::open(engine(directory.path()), options));
        assert!(timeout(Duration::from_millis(50), second.as_mut()).await.is_err());
        drop(store);
        second.await.unwrap();
    });
}

#[test]
fn flipped_bytes_are_found_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let text = "a text that is easy to find in the file".repeat(3);
    run(async {
        let store = on_disk(&directory).await;
        let table: Table<u32, String, _> = store.create("t", TableOptions::default()).await.unwrap();
        table.put(&1, &text).await.unwrap();
    });
    let mut damaged = None;
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let places: Vec<_> =
            (0..bytes.len() - text.len()).filter(|&at| bytes[at..].starts_with(text.as_bytes())).collect();
        for &at in &places {
            bytes[at + 5] ^= 1;
        }
        if !places.is_empty() {
            std::fs::write(&path, bytes).unwrap();
            damaged = Some(path.display().to_string());
        }
    }
    let damaged = damaged.expect("one file has the text");
    run(async {
        let corrupt = |error: Error| match error {
            Error::NotApplied(Refusal::Engine(Failure::Corrupt { file, .. })) => file,
            other => panic!("{other:?}"),
        };
        match Store::open(Redb::new(directory.path()), options(3)).await {
            // The engine may find it when it opens the file.
            Err(error) => assert_eq!(corrupt(error), damaged),
            Ok(store) => {
                let table: Table<u32, String, _> = store.table("t").await.unwrap();
                assert_eq!(corrupt(table.get(&1).await.unwrap_err()), damaged);
                assert_eq!(corrupt(store.verify().await.unwrap_err()), damaged);
            }
        }
    });
}

const DIRECTORY: &str = "DAPPLE_STORE_TEST_DIRECTORY";
const ENGINE: &str = "DAPPLE_STORE_TEST_ENGINE";
const FIRST: &str = "DAPPLE_STORE_TEST_FIRST";

/// The program that is killed: this test's binary, with variables that say so.
#[test]
fn writer_that_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    match &std::env::var(ENGINE).unwrap()[..] {
        #[cfg(feature = "fjall")]
        "fjall" => write_until_killed(dapple_store::Fjall::new(directory)),
        _ => write_until_killed(Redb::new(directory)),
    }
}

fn write_until_killed<E: Engine>(engine: E) {
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    run(async {
        let store = Store::open(engine, options(2)).await.unwrap();
        let tables: Vec<Table<u64, u64, E>> =
            vec![store.table("synced").await.unwrap(), store.table("process").await.unwrap()];
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let table = tables[writer % 2].clone();
                dapple_sched::Color::new().spawn(async move {
                    for number in 0.. {
                        let key = first + number * 4 + writer as u64;
                        table.put(&key, &(key * 3)).await.unwrap();
                        println!("ack {key}");
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

#[test]
fn no_acknowledged_write_is_lost_when_the_process_is_killed() {
    killed("redb", |path| Redb::new(path));
    #[cfg(feature = "fjall")]
    killed("fjall", |path| dapple_store::Fjall::new(path));
}

fn killed<E: Engine>(name: &str, engine: fn(&Path) -> E) {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let store = Store::open(engine(directory.path()), options(2)).await.unwrap();
        for (name, durability) in [("synced", Durability::Synced), ("process", Durability::Process)] {
            let options = TableOptions { durability: Some(durability), expiry: false };
            store.create::<u64, u64>(name, options).await.unwrap();
        }
    });
    let mut acknowledged = Vec::new();
    for round in 0..10_u64 {
        acknowledged.extend(kill_one(name, directory.path(), round));
    }
    run(async {
        let store = Store::open(engine(directory.path()), options(2)).await.unwrap();
        let synced: Table<u64, u64, _> = store.table("synced").await.unwrap();
        let process: Table<u64, u64, _> = store.table("process").await.unwrap();
        for key in acknowledged {
            let table = if key % 2 == 0 { &synced } else { &process };
            assert_eq!(table.get(&key).await.unwrap(), Some(key * 3), "key {key}");
        }
        store.verify().await.unwrap();
    });
}

/// Starts a writer, kills it, and returns the keys that it had reported.
fn kill_one(engine: &str, directory: &Path, round: u64) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "durability::writer_that_is_killed", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(ENGINE, engine)
        .env(FIRST, (round * 1_000_000).to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some(key) = line.rsplit_once("ack ").and_then(|(_, key)| key.parse::<u64>().ok()) {
            keys.push(key);
            if keys.len() as u64 == 40 + round * 7 {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    assert!(keys.len() as u64 >= 40 + round * 7, "the writer ended after {} writes", keys.len());
    keys
}
