//! Each rule by example.

use super::{Change, Plan, View, plan};
use crate::record::{Assignment, HostReport, ReplicaReport, ReplicaState, Service};

const NOW: u64 = 1_000_000_000;

fn host(name: &str, cores: f64) -> HostReport {
    let memory_mb = 4096;
    HostReport { name: name.to_owned(), cores, memory_mb, memory_free_mb: memory_mb, ..HostReport::default() }
}

/// A view of these hosts, with four cores each, and one service.
fn view(hosts: &[&str], service: Service) -> View {
    let hosts = hosts.iter().map(|name| ((*name).to_owned(), host(name, 4.0))).collect();
    View { hosts, services: [(service.name.clone(), service)].into(), revision: 1, ..View::default() }
}

fn echo(min: u32, max: u32) -> Service {
    Service { min, max, ..Service::new("echo", ["dapple"]) }
}

/// Carries a plan out, as the store has it afterwards.
fn apply(view: &mut View, plan: &Plan) {
    for decision in &plan.decisions {
        view.revision += 1;
        match &decision.change {
            Change::Place(one) => drop(view.assigned.insert(one.replica.clone(), one.clone())),
            Change::Remove(one) => drop(view.assigned.remove(&one.replica)),
        }
    }
}

/// All hosts run what they are to run, and it serves.
fn all_ready(view: &mut View) {
    for (name, host) in &mut view.hosts {
        let here = view.assigned.values().filter(|one| &one.host == name);
        let report = |one: &Assignment| ReplicaReport {
            service: one.service.name.clone(),
            state: ReplicaState::Ready,
            ..ReplicaReport::default()
        };
        host.replicas = here.map(|one| (one.replica.clone(), report(one))).collect();
    }
}

fn done(plan: &Plan) -> Vec<String> {
    plan.decisions.iter().map(super::Decision::done).collect()
}

/// Plans, carries out and reports until nothing is decided.
fn settle(view: &mut View, now_ms: u64) -> Vec<String> {
    let mut all = Vec::new();
    all_ready(view);
    for _ in 0..100 {
        let next = plan(view, now_ms);
        if next.decisions.is_empty() {
            return all;
        }
        all.extend(done(&next));
        apply(view, &next);
        all_ready(view);
    }
    panic!("it does not settle: {all:?}");
}

fn hosts_of(view: &View) -> Vec<&str> {
    let mut hosts: Vec<&str> = view.assigned.values().map(|one| one.host.as_str()).collect();
    hosts.sort_unstable();
    hosts
}

#[test]
fn replicas_are_spread_over_the_hosts() {
    let mut view = view(&["a", "b", "c"], echo(4, 4));
    view.hosts.get_mut("b").unwrap().load_percent = 90;
    let first = plan(&view, NOW);
    assert_eq!(done(&first)[0], "place echo.1 on a", "{first:?}");
    assert!(first.decisions[0].reason.contains("echo has 0 of 4 replicas"), "{}", first.decisions[0].reason);
    settle(&mut view, NOW);
    assert_eq!(hosts_of(&view), ["a", "a", "b", "c"]);
}

#[test]
fn a_host_is_promised_no_more_than_it_has_and_the_lack_is_told() {
    let mut view = view(&["a"], Service { cores: 1.5, ..echo(3, 3) });
    settle(&mut view, NOW);
    assert_eq!(view.assigned.len(), 2);
    let lack = &plan(&view, NOW).shortages[0];
    assert_eq!(lack.text, "2 of 3 replicas have a host: a: fewer than 1.5 cores are free");
    // A host that reports little memory gets nothing, whatever was promised.
    let mut small = super::tests::view(&["a"], echo(1, 1));
    small.hosts.get_mut("a").unwrap().memory_free_mb = 100;
    assert!(plan(&small, NOW).shortages[0].text.contains("less than 256 MB are available"));
}

#[test]
fn replicas_of_a_lost_host_move_and_come_back_in_time() {
    let mut view = view(&["a", "b"], echo(4, 4));
    settle(&mut view, NOW);
    let lost = view.hosts.remove("b").unwrap();
    let next = plan(&view, NOW);
    assert!(next.decisions[0].reason.contains("the host b is gone: its lease has ended"), "{next:?}");
    settle(&mut view, NOW);
    assert_eq!(hosts_of(&view), ["a"; 4]);
    view.hosts.insert("b".to_owned(), lost);
    all_ready(&mut view);
    assert!(plan(&view, NOW + 1000).decisions.is_empty(), "nothing moves at once");
    let moves = settle(&mut view, NOW + 60_000);
    assert_eq!(hosts_of(&view), ["a", "a", "a", "b"], "one at a time: {moves:?}");
    settle(&mut view, NOW + 120_000);
    assert_eq!(hosts_of(&view), ["a", "a", "b", "b"]);
    assert_eq!(settle(&mut view, NOW + 180_000), [""; 0], "and not back again");
}

#[test]
fn a_roll_replaces_a_quarter_at_a_time_and_only_what_serves() {
    let mut view = view(&["a", "b"], Service { cores: 0.5, ..echo(8, 8) });
    settle(&mut view, NOW);
    let two = Service { version: "2".to_owned(), ..view.services["echo"].clone() };
    view.services.insert("echo".to_owned(), two);
    let first = plan(&view, NOW);
    assert_eq!(first.decisions.len(), 2, "{first:?}");
    assert!(first.decisions[0].reason.starts_with("version 1 becomes 2"), "{first:?}");
    apply(&mut view, &first);
    assert!(plan(&view, NOW).decisions.is_empty(), "the next ones wait for these");
    settle(&mut view, NOW);
    assert_eq!(view.assigned.len(), 8);
    assert!(view.assigned.values().all(|one| one.service.version == "2"));
}

#[test]
fn a_roll_without_room_for_both_ends_one_first_if_others_serve() {
    let mut view = view(&["a"], Service { cores: 2.0, ..echo(2, 2) });
    settle(&mut view, NOW);
    view.services.get_mut("echo").unwrap().epoch = 1;
    let next = plan(&view, NOW);
    assert!(next.decisions[0].reason.contains("no room for both, and 1 others serve"), "{next:?}");
    apply(&mut view, &next);
    // Its successor has a place, and does not serve yet: the other one stays.
    let then = plan(&view, NOW);
    assert_eq!(then.decisions.len(), 1, "{then:?}");
    apply(&mut view, &then);
    assert!(plan(&view, NOW).decisions.is_empty());
    settle(&mut view, NOW);
    assert!(view.assigned.values().all(|one| one.service.epoch == 1) && view.assigned.len() == 2);
    // The only one is not ended.
    let mut alone = super::tests::view(&["a"], Service { cores: 3.0, ..echo(1, 1) });
    settle(&mut alone, NOW);
    alone.services.get_mut("echo").unwrap().epoch = 1;
    let stuck = plan(&alone, NOW);
    assert!(stuck.decisions.is_empty() && stuck.shortages[0].text.contains("stays as it is"), "{stuck:?}");
}

#[test]
fn a_version_that_does_not_start_halts_the_roll_and_the_old_description_ends_it() {
    let mut view = view(&["a", "b"], echo(2, 2));
    settle(&mut view, NOW);
    let one = view.services["echo"].clone();
    view.services.insert("echo".to_owned(), Service { version: "2".to_owned(), ..one.clone() });
    let next = plan(&view, NOW);
    apply(&mut view, &next);
    for host in view.hosts.values_mut() {
        for replica in view.assigned.values().filter(|one| one.service.version == "2" && one.host == host.name) {
            let failing =
                ReplicaReport { failures: 9, failure: "exit status: 1".to_owned(), ..ReplicaReport::default() };
            host.replicas.insert(replica.replica.clone(), failing);
        }
    }
    let halted = plan(&view, NOW);
    assert!(halted.decisions.is_empty(), "{halted:?}");
    assert!(halted.shortages[0].text.ends_with("9 times in a row on a: exit status: 1"), "{halted:?}");
    view.services.insert("echo".to_owned(), one);
    assert_eq!(done(&plan(&view, NOW)), ["remove echo.3 from a"]);
}

#[test]
fn a_drained_host_is_emptied_without_a_gap() {
    let mut view = view(&["a", "b"], echo(4, 4));
    settle(&mut view, NOW);
    view.draining.insert("a".to_owned());
    let next = plan(&view, NOW);
    assert!(matches!(&next.decisions[0].change, Change::Place(one) if one.host == "b" && one.replaces.is_some()));
    settle(&mut view, NOW);
    assert_eq!(hosts_of(&view), ["b"; 4]);
    assert!(plan(&view, NOW + 600_000).decisions.is_empty());
}

#[test]
fn a_replica_that_fails_again_and_again_is_tried_on_each_other_host_once() {
    let mut view = view(&["a", "b"], echo(1, 1));
    for expected in ["a", "b"] {
        let next = plan(&view, NOW);
        apply(&mut view, &next);
        assert_eq!(hosts_of(&view), [expected]);
        all_ready(&mut view);
        for host in view.hosts.values_mut() {
            for report in host.replicas.values_mut() {
                (report.state, report.failures) = (ReplicaState::Waiting, 5);
            }
        }
    }
    assert!(plan(&view, NOW).decisions.is_empty(), "it has failed on both");
}

#[test]
fn old_replicas_are_replaced_one_after_the_other() {
    let mut view = view(&["a", "b"], Service { rejuvenate_s: Some(3600), ..echo(3, 3) });
    settle(&mut view, NOW);
    let later = NOW + 3_600_000;
    assert!(plan(&view, later - 1).decisions.is_empty());
    let next = plan(&view, later);
    assert_eq!(next.decisions.len(), 1, "{next:?}");
    assert!(next.decisions[0].reason.contains("is 3600 s old"), "{next:?}");
    settle(&mut view, later);
    assert!(view.assigned.values().all(|one| one.placed_ms == later) && view.assigned.len() == 3);
}

#[test]
fn the_number_follows_the_load_after_a_while() {
    let mut view = view(&["a", "b"], echo(1, 3));
    settle(&mut view, NOW);
    let load = |view: &mut View, percent: u32| {
        all_ready(view);
        for report in view.hosts.values_mut().flat_map(|host| host.replicas.values_mut()) {
            report.load_percent = percent;
        }
    };
    load(&mut view, 95);
    assert!(plan(&view, NOW + 9_000).decisions.is_empty());
    let more = plan(&view, NOW + 10_000);
    assert!(more.decisions[0].reason.contains("95 % busy"), "{more:?}");
    apply(&mut view, &more);
    load(&mut view, 20);
    assert!(plan(&view, NOW + 60_000).decisions.is_empty());
    let fewer = plan(&view, NOW + 70_000);
    assert!(fewer.decisions[0].reason.contains("one fewer would be 40 % busy"), "{fewer:?}");
    apply(&mut view, &fewer);
    assert_eq!(view.assigned.len(), 1);
}

#[test]
fn a_port_is_used_once_on_a_host_and_handed_over_there() {
    let service = Service { port: 8080, take_over: true, ..echo(3, 3) };
    let mut view = view(&["a", "b"], service);
    settle(&mut view, NOW);
    assert_eq!(hosts_of(&view), ["a", "b"]);
    assert!(plan(&view, NOW).shortages[0].text.contains("2 hosts: port 8080 is taken"));
    view.services.get_mut("echo").unwrap().version = "2".to_owned();
    let next = plan(&view, NOW);
    assert!(matches!(&next.decisions[0].change, Change::Place(one) if one.replaces.is_some()), "{next:?}");
    settle(&mut view, NOW);
    assert_eq!(hosts_of(&view), ["a", "b"]);
}

#[test]
fn what_cannot_be_read_stays_as_it_is() {
    let mut view = view(&["a"], echo(2, 2));
    settle(&mut view, NOW);
    view.services.clear();
    view.unreadable.insert("echo".to_owned());
    view.hosts.clear();
    assert_eq!(plan(&view, NOW), Plan::default());
}

#[test]
fn absurd_numbers_of_other_programs_end_no_decider() {
    let mut view = view(&["a", "b"], Service { memory_mb: u64::MAX, cores: 1e300, ..echo(2, 4) });
    settle(&mut view, NOW);
    for one in ["x", "y"] {
        let service = view.services["echo"].clone();
        let (reason, failed_on) = (String::new(), Vec::new());
        let replaces = Some(one.to_owned());
        let (replica, host) = (one.to_owned(), "a".to_owned());
        let placed = Assignment { replica, host, service, replaces, reason, placed_ms: u64::MAX, failed_on };
        view.assigned.insert(one.to_owned(), placed);
    }
    all_ready(&mut view);
    for report in view.hosts.values_mut().flat_map(|host| host.replicas.values_mut()) {
        (report.load_percent, report.failures) = (u32::MAX, u32::MAX);
    }
    view.hosts.get_mut("b").unwrap().cores = -1.0;
    let wrong = plan(&view, NOW);
    assert!(wrong.decisions.iter().all(|decision| !matches!(decision.change, Change::Place(_))), "{wrong:?}");
    view.services.insert("echo".to_owned(), echo(2, 4));
    plan(&view, u64::MAX);
    plan(&view, 0);
}
