//! Receivers: the same message on several threads at once, in order, while some of the pollers give
//! up.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use dapple_stage::operators::direct::{Delivery, Order, Receipt, Receiver, Session, Settled};
use shuttle::future::block_on;
use shuttle::thread;
use tower::{Service, service_fn};

use super::{check, pause, poll_once};

fn open<S>(receiver: &mut S, order: Order) -> Session
where
    S: Service<Delivery<u32>, Response = Receipt<u32>>,
{
    match block_on(receiver.call(Delivery::Open { floor: 0, order })) {
        Ok(Receipt::Opened(session)) => session,
        _ => panic!("it opens"),
    }
}

fn message(session: Session, n: u32) -> Delivery<u32> {
    Delivery::Message { session, sequence: n.into(), floor: 0, message: Some(n) }
}

// Meant to catch: a dropped poller that does not wake the other waiters (deadlock); a check before
// the waker is registered (deadlock); a message that is begun although another thread polls it (it
// runs twice).
#[test]
fn a_repeated_message_runs_once_even_if_pollers_give_up() {
    for order in [Order::Any, Order::Gapless] {
        check(3_000, move || {
            let ran: Arc<Mutex<Vec<u32>>> = Arc::default();
            let service = {
                let ran = ran.clone();
                service_fn(move |n: u32| {
                    let ran = ran.clone();
                    async move {
                        pause().await;
                        ran.lock().unwrap().push(n);
                        Ok::<_, Infallible>(n)
                    }
                })
            };
            let mut receiver = Receiver::new(service);
            let session = open(&mut receiver, order);
            let hasty = {
                let mut receiver = receiver.clone();
                thread::spawn(move || {
                    let mut call = receiver.call(message(session, 0));
                    let _perhaps = poll_once(call.as_mut());
                    thread::yield_now();
                })
            };
            let senders = [0, 0, 1].map(|n| {
                let mut receiver = receiver.clone();
                thread::spawn(move || {
                    let receipt = block_on(receiver.call(message(session, n))).unwrap();
                    assert_eq!(receipt, Receipt::Settled(Settled::Done(n)));
                })
            });
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            hasty.join().unwrap();
            let mut ran = ran.lock().unwrap().clone();
            if order == Order::Any {
                ran.sort_unstable();
            }
            assert_eq!(ran, [0, 1]);
        });
    }
}

// Meant to catch: a message that is withdrawn while it is held, but begins nevertheless.
#[test]
fn what_is_withdrawn_has_run_or_never_will() {
    check(3_000, || {
        let ran: Arc<Mutex<u32>> = Arc::default();
        let service = {
            let ran = ran.clone();
            service_fn(move |n: u32| {
                *ran.lock().unwrap() += 1;
                async move {
                    pause().await;
                    Ok::<_, Infallible>(n)
                }
            })
        };
        let mut receiver = Receiver::new(service);
        let session = open(&mut receiver, Order::Any);
        let sends = {
            let mut receiver = receiver.clone();
            thread::spawn(move || block_on(receiver.call(message(session, 0))).unwrap())
        };
        let withdraw = Delivery::Message { session, sequence: 0, floor: 0, message: None };
        let withdraws = thread::spawn(move || block_on(receiver.call(withdraw)).unwrap());
        let (sent, withdrawn) = (sends.join().unwrap(), withdraws.join().unwrap());
        assert_eq!(sent, withdrawn, "both learn the same");
        let has_run = matches!(sent, Receipt::Settled(Settled::Done(0)));
        assert_eq!(*ran.lock().unwrap(), u32::from(has_run));
    });
}
