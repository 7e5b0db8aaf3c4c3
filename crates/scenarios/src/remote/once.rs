//! Calls that run at most once, and calls that take effect exactly once.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dapple::stage::Backoff;
use dapple::stage::operators::direct::{
    AtMostOnce, Delivery, DeliveryError, Receipt, Receiver, Retransmit, Session, Settled,
};
use dapple::stage::remote::{Host, HostBuilder};
use dapple::time::sleep;
use dapple_sched::environment;
use dapple_sim::{Faults, Simulation};
use tower::{ServiceExt, service_fn};

use super::{peer, serve};
use crate::Scenario;
use crate::disk::Log;

pub(crate) const ONCE: Scenario = Scenario {
    name: "remote",
    holds: "a call to another host runs at most once, its caller learns the truth, and one with a log takes effect exactly once",
    setup: |sim| once(sim, None),
    bugs: &[
        ("a call of unknown fate is made again", |sim| once(sim, Some(Bug::AsksAgain))),
        ("the receiver does not know a call that comes again", |sim| once(sim, Some(Bug::NoReceiver))),
        ("a lost answer counts as a success", |sim| once(sim, Some(Bug::SilenceIsDone))),
        ("the log is synced after the answer", |sim| once(sim, Some(Bug::LateSync))),
        ("a call with a log is made without a look at it", |sim| once(sim, Some(Bug::NoLook))),
    ],
};

#[derive(Clone, Copy, PartialEq)]
enum Bug {
    AsksAgain,
    NoReceiver,
    SilenceIsDone,
    LateSync,
    NoLook,
}

/// How often each number has run, outside of the hosts.
type Ran = Arc<Mutex<BTreeMap<u64, u32>>>;

fn times(ran: &Ran, number: u64) -> u32 {
    ran.lock().unwrap_or_else(PoisonError::into_inner).get(&number).copied().unwrap_or(0)
}

fn once(sim: &mut Simulation, bug: Option<Bug>) {
    sim.settings(|settings| settings.time_max = Duration::from_secs(600));
    let (ran, log) = (Ran::default(), Log::new());
    let (of_server, of_log) = (ran.clone(), log.clone());
    sim.host("server", move || serve(host(of_server.clone(), &of_log, bug)));
    for client in 0..2 {
        let (ran, log) = (ran.clone(), log.clone());
        sim.client(&format!("client{client}"), move || run(client * 1_000, ran.clone(), log.clone(), bug));
    }
    let mut faults = Faults::new(Duration::from_secs(8)).crash("server").freeze("server").reset("server");
    for client in ["client0", "client1"] {
        faults = faults.cut(client, "server").reset(client).freeze(client);
    }
    sim.faults(&faults);
}

/// `plain` runs each call that arrives; `logged` runs those that its log does not have.
fn host(ran: Ran, log: &Log<u64>, bug: Option<Bug>) -> Host {
    log.open();
    let plain = service_fn(move |number: u64| {
        let ran = ran.clone();
        async move {
            work().await;
            *ran.lock().unwrap_or_else(PoisonError::into_inner).entry(number).or_default() += 1;
            work().await;
            Ok::<_, Infallible>(becomes(number))
        }
    });
    let log = log.clone();
    let logged = service_fn(move |number: u64| {
        let log = log.clone();
        async move {
            work().await;
            if bug == Some(Bug::NoLook) || !log.all().contains(&number) {
                log.append(number);
            }
            if bug == Some(Bug::LateSync) {
                let _detached = dapple::spawn(async move {
                    sleep(Duration::from_millis(100)).await;
                    log.sync();
                });
            } else {
                log.sync();
            }
            work().await;
            Ok::<_, Infallible>(becomes(number))
        }
    });
    let builder: HostBuilder = if bug == Some(Bug::NoReceiver) {
        Host::builder().register("plain", service_fn(move |delivery| forgetful(delivery, plain.clone())))
    } else {
        Host::builder().register("plain", Receiver::new(plain))
    };
    builder.register("logged", Receiver::new(logged)).build()
}

async fn work() {
    sleep(Duration::from_micros(environment::random() % 10_000)).await;
}

fn becomes(number: u64) -> u64 {
    number * 7 + 3
}

/// A receiver that remembers nothing.
async fn forgetful<S>(delivery: Delivery<u64>, service: S) -> Result<Receipt<u64>, Infallible>
where
    S: tower::Service<u64, Response = u64, Error = Infallible>,
{
    Ok(match delivery {
        Delivery::Open { .. } => Receipt::Opened(Session { epoch: 1, number: 1 }),
        Delivery::Message { message: None, .. } => Receipt::Settled(Settled::NotDone("forgotten".to_owned())),
        Delivery::Message { message: Some(number), .. } => {
            let Ok(answer) = service.oneshot(number).await;
            Receipt::Settled(Settled::Done(answer))
        }
    })
}

async fn run(first: u64, ran: Ran, log: Log<u64>, bug: Option<Bug>) {
    let (mut outcomes, mut calls) = (Vec::new(), Vec::new());
    let peer = peer("server", Some(Duration::from_millis(400)));
    let mut settings = Retransmit::default();
    settings.attempts = 4;
    settings.backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(400));
    let plain = AtMostOnce::new(peer.stage::<Delivery<u64>, Receipt<u64>>("plain"), settings.clone());
    let logged = AtMostOnce::new(peer.stage::<Delivery<u64>, Receipt<u64>>("logged"), settings);
    for number in first..first + CALLS {
        let (plain, logged) = (plain.clone(), logged.clone());
        calls.push(dapple::spawn(async move {
            // Any outcome ends these.
            let mut outcome = plain.clone().oneshot(number).await;
            if bug == Some(Bug::AsksAgain) && matches!(outcome, Err(DeliveryError::Unknown(_))) {
                outcome = plain.oneshot(number).await;
            }
            // These are called until there is an answer.
            loop {
                match logged.clone().oneshot(number).await {
                    Ok(answer) => break assert_eq!(answer, becomes(number)),
                    Err(DeliveryError::Unknown(_)) if bug == Some(Bug::SilenceIsDone) => break,
                    Err(DeliveryError::Failed(why)) => panic!("no handler fails: {why}"),
                    Err(_) => sleep(Duration::from_millis(100)).await,
                }
            }
            (number, outcome)
        }));
        sleep(Duration::from_millis(environment::random() % 400)).await;
    }
    for call in calls {
        outcomes.push(call.await.unwrap());
    }
    // Late arrivals come, too.
    sleep(Duration::from_secs(20)).await;
    for (number, outcome) in outcomes {
        let times = times(&ran, number);
        match outcome {
            Ok(answer) => assert_eq!((answer, times), (becomes(number), 1), "call {number} was answered"),
            Err(DeliveryError::NotDone(why)) => assert_eq!(times, 0, "call {number} was not done: {why}"),
            Err(DeliveryError::Unknown(why)) => assert!(times <= 1, "call {number} ran {times} times: {why}"),
            Err(error) => panic!("call {number}: {error}"),
        }
        let effects = log.all().iter().filter(|logged| **logged == number).count();
        assert_eq!(effects, 1, "how often {number} took effect");
    }
}

const CALLS: u64 = 12;
