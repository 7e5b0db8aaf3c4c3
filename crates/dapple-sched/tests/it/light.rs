//! Light tasks: tasks with a color that is not requested, until it is.

use std::future::{pending, poll_fn};
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};

use dapple_sched::{AbortHandle, Color, Colored, Runtime, spawn, yield_now};

use crate::support::{Gate, LONG, runtime};

/// Counts drops.
#[derive(Clone, Default)]
struct Drops(Arc<AtomicUsize>);

impl Drops {
    fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    fn one(&self) -> OneDrop {
        OneDrop(self.0.clone())
    }
}

struct OneDrop(Arc<AtomicUsize>);

impl Drop for OneDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// Aborts tasks when it is dropped.
#[derive(Clone, Default)]
struct AbortAll(Arc<Mutex<Vec<AbortHandle>>>);

impl Drop for AbortAll {
    fn drop(&mut self) {
        let handles = std::mem::take(&mut *self.0.lock().unwrap());
        handles.iter().for_each(AbortHandle::abort);
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "{what}");
        std::thread::yield_now();
    }
}

#[repr(align(16))]
struct Aligned16([u8; 16]);

#[repr(align(64))]
struct Aligned64([u8; 64]);

async fn address_of<T: Send>(value: T, drops: OneDrop) -> usize {
    let _drops = drops;
    let at = std::hint::black_box(&value);
    yield_now().await;
    std::ptr::from_ref(at).addr()
}

#[test]
fn futures_of_all_sizes_and_alignments_stay_where_they_are() {
    let runtime = runtime(2);
    let drops = Drops::default();
    let at = |task| runtime.block_on::<dapple_sched::JoinHandle<usize>>(task).unwrap();
    for _ in 0..3 {
        assert_eq!(at(runtime.spawn(address_of(Aligned16([1; 16]), drops.one()))) % 16, 0);
        assert_eq!(at(runtime.spawn(address_of(Aligned64([1; 64]), drops.one()))) % 64, 0);
        at(runtime.spawn(address_of([1_u8; 1], drops.one())));
        at(runtime.spawn(address_of([1_u8; 1_900], drops.one())));
        at(runtime.spawn(address_of([1_u8; 2_100], drops.one())));
        at(runtime.spawn(address_of([1_u8; 100_000], drops.one())));
    }
    assert_eq!(drops.count(), 18);
}

#[test]
fn outputs_of_all_sizes_and_alignments_come_whole() {
    let runtime = runtime(1);
    let large = runtime.block_on(runtime.spawn(async { [7_u8; 5_000] })).unwrap();
    assert_eq!(large, [7; 5_000]);
    let aligned = runtime.block_on(runtime.spawn(async { Aligned64([9; 64]) })).unwrap();
    assert_eq!(aligned.0, [9; 64]);
    let aligned = runtime.block_on(runtime.spawn(async { Aligned16([3; 16]) })).unwrap();
    assert_eq!(aligned.0, [3; 16]);
    let color = runtime.handle().new_color();
    assert_eq!(runtime.block_on(color.spawn(async { [8_u8; 4_096] })).unwrap(), [8; 4_096]);
}

// An output without a taker is dropped while its task still has its color.
#[test]
fn c1_the_output_of_a_detached_task_is_dropped_in_its_color() {
    struct Output(Option<std::sync::mpsc::Sender<(Color, bool)>>, Gate);
    impl Drop for Output {
        fn drop(&mut self) {
            self.1.wait();
            let color = Color::current();
            let state = Colored::with_color((), &color);
            // This thread holds the color, so a closure in line runs at once.
            let ran = state.try_with(|()| ()).is_ok();
            self.0.take().unwrap().send((color, ran)).unwrap();
        }
    }
    let runtime = runtime(2);
    let (gate, started) = (Gate::default(), Gate::default());
    let (tx, rx) = channel();
    let (begun, output) = (started.clone(), Output(Some(tx), gate.clone()));
    let task = runtime.spawn(async move {
        begun.wait();
        output
    });
    let abort = task.abort_handle();
    drop(task);
    started.open();
    gate.open();
    let (color, ran) = rx.recv_timeout(LONG).unwrap();
    assert!(ran);
    assert_eq!(*abort.color(), color);
    wait_until("the task ends", || abort.is_finished());
    let (tx, rx) = channel();
    color.post(move || tx.send(()).unwrap());
    rx.recv_timeout(LONG).expect("the color was let go of");
}

#[test]
fn the_color_can_be_asked_for_at_any_time() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let posted = |color: &Color| {
        let (tx, rx) = channel();
        color.post(move || tx.send(Color::current()).unwrap());
        rx.recv_timeout(LONG).expect("the color has its turn")
    };
    // Waiting.
    let waits = spawn(pending::<()>());
    wait_until("it waits", || runtime.handle().stats().tasks_live == 1);
    assert_eq!(posted(waits.color()), *waits.color());
    waits.abort();
    // After the end.
    let abort = waits.abort_handle();
    assert!(runtime.block_on(waits).unwrap_err().is_aborted());
    assert_eq!(posted(abort.color()), *abort.color());
    let ends = spawn(async {});
    wait_until("it ends", || ends.is_finished());
    assert_eq!(posted(ends.color()), *ends.color());
    // While it is polled: posts wait for the end of the poll.
    let (gate, inside) = (Gate::default(), channel());
    let (open, tx) = (gate.clone(), inside.0);
    let seen = Arc::new(AtomicUsize::new(0));
    let in_task = seen.clone();
    let polled = spawn(async move {
        tx.send(()).unwrap();
        open.wait();
        in_task.store(1, Ordering::Release);
    });
    inside.1.recv_timeout(LONG).unwrap();
    let (tx, rx) = channel();
    polled.color().post(move || tx.send(seen.load(Ordering::Acquire)).unwrap());
    gate.open();
    assert_eq!(rx.recv_timeout(LONG).unwrap(), 1);
    runtime.block_on(polled).unwrap();
}

#[test]
fn the_color_of_a_queued_task_is_asked_for() {
    let runtime = runtime(1);
    let (gate, (tx, rx)) = (Gate::default(), channel());
    let open = gate.clone();
    let first = runtime.spawn(async move {
        tx.send(()).unwrap();
        open.wait();
    });
    rx.recv_timeout(LONG).unwrap();
    let tasks: Vec<_> = (0..100).map(|n| runtime.spawn(async move { (n, Color::current()) })).collect();
    let colors: Vec<_> = tasks.iter().step_by(2).map(|task| task.color().clone()).collect();
    gate.open();
    runtime.block_on(first).unwrap();
    for (n, task) in tasks.into_iter().enumerate() {
        let (m, color) = runtime.block_on(task).unwrap();
        assert_eq!(m, n);
        assert!(n % 2 == 1 || color == colors[n / 2]);
    }
}

// They are ordered among the light tasks, and from the first poll on in the fifos of their colors.
#[test]
fn tasks_that_ask_for_their_color_leave_their_neighbors() {
    let runtime = runtime(1);
    let (gate, (tx, rx)) = (Gate::default(), channel());
    let open = gate.clone();
    let first = runtime.spawn(async move {
        tx.send(()).unwrap();
        open.wait();
    });
    rx.recv_timeout(LONG).unwrap();
    let task = async || {
        let color = Color::current();
        for _ in 0..5 {
            yield_now().await;
            assert_eq!(Color::current(), color);
        }
        color
    };
    let tasks: Vec<_> = (0..100).map(|_| runtime.spawn(task())).collect();
    gate.open();
    runtime.block_on(first).unwrap();
    wait_until("every task ends", || tasks.iter().all(|task| task.is_finished()));
    for task in tasks {
        let color = task.color().clone();
        assert_eq!(runtime.block_on(task).unwrap(), color);
    }
}

#[test]
fn a_task_is_aborted_in_each_state() {
    let runtime = runtime(1);
    let drops = Drops::default();
    let (gate, (tx, rx)) = (Gate::default(), channel());
    let (open, dropped) = (gate.clone(), drops.one());
    // It is being polled, and would wait, yield or end afterwards.
    let waits = runtime.spawn(async move {
        let _dropped = dropped;
        tx.send(()).unwrap();
        open.wait();
        pending::<()>().await;
    });
    rx.recv_timeout(LONG).unwrap();
    let dropped = drops.one();
    let queued = runtime.spawn(async move {
        let _dropped = dropped;
        unreachable!("it was aborted before");
    });
    queued.abort();
    waits.abort();
    gate.open();
    assert!(runtime.block_on(waits).unwrap_err().is_aborted());
    assert!(runtime.block_on(queued).unwrap_err().is_aborted());
    assert_eq!(drops.count(), 2);
    let dropped = drops.one();
    let yields = runtime.spawn(async move {
        let _dropped = dropped;
        loop {
            yield_now().await;
        }
    });
    yields.abort();
    assert!(runtime.block_on(yields).unwrap_err().is_aborted());
    let (dropped, own) = (drops.one(), Arc::new(Mutex::new(None::<AbortHandle>)));
    let inside = own.clone();
    let itself = runtime.spawn(async move {
        let _dropped = dropped;
        poll_fn(|cx| {
            let own = inside.lock().unwrap();
            own.as_ref().map_or_else(|| cx.waker().wake_by_ref(), AbortHandle::abort);
            Poll::<()>::Pending
        })
        .await;
    });
    *own.lock().unwrap() = Some(itself.abort_handle());
    assert!(runtime.block_on(itself).unwrap_err().is_aborted());
    assert_eq!(drops.count(), 4);
}

// The destructors of some tasks free a slab of tasks while a shutdown walks through all of them.
#[test]
fn c7_a_shutdown_finds_every_task_also_where_others_go_meanwhile() {
    const EACH: usize = 1_100;
    let drops = Drops::default();
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let first = AbortAll::default();
    let _entered = runtime.enter();
    // The tasks are so large that a megabyte has few of them. Tasks spawned from outside are in
    // memory in the order of their spawning.
    let polled = Arc::new(AtomicUsize::new(0));
    let start = |held: AbortAll| {
        let (dropped, polled) = (drops.one(), polled.clone());
        let room = [0_u8; 1_500];
        spawn(async move {
            let _held = (held, dropped);
            polled.fetch_add(1, Ordering::AcqRel);
            pending::<()>().await;
            std::hint::black_box(&room);
        })
    };
    let before: Vec<_> = (0..EACH).map(|_| start(AbortAll::default())).collect();
    first.0.lock().unwrap().extend(before.iter().map(|task| task.abort_handle()));
    drop(before);
    (0..EACH).for_each(|_| drop(start(AbortAll::default())));
    // The shutdown visits the last tasks first; one of them aborts those that were spawned first.
    (1..EACH).for_each(|_| drop(start(AbortAll::default())));
    drop(start(first));
    wait_until("all of them wait", || polled.load(Ordering::Acquire) == 3 * EACH);
    drop(runtime);
    assert_eq!(drops.count(), 3 * EACH);
}

/// In a separate process, because the memory of concurrent tests would count.
#[test]
#[cfg_attr(miri, ignore = "it starts a process")]
fn two_million_tasks_give_their_memory_back() {
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    alone.args(["--ignored", "--exact", "light::two_million_tasks_alone", "--test-threads=1"]);
    // AddressSanitizer would keep more freed memory than the test allows for.
    alone.env("ASAN_OPTIONS", "quarantine_size_mb=1");
    let output = alone.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
#[ignore = "run by `two_million_tasks_give_their_memory_back`"]
fn two_million_tasks_alone() {
    let runtime = runtime(2);
    let drops = Drops::default();
    let mut first_peak = 0;
    for round in 1..=8 {
        let tasks: Vec<_> = (0..250_000)
            .map(|_| {
                let dropped = drops.one();
                runtime.spawn(async move {
                    let _dropped = dropped;
                    pending::<()>().await;
                })
            })
            .collect();
        // They take some 14 MB.
        let peak = resident_bytes();
        first_peak = if round == 1 { peak } else { first_peak };
        assert!(peak < first_peak + (30 << 20), "{first_peak} bytes in the first round, {peak} in round {round}");
        tasks.iter().for_each(|task| task.abort());
        drop(tasks);
        wait_until("all tasks end", || runtime.handle().stats().tasks_live == 0);
    }
    assert_eq!(drops.count(), 2_000_000);
}

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn a_task_is_woken_by_a_worker_of_another_runtime() {
    let (a, b) = (runtime(1), runtime(2));
    let (turn, waker) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None::<Waker>)));
    let (seen, place) = (turn.clone(), waker.clone());
    let waits = a.spawn(async move {
        for n in 1..=1_000 {
            poll_fn(|cx| {
                *place.lock().unwrap() = Some(cx.waker().clone());
                if seen.load(Ordering::Acquire) >= n { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    });
    let wakes = b.spawn(async move {
        for _ in 0..1_000 {
            turn.fetch_add(1, Ordering::AcqRel);
            if let Some(waker) = waker.lock().unwrap().take() {
                waker.wake();
            }
            yield_now().await;
        }
    });
    a.block_on(waits).unwrap();
    b.block_on(wakes).unwrap();
}

// The joiner of a task has a waker that panics when it is called, and another task waits in the
// same stretch.
#[test]
fn c8_a_waker_that_panics_takes_no_neighbor_along() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker");
        }
    }
    let runtime = runtime(1);
    let (gate, (tx, rx)) = (Gate::default(), channel());
    let open = gate.clone();
    let first = runtime.spawn(async move {
        tx.send(()).unwrap();
        open.wait();
    });
    rx.recv_timeout(LONG).unwrap();
    let waker = Waker::from(Arc::new(Panics));
    assert!(first.poll_finished(&mut std::task::Context::from_waker(&waker)).is_pending());
    let second = runtime.spawn(async {
        yield_now().await;
        Color::current()
    });
    gate.open();
    assert!(!runtime.block_on(second).unwrap().is_default());
    assert_eq!(runtime.handle().stats().workers[0].panics, 1);
}

// Futures, and outputs, that wake, spawn, and request colors when they are dropped: at shutdown
// too.
#[test]
fn destructors_may_do_everything() {
    struct Busy(Drops);
    impl Drop for Busy {
        fn drop(&mut self) {
            drop(spawn(async {}));
            Color::current().post(|| ());
            drop(self.0.one());
        }
    }
    let drops = Drops::default();
    let runtime = runtime(2);
    let _entered = runtime.enter();
    for n in 0..200 {
        let busy = Busy(drops.clone());
        let task = spawn(async move {
            if n % 4 == 0 {
                yield_now().await;
            }
            if n % 2 == 0 {
                pending::<()>().await;
            }
            busy
        });
        if n % 3 == 0 {
            task.abort();
        }
    }
    drop(runtime);
    assert_eq!(drops.count(), 200);
}

#[test]
fn a_dump_shows_a_slow_task_with_the_line_that_spawned_it() {
    let runtime = runtime(1);
    let (gate, (tx, rx)) = (Gate::default(), channel());
    let open = gate.clone();
    let line = Location::caller().line() + 1;
    let task = runtime.spawn(async move {
        tx.send(()).unwrap();
        open.wait();
    });
    rx.recv_timeout(LONG).unwrap();
    let waiting: Vec<_> = (0..3).map(|_| runtime.spawn(async {})).collect();
    let dump = runtime.handle().dump();
    let running = dump.workers[0].running.clone().expect("it is being polled");
    let posted_from = running.posted_from.expect("it has a line");
    assert_eq!((posted_from.file(), posted_from.line()), (file!(), line));
    assert_eq!((dump.tasks_live, dump.workers[0].tasks, dump.colors_alive), (4, 3, 1));
    assert_eq!(running.color_id, task.color().id());
    gate.open();
    runtime.block_on(task).unwrap();
    waiting.into_iter().for_each(|task| runtime.block_on(task).unwrap());
}
