//! Equal requests, combined.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use dapple_io::runtime_builder;
use dapple_stage::{Once, Stage, StageError};
use dapple_sync::sync::Semaphore;

use crate::lines::in_time;

#[test]
fn equal_requests_get_one_answer_also_if_the_first_caller_leaves() {
    let runtime = runtime_builder().workers(2).build().unwrap();
    runtime.block_on(async {
        let (gate, ran) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU32::new(0)));
        let (of_stage, counted) = (gate.clone(), ran.clone());
        let stage = Stage::builder("work").wrap_fn(move |number: u32| {
            let (gate, ran) = (of_stage.clone(), counted.clone());
            async move {
                let before = ran.fetch_add(1, Relaxed);
                gate.acquire().await.unwrap().forget();
                Ok::<_, String>(number + before)
            }
        });
        let once = Arc::new(Once::new(stage));
        let asked: Vec<_> = (0..10)
            .map(|_| {
                let once = once.clone();
                dapple_sched::spawn(async move { once.ask(1, 100).await })
            })
            .collect();
        while ran.load(Relaxed) == 0 {
            dapple_sched::yield_now().await;
        }
        let mut asked = asked.into_iter();
        asked.next().unwrap().abort();
        gate.add_permits(1);
        for asked in asked {
            assert_eq!(asked.await.unwrap(), Ok(100));
        }
        gate.add_permits(1);
        assert_eq!(once.ask(1, 100).await, Ok(101), "a request after the answer is another one");
    });
}

#[test]
fn a_stage_of_a_runtime_that_has_ended_answers_that_it_has_stopped() {
    let runtime = runtime_builder().workers(1).build().unwrap();
    let once = runtime.block_on(async { Once::new(Stage::builder("work").wrap_sync(|number: u32| number)) });
    drop(runtime);
    in_time(0, move || {
        let other = runtime_builder().workers(1).build().unwrap();
        for _ in 0..2 {
            assert_eq!(other.block_on(once.ask(1, 1)), Err(StageError::Stopped));
        }
    });
}
