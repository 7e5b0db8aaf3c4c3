//! Broadcast: all members, once, and in the promised order.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{pending, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_io::time::sleep;
use dapple_sched::spawn;
use dapple_stage::operators::broadcast::{Broadcast, Numbered, Ordering, Sequencer, Settings};
use dapple_stage::operators::direct::{Delivery, DeliveryError, Receipt, Receiver};
use dapple_stage::{Backoff, BoxError};
use tower::{ServiceExt, service_fn};
use tower_service::Service;

use super::lossy::{Lossy, Random};

type Log<M> = Arc<Mutex<Vec<M>>>;

/// Works for a while, and logs its messages.
fn member<M: Clone + Send + 'static>(
    log: &Log<M>,
    random: &Random,
) -> impl Service<M, Response = usize, Error = Infallible, Future: Send> + Clone + Send + use<M> + 'static {
    let (log, random) = (log.clone(), random.clone());
    service_fn(move |message: M| {
        let (log, random) = (log.clone(), random.clone());
        async move {
            sleep(Duration::from_millis(random.below(20))).await;
            let mut log = log.lock().unwrap();
            log.push(message);
            Ok(log.len())
        }
    })
}

fn settings(is_reliable: bool, ordering: Ordering) -> Settings {
    let mut settings = Settings::default().ordered(ordering);
    settings.is_reliable = is_reliable;
    settings.attempts = 20;
    settings.backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
    settings
}

/// Three senders, three members, and a lossy network between them.
async fn run(seed: u64, is_reliable: bool, ordering: Ordering) -> Vec<Vec<(u32, u32)>> {
    let random = Random::new(seed);
    let logs: [Log<(u32, u32)>; 3] = Default::default();
    let receivers = logs.each_ref().map(|log| Receiver::new(member(log, &random)));
    let senders = [0, 1, 2].map(|sender| {
        let broadcast = Broadcast::new(settings(is_reliable, ordering));
        for (name, receiver) in receivers.iter().enumerate() {
            let sink = Lossy { service: receiver.clone(), random: random.clone(), loss: 20, delay_ms: 40 };
            broadcast.join(name, sink);
        }
        spawn(async move {
            let mut tasks = Vec::new();
            let mut handle = broadcast.clone();
            for n in 0..30_u32 {
                tasks.push(spawn(handle.ready().await.unwrap().call((sender, n))));
            }
            for task in tasks {
                let result = task.await.unwrap().unwrap();
                if is_reliable {
                    assert_eq!(result.delivered.len(), 3, "seed {seed}: {:?}", result.failed);
                    assert!(result.is_whole());
                }
            }
            broadcast.members().len()
        })
    });
    for sender in senders {
        assert_eq!(sender.await.unwrap(), 3, "no reachable member is removed");
    }
    sleep(Duration::from_secs(60)).await;
    logs.map(|log| log.lock().unwrap().clone()).to_vec()
}

#[dapple::test]
async fn reliable_reaches_all_members_once() {
    for seed in 0..6 {
        for log in run(seed, true, Ordering::Unordered).await {
            let mut log = log;
            log.sort_unstable();
            let all: Vec<_> = (0..3).flat_map(|sender| (0..30).map(move |n| (sender, n))).collect();
            assert_eq!(log, all, "seed {seed}");
        }
    }
}

#[dapple::test]
async fn order_per_sender_is_that_of_the_calls() {
    for seed in 0..6 {
        for log in run(seed, true, Ordering::PerSender).await {
            for sender in 0..3 {
                let of: Vec<_> = log.iter().filter(|(from, _)| *from == sender).map(|(_, n)| *n).collect();
                assert_eq!(of, (0..30).collect::<Vec<_>>(), "seed {seed}");
            }
        }
    }
}

#[dapple::test]
async fn best_effort_may_miss_some_and_keeps_order_and_never_doubles() {
    let mut missed = 0;
    for seed in 0..6 {
        for log in run(seed, false, Ordering::PerSender).await {
            missed += 90 - log.len();
            for sender in 0..3 {
                let of: Vec<_> = log.iter().filter(|(from, _)| *from == sender).map(|(_, n)| *n).collect();
                assert!(of.windows(2).all(|two| two[0] < two[1]), "seed {seed}: {of:?}");
            }
        }
    }
    assert!(missed > 0, "the network lost nothing, so this tests nothing");
}

#[dapple::test]
async fn a_sequencer_gives_all_members_one_order() {
    for seed in 0..6 {
        let random = Random::new(seed);
        let logs: [Log<Numbered<u32>>; 3] = Default::default();
        let sequencer = Sequencer::new("the sequencer", settings(true, Ordering::Unordered));
        for (name, log) in logs.iter().enumerate() {
            let service = Receiver::new(member(log, &random));
            sequencer.join(name, Lossy { service, random: random.clone(), loss: 20, delay_ms: 40 });
        }
        let senders: Vec<_> = (0..4)
            .map(|sender| {
                let sequencer = sequencer.clone();
                spawn(async move {
                    let mut numbers = BTreeMap::new();
                    for n in 0..15 {
                        let result = sequencer.clone().oneshot(sender * 100 + n).await.unwrap();
                        assert!(result.delivered.is_whole());
                        numbers.insert(result.number, sender * 100 + n);
                    }
                    numbers
                })
            })
            .collect();
        let mut expected = BTreeMap::new();
        for sender in senders {
            expected.extend(sender.await.unwrap());
        }
        let expected: Vec<_> = expected.into_iter().collect();
        for log in &logs {
            let log = log.lock().unwrap();
            assert!(log.iter().all(|numbered| &*numbered.sequencer == "the sequencer"));
            let seen: Vec<_> = log.iter().map(|numbered| (numbered.number, numbered.message)).collect();
            assert_eq!(seen, expected, "seed {seed}");
        }
    }
}

#[dapple::test]
async fn a_member_that_is_gone_is_removed_and_may_come_back() {
    let log = Log::default();
    let random = Random::new(1);
    let broadcast = Broadcast::new(settings(true, Ordering::PerSender));
    broadcast.join_local("well", member(&log, &random));
    let silent = service_fn(|_: Delivery<u32>| pending::<Result<Receipt<usize>, BoxError>>());
    broadcast.join("gone", silent);
    let result = broadcast.clone().oneshot(1).await.unwrap();
    assert_eq!((result.delivered.len(), &result.removed[..]), (1, &["gone"][..]));
    assert!(matches!(result.failed[0], ("gone", DeliveryError::NotDone(_))) && result.is_whole());
    assert_eq!(broadcast.members().len(), 1);
    let again = Log::default();
    broadcast.join_local("gone", member(&again, &random));
    let result = broadcast.clone().oneshot(2).await.unwrap();
    assert_eq!(result.delivered.len(), 2);
    assert_eq!((log.lock().unwrap().clone(), again.lock().unwrap().clone()), (vec![1, 2], vec![2]));
    assert!(broadcast.leave(&"well") && !broadcast.leave(&"well"));
    assert_eq!(broadcast.oneshot(3).await.unwrap().delivered.len(), 1);
}

#[dapple::test]
async fn a_member_that_fails_has_it_and_stays() {
    let broadcast = Broadcast::new(settings(true, Ordering::Unordered));
    broadcast.join_local("fails", service_fn(|_: u32| ready(Err::<(), _>("no"))));
    let result = broadcast.clone().oneshot(1).await.unwrap();
    assert!(matches!(&result.failed[..], [("fails", DeliveryError::Failed(why))] if why == "no"));
    assert!(result.removed.is_empty() && !result.is_whole());
    assert_eq!(broadcast.members().len(), 1);
}

#[dapple::test]
async fn a_member_that_panics_has_failed_and_the_others_have_it() {
    for is_reliable in [true, false] {
        let broadcast = Broadcast::new(settings(is_reliable, Ordering::PerSender));
        broadcast.join_local("a", service_fn(async |n: u32| Ok::<_, Infallible>(n)));
        broadcast.join_local(
            "b",
            service_fn(async |n: u32| if n == 1 { panic!("as the test wants") } else { Ok::<_, Infallible>(n) }),
        );
        broadcast.join_local("c", service_fn(async |n: u32| Ok::<_, Infallible>(n)));
        let result = broadcast.clone().oneshot(1).await.unwrap();
        assert_eq!(result.delivered, [("a", 1), ("c", 1)]);
        let error = DeliveryError::Failed("the service panicked: as the test wants".to_owned());
        assert_eq!((result.failed, result.removed), (vec![("b", error)], vec![]));
        let result = broadcast.oneshot(2).await.unwrap();
        assert_eq!(result.delivered, [("a", 2), ("b", 2), ("c", 2)]);
    }
}
