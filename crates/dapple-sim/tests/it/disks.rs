//! Files on the simulated disk, what a crash leaves of them, and disks that misbehave.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_io::fs::{self, File, OpenOptions};
use dapple_sim::time::{Instant, sleep};
use dapple_sim::{DiskFault, Fault, Plan, Simulation, check, run_seed};

const SECOND: Duration = Duration::from_secs(1);

fn plan(fault: Fault) -> Plan {
    let mut plan = Plan::default();
    plan.add(SECOND, SECOND, fault);
    plan
}

#[test]
fn files_and_directories_are_as_on_a_kernel() {
    check("files", 10, |sim| {
        sim.client("client", || async {
            fs::create_dir_all("/var/lib/db").await.unwrap();
            fs::create_dir_all("/var/lib").await.unwrap();
            fs::write("/var/lib/db/../log", "hello, world").await.unwrap();
            assert_eq!(fs::read_to_string("var/lib/log").await.unwrap(), "hello, world");
            let file = File::open("/var/lib/log").await.unwrap();
            assert_eq!(file.read_exact_at(7, 5).await.unwrap(), b"world");
            assert_eq!(file.read_exact_at(7, 6).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
            assert_eq!(file.read_at(12, 9).await.unwrap(), b"");
            assert!(file.write_all_at(0, "x").await.is_err(), "it was opened for reading");

            let mut options = OpenOptions::new();
            let appends = options.append(true).open("/var/lib/log").await.unwrap();
            appends.write_all_at(0, "!").await.unwrap();
            assert!(appends.read_at(0, 1).await.is_err(), "it was opened for writing");
            appends.set_len(5).await.unwrap();
            appends.write_all_at(0, "?").await.unwrap();
            fs::rename("/var/lib/log", "/var/lib/db/log").await.unwrap();
            fs::rename("/var/lib/db", "/db").await.unwrap();
            assert_eq!(fs::read("/db/log").await.unwrap(), b"hello?");
            fs::remove_file("/db/log").await.unwrap();
            assert_eq!(file.read_at(0, 9).await.unwrap(), b"hello?", "it stays while it is open");
            fs::remove_dir("/db").await.unwrap();
        });
    });
}

#[test]
fn directories_tell_what_is_in_them() {
    check("listed", 10, |sim| {
        sim.client("client", || async {
            fs::create_dir_all("/a/b").await.unwrap();
            fs::write("/a/file", "hello").await.unwrap();
            assert_eq!(fs::copy("/a/file", "/a/b/copy").await.unwrap(), 5);
            let seen = fs::read_dir("/a").await.unwrap();
            let seen: BTreeSet<_> = seen.iter().map(|entry| (entry.path().to_owned(), entry.is_dir())).collect();
            assert_eq!(seen, BTreeSet::from([("/a/b".into(), true), ("/a/file".into(), false)]));
            assert!(fs::read_dir("/").await.unwrap()[0].metadata().await.unwrap().is_dir());

            let file = File::open("/a/b/copy").await.unwrap();
            let before = file.metadata().await.unwrap();
            assert!(before.is_file() && !before.is_dir() && before.len() == 5);
            sleep(SECOND).await;
            fs::write("/a/b/copy", "longer").await.unwrap();
            let after = fs::metadata("/a/b/copy").await.unwrap();
            assert_eq!((after.len(), file.metadata().await.unwrap().len()), (6, 6));
            let between = after.modified().unwrap().duration_since(before.modified().unwrap()).unwrap();
            assert!(between >= SECOND && between < 2 * SECOND, "{between:?}");

            fs::remove_dir_all("/a").await.unwrap();
            assert!(fs::read_dir("/").await.unwrap().is_empty());
            for gone in
                [fs::read_dir("/a").await.map(drop), fs::metadata("/a").await.map(drop), fs::remove_dir_all("/a").await]
            {
                assert_eq!(gone.unwrap_err().kind(), ErrorKind::NotFound);
            }
            fs::write("/file", "x").await.unwrap();
            assert_eq!(fs::read_dir("/file").await.unwrap_err().kind(), ErrorKind::NotADirectory);
        });
    });
}

#[test]
fn what_a_kernel_refuses_is_refused() {
    check("refused", 3, |sim| {
        sim.client("client", || async {
            let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
            fs::create_dir("/dir").await.unwrap();
            fs::write("/dir/file", "x").await.unwrap();
            let mut new = OpenOptions::new();
            new.write(true).create_new(true);
            assert_eq!(kind(new.open("/dir/file").await.map(drop)), ErrorKind::AlreadyExists);
            assert_eq!(kind(File::open("/dir/other").await.map(drop)), ErrorKind::NotFound);
            assert_eq!(kind(File::create("/dir").await.map(drop)), ErrorKind::IsADirectory);
            assert_eq!(kind(fs::write("/none/file", "x").await), ErrorKind::NotFound);
            assert_eq!(kind(fs::write("/dir/file/x", "x").await), ErrorKind::NotADirectory);
            assert_eq!(kind(fs::create_dir("/dir").await), ErrorKind::AlreadyExists);
            assert_eq!(kind(fs::create_dir("/a/b").await), ErrorKind::NotFound);
            assert_eq!(kind(fs::create_dir_all("/dir/file/x").await), ErrorKind::NotADirectory);
            assert_eq!(kind(fs::remove_dir("/dir").await), ErrorKind::DirectoryNotEmpty);
            assert_eq!(kind(fs::remove_dir("/dir/file").await), ErrorKind::NotADirectory);
            assert_eq!(kind(fs::remove_file("/dir").await), ErrorKind::IsADirectory);
            assert_eq!(kind(fs::rename("/dir", "/dir/in").await), ErrorKind::InvalidInput);
            assert_eq!(kind(fs::rename("/none", "/x").await), ErrorKind::NotFound);
        });
    });
}

/// Runs `before` on a host that crashes after a second; returns what each of the seeds leaves in `/file` then, nothing if it is gone.
fn left<F>(before: fn() -> F) -> BTreeSet<Option<Vec<u8>>>
where
    F: Future<Output = ()> + Send + 'static,
{
    let all = Arc::new(Mutex::new(BTreeSet::new()));
    for seed in 1..60 {
        let all = all.clone();
        let outcome = run_seed(seed, &move |sim: &mut Simulation| {
            let all = all.clone();
            let starts = Arc::new(Mutex::new(0));
            sim.client("db", move || {
                let (all, starts) = (all.clone(), starts.clone());
                async move {
                    *starts.lock().unwrap() += 1;
                    if *starts.lock().unwrap() == 1 {
                        before().await;
                        return sleep(SECOND * 9).await;
                    }
                    let left = fs::read("/file").await;
                    all.lock().unwrap().insert(left.ok());
                }
            });
            sim.plan(plan(Fault::Crash("db".into())));
        });
        assert_eq!(outcome.failure, None, "seed {seed}");
    }
    Arc::into_inner(all).unwrap().into_inner().unwrap()
}

async fn sync_dir() {
    File::open("/").await.unwrap().sync_all().await.unwrap();
}

#[test]
fn a_crash_keeps_what_was_synced() {
    let left = left(|| async {
        let file = File::create("/file").await.unwrap();
        file.write_all_at(0, vec![1; 2_000]).await.unwrap();
        file.sync_data().await.unwrap();
        sync_dir().await;
    });
    assert_eq!(left, BTreeSet::from([Some(vec![1; 2_000])]));
}

#[test]
fn a_crash_loses_or_tears_writes_without_a_sync() {
    let left = left(|| async {
        let file = File::create("/file").await.unwrap();
        sync_dir().await;
        file.write_all_at(0, vec![1; 2_000]).await.unwrap();
    });
    let lens: BTreeSet<usize> = left.into_iter().map(|left| left.unwrap().len()).collect();
    assert_eq!(lens, BTreeSet::from([0, 512, 1_024, 1_536, 2_000]));
}

#[test]
fn a_crash_may_forget_a_new_name_without_a_sync_of_its_directory() {
    let left = left(|| async {
        let file = File::create("/file").await.unwrap();
        file.write_all_at(0, "x").await.unwrap();
        file.sync_all().await.unwrap();
    });
    assert_eq!(left, BTreeSet::from([None, Some(b"x".to_vec())]));
}

#[test]
fn a_rename_replaces_a_file_as_a_whole() {
    let left = left(|| async {
        fs::write("/file", "old").await.unwrap();
        File::open("/file").await.unwrap().sync_all().await.unwrap();
        sync_dir().await;
        fs::write("/new", "new").await.unwrap();
        File::open("/new").await.unwrap().sync_all().await.unwrap();
        fs::rename("/new", "/file").await.unwrap();
    });
    assert_eq!(left, BTreeSet::from([Some(b"new".to_vec()), Some(b"old".to_vec())]));
}

/// Runs a program under a fault of its disk, which begins after a second and ends a second later.
fn under<F>(fault: DiskFault, program: fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    check("disk", 10, move |sim| {
        sim.client("db", program);
        sim.plan(plan(Fault::Disk("db".into(), fault)));
    });
}

#[test]
fn a_full_disk_takes_nothing_more_until_there_is_room() {
    under(DiskFault::Full, || async {
        let file = File::create("/file").await.unwrap();
        file.write_all_at(0, "hello").await.unwrap();
        sleep(SECOND * 3 / 2).await;
        assert_eq!(file.write_all_at(3, "long").await.unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(fs::write("/more", "").await.unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(fs::create_dir("/more").await.unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(file.set_len(6).await.unwrap_err().kind(), ErrorKind::StorageFull);
        file.write_all_at(0, "HELLO").await.unwrap();
        sleep(SECOND).await;
        file.write_all_at(5, "!").await.unwrap();
        assert_eq!(fs::read("/file").await.unwrap(), b"HELLO!");
    });
}

#[test]
fn a_slow_disk_is_late() {
    under(DiskFault::Slow(SECOND * 3), || async {
        let begin = Instant::now();
        let file = File::create("/file").await.unwrap();
        assert!(begin.elapsed() < SECOND / 10);
        sleep(SECOND * 3 / 2).await;
        file.sync_all().await.unwrap();
        assert!(begin.elapsed() >= SECOND * 9 / 2);
    });
}

#[test]
fn a_disk_that_fails_says_eio_and_a_failed_sync_may_lose_writes() {
    const EIO: i32 = 5;
    let lost = Arc::new(Mutex::new(BTreeSet::new()));
    for seed in 1..60 {
        let inside = lost.clone();
        let outcome = run_seed(seed, &move |sim: &mut Simulation| {
            let (lost, starts) = (inside.clone(), Arc::new(Mutex::new(0)));
            sim.client("db", move || {
                let (lost, starts) = (lost.clone(), starts.clone());
                async move {
                    *starts.lock().unwrap() += 1;
                    if *starts.lock().unwrap() == 2 {
                        let is_lost = fs::read("/file").await.unwrap().is_empty();
                        lost.lock().unwrap().insert(is_lost);
                        return;
                    }
                    let file = File::create("/file").await.unwrap();
                    sync_dir().await;
                    file.write_all_at(0, "hello").await.unwrap();
                    sleep(SECOND * 3 / 2).await;
                    while let Err(error) = file.sync_all().await {
                        assert_eq!(error.raw_os_error(), Some(EIO));
                    }
                    sleep(SECOND * 9).await;
                }
            });
            let mut plan = plan(Fault::Disk("db".into(), DiskFault::Errors));
            plan.add(SECOND * 3, SECOND, Fault::Crash("db".into()));
            sim.plan(plan);
        });
        assert_eq!(outcome.failure, None, "seed {seed}");
    }
    assert_eq!(*lost.lock().unwrap(), BTreeSet::from([false, true]), "a later sync that succeeds promises nothing");
}
