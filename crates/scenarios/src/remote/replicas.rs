//! Three replicas of a stage, of which two fail.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dapple::stage::BoxError;
use dapple::stage::Refused;
use dapple::stage::balance::Config;
use dapple::stage::remote::{Discovery, Fate, Host};
use dapple::time::{Instant, sleep};
use dapple_sched::environment;
use dapple_sim::{Faults, Simulation};
use tower::ServiceExt;

use super::{peer, serve};
use crate::Scenario;

pub(crate) const REPLICAS: Scenario = Scenario {
    name: "replicas",
    holds: "a call is answered in time while one replica works, and replicas that come back get calls",
    setup: |sim| replicas(sim, None),
    bugs: &[
        ("the client knows one replica", |sim| replicas(sim, Some(Bug::OneReplica))),
        ("a call waits for its replica without a limit", |sim| replicas(sim, Some(Bug::NoLimit))),
        ("the client does not try again where it may", |sim| replicas(sim, Some(Bug::NoRetry))),
        ("the client makes its list of replicas shorter", |sim| replicas(sim, Some(Bug::Removes))),
    ],
};

#[derive(Clone, Copy, PartialEq)]
enum Bug {
    OneReplica,
    NoLimit,
    NoRetry,
    Removes,
}

const NAMES: [&str; 3] = ["replica0", "replica1", "replica2"];

fn replicas(sim: &mut Simulation, bug: Option<Bug>) {
    sim.settings(|settings| settings.time_max = Duration::from_secs(300));
    let served: Arc<[AtomicU64; 3]> = Arc::default();
    for (number, name) in NAMES.into_iter().enumerate() {
        let served = served.clone();
        sim.host(name, move || {
            let served = served.clone();
            let square = move |value: u64| {
                served[number].fetch_add(1, Relaxed);
                async move {
                    sleep(Duration::from_micros(environment::random() % 4_000)).await;
                    Ok::<_, Infallible>(value * value)
                }
            };
            serve(Host::builder().register_fn("square", square).build())
        });
    }
    sim.client("client", move || run(served.clone(), bug));
    // The third one is well, and so is the way to it.
    let mut faults = Faults::new(FAULTS_WITHIN);
    for name in &NAMES[..2] {
        faults = faults.crash(name).freeze(name).reset(name).cut(name, "client");
    }
    sim.faults(&faults);
}

async fn run(served: Arc<[AtomicU64; 3]>, bug: Option<Bug>) {
    let known = if bug == Some(Bug::OneReplica) { &NAMES[..1] } else { &NAMES };
    let found = Discovery::list(known.iter().map(|name| format!("{name}:70"))).unwrap();
    let limit = (bug != Some(Bug::NoLimit)).then_some(LIMIT);
    let square = found.balance_with::<u64, u64>("square", Config::default(), move |address| {
        Ok(peer(address.trim_end_matches(":70"), limit).stage("square"))
    });
    let began = Instant::now();
    let mut value = 0;
    while began.elapsed() < FAULTS_WITHIN * 2 {
        value += 1;
        let asked_at = Instant::now();
        loop {
            match square.clone().oneshot(value).await {
                Ok(answer) => break assert_eq!(answer, value * value),
                Err(error) if bug == Some(Bug::NoRetry) && !is_not_run(&error) => panic!("no answer: {error}"),
                // To compute a square twice does no harm.
                Err(error) => {
                    if bug == Some(Bug::Removes) {
                        square.balancer().remove(&format!("{}:70", NAMES[0]));
                    }
                    drop(error);
                    sleep(Duration::from_millis(20)).await;
                }
            }
        }
        let took = asked_at.elapsed();
        assert!(took < IN_TIME, "a call took {took:?} though a replica is well");
        sleep(Duration::from_millis(environment::random() % 150)).await;
    }
    // All are back.
    let before: Vec<u64> = served.iter().map(|count| count.load(Relaxed)).collect();
    for value in 0..60 {
        assert_eq!(square.clone().oneshot(value).await.unwrap(), value * value);
    }
    for (number, before) in before.into_iter().enumerate() {
        assert!(served[number].load(Relaxed) > before, "{} gets no calls after its faults", NAMES[number]);
    }
}

fn is_not_run(error: &BoxError) -> bool {
    Fate::of(error) == Fate::NotRun || Refused::find(&**error).is_some()
}

const FAULTS_WITHIN: Duration = Duration::from_secs(8);
const LIMIT: Duration = Duration::from_millis(300);

/// Some replicas may be tried first.
const IN_TIME: Duration = Duration::from_millis(2_500);
