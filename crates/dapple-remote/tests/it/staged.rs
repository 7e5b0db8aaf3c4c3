//! Stages with a queue, behind a host.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple_remote::{Fate, Host, RemoteError, RemoteStage};
use dapple_stage::{BoxError, Reason, Refused, Stage};
use dapple_sync::sync::Semaphore;

use super::{Running, runtime};

#[test]
fn a_full_queue_is_refused_and_what_is_late_in_it_never_runs() {
    let runtime = runtime();
    runtime.block_on(async {
        let (gate, runs) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (opened, counted) = (gate.clone(), runs.clone());
        let stage = Stage::builder("slow").queue_len_max(1).width(1).shed().wrap_fn(move |number: u32| {
            let (gate, runs) = (opened.clone(), counted.clone());
            async move {
                runs.fetch_add(1, Ordering::SeqCst);
                gate.acquire().await.unwrap().forget();
                Ok::<u32, Infallible>(number)
            }
        });
        let running = Running::start(Host::builder().register_stage("slow", stage.clone()).build());
        let mut remote: RemoteStage<u32, u32> = running.stage("slow");
        let mut first = remote.clone();
        let first = dapple_sched::spawn(async move { first.send(1).await });
        while runs.load(Ordering::SeqCst) == 0 {
            dapple_io::time::sleep(Duration::from_millis(1)).await;
        }
        let mut second = remote.clone().timeout(Duration::from_millis(200));
        let second = dapple_sched::spawn(async move { second.send(2).await });
        while stage.load().queue_len == 0 {
            dapple_io::time::sleep(Duration::from_millis(1)).await;
        }
        let refused = remote.send(3).await.unwrap_err();
        assert!(matches!(Refused::find(&*refused), Some(Refused { reason: Reason::Full { .. }, .. })), "{refused:?}");
        second.await.unwrap().unwrap_err();
        while stage.load().queue_len > 0 {
            dapple_io::time::sleep(Duration::from_millis(1)).await;
        }
        gate.add_permits(10);
        assert_eq!(first.await.unwrap().unwrap(), 1);
        assert_eq!(remote.send(4).await.unwrap(), 4);
        assert_eq!(runs.load(Ordering::SeqCst), 2, "neither the refused nor the late one ran");
        running.end().await;
    });
}

#[test]
fn a_panic_in_a_stage_is_told_as_one_and_each_replica_is_its_own() {
    let runtime = runtime();
    runtime.block_on(async {
        let made = Arc::new(AtomicUsize::new(0));
        let counted = made.clone();
        let host = Host::builder().replicas(3).register_stages("touchy", move |_replica| {
            counted.fetch_add(1, Ordering::SeqCst);
            Stage::builder("touchy").wrap_fn(|number: u32| async move {
                assert!(number != 13, "not that one");
                Ok::<_, BoxError>(number)
            })
        });
        let running = Running::start(host.build());
        assert_eq!(made.load(Ordering::SeqCst), 3);
        let mut remote: RemoteStage<u32, u32> = running.stage("touchy");
        let error = remote.send(13).await.unwrap_err();
        let is_panic =
            matches!(error.downcast_ref(), Some(RemoteError::Panicked(text)) if text.contains("not that one"));
        assert!(is_panic && Fate::of(&error) == Fate::Ran, "{error:?}");
        running.end().await;
    });
}
