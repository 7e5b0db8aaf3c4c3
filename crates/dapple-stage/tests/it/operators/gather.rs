//! Scatter and gather: parts that fail, hang or panic cost harvest, and never the answer.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple_io::time::{Instant, sleep};
use dapple_stage::BoxError;
use dapple_stage::operators::gather::{Absence, Gather, Missing};
use tower::util::BoxCloneSyncService;
use tower::{ServiceExt, service_fn};

type Part = BoxCloneSyncService<u32, u32, BoxError>;

const LIMIT: Duration = Duration::from_millis(200);

/// Answers with the message plus `add`, after `delay`.
fn part(delay: Duration, add: u32) -> Part {
    BoxCloneSyncService::new(service_fn(move |n: u32| async move {
        sleep(delay).await;
        Ok(n + add)
    }))
}

#[dapple::test]
async fn all_parts_in_time_are_a_whole_answer_at_once() {
    let gather = Gather::new(LIMIT).part("a", 1, part(Duration::from_millis(20), 1)).part("b", 3, part(LIMIT / 2, 2));
    let begin = Instant::now();
    let answer = gather.oneshot(10).await.unwrap();
    assert_eq!(answer.answers, [("a", 11), ("b", 12)]);
    assert!(answer.is_whole() && answer.harvest() == 1.0);
    assert!(begin.elapsed() < LIMIT, "it does not wait for the limit");
}

#[dapple::test]
async fn late_failed_and_panicking_parts_are_missing_by_name() {
    let fails = BoxCloneSyncService::new(service_fn(|_| async { Err("no disk".into()) }));
    let panics = BoxCloneSyncService::new(service_fn(|n: u32| async move {
        assert!(n > 100, "a bug of the part");
        Ok(n)
    }));
    let gather = Gather::new(LIMIT)
        .part("good", 6, part(Duration::ZERO, 1))
        .part("hangs", 2, BoxCloneSyncService::new(service_fn(|_| pending())))
        .part("fails", 1, fails)
        .part("panics", 1, panics);
    let begin = Instant::now();
    let answer = gather.clone().oneshot(1).await.unwrap();
    assert!(begin.elapsed() >= LIMIT);
    assert_eq!(answer.answers, [("good", 2)]);
    assert_eq!(answer.harvest(), 0.6);
    let missing = |name, why| Missing { name, why };
    let failed = |why: &str| Absence::Failed(why.into());
    assert_eq!(
        answer.missing,
        [
            missing("hangs", Absence::Late),
            missing("fails", failed("no disk")),
            missing("panics", failed("it panicked"))
        ]
    );

    let error = gather.harvest_min(0.7).oneshot(1).await.unwrap_err();
    assert_eq!((error.harvest, error.harvest_min), (0.6, 0.7));
    let text = error.to_string();
    assert!(text.contains("0.60") && text.contains("hangs (no answer in time), fails (no disk)"), "{text}");
}

/// Counts the calls that are under way.
struct UnderWay(Arc<AtomicUsize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[dapple::test]
async fn calls_that_are_late_or_given_up_are_dropped() {
    let under_way = Arc::new(AtomicUsize::new(0));
    let hangs = {
        let under_way = under_way.clone();
        BoxCloneSyncService::new(service_fn(move |_: u32| {
            under_way.fetch_add(1, Ordering::Relaxed);
            let guard = UnderWay(under_way.clone());
            async move {
                let _guard = guard;
                pending::<Result<u32, BoxError>>().await
            }
        }))
    };
    let gather = Gather::new(LIMIT).part("a", 1, hangs.clone()).part("b", 1, hangs);
    let answer = gather.clone().oneshot(0).await.unwrap();
    assert_eq!((answer.answers.len(), answer.harvest()), (0, 0.0));
    assert_eq!(under_way.load(Ordering::Relaxed), 0);

    let mut given_up = Box::pin(gather.oneshot(0));
    dapple_io::time::timeout(LIMIT / 2, given_up.as_mut()).await.unwrap_err();
    assert_eq!(under_way.load(Ordering::Relaxed), 2);
    drop(given_up);
    assert_eq!(under_way.load(Ordering::Relaxed), 0);
}

#[test]
#[should_panic(expected = "a fraction from 0 to 1")]
fn a_harvest_is_a_fraction() {
    let _ = Gather::<&str, Part>::new(LIMIT).harvest_min(1.5);
}
