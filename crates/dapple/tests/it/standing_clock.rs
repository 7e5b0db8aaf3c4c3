//! `#[dapple::test]`: no test here sleeps in real time, and none is late. Times are compared
//! exactly, because the clock stands while any work runs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dapple::net::{TcpListener, TcpStream};
use dapple::prelude::*;
use dapple::sync::{mpsc, oneshot};
use dapple::task::Group;
use dapple::time::{Instant, advance, interval, pause, sleep, sleep_until, timeout, timeout_at};
use dapple::{blocking, event, fs, pipe, process};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

#[dapple::test(limit_s = 20)]
async fn an_hour_passes_at_once_and_exactly() {
    let start = Instant::now();
    sleep(HOUR).await;
    assert_eq!(start.elapsed(), HOUR);
    sleep(Duration::from_nanos(1)).await;
    assert_eq!(start.elapsed(), HOUR + Duration::from_nanos(1));
    sleep_until(std::time::Instant::from(start) + HOUR * 24 * 365).await;
    assert_eq!(start.elapsed(), HOUR * 24 * 365);
}

#[dapple::test(workers = 1)]
async fn the_clock_stands_while_anything_runs() {
    let start = Instant::now();
    let until = std::time::Instant::now() + Duration::from_millis(20);
    let task = dapple::spawn(async move {
        while std::time::Instant::now() < until {
            dapple::yield_now().await;
        }
        start.elapsed()
    });
    assert_eq!(task.await.unwrap(), Duration::ZERO);
    while std::time::Instant::now() < until + Duration::from_millis(5) {}
    assert_eq!(start.elapsed(), Duration::ZERO, "the test's own thread counts");
}

/// Each of many tasks sleeps for its own time; each ends at exactly that time, and in that order.
async fn sleeps_end_in_order(count: u64) {
    let start = Instant::now();
    let (tx, mut rx) = mpsc::unbounded_channel();
    for i in 0..count {
        let tx = tx.clone();
        // Some differ by less than a tick of the real clock's wheel.
        let time = Duration::from_micros((i * 7919) % count * 100);
        drop(dapple::spawn(async move {
            sleep(time).await;
            assert_eq!(start.elapsed(), time);
            tx.send(time).unwrap();
        }));
    }
    drop(tx);
    let mut ended = Vec::new();
    while let Some(time) = rx.recv().await {
        ended.push(time);
    }
    assert_eq!(ended.len() as u64, count);
    assert!(ended.is_sorted());
}

#[dapple::test(workers = 1)]
async fn timers_fire_in_order() {
    sleeps_end_in_order(500).await;
}

#[dapple::test(workers = 2)]
async fn timers_fire_in_order_on_two_workers() {
    sleeps_end_in_order(2_000).await;
}

#[dapple::test(workers = 4)]
async fn two_tasks_that_call_each_other_are_never_overtaken() {
    let start = Instant::now();
    let too_late = dapple::spawn(sleep(SECOND));
    let (to, mut at) = mpsc::channel::<u32>(1);
    let (back, mut home) = mpsc::channel::<u32>(1);
    let echo = dapple::spawn(async move {
        while let Some(n) = at.recv().await {
            back.send(n).await.unwrap();
        }
    });
    for n in 0..20_000 {
        to.send(n).await.unwrap();
        assert_eq!(home.recv().await, Some(n));
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
    drop(to);
    echo.await.unwrap();
    assert!(!too_late.is_finished());
}

/// A thread that finds a worker asleep is about to wake it, and others rely on that, even if the
/// clock does not count this thread.
#[dapple::test]
async fn a_wake_up_on_its_way_is_not_overtaken() {
    let start = Instant::now();
    let _too_late = dapple::spawn(sleep(SECOND));
    let color = Color::new();
    let over = Arc::new(AtomicBool::new(false));
    // Wakes workers all the time, and is sometimes preempted before it does.
    let threads = [0, 1, 2].map(|_| {
        let (color, over, handle) = (Color::new(), over.clone(), Handle::current());
        std::thread::spawn(move || {
            let _entered = handle.enter();
            while !over.load(Ordering::Relaxed) {
                let (tx, rx) = std::sync::mpsc::channel();
                color.post(move || tx.send(()).unwrap());
                rx.recv().unwrap();
            }
        })
    });
    for _ in 0..20_000 {
        color.spawn(async { dapple::yield_now().await }).await.unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
    over.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[dapple::test]
async fn a_sleep_that_is_moved_ends_when_it_is_moved_to() {
    use std::future::Future;
    let start = Instant::now();
    for (from, to) in [(HOUR, 2 * HOUR), (50 * HOUR, 3 * HOUR)] {
        let shared = Arc::new(std::sync::Mutex::new(Box::pin(sleep_until(start + from))));
        let waiting = shared.clone();
        let task = dapple::spawn(std::future::poll_fn(move |cx| waiting.lock().unwrap().as_mut().poll(cx)));
        // Only when all wait, including the task.
        sleep(SECOND).await;
        shared.lock().unwrap().as_mut().reset(start + to);
        assert_eq!(shared.lock().unwrap().deadline(), start + to);
        task.await.unwrap();
        assert_eq!(start.elapsed(), to);
    }
}

#[dapple::test]
async fn a_time_limit_counts_this_time() {
    let start = Instant::now();
    assert!(timeout(HOUR, std::future::pending::<()>()).await.is_err());
    assert_eq!(start.elapsed(), HOUR);
    assert!(timeout_at(start + 2 * HOUR, sleep(HOUR / 2)).await.is_ok());
    assert_eq!(start.elapsed(), HOUR * 3 / 2);
}

#[dapple::test]
async fn an_interval_has_every_tick() {
    let start = Instant::now();
    let mut ticks = interval(SECOND);
    for n in 0..10_000 {
        let due = ticks.tick().await;
        assert_eq!(due - start, SECOND * n);
        assert_eq!(start.elapsed(), SECOND * n);
    }
}

#[dapple::test]
async fn callbacks_for_deadlines_go_by_it() {
    let start = Instant::now();
    let (tx, mut rx) = mpsc::unbounded_channel();
    let color = Color::new();
    let (once, often) = (tx.clone(), tx);
    let _once = event::after(HOUR, color.wrap(move |()| once.send(("once", start.elapsed())).unwrap())).unwrap();
    let often = event::every(HOUR / 2, color.wrap(move |()| often.send(("often", start.elapsed())).unwrap())).unwrap();
    assert_eq!(rx.recv().await, Some(("often", HOUR / 2)));
    // Armed before the second round of the other.
    assert_eq!(rx.recv().await, Some(("once", HOUR)));
    assert_eq!(rx.recv().await, Some(("often", HOUR)));
    often.cancel();
}

/// A server that echoes its input twice, and sleeps before the second time.
async fn echo(listener: TcpListener) -> io::Result<()> {
    let (stream, _) = listener.accept().await?;
    let mut buf = vec![0; 64 * 1024];
    loop {
        let count = stream.read(&mut buf).await?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buf[..count]).await?;
    }
}

#[dapple::test]
async fn loopback_is_not_overtaken_by_a_short_limit() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    let server = dapple::spawn(echo(listener));
    let start = Instant::now();
    let stream = TcpStream::connect(addr).await?;
    let mut buf = [0; 4];
    for n in 0..1_000u32 {
        stream.write_all(&n.to_le_bytes()).await?;
        timeout(Duration::from_nanos(1), stream.read_exact(&mut buf)).await??;
        assert_eq!(u32::from_le_bytes(buf), n);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    // More than the buffers of both sockets hold.
    let sent = vec![7; 8 << 20];
    let write = stream.write_all(&sent);
    let read = async {
        let mut received = vec![0; 8 << 20];
        stream.read_exact(&mut received).await.map(|_| received)
    };
    let both = async {
        let (mut write, mut read) = (std::pin::pin!(write), std::pin::pin!(read));
        let mut written = false;
        std::future::poll_fn(|cx| {
            if !written && let std::task::Poll::Ready(result) = write.as_mut().poll(cx) {
                result.unwrap();
                written = true;
            }
            read.as_mut().poll(cx)
        })
        .await
    };
    let received = timeout(SECOND, both).await??;
    assert!(received == sent);
    // An answer that does not come.
    assert!(timeout(HOUR, stream.read(&mut buf)).await.is_err());
    assert_eq!(start.elapsed(), HOUR);
    drop(stream);
    server.await.unwrap()
}

#[dapple::test]
async fn a_peer_on_a_plain_thread_has_as_long_as_a_pause() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let paused = pause();
    let client = std::thread::spawn(move || {
        use std::io::Write;
        let mut stream = std::net::TcpStream::connect(addr).unwrap();
        std::thread::sleep(Duration::from_millis(50)); // it takes its time
        stream.write_all(b"hello").unwrap();
        paused
    });
    let served = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut buf = [0; 5];
        stream.read_exact(&mut buf).await.unwrap();
        buf
    };
    let start = Instant::now();
    assert_eq!(&timeout(SECOND, served).await.expect("the clock is paused"), b"hello");
    assert_eq!(start.elapsed(), Duration::ZERO);
    drop(client.join().unwrap());
    sleep(SECOND).await;
}

#[dapple::test]
async fn a_function_on_the_pool_is_waited_for() {
    let start = Instant::now();
    let slow = blocking::spawn_blocking(|| {
        std::thread::sleep(Duration::from_millis(50)); // real time
        7
    });
    assert_eq!(timeout(Duration::from_millis(1), slow).await.expect("the clock stands").unwrap(), 7);
    // Even one that is not awaited; when it has ended, the time advances.
    let (tx, rx) = std::sync::mpsc::channel();
    drop(blocking::spawn_blocking(move || {
        std::thread::sleep(Duration::from_millis(50));
        tx.send(Instant::now()).unwrap();
    }));
    sleep(HOUR).await;
    assert_eq!(rx.try_recv().unwrap(), start, "it saw the clock before the jump");
}

#[dapple::test]
async fn a_function_on_the_pool_that_awaits_lets_time_pass() {
    let start = Instant::now();
    let waits = blocking::spawn_blocking(|| {
        dapple::wait(sleep(HOUR));
        std::thread::sleep(Duration::from_millis(5));
        dapple::wait(sleep(HOUR));
        Instant::now()
    });
    assert_eq!(waits.await.unwrap() - start, 2 * HOUR);
}

#[dapple::test]
async fn a_limit_on_a_function_that_does_not_end_is_reached() {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let endless = blocking::spawn_blocking(move || ended.recv().is_ok());
    let real = std::time::Instant::now();
    assert!(timeout(Duration::from_millis(300), endless).await.is_err());
    assert!(real.elapsed() >= Duration::from_secs(5), "it was given time");
    drop(end);
}

async fn files() -> io::Result<()> {
    let start = Instant::now();
    let path =
        std::env::temp_dir().join(format!("dapple-standing-{}-{:?}", std::process::id(), std::thread::current().id()));
    let result = timeout(Duration::from_nanos(1), async {
        fs::write(&path, vec![1; 1 << 20]).await?;
        for _ in 0..50 {
            assert_eq!(fs::read(&path).await?.len(), 1 << 20);
        }
        fs::remove_file(&path).await
    });
    result.await??;
    assert_eq!(start.elapsed(), Duration::ZERO);
    Ok(())
}

#[dapple::test]
async fn files_are_waited_for() -> io::Result<()> {
    // On a worker, which has a ring; and on this thread, which uses the pool.
    dapple::spawn(files()).await.unwrap()?;
    files().await
}

#[dapple::test]
async fn a_child_is_waited_for() -> io::Result<()> {
    let start = Instant::now();
    let run = async {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "sleep 0.05; echo hello; sleep 0.05; exit 3"]).stdout(std::process::Stdio::piped());
        let mut child = process::spawn(command).await?;
        let stdout = child.take_stdout().expect("is piped")?;
        let mut line = [0; 6];
        stdout.read_exact(&mut line).await?;
        assert_eq!(&line, b"hello\n");
        child.wait().await
    };
    assert_eq!(timeout(SECOND, run).await??.code(), Some(3));
    assert_eq!(start.elapsed(), Duration::ZERO);
    Ok(())
}

#[dapple::test]
async fn a_limit_on_a_child_that_does_not_end_is_reached() -> io::Result<()> {
    let mut command = std::process::Command::new("sleep");
    command.arg("1000");
    let mut child = process::spawn(command).await?;
    assert!(timeout(SECOND / 2, child.wait()).await.is_err());
    child.kill()?;
    child.wait().await.map(drop)
}

#[dapple::test]
async fn a_signal_of_our_own_is_not_overtaken() -> io::Result<()> {
    let mut signal = dapple::signal::signal(dapple::signal::SIGUSR2)?;
    let start = Instant::now();
    for _ in 0..20 {
        let mut kill = std::process::Command::new("kill");
        kill.args(["-USR2", &std::process::id().to_string()]);
        let paused = pause();
        assert!(process::spawn(kill).await?.wait().await?.success());
        timeout(Duration::from_nanos(1), signal.recv()).await?;
        drop(paused);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    Ok(())
}

#[dapple::test]
async fn a_paused_clock_goes_where_it_is_told() {
    let start = Instant::now();
    let _paused = pause();
    let rang = Arc::new(AtomicUsize::new(0));
    for n in 1..=10 {
        let rang = rang.clone();
        drop(dapple::spawn(async move {
            sleep(SECOND * n).await;
            assert_eq!(start.elapsed(), SECOND * n, "it stops on the way");
            for _ in 0..10 {
                dapple::yield_now().await;
            }
            rang.fetch_add(1, Ordering::Relaxed);
        }));
    }
    for n in 1..=5 {
        advance(SECOND).await;
        assert_eq!(start.elapsed(), SECOND * n);
        assert_eq!(rang.load(Ordering::Relaxed), n as usize, "all that was due has run");
    }
    advance(SECOND * 5 - Duration::from_nanos(1)).await;
    assert_eq!(rang.load(Ordering::Relaxed), 9);
    advance(Duration::ZERO).await;
    advance(Duration::from_nanos(1)).await;
    assert_eq!(rang.load(Ordering::Relaxed), 10);
}

#[dapple::test]
async fn an_advance_that_is_given_up_stops() {
    let start = Instant::now();
    let paused = pause();
    let mut far = Box::pin(advance(HOUR));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(far.as_mut().poll(&mut cx).is_pending());
    drop(far);
    advance(SECOND).await;
    assert_eq!(start.elapsed(), SECOND);
    drop(paused);
    sleep(SECOND).await;
    assert_eq!(start.elapsed(), 2 * SECOND);
}

#[dapple::test]
async fn nested_groups_end_in_their_time() {
    let start = Instant::now();
    let inner_ended = Arc::new(AtomicUsize::new(0));
    let counted = inner_ended.clone();
    let outer = Group::scope(move |group| async move {
        for n in 1..=3u32 {
            let counted = counted.clone();
            let inner = Group::scope(move |group| async move {
                for m in 1..=3u32 {
                    let counted = counted.clone();
                    group
                        .spawn(async move {
                            sleep(SECOND * n * m).await;
                            counted.fetch_add(1, Ordering::Relaxed);
                        })
                        .await;
                }
                group.join_all().await;
            });
            group.spawn(inner).await;
        }
        group.join_all().await;
    });
    // The slowest inner group would need nine seconds; the limit aborts it with one member left.
    assert!(timeout(SECOND * 8, outer).await.is_err());
    assert_eq!(start.elapsed(), SECOND * 8);
    assert_eq!(inner_ended.load(Ordering::Relaxed), 8);
}

#[dapple::test(clock = "real")]
async fn the_clock_can_be_the_real_one() {
    let real = std::time::Instant::now();
    sleep(Duration::from_millis(20)).await;
    assert!(real.elapsed() >= Duration::from_millis(20));
    let message = dapple::spawn(async { drop(pause()) }).await.unwrap_err().to_string();
    assert!(message.contains("Config::standing_clock"), "{message}");
}

#[dapple::test(clock = "standing", workers = 1, limit_s = 30)]
async fn pipes_inside_of_the_process_are_not_overtaken() -> io::Result<()> {
    let (tx, rx) = pipe::pipe()?;
    let writes = dapple::spawn(async move {
        for n in 0..200u8 {
            sleep(SECOND).await;
            tx.write_all(&[n]).await?;
        }
        io::Result::Ok(())
    });
    for n in 0..200u8 {
        let mut byte = [0];
        timeout(SECOND + Duration::from_nanos(1), rx.read_exact(&mut byte)).await??;
        assert_eq!(byte, [n]);
    }
    writes.await.unwrap()
}

#[test]
fn runtimes_have_clocks_of_their_own() {
    let mut config = dapple::Config::default();
    config.standing_clock = true;
    let (one, two) = (dapple::builder_with(config), dapple::builder_with(config));
    let (one, two) = (one.workers(1).build().unwrap(), two.workers(1).build().unwrap());
    let start = one.block_on(async { Instant::now() });
    let other_start = two.block_on(async { Instant::now() });
    let passed = one.block_on(async {
        dapple::spawn(sleep(HOUR)).await.unwrap();
        start.elapsed()
    });
    assert_eq!(passed, HOUR);
    assert_eq!(two.block_on(async { other_start.elapsed() }), Duration::ZERO);
    // A thread that only posts and arms does not count, but still wakes the clock.
    let (tx, rx) = std::sync::mpsc::channel();
    let _entered = two.enter();
    let _alarm = event::after(HOUR, Color::new().wrap(move |()| tx.send(()).unwrap())).unwrap();
    rx.recv_timeout(Duration::from_secs(20)).expect("an idle runtime learns of a new timer");
}

#[dapple::test]
async fn what_waits_for_nothing_in_the_runtime_is_woken_from_outside() {
    let (tx, rx) = oneshot::channel();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        tx.send(5).unwrap();
    });
    assert_eq!(rx.await, Ok(5));
    thread.join().unwrap();
}
