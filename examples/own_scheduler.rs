//! A scheduler written by the program: threads in its own order, on Dapple's workers, sockets,
//! files and timers.
//!
//! ```text
//! cargo run --release --example own_scheduler
//! ```
//!
//! The scheduler is `shared/scheduler.rs`, in at most 220 lines (PLDI 2007, section 5.2). This
//! program shows its order and its lock, and how often it switches threads; `small_web_server --own-scheduler`
//! serves files on it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dapple::blocking::spawn_blocking;
use dapple::sync::oneshot;
use dapple::time::sleep;
use scheduler::{Mutex, Scheduler, set_rank, yield_now};

#[path = "shared/scheduler.rs"]
mod scheduler;

fn main() -> io::Result<()> {
    // One worker, so that the order shows.
    let runtime = dapple::builder().workers(1).build()?;
    let _entered = runtime.enter();
    let own = Scheduler::start();
    println!("jobs of 30, 10 and 20 steps ended in this order: {:?}", run(&runtime, &own, shortest_first(own.clone())));
    println!("a waiting lock, despite a panic: {}", run(&runtime, &own, lock_and_panic(own.clone())));
    let switches = run(&runtime, &own, switch(own.clone()));
    println!("{switches:.0} switches a second among {THREADS} threads");
    Ok(())
}

/// Runs a thread and waits for its result.
fn run<T: Send + 'static>(
    runtime: &dapple::Runtime,
    own: &Arc<Scheduler>,
    body: impl Future<Output = T> + Send + 'static,
) -> T {
    let (tell, told) = oneshot::channel();
    own.spawn(async move { drop(tell.send(body.await)) });
    runtime.block_on(told).expect("the thread ends")
}

/// Three jobs that begin at once. Each announces how much it has left: the shortest is never
/// delayed by the others.
async fn shortest_first(own: Arc<Scheduler>) -> Vec<u64> {
    let ended = Arc::new(Mutex::new(Vec::new()));
    for steps in [30, 10, 20] {
        let ended = ended.clone();
        own.spawn(async move {
            for left in (0..steps).rev() {
                set_rank(left * 10);
                yield_now().await;
            }
            ended.lock().await.push(steps);
        });
    }
    while ended.lock().await.len() < 3 {
        set_rank(1_000);
        yield_now().await;
    }
    ended.lock().await.clone()
}

/// Threads that wait for a timer and for a blocking call while they hold the lock; one of them
/// panics, which releases the lock.
async fn lock_and_panic(own: Arc<Scheduler>) -> u64 {
    let sum = Arc::new(Mutex::new(0));
    for number in 1..=4 {
        let sum = sum.clone();
        own.spawn(async move {
            let mut sum = sum.lock().await;
            sleep(Duration::from_millis(1)).await;
            assert_ne!(number, 3, "a panic ends one thread");
            *sum += spawn_blocking(move || number).await.expect("the closure does not panic");
        });
    }
    // 1, 2 and 4 have had their turn, and 3 has not.
    while *sum.lock().await < 7 {
        sleep(Duration::from_millis(1)).await;
    }
    *sum.lock().await
}

async fn switch(own: Arc<Scheduler>) -> f64 {
    let (begin, left) = (Instant::now(), Arc::new(Mutex::new(THREADS)));
    for _ in 0..THREADS {
        let left = left.clone();
        own.spawn(async move {
            for _ in 0..ROUNDS {
                yield_now().await;
            }
            *left.lock().await -= 1;
        });
    }
    while *left.lock().await > 0 {
        set_rank(1_000);
        yield_now().await;
    }
    f64::from(THREADS * ROUNDS) / begin.elapsed().as_secs_f64()
}

const THREADS: u32 = 100;
const ROUNDS: u32 = 1_000;
