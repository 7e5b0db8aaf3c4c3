//! Members that die, hang, and come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dapple_etcd::{Error, Etcd, Guard, Guarded, Put};

use crate::cluster::{Cluster, deadline};
use crate::run;

const CALLERS: usize = 4;

/// Callers that read and write under a guard, each its own key, until the end.
struct Callers {
    tasks: Vec<dapple_sched::JoinHandle<Counts>>,
    calls: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Counts {
    calls: usize,
    slowest: Duration,
    errors: Vec<Error>,
}

impl Callers {
    fn start(etcd: &Etcd) -> Callers {
        let (calls, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let call = |number| call(etcd.clone(), number, calls.clone(), is_over.clone());
        let tasks = (0..CALLERS).map(|number| dapple_sched::spawn(call(number))).collect();
        Callers { tasks, calls: calls.clone(), is_over }
    }

    /// Waits until this many further calls have ended.
    async fn more(&self, calls: usize) {
        let until = self.calls.load(Ordering::Relaxed) + calls;
        while self.calls.load(Ordering::Relaxed) < until {
            dapple_io::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(self, what: &str) {
        self.is_over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            let counts = task.await.unwrap();
            println!(
                "{what}: {} calls, the slowest {:?}, {} errors",
                counts.calls,
                counts.slowest,
                counts.errors.len()
            );
            assert!(counts.errors.is_empty(), "{:?}", counts.errors);
        }
    }
}

async fn call(etcd: Etcd, number: usize, calls: Arc<AtomicUsize>, is_over: Arc<AtomicBool>) -> Counts {
    let (key, mut counts, mut guard) = (format!("caller/{number}"), Counts::default(), Guard::Absent);
    while !is_over.load(Ordering::Relaxed) {
        let value = format!("{number} {}", counts.calls);
        let begun = Instant::now();
        match etcd.put_guarded(Put::new(key.clone(), value.clone()), guard).await {
            Ok(Guarded::Applied { revision }) => guard = Guard::Revision(revision),
            // The key is this caller's own: a refusal would be a write that happened twice, or one that was lost.
            Ok(Guarded::Refused { current }) => panic!("{value}: {guard:?} did not hold: {current:?}"),
            Err(error) => counts.errors.push(error),
        }
        counts.slowest = counts.slowest.max(begun.elapsed());
        let begun = Instant::now();
        match etcd.get(key.as_str()).await {
            Ok(record) if counts.errors.is_empty() => assert_eq!(record.unwrap().value, value),
            Ok(_) => {}
            Err(error) => counts.errors.push(error),
        }
        counts.slowest = counts.slowest.max(begun.elapsed());
        counts.calls += 2;
        calls.fetch_add(2, Ordering::Relaxed);
    }
    counts
}

/// Each member dies once, the leader among them, so a leader dies for sure.
#[test]
fn callers_do_not_notice_that_one_of_three_members_is_killed() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    run(async move {
        let etcd = cluster.client().await.timeout(deadline());
        let callers = Callers::start(&etcd);
        for number in 0..3 {
            callers.more(50).await;
            cluster.kill(number);
            callers.more(100).await;
            cluster.restart(number);
            cluster.back(number).await;
        }
        callers.end("killed").await;
    });
}

#[test]
fn callers_do_not_notice_that_one_of_three_members_hangs() {
    let Some(cluster) = Cluster::start(3) else { return };
    run(async move {
        let etcd = cluster.client().await.timeout(deadline());
        let callers = Callers::start(&etcd);
        for number in 0..3 {
            callers.more(50).await;
            cluster.halt(number);
            callers.more(100).await;
            cluster.go_on(number);
            cluster.back(number).await;
        }
        callers.end("halted").await;
    });
}

#[test]
fn without_a_majority_calls_end_at_their_deadline() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    run(async move {
        let etcd = cluster.client().await;
        let revision = etcd.put(Put::new("a", "1")).await.unwrap().revision;
        cluster.kill(0);
        cluster.kill(1);
        let hurried = etcd.clone().timeout(Duration::from_millis(700));
        assert!(matches!(hurried.get("a").await, Err(Error::Unavailable { .. })));
        let written = hurried.put(Put::new("a", "2")).await;
        assert!(matches!(written, Err(Error::Unavailable { .. } | Error::Unknown { .. })), "{written:?}");
        let guarded = hurried.put_guarded(Put::new("a", "3"), Guard::Revision(revision)).await;
        assert!(matches!(guarded, Err(Error::Unavailable { .. } | Error::Unknown { .. })), "{guarded:?}");
        cluster.restart(0);
        assert!(etcd.get("a").await.unwrap().is_some());
    });
}
