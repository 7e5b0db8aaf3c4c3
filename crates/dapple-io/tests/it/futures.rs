//! The behavior of futures of this crate that are dropped or forgotten, in each of their states:
//! the lines of the table in `docs/safety.md`. `faults.rs` has panics in their wakers.

use std::future::Future;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dapple_io::blocking::spawn_blocking;
use dapple_io::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use dapple_io::signal::signal;
use dapple_io::time::{Instant, interval_at, sleep_until, timeout, timeout_at};
use dapple_io::{fs, process};
use dapple_sched::Runtime;
use rustix::process::{Signal, getpid, kill_process};

use crate::bombs::counting;
use crate::forget::forget;
use crate::{LIMIT, file_runtime, runtime, sources, wait_until};

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls the future if `polled`, which must leave it waiting, and forgets or drops it.
fn let_go<F: Future>(future: F, polled: bool, forgets: bool) {
    let mut future = Box::pin(future);
    if polled {
        assert!(poll(&mut future).is_pending());
    }
    if forgets { forget(future) } else { drop(future) }
}

/// As [`let_go`], if the kernel may be done by the end of the first poll.
fn let_go_ready_or_not<F: Future>(future: F, polled: bool, forgets: bool) {
    let mut future = Box::pin(future);
    if polled && poll(&mut future).is_ready() {
        return;
    }
    if forgets { forget(future) } else { drop(future) }
}

/// All ways to end a future: polled or not, forgotten or dropped.
const WAYS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

/// Runs this on a runtime, with a limit that only a bug reaches.
fn wait<F: Future>(runtime: &Runtime, future: F) -> F::Output {
    runtime.block_on(timeout(LIMIT, future)).expect("the test hangs")
}

fn tcp_pair(runtime: &Runtime) -> (TcpStream, TcpStream) {
    wait(runtime, async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    })
}

/// Ends reads early; later bytes are read as a whole.
macro_rules! reads {
    ($runtime:expr, $pair:expr) => {
        for (polled, forgets) in WAYS {
            let (writer, reader) = $pair;
            let_go(reader.read(&mut [0; 3]), polled, forgets);
            let_go(reader.readable(), polled, forgets);
            let mut buf = [0; 3];
            wait(&$runtime, async {
                writer.write_all(b"all").await.unwrap();
                reader.read_exact(&mut buf).await.unwrap();
            });
            assert_eq!(&buf, b"all");
        }
    };
}

#[test]
fn reads_that_are_let_go_of_take_nothing() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    reads!(runtime, tcp_pair(&runtime));
    reads!(runtime, UnixStream::pair().unwrap());
}

/// Ends writes to a full socket early; bytes written before and later arrive.
macro_rules! writes {
    ($runtime:expr, $pair:expr) => {
        for (polled, forgets) in WAYS {
            let (writer, reader) = $pair;
            let mut expected = 0;
            if polled {
                while let Poll::Ready(written) = poll(&mut Box::pin(writer.write(&[1; 65_536]))) {
                    expected += written.unwrap();
                }
            }
            let_go(writer.write(b"not written"), polled, forgets);
            let reads = $runtime.spawn(async move {
                let (mut all, mut buf) = (0, [0; 65_536]);
                loop {
                    match reader.read(&mut buf).await.unwrap() {
                        0 => break all,
                        count => all += count,
                    }
                }
            });
            wait(&$runtime, writer.write_all(b"end")).unwrap();
            drop(writer);
            assert_eq!(wait(&$runtime, reads).unwrap(), expected + 3);
        }
    };
}

#[test]
fn writes_that_are_let_go_of_write_nothing() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    writes!(runtime, tcp_pair(&runtime));
    writes!(runtime, UnixStream::pair().unwrap());
}

#[test]
fn accepts_that_are_let_go_of_lose_no_connection() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    for (polled, forgets) in WAYS {
        let_go(tcp.accept(), polled, forgets);
        let_go(unix.accept(), polled, forgets);
        wait(&runtime, async {
            let client = TcpStream::connect(tcp.local_addr().unwrap()).await.unwrap();
            let (_, peer) = tcp.accept().await.unwrap();
            assert_eq!(peer, client.local_addr().unwrap());
            let client = UnixStream::connect(&path).await.unwrap();
            client.write_all(b"x").await.unwrap();
            assert_eq!(unix.accept().await.unwrap().read(&mut [0; 2]).await.unwrap(), 1);
        });
    }
}

#[test]
fn connects_that_are_let_go_of_end() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    for (polled, forgets) in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let unix = UnixListener::bind(&path).unwrap();
        let addr = tcp.local_addr().unwrap();
        let before = sources(&runtime);
        let (mut by_tcp, mut by_unix) = (Box::pin(TcpStream::connect(addr)), Box::pin(UnixStream::connect(&path)));
        if polled {
            // They may be ready at once.
            drop((poll(&mut by_tcp), poll(&mut by_unix)));
        }
        if forgets {
            forget((by_tcp, by_unix));
        } else {
            drop((by_tcp, by_unix));
            wait_until("their descriptors are closed", || sources(&runtime) == before);
        }
        wait(&runtime, async {
            let client = TcpStream::connect(addr).await.unwrap();
            while tcp.accept().await.unwrap().1 != client.local_addr().unwrap() {}
            let client = UnixStream::connect(&path).await.unwrap();
            client.write_all(b"x").await.unwrap();
            drop(client);
            // Nothing comes from the ended one.
            while unix.accept().await.unwrap().read(&mut [0]).await.unwrap() == 0 {}
        });
    }
}

#[test]
fn timers_that_are_let_go_of_disturb_no_other() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    for (polled, forgets) in WAYS {
        let deadline = Instant::now() + Duration::from_millis(5);
        let (calls, waker) = counting();
        let mut neighbor = Box::pin(sleep_until(deadline));
        let _ = neighbor.as_mut().poll(&mut Context::from_waker(&waker));
        // Far enough in the future that none is ready when it is polled.
        let_go(sleep_until(deadline + LIMIT), polled, forgets);
        let dropped = Arc::new(());
        let kept = dropped.clone();
        let inside = async move {
            std::future::pending::<()>().await;
            drop(kept);
        };
        let_go(timeout_at(deadline + LIMIT, inside), polled, forgets);
        assert_eq!(Arc::strong_count(&dropped), 1 + usize::from(forgets));
        wait(&runtime, sleep_until(deadline));
        wait_until("the neighbor is due", || calls.count() == 1 || poll(&mut neighbor).is_ready());
    }
}

#[test]
fn a_tick_that_is_let_go_of_is_not_lost() {
    let mut config = dapple_io::Config::default();
    config.standing_clock = true;
    let runtime = dapple_io::runtime_builder_with(config).workers(1).build().unwrap();
    runtime.block_on(async {
        for (polled, forgets) in WAYS {
            let start = Instant::now() + Duration::from_secs(60);
            let mut ticks = interval_at(start, Duration::from_secs(3_600));
            let_go(ticks.tick(), polled, forgets);
            assert_eq!(ticks.tick().await, start);
        }
    });
}

#[test]
fn calls_on_files_that_are_let_go_of() {
    for io_uring in [true, false] {
        let runtime = file_runtime(1, io_uring);
        let _entered = runtime.enter();
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("written"), dir.path().join("neighbor"));
        for (polled, forgets) in WAYS {
            std::fs::write(&path, "before").unwrap();
            let_go_ready_or_not(fs::read(&path), polled, forgets);
            let_go_ready_or_not(fs::write(&path, vec![7; 100_000]), polled, forgets);
            wait(&runtime, async {
                fs::write(&other, "neighbor").await.unwrap();
                assert_eq!(fs::read(&other).await.unwrap(), b"neighbor");
            });
            let is_written = || std::fs::read(&path).unwrap() == [7; 100_000];
            if polled {
                wait_until("it is written as a whole", is_written);
            } else {
                assert_eq!(std::fs::read(&path).unwrap(), b"before");
            }
        }
    }
}

#[test]
fn a_function_in_the_pool_runs_although_it_is_let_go_of() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    for (polled, forgets) in WAYS {
        let (ran, result) = (Arc::new(AtomicBool::new(false)), Arc::new(()));
        let (go, waits) = channel::<()>();
        let (runs, returned) = (ran.clone(), result.clone());
        let function = spawn_blocking(move || {
            let _ = waits.recv();
            runs.store(true, Ordering::SeqCst);
            returned
        });
        let_go(function, polled, forgets);
        drop(go);
        wait_until("it has run", || ran.load(Ordering::SeqCst));
        if !forgets {
            wait_until("its result is dropped", || Arc::strong_count(&result) == 1);
        }
        assert_eq!(wait(&runtime, spawn_blocking(|| 1)).unwrap(), 1);
        assert_eq!(Arc::strong_count(&result), 1 + usize::from(forgets));
    }
}

#[test]
fn a_signal_reaches_others_beside_a_wait_that_is_let_go_of() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    // No other test uses this signal, and by itself it does nothing.
    let urgent = Signal::URG;
    let (mut one, mut two) = (signal(urgent.as_raw()).unwrap(), signal(urgent.as_raw()).unwrap());
    for (polled, forgets) in WAYS {
        let_go(one.recv(), polled, forgets);
        kill_process(getpid(), urgent).unwrap();
        wait(&runtime, async {
            one.recv().await;
            two.recv().await;
        });
    }
}

#[test]
fn the_end_of_a_child_is_told_after_a_wait_that_is_let_go_of() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    for (polled, forgets) in WAYS {
        let mut command = Command::new("sh");
        command.args(["-c", "read line; exit 7"]).stdin(Stdio::piped());
        let mut child = wait(&runtime, process::spawn(command)).unwrap();
        let stdin = child.take_stdin();
        let_go(child.wait(), polled, forgets);
        drop(stdin);
        assert_eq!(wait(&runtime, child.wait()).unwrap().code(), Some(7));
    }
}
