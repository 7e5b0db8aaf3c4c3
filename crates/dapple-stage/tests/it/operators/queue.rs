//! The distributed queue: no message is lost or duplicated, and a dead consumer is left out.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_io::time::sleep;
use dapple_sched::spawn;
use dapple_stage::operators::aggregate::Discipline;
use dapple_stage::operators::direct::FlowControlled;
use dapple_stage::operators::queue::{Consumer, Producer};
use dapple_tower::balance::Config;
use tower::{ServiceExt, service_fn};

#[dapple::test]
async fn each_message_is_consumed_once_and_all_consumers_work() {
    let log: Arc<Mutex<Vec<(usize, u32)>>> = Arc::default();
    let producers = [(); 3].map(|()| Producer::new(Config::default()));
    let mut pumps = Vec::new();
    for name in 0..4_usize {
        let log = log.clone();
        let work = service_fn(move |n: u32| {
            let log = log.clone();
            async move {
                sleep(Duration::from_millis(3)).await;
                log.lock().unwrap().push((name, n));
                Ok::<_, Infallible>(n)
            }
        });
        let (consumer, pump) = Consumer::new(FlowControlled::new(work, 2), Discipline::RoundRobin);
        pumps.push(Some(spawn(pump)));
        for producer in &producers {
            producer.connect(name, consumer.queue(4));
        }
    }
    let mut tasks = Vec::new();
    for n in 0..300 {
        let service = producers[n as usize % 3].service();
        tasks.push(spawn(async move {
            // The messages of a dead consumer are sent again; they had not run.
            let mut tries = 0;
            while service.clone().oneshot(n).await.is_err() {
                tries += 1;
                assert!(tries < 1000, "it is never taken");
                sleep(Duration::from_millis(20)).await;
            }
        }));
        if n == 150 {
            let dies = pumps[1].take().expect("it runs");
            sleep(Duration::from_millis(10)).await;
            dies.abort();
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let log = log.lock().unwrap();
    let mut consumed: Vec<_> = log.iter().map(|(_, n)| *n).collect();
    consumed.sort_unstable();
    assert_eq!(consumed, (0..300).collect::<Vec<_>>());
    assert!((0..4).all(|name| log.iter().any(|(by, _)| *by == name)), "some consumer had nothing to do");
}
