//! Many calls on files at once: dropped, cut off by a shutdown, next to a busy worker, and without
//! descriptors.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use dapple_io::EpollDriver;
use dapple_io::fs::{self, BufferPool, File, OpenOptions};
use dapple_sched::{Color, Handle, spawn};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::Level;

use crate::shortage::{Log, lines};
use crate::{LIMIT, both_ways, file_runtime, wait_until};

/// A file of 4096-byte pages, each full of its number, opened to bypass the cache if possible.
async fn paged_file(dir: &tempfile::TempDir, pages: usize) -> io::Result<File> {
    let path = dir.path().join("pages");
    let data: Vec<u8> = (0..pages).flat_map(|page| [page as u8; 4096]).collect();
    fs::write(&path, data).await?;
    let mut options = OpenOptions::new();
    options.read(true);
    match options.clone().direct(true).open(&path).await {
        Ok(file) => Ok(file),
        Err(_) => options.open(&path).await,
    }
}

/// Polls a future once.
async fn poll_once<F: Future + Unpin>(future: &mut F) {
    poll_fn(|cx| {
        let _ = std::pin::Pin::new(&mut *future).poll(cx);
        Poll::Ready(())
    })
    .await;
}

#[test]
fn ten_thousand_reads_at_once() {
    both_ways(2, async || {
        let dir = tempfile::tempdir()?;
        let file = paged_file(&dir, 64).await?;
        let tasks: Vec<_> = (0..10_000usize)
            .map(|i| {
                let file = file.clone();
                spawn(async move {
                    let read = file.read_exact_at((i % 64 * 4096) as u64, 4096).await?;
                    assert!(read.iter().all(|byte| usize::from(*byte) == i % 64));
                    io::Result::Ok(())
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic")?;
        }
        Ok(())
    });
}

#[test]
fn reads_dropped_in_the_middle() {
    both_ways(2, async || {
        let dir = tempfile::tempdir()?;
        let file = paged_file(&dir, 64).await?;
        let pool = BufferPool::new(300, 4096)?;
        for round in 0..20 {
            let mut reads: Vec<_> = (0..300u64)
                .map(|i| {
                    let (file, buf) = (file.clone(), pool.take());
                    Box::pin(async move {
                        match buf {
                            Some(buf) => file.read_buf_at(i % 64 * 4096, buf).await.0.map(drop),
                            None => file.read_at(i % 64 * 4096, 4096).await.map(drop),
                        }
                    })
                })
                .collect();
            for read in &mut reads {
                poll_once(read).await;
            }
            if round % 2 == 0 {
                dapple_sched::yield_now().await;
            }
            // Other tasks continue meanwhile.
            let page = file.read_exact_at(7 * 4096, 4096).await?;
            assert!(page.iter().all(|byte| *byte == 7));
            drop(reads);
        }
        while pool.available() < 300 {
            dapple_io::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    });
}

#[test]
fn an_open_that_waits_is_canceled() {
    both_ways(1, async || {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into())?;
        let open = dapple_io::time::timeout(Duration::from_millis(20), File::open(&path)).await;
        assert!(open.is_err(), "nobody writes");
        // Releases the thread of the pool, which nothing interrupts.
        let writer = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        let _ = rustix::fs::open(&path, writer, rustix::fs::Mode::empty());
        assert_eq!(fs::metadata(&path).await?.len(), 0);
        Ok(())
    });
}

#[test]
fn a_shutdown_in_the_middle_frees_everything() {
    for io_uring in [true, false] {
        let runtime = file_runtime(2, io_uring);
        let kept = Arc::new(());
        let begun = Arc::new(AtomicU64::new(0));
        let (tx, rx) = mpsc::channel();
        let (held, count) = (kept.clone(), begun.clone());
        let _reading = runtime.spawn(async move {
            let dir = tempfile::tempdir().unwrap();
            let file = paged_file(&dir, 64).await.unwrap();
            for i in 0..2000u64 {
                let (file, held, count) = (file.clone(), held.clone(), count.clone());
                let _detached = spawn(async move {
                    let _held = held;
                    loop {
                        count.fetch_add(1, Ordering::Relaxed);
                        if file.read_at(i % 64 * 4096, 4096).await.is_err() {
                            return;
                        }
                    }
                });
            }
            tx.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        rx.recv_timeout(LIMIT).unwrap();
        wait_until("reads are under way", || begun.load(Ordering::Relaxed) > 4000);
        drop(runtime);
        wait_until("everything is dropped", || Arc::strong_count(&kept) == 1);
    }
}

#[test]
fn waiting_calls_do_not_delay_a_shutdown() {
    let runtime = file_runtime(1, true);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
    let (tx, rx) = mpsc::channel();
    let fifo = path.clone();
    let _opening = runtime.spawn(async move {
        let mut open = Box::pin(File::open(fifo));
        poll_once(&mut open).await;
        tx.send(()).unwrap();
        drop(open.await);
    });
    rx.recv_timeout(LIMIT).unwrap();
    let start = std::time::Instant::now();
    drop(runtime);
    assert!(start.elapsed() < LIMIT / 2);
    // If the pool has it.
    let writer = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    let _ = rustix::fs::open(&path, writer, rustix::fs::Mode::empty());
}

#[test]
fn c6_file_of_busy_worker_is_read() {
    let runtime = file_runtime(2, true);
    let dir = tempfile::tempdir().unwrap();
    let file = runtime.block_on(paged_file(&dir, 64)).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let is_done = done.clone();
    let (tx, rx) = mpsc::channel();
    let _entered = runtime.enter();
    Color::new().post(move || {
        // A call begun in the ring of this worker, which is about to be busy; too large to be read
        // at once.
        let mut read = Box::pin(async move { file.read_exact_at(0, 64 * 4096).await });
        let waker = std::task::Waker::noop();
        assert!(read.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
        let _reading = spawn(async move { tx.send(read.await.map(|read| read.len())).unwrap() });
        let start = std::time::Instant::now();
        while !is_done.load(Ordering::Acquire) && start.elapsed() < 2 * LIMIT {
            std::hint::spin_loop();
        }
    });
    let read = rx.recv_timeout(LIMIT);
    done.store(true, Ordering::Release);
    assert_eq!(read.unwrap().unwrap(), 64 * 4096);
}

#[test]
fn the_switch_chooses_the_way() {
    let way = |io_uring| {
        let runtime = file_runtime(1, io_uring);
        let task = runtime.spawn(async {
            fs::metadata("/").await.unwrap();
            format!("{:?}", Handle::current().driver::<EpollDriver>().unwrap())
        });
        runtime.block_on(task).unwrap()
    };
    assert!(way(false).contains("per_worker: [None]"), "{}", way(false));
    let is_refused = io_uring_is_refused() || std::env::var_os("DAPPLE_IO_URING").is_some();
    assert_eq!(way(true).contains("per_worker: [None]"), is_refused, "{}", way(true));
}

/// Tests that affect a whole process run in a child, which runs the same test; true in the child.
fn is_child(name: &str) -> bool {
    const CHILD: &str = "DAPPLE_IO_TEST_FILES";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
    false
}

#[test]
fn where_io_uring_is_refused_the_pool_serves_and_the_log_says_so_once() {
    if !is_child("file_load::where_io_uring_is_refused_the_pool_serves_and_the_log_says_so_once") {
        return;
    }
    tracing::subscriber::set_global_default(Log).unwrap();
    refuse_io_uring();
    for _ in 0..2 {
        both_ways(2, async || {
            let dir = tempfile::tempdir()?;
            let file = paged_file(&dir, 4).await?;
            let reads: Vec<_> = (0..100u64)
                .map(|i| {
                    let file = file.clone();
                    spawn(async move { file.read_exact_at(i % 4 * 4096, 4096).await })
                })
                .collect();
            for read in reads {
                assert_eq!(read.await.expect("no panic")?.len(), 4096);
            }
            Ok(())
        });
    }
    let is_on = std::env::var_os("DAPPLE_IO_URING").is_none();
    assert_eq!(lines(Level::WARN), usize::from(is_on));
}

/// As containers do: a filter answers `io_uring_setup` with "not permitted", for this thread and
/// those that it starts.
fn refuse_io_uring() {
    let statement = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let filter = [
        // The number of the call.
        statement((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0),
        libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: libc::SYS_io_uring_setup as u32,
        },
        statement((libc::BPF_RET | libc::BPF_K) as u16, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement((libc::BPF_RET | libc::BPF_K) as u16, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the filter before the call returns, and changes none of our memory.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(refused, "{}", io::Error::last_os_error());
    assert!(io_uring_is_refused());
}

#[test]
fn without_descriptors_opening_fails_and_looking_works() {
    if !is_child("file_load::without_descriptors_opening_fails_and_looking_works") {
        return;
    }
    let full = getrlimit(Resource::Nofile);
    both_ways(1, move || async move {
        // The worker's ring is made now; otherwise the pool would serve calls until the worker has
        // a descriptor for a ring.
        fs::metadata("/").await?;
        let start = std::time::Instant::now();
        let refused = loop {
            let free = std::fs::File::open("/dev/null")?.as_raw_fd() as u64;
            setrlimit(Resource::Nofile, Rlimit { current: Some(free), ..full })?;
            let opened = File::open("/dev/null").await.map(drop);
            let seen = fs::metadata("/dev/null").await.map(drop);
            setrlimit(Resource::Nofile, full)?;
            seen?;
            match opened {
                Err(error) => break error,
                // The last runtime has just closed a descriptor below the limit.
                Ok(()) => assert!(start.elapsed() < LIMIT, "it opens without a descriptor"),
            }
        };
        assert_eq!(refused.raw_os_error(), Some(24));
        File::open("/dev/null").await.map(drop)
    });
    // If a ring cannot be made because descriptors run out, it is made later.
    let runtime = file_runtime(1, true);
    let task = runtime.spawn(async move {
        let free = std::fs::File::open("/dev/null")?.as_raw_fd() as u64;
        setrlimit(Resource::Nofile, Rlimit { current: Some(free), ..full })?;
        let seen = fs::metadata("/").await.map(drop);
        setrlimit(Resource::Nofile, full)?;
        seen?;
        fs::metadata("/").await.map(drop)
    });
    runtime.block_on(task).unwrap().unwrap();
}

fn io_uring_is_refused() -> bool {
    io_uring::IoUring::new(1).is_err()
}
