//! Reports of simulations that fail, and of those that cannot run.

use std::time::Duration;

use dapple_sim::net::{TcpListener, TcpStream};
use dapple_sim::time::sleep;
use dapple_sim::{Fault, Faults, Outcome, Plan, Simulation, check, report, run_seed, shrink};

/// Runs one seed, and returns why it failed.
fn failure(scenario: impl Fn(&mut Simulation)) -> String {
    run_seed(3, &scenario).failure.expect("it fails")
}

#[test]
fn a_simulation_without_hosts_is_over_at_once() {
    assert_eq!(Simulation::new(1).run().failure, None);
}

#[test]
fn a_host_that_always_has_something_to_do_needs_a_client() {
    let outcome = failure(|sim| {
        sim.settings(|settings| settings.time_max = Duration::from_secs(5));
        sim.host("clock", || async {
            loop {
                sleep(Duration::from_secs(1)).await;
            }
        });
    });
    assert!(outcome.contains("there are no clients, and something always runs"), "{outcome}");
}

#[test]
fn panics_outside_of_programs_are_failures_of_the_seed() {
    let client = |sim: &mut Simulation| sim.client("client", || async { sleep(Duration::from_secs(1)).await });
    let of_invariant = failure(|sim| {
        client(sim);
        sim.invariant(|| panic!("the invariant"));
    });
    assert!(of_invariant.ends_with("outside of all programs: the invariant"), "{of_invariant}");
    let of_maker = failure(|sim| {
        client(sim);
        sim.host("host", || -> std::future::Ready<()> { panic!("the maker") });
    });
    assert!(of_maker.ends_with("the maker"), "{of_maker}");
    let of_scenario = failure(|_| panic!("the scenario"));
    assert!(of_scenario.ends_with("the scenario"), "{of_scenario}");
    let of_name = failure(|sim| sim.host("my host", || async {}));
    assert!(of_name.contains("\"my host\" is no name of a host"), "{of_name}");
    let too_late = failure(|sim| {
        client(sim);
        let mut plan = Plan::default();
        plan.add(Duration::from_secs(1), Duration::MAX, Fault::Freeze("client".into()));
        sim.plan(plan);
    });
    assert!(too_late.contains("overflow"), "{too_late}");
}

/// The first fault alone ends in another failure than both.
fn two_failures(sim: &mut Simulation) {
    sim.client("client", || async {
        let wall = dapple_sched::environment::system_now;
        let (began, clock) = (wall(), dapple_sim::time::Instant::now());
        sleep(Duration::from_secs(10)).await;
        let ahead = wall().duration_since(began).map_or(Duration::ZERO, |wall| wall.saturating_sub(clock.elapsed()));
        assert!(ahead < Duration::from_secs(300), "far ahead");
        assert!(ahead < Duration::from_secs(50), "a little ahead");
    });
    let mut plan = Plan::default();
    for ahead in [100, 290] {
        plan.add(
            Duration::from_secs(1),
            Duration::from_secs(60),
            Fault::WallClock("client".into(), Duration::from_secs(ahead)),
        );
    }
    sim.plan(plan);
}

#[test]
fn a_smaller_plan_fails_in_the_same_way() {
    let outcome = run_seed(1, &two_failures);
    assert!(outcome.failure.as_ref().unwrap().contains("far ahead"), "{outcome}");
    assert_eq!(shrink(&outcome, &two_failures), [0, 1]);
}

#[test]
fn a_report_is_run_again_by_a_command_that_there_is() {
    let scenario = |sim: &mut Simulation| sim.client("client", || async { panic!("on purpose") });
    let of = |name: &str| report(name, &run_seed(7, &scenario), &scenario);
    assert!(of("module::a_test").ends_with("cargo test a_test"), "{}", of("module::a_test"));
    assert!(of("an answer comes").ends_with("cargo test"), "{}", of("an answer comes"));
}

#[test]
#[should_panic(expected = "no seeds are to run")]
fn no_seeds_show_nothing() {
    check("none", 0, |_| ());
}

#[test]
fn no_faults_at_most_are_none() {
    for seed in 1..50 {
        let outcome = run_seed(seed, &|sim: &mut Simulation| {
            sim.client("client", || async {});
            sim.faults(&Faults::new(Duration::from_secs(1)).freeze("client").at_most(0));
        });
        assert_eq!(outcome.plan.len(), 0);
    }
}

#[test]
fn a_time_line_has_hosts_faults_and_messages_and_changes_nothing() {
    let make = |draws: bool| {
        let mut sim = Simulation::new(5);
        sim.settings(|settings| settings.network.latency = Duration::from_millis(1)..Duration::from_millis(2));
        sim.host("server", || async {
            let listener = TcpListener::bind("0.0.0.0:80").unwrap();
            while listener.accept().await.is_ok() {}
        });
        if draws {
            sim.timeline();
        }
        sim.client("client", || async {
            drop(TcpStream::connect("server:80").await.unwrap());
            sleep(Duration::from_millis(500)).await;
        });
        let mut plan = Plan::default();
        plan.add(Duration::from_millis(100), Duration::from_millis(50), Fault::Freeze("server".into()));
        sim.plan(plan);
        sim.run()
    };
    let (drawn, plain) = (make(true), make(false));
    assert_eq!((drawn.hash, drawn.steps), (plain.hash, plain.steps));
    let text = |outcome: &Outcome| {
        let mut file = Vec::new();
        outcome.write_timeline(&mut file).unwrap();
        serde_json::from_slice::<Vec<serde_json::Value>>(&file).unwrap()
    };
    let lines = text(&drawn);
    let named = |name: &str| lines.iter().find(|line| line["name"].as_str().is_some_and(|text| text.contains(name)));
    let fault = named("0: server stands still").expect("the fault");
    assert_eq!((&fault["ts"], &fault["dur"]), (&100_000.0.into(), &50_000.0.into()));
    let asked = named("is asked by").expect("the connection");
    assert_eq!(asked["ph"], "i");
    for host in ["server", "client"] {
        let process = lines.iter().find(|line| line["args"]["name"] == host).expect("the host");
        assert!(lines.iter().any(|line| line["pid"] == process["pid"] && line["ph"] == "X"), "{host} has run");
    }
    assert!(text(&plain).iter().all(|line| line["ph"] != "i"), "nothing was kept");
    let full = plain.save_timeline("/dev/full".as_ref()).expect_err("a short file does not get lost in a buffer");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
}
