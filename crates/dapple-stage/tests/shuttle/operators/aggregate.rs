//! Aggregation: sources, canceled messages, and the pump, each on a thread.

use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex};

use dapple_stage::Refused;
use dapple_stage::operators::aggregate::{Aggregate, Discipline};
use shuttle::future::block_on;
use shuttle::thread;
use tower::{Service, ServiceExt, service_fn};

use super::{check, poll_once};

// Meant to catch: a push that does not wake the pump (deadlock); a pump that checks before it
// registers its waker, in two steps (deadlock); a last handle that is dropped without waking the
// pump (deadlock).
#[test]
fn what_is_awaited_runs_once_and_the_pump_ends() {
    check(4_000, || {
        let ran: Arc<Mutex<Vec<u32>>> = Arc::default();
        let sink = {
            let ran = ran.clone();
            service_fn(move |n: u32| {
                ran.lock().unwrap().push(n);
                ready(Ok::<_, Infallible>(n))
            })
        };
        let (aggregate, pump) = Aggregate::new(sink, Discipline::RoundRobin);
        let pump = thread::spawn(move || block_on(pump));
        let senders = [10, 20].map(|first| {
            let mut source = aggregate.source(1);
            thread::spawn(move || {
                for n in first..first + 2 {
                    assert_eq!(block_on(async { source.ready().await.unwrap().call(n).await }).unwrap(), n);
                }
            })
        });
        let hasty = {
            let mut source = aggregate.source(1);
            thread::spawn(move || {
                let mut response = Box::pin(block_on(source.ready()).unwrap().call(99));
                poll_once(response.as_mut()).is_ready()
            })
        };
        drop(aggregate);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        let was_answered = hasty.join().unwrap();
        pump.join().unwrap();
        let mut ran = ran.lock().unwrap().clone();
        ran.sort_unstable();
        let last = ran.pop_if(|n| *n == 99);
        assert!(last.is_some() || !was_answered);
        assert_eq!(ran, [10, 11, 20, 21]);
    });
}

// Meant to catch: a pump that ends and leaves senders waiting that arrive a moment later
// (deadlock).
#[test]
fn when_the_pump_dies_all_messages_fail() {
    check(2_000, || {
        let sink = service_fn(|n: u32| ready(Ok::<_, Infallible>(n)));
        let (aggregate, pump) = Aggregate::new(sink, Discipline::Fifo);
        let dies = thread::spawn(move || drop(pump));
        let senders = [1, 2].map(|n| {
            let source = aggregate.source(1);
            thread::spawn(move || block_on(source.oneshot(n)))
        });
        for sender in senders {
            let error = sender.join().unwrap().unwrap_err();
            assert!(Refused::find(&*error).is_some());
        }
        dies.join().unwrap();
    });
}
