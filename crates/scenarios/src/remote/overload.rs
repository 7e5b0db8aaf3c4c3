//! A stage that gets three times what it can do.

use std::convert::Infallible;
use std::time::Duration;

use dapple::stage::remote::Host;
use dapple::stage::{Refused, Stage};
use dapple::time::{Instant, sleep};
use dapple_sched::environment;
use dapple_sim::{Faults, Simulation};
use tower::ServiceExt;

use super::{peer, serve};
use crate::Scenario;

pub(crate) const OVERLOAD: Scenario = Scenario {
    name: "overload",
    holds: "a stage on another host that gets three times its capacity answers as much as it can in time, and refuses the rest soon",
    setup: |sim| overload(sim, None),
    bugs: &[
        ("calls wait where there is no room for them", |sim| overload(sim, Some(Bug::Waits))),
        ("a refused call is made again at once", |sim| overload(sim, Some(Bug::AsksAgain))),
    ],
};

#[derive(Clone, Copy, PartialEq)]
enum Bug {
    Waits,
    AsksAgain,
}

fn overload(sim: &mut Simulation, bug: Option<Bug>) {
    sim.settings(|settings| settings.time_max = Duration::from_secs(60));
    sim.host("server", move || {
        let work = Stage::builder("work").width(WIDTH).queue_len_max(8);
        let work = if bug == Some(Bug::Waits) { work } else { work.shed() };
        let work = work.wrap_fn(|number: u64| async move {
            sleep(WORK).await;
            Ok::<_, Infallible>(number + 1)
        });
        serve(Host::builder().register_stage("work", work).build())
    });
    let clients = 3;
    for client in 0..clients {
        sim.client(&format!("client{client}"), move || run(clients, bug));
    }
    // Not long ones, because no server can answer meanwhile.
    sim.faults(&Faults::new(Duration::from_millis(200)).freeze("server").reset("client0"));
}

async fn run(clients: u32, bug: Option<Bug>) {
    let work = peer("server", Some(IN_TIME)).stage::<u64, u64>("work");
    // Three times what the stage can do, over all clients.
    let pause = WORK / WIDTH as u32 / 3 * clients;
    let began = Instant::now();
    let mut calls = Vec::new();
    while began.elapsed() < LASTS {
        let (work, number) = (work.clone(), calls.len() as u64);
        calls.push(dapple::spawn(async move {
            let asked_at = Instant::now();
            loop {
                match work.clone().oneshot(number).await {
                    Ok(answer) => {
                        assert_eq!(answer, number + 1);
                        return if asked_at.elapsed() <= IN_TIME { End::Good } else { End::Late };
                    }
                    Err(error) if Refused::find(&*error).is_none() => return End::Late,
                    Err(_) if bug == Some(Bug::AsksAgain) => {}
                    Err(_) => return if asked_at.elapsed() <= SOON { End::Refused } else { End::Late },
                }
            }
        }));
        sleep(pause / 2 + Duration::from_nanos(environment::random() % pause.as_nanos() as u64)).await;
    }
    let (mut good, mut late, all) = (0, 0, calls.len() as u32);
    for call in calls {
        match call.await.unwrap() {
            End::Good => good += 1,
            End::Late => late += 1,
            End::Refused => {}
        }
    }
    let could = (LASTS.as_nanos() / (WORK / WIDTH as u32).as_nanos()) as u32 / clients;
    assert!(good * 10 >= could * 4, "{good} calls were answered in time; {could} could be");
    assert!(late * 2 <= all, "of {all} calls {late} were neither answered in time nor refused soon");
}

enum End {
    Good,
    Refused,
    /// It was answered or refused late, or its end is unknown.
    Late,
}

const WIDTH: usize = 2;
const WORK: Duration = Duration::from_millis(20);
const LASTS: Duration = Duration::from_millis(1_200);
const IN_TIME: Duration = Duration::from_millis(200);
const SOON: Duration = Duration::from_millis(50);
