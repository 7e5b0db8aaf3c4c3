//! Power failures, full disks, damaged files.

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use dapple_sched::Color;
use dapple_store::engine::{Engine, Failure, Place};
use dapple_store::{Error, Redb, Refusal, Store, StoreUrl, Table, TableOptions};

use crate::disk::Simulated;
use crate::support::{options, run};

type Numbers = Table<u32, u64, Redb>;

async fn open(disk: &Simulated) -> Result<Store<Redb>, Error> {
    Store::open(Redb::new("simulated").on_disk(Arc::new(disk.clone())), options(2)).await
}

/// The state of one key as its only writer knows it.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    acknowledged: u64,
    /// The last value that it tried to write.
    tried: u64,
}

const WRITERS: u32 = 4;

/// The runs with a power failure; `DAPPLE_STORE_SEEDS` asks for more.
fn seeds() -> u64 {
    std::env::var("DAPPLE_STORE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(8)
}

/// Writes growing numbers until the power fails, and returns what each writer knows.
async fn write_until_failure(disk: &Simulated) -> Vec<Known> {
    let store = open(disk).await.unwrap();
    let table: Numbers = store.create("t", TableOptions::default()).await.unwrap();
    disk.fail_after(60);
    let writers: Vec<_> = (0..WRITERS)
        .map(|key| {
            let (store, table) = (store.clone(), table.clone());
            Color::new().spawn(async move {
                let mut known = Known::default();
                loop {
                    known.tried += 1;
                    let result = if known.tried % 4 == 0 {
                        let mut batch = store.batch();
                        batch.put(&table, &key, &known.tried).unwrap();
                        // Another key, most of the time in another partition.
                        batch.put(&table, &(key + 100), &known.tried).unwrap();
                        batch.commit().await.map(drop)
                    } else {
                        table.put(&key, &known.tried).await.map(drop)
                    };
                    match result {
                        Ok(()) => known.acknowledged = known.tried,
                        Err(_) => return known,
                    }
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    for writer in writers {
        all.push(writer.await.unwrap());
    }
    all
}

/// The errors after a power failure, if any.
async fn check(disk: &Simulated, known: &[Known]) -> Result<(), String> {
    let store = open(disk).await.map_err(|error| error.to_string())?;
    let table: Numbers = store.table("t").await.map_err(|error| error.to_string())?;
    store.verify().await.map_err(|error| error.to_string())?;
    for (key, known) in (0..).zip(known) {
        let found = table.get(&key).await.map_err(|error| error.to_string())?.unwrap_or(0);
        if !(known.acknowledged..=known.tried).contains(&found) {
            return Err(format!("key {key} has {found}, with {known:?}"));
        }
        // A batch is there as a whole or not at all.
        let other = table.get(&(key + 100)).await.map_err(|error| error.to_string())?.unwrap_or(0);
        if other != found / 4 * 4 {
            return Err(format!("key {key} has {found}, and {other} was written with its last batch"));
        }
    }
    Ok(())
}

/// The outcome of a run with a power failure that keeps the writes chosen by `seed`.
fn power_failure(seed: u64, forgets_syncs: bool) -> Result<(), String> {
    let disk = Simulated::default();
    run(async {
        let (of_writers, mut random) = (disk.clone(), seed.wrapping_mul(2).wrapping_add(1));
        if forgets_syncs {
            // The store itself exists; later writes are not synced.
            drop(open(&disk).await.unwrap());
            disk.forget_syncs();
        }
        let known = write_until_failure(&of_writers).await;
        disk.restart(move || {
            // xorshift64
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random >> 20
        });
        check(&disk, &known).await
    })
}

#[test]
fn no_acknowledged_write_is_lost_when_the_power_fails() {
    for seed in 0..seeds() {
        power_failure(seed, false).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
    }
}

#[test]
fn a_planted_missing_sync_is_found() {
    let found = (0..40).find_map(|seed| power_failure(seed, true).err());
    assert!(found.is_some(), "40 power failures without a sync lost nothing");
}

#[test]
fn a_full_disk_refuses_writes_and_gives_reads_until_there_is_room() {
    let disk = Simulated::default();
    run(async {
        let store = open(&disk).await.unwrap();
        let table: Table<u32, Vec<u8>, _> = store.create("t", TableOptions::default()).await.unwrap();
        table.put(&0, &vec![7; 1000]).await.unwrap();
        disk.set_capacity(Some(disk.bytes() + (1 << 20)));
        let mut last = 0;
        let full = loop {
            last += 1;
            match table.put(&last, &vec![7; 100_000]).await {
                Ok(_) => assert!(last < 1000, "a disk of limited room never was full"),
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::NotApplied(Refusal::Engine(Failure::Full { .. }))), "{full:?}");
        assert!(full.to_string().contains("no room"), "{full}");
        assert_eq!(table.get(&last).await.unwrap(), None);
        for key in 0..last {
            assert!(table.get(&key).await.unwrap().is_some());
        }
        disk.set_capacity(None);
        table.put(&last, &vec![7; 100_000]).await.unwrap();
        store.verify().await.unwrap();
    });
}

#[test]
fn a_kill_in_the_first_open_leaves_a_store_that_opens() {
    let mut last = Vec::new();
    for operations in 0.. {
        let disk = Simulated::default();
        disk.fail_after(operations);
        let engine = Redb::new("simulated").on_disk(Arc::new(disk.clone()));
        run(async { drop(Store::open(engine, options(1)).await) });
        let files = disk.files();
        // Syncs change nothing.
        if files == last {
            continue;
        }
        // The catalog and a partition are whole; the next partition is as this one.
        if files.len() > 2 {
            assert!(operations > 10, "{operations} operations made two files");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        for (path, bytes) in &files {
            std::fs::write(directory.path().join(path.file_name().unwrap()), bytes).unwrap();
        }
        let opened = run(async { Store::open(Redb::new(directory.path()), options(1)).await.map(drop) });
        opened.unwrap_or_else(|error| panic!("a kill after {operations} operations: {error}"));
        last = files;
    }
}

#[cfg(feature = "fjall")]
#[test]
fn a_kill_in_the_first_open_leaves_a_store_of_fjall_that_opens() {
    use dapple_store::Fjall;
    // The files that fjall has made when it is killed, and the length of the last one.
    for (files, len) in [
        (&[][..], 0),
        (&["lock"], 0),
        (&["lock", "0.jnl"], 0),
        (&["lock", "0.jnl", "version"], 0),
        (&["lock", "0.jnl", "version"], 3),
    ] {
        for place in ["catalog.fjall", "synced-0.fjall"] {
            let directory = tempfile::tempdir().unwrap();
            if place != "catalog.fjall" {
                drop(Fjall::new(directory.path()).open(Place::Catalog).unwrap());
            }
            let unfinished = directory.path().join(place);
            std::fs::create_dir_all(unfinished.join("keyspaces")).unwrap();
            for file in files {
                std::fs::write(unfinished.join(file), &b"FJL"[..len]).unwrap();
            }
            let opened = run(async { Store::open(Fjall::new(directory.path()), options(1)).await.map(drop) });
            opened.unwrap_or_else(|error| panic!("{place} with {files:?}: {error}"));
        }
    }
}

#[cfg(feature = "fjall")]
#[test]
fn a_database_of_fjall_that_another_process_makes_is_in_use() {
    use rustix::fs::{FlockOperation, flock};
    let directory = tempfile::tempdir().unwrap();
    let catalog = directory.path().join("catalog.fjall");
    let journal = catalog.join("0.jnl");
    std::fs::create_dir(&catalog).unwrap();
    std::fs::write(&journal, "").unwrap();
    let held = std::fs::File::create(catalog.join("lock")).unwrap();
    flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
    let opened = run(async { Store::open(dapple_store::Fjall::new(directory.path()), options(1)).await.map(drop) });
    assert!(matches!(opened, Err(Error::NotApplied(Refusal::Engine(Failure::InUse { .. })))), "{opened:?}");
    assert!(journal.exists());
}

#[test]
fn a_file_that_is_none_of_redb_is_removed_only_where_no_data_can_be() {
    for (file, others) in [("catalog.redb", &["synced-0.redb", "process-0.redb"][..]), ("synced-0.redb", &[])] {
        let change = |path: &Path| {
            std::fs::write(path, "no file of redb").unwrap();
            others.iter().for_each(|other| assert!(path.with_file_name(other).exists()));
        };
        let (directory, opened) = run(reopened("redb", file, change));
        assert!(matches!(opened, Err(Error::NotApplied(Refusal::Engine(Failure::Corrupt { .. })))), "{opened:?}");
        assert_eq!(std::fs::read(directory.path().join("store").join(file)).unwrap(), b"no file of redb");
    }
}

#[test]
fn a_directory_that_cannot_be_read_is_not_taken_for_an_empty_one() {
    let directory = tempfile::tempdir().unwrap();
    let (file, cycle) = (directory.path().join("file"), directory.path().join("cycle"));
    std::fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink(&cycle, &cycle).unwrap();
    for place in [file, cycle] {
        let checked = Redb::new(&place).check(Place::Catalog);
        assert!(matches!(checked, Err(Failure::Io { .. })), "{}: {checked:?}", place.display());
    }
    Redb::new(directory.path().join("none")).check(Place::Catalog).unwrap();
}

/// The files of a store with values, by their names.
fn files() -> &'static Vec<(OsString, Vec<u8>)> {
    static FILES: OnceLock<Vec<(OsString, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        run(async {
            let store = Store::open(Redb::new(directory.path()), options(1)).await.unwrap();
            let table: Table<u32, String, _> = store.create("t", TableOptions::default()).await.unwrap();
            let mut batch = store.batch();
            (0..200).for_each(|key| batch.put(&table, &key, &value(key)).unwrap());
            batch.commit().await.unwrap();
        });
        let entries = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap());
        entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap())).collect()
    })
}

fn value(key: u32) -> String {
    format!("value {key} ").repeat(20)
}

/// Cuts or changes one file of a store, and returns the error. No read may give a value that was
/// never written.
fn damaged(change: impl FnOnce(&mut Vec<u8>)) -> Result<(), String> {
    const DAMAGED: &str = "synced-0.redb";
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in files() {
        std::fs::write(directory.path().join(name), bytes).unwrap();
    }
    let mut bytes = std::fs::read(directory.path().join(DAMAGED)).unwrap();
    change(&mut bytes);
    std::fs::write(directory.path().join(DAMAGED), bytes).unwrap();
    run(read_all(directory.path())).map_err(|error| {
        let text = error.to_string();
        assert!(text.contains(DAMAGED), "{text}");
        text
    })
}

async fn read_all(directory: &Path) -> Result<(), Error> {
    let store = Store::open(Redb::new(directory), options(1)).await?;
    let table: Table<u32, String, _> = store.table("t").await?;
    let mut failed = None;
    for key in 0..200 {
        match table.get(&key).await {
            Ok(value) => assert!(value.is_none_or(|found| found == self::value(key)), "key {key}"),
            Err(error) => failed = Some(error),
        }
    }
    store.verify().await?;
    failed.map_or(Ok(()), Err)
}

#[test]
fn a_truncated_file_is_found_and_named() {
    for part in [0, 1, 2, 3] {
        damaged(|bytes| bytes.truncate(bytes.len() * part / 4 + usize::from(part == 0))).unwrap_err();
    }
}

/// Makes a store of one table with one key, lets `damage` have its directory and the name of a file, and opens it again.
async fn reopened(url: &str, file: &str, damage: impl FnOnce(&Path)) -> (tempfile::TempDir, Result<(), Error>) {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("store");
    let url: StoreUrl = format!("{url}:{}", place.display()).parse().unwrap();
    let store = Store::open(url.engine(), options(1)).await.unwrap();
    let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await.unwrap();
    table.put(&1, &2).await.unwrap();
    drop((table, store));
    damage(&place.join(file));
    let opened = Store::open(url.engine(), options(1)).await;
    assert_eq!(url.is_there(), Ok(true));
    (directory, opened.map(drop))
}

#[test]
fn a_missing_or_empty_file_is_named_and_never_made_anew() {
    let mut places = vec![("redb", "catalog.redb"), ("redb", "synced-0.redb"), ("redb", "process-0.redb")];
    if cfg!(feature = "fjall") {
        places.extend([("fjall", "catalog.fjall"), ("fjall", "synced-0.fjall")]);
    }
    for (engine, file) in places {
        run(async {
            let (_directory, opened) = reopened(engine, file, |path| {
                std::fs::rename(path, path.with_extension("gone")).unwrap();
            })
            .await;
            assert_missing(opened, file);
        });
    }
    for file in ["catalog.redb", "synced-0.redb"] {
        run(async {
            let (directory, opened) = reopened("redb", file, |path| std::fs::write(path, "").unwrap()).await;
            assert_missing(opened, file);
            assert_eq!(std::fs::metadata(directory.path().join("store").join(file)).unwrap().len(), 0);
        });
    }
}

fn assert_missing(opened: Result<(), Error>, name: &str) {
    match opened {
        Err(Error::NotApplied(Refusal::Engine(Failure::Missing { file }))) => assert!(file.ends_with(name), "{file}"),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn no_flipped_byte_is_ever_served() {
    let mut found = 0;
    for at in 0..12 {
        let flipped = damaged(|bytes| {
            let at = bytes.len() * at / 12 + at * 37;
            bytes[at] ^= 0x55;
        });
        found += usize::from(flipped.is_err());
    }
    // The other bytes are in pages that are not used.
    assert!(found > 0);
}
