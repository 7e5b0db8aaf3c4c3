//! Random histories: hosts come, go and freeze, services change, replicas fail, and the decider dies after any of its writes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{Change, View, plan};
use crate::record::{HostReport, ReplicaState, Service};

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    HostComes(u8, u8),
    HostGoes(u8),
    Drain(u8, bool),
    Service {
        name: u8,
        min: u32,
        more: u32,
        cores: u8,
        port: bool,
        version: u8,
    },
    RemoveService(u8),
    /// A decider plans, and writes so many of its decisions before it dies.
    Decide(usize),
    /// A host carries out what it has to run; the bits say which replicas start well.
    Work(u8, u64),
    Load(u32),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..6u8, 1..8u8).prop_map(|(host, cores)| Step::HostComes(host, cores)),
        1 => (0..6u8).prop_map(Step::HostGoes),
        1 => (0..6u8, any::<bool>()).prop_map(|(host, is_on)| Step::Drain(host, is_on)),
        2 => (0..3u8, 1..6u32, 0..4u32, 1..5u8, any::<bool>(), 0..3u8)
            .prop_map(|(name, min, more, cores, port, version)| Step::Service { name, min, more, cores, port, version }),
        1 => (0..3u8).prop_map(Step::RemoveService),
        6 => (0..5usize).prop_map(Step::Decide),
        6 => (0..6u8, any::<u64>()).prop_map(|(host, ready)| Step::Work(host, ready)),
        1 => (0..101u32).prop_map(Step::Load),
        1 => (0..100_000u64).prop_map(Step::Wait),
    ]
}

/// A cluster without processes.
struct Model {
    view: View,
    now_ms: u64,
}

impl Model {
    fn host(number: u8) -> String {
        format!("h{number}")
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::HostComes(number, cores) => {
                let (name, memory_mb) = (Model::host(*number), 4096);
                let cores = f64::from(*cores);
                let host = HostReport {
                    name: name.clone(),
                    cores,
                    memory_mb,
                    memory_free_mb: memory_mb,
                    ..HostReport::default()
                };
                self.view.hosts.entry(name).or_insert(host);
            }
            Step::HostGoes(number) => drop(self.view.hosts.remove(&Model::host(*number))),
            Step::Drain(number, true) => drop(self.view.draining.insert(Model::host(*number))),
            Step::Drain(number, false) => drop(self.view.draining.remove(&Model::host(*number))),
            Step::Service { name, min, more, cores, port, version } => {
                let name = format!("s{name}");
                let service = Service {
                    min: *min,
                    max: min + more,
                    cores: f64::from(*cores) / 2.0,
                    port: if *port { 80 + u16::from(name.as_bytes()[1]) } else { 0 },
                    take_over: *port && *version == 1,
                    version: version.to_string(),
                    memory_mb: 64,
                    ..Service::new(&name, ["program"])
                };
                self.view.services.insert(name, service);
            }
            Step::RemoveService(name) => drop(self.view.services.remove(&format!("s{name}"))),
            Step::Decide(writes) => self.decide(*writes),
            Step::Work(number, ready) => self.work(&Model::host(*number), *ready),
            Step::Load(percent) => {
                let reports = self.view.hosts.values_mut().flat_map(|host| host.replicas.values_mut());
                reports.for_each(|report| report.load_percent = *percent);
            }
            Step::Wait(ms) => self.now_ms += ms,
        }
    }

    fn work(&mut self, name: &str, ready: u64) {
        let Some(host) = self.view.hosts.get_mut(name) else { return };
        let here: Vec<_> = self.view.assigned.values().filter(|one| one.host == name).collect();
        let mut reports = BTreeMap::new();
        for (at, one) in here.into_iter().enumerate() {
            let mut report = host.replicas.remove(&one.replica).unwrap_or_default();
            report.service = one.service.name.clone();
            match ready >> (at % 64) & 1 == 1 {
                true => (report.state, report.failures) = (ReplicaState::Ready, 0),
                false => (report.state, report.failures) = (ReplicaState::Waiting, report.failures + 1),
            }
            reports.insert(one.replica.clone(), report);
        }
        host.replicas = reports;
    }

    /// Plans, checks the plan, and carries out the first `writes` decisions, each checked.
    fn decide(&mut self, writes: usize) {
        let next = plan(&self.view, self.now_ms);
        let names: BTreeSet<_> = self.view.assigned.keys().cloned().collect();
        for decision in next.decisions.into_iter().take(writes) {
            assert!(!decision.reason.is_empty());
            match decision.change {
                Change::Place(one) => {
                    assert!(!names.contains(&one.replica), "{} is taken", one.replica);
                    assert!(self.view.hosts.contains_key(&one.host) && !self.view.draining.contains(&one.host));
                    assert_eq!(Some(&one.service), self.view.services.get(&one.service.name));
                    let old = one.replaces.clone();
                    assert!(self.view.assigned.insert(one.replica.clone(), one.clone()).is_none());
                    self.check_room(&one.host);
                    self.check_port(&one.host, old.as_deref());
                }
                Change::Remove(one) => {
                    self.check_removal(&one.replica, &one.service.name);
                    assert!(self.view.assigned.remove(&one.replica).is_some());
                }
            }
            self.view.revision += 1;
        }
    }

    fn check_room(&self, host: &str) {
        let here = self.view.assigned.values().filter(|one| one.host == host);
        let cores: u64 = here.map(|one| one.service.cores_milli()).sum();
        assert!(cores <= (self.view.hosts[host].cores * 1000.0) as u64, "{host} is promised {cores}");
    }

    /// Two on one port only during a hand-over.
    fn check_port(&self, host: &str, old: Option<&str>) {
        let mut ports = BTreeSet::new();
        for one in self.view.assigned.values().filter(|one| one.host == host && one.service.port != 0) {
            let is_handed_over = old == Some(one.replica.as_str())
                || self.view.assigned.values().any(|new| new.replaces.as_ref() == Some(&one.replica));
            assert!(is_handed_over || ports.insert(one.service.port), "two on a port of {host}");
        }
    }

    /// No decision ends the last replica that serves, unless the service is no more, is too large, or another one serves.
    fn check_removal(&self, replica: &str, service: &str) {
        let one = &self.view.assigned[replica];
        let serves = self.view.hosts.contains_key(&one.host) && self.view.is_ready(one);
        let others = self
            .view
            .assigned
            .values()
            .filter(|other| other.service.name == service && other.replica != replica && self.view.is_ready(other));
        assert!(
            !serves || !self.view.services.contains_key(service) || others.count() > 0,
            "the last one that serves is removed: {one:?}"
        );
    }
}

proptest! {
    #[test]
    fn whatever_happens_no_rule_is_broken_and_calm_brings_what_is_wanted(steps in prop::collection::vec(step(), 0..120)) {
        let mut model = Model { view: View { revision: 1, ..View::default() }, now_ms: 1_000_000_000 };
        for step in &steps {
            model.take(step);
        }
        // From now on all goes well, on two more hosts with room for all.
        for number in 10..14 {
            model.take(&Step::HostComes(number, 200));
        }
        model.view.draining.clear();
        model.take(&Step::Load(0));
        for round in 0..400 {
            for host in model.view.hosts.keys().cloned().collect::<Vec<_>>() {
                model.work(&host, u64::MAX);
            }
            if plan(&model.view, model.now_ms).decisions.is_empty() {
                break;
            }
            assert!(round < 399, "it does not come to rest: {:?}", plan(&model.view, model.now_ms));
            // The deciders die after one write, two, three …
            model.decide(1 + round % 4);
        }
        for service in model.view.services.values() {
            let of_service: Vec<_> = model.view.assigned.values().filter(|one| one.service.name == service.name).collect();
            let count = of_service.len() as u32;
            // Each of the large hosts can have one with a port.
            let room = if service.port == 0 { u32::MAX } else { 4 };
            prop_assert!((service.min.min(room)..=service.max()).contains(&count), "{count} of {service:?}");
            prop_assert!(of_service.iter().all(|one| one.service.runs_like(service)), "an old version is left");
        }
        let services: BTreeSet<_> = model.view.services.keys().collect();
        prop_assert!(model.view.assigned.values().all(|one| services.contains(&one.service.name)));
    }
}
