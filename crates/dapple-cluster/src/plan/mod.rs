//! The decisions of a cluster: a pure function of what is known and of the time.
//!
//! [`plan`] has no clock, no I/O and no memory. A host that decides calls it after each change, and carries the decisions out in their
//! order, each in a transaction of its own. It may die between any two: the next one plans anew from what is there, so a plan need not be
//! carried out as a whole.
//!
//! # The rules, in their order
//!
//! | rule | decision |
//! |---|---|
//! | a service or a host is no more | its replicas are removed |
//! | a replacement is ready | the replica that it replaces is removed |
//! | a replacement is of no use any more | it is removed, if the one that it replaces is still there |
//! | a replica that does not serve is of an old version, or on a host that is left | it is removed |
//! | the load asks for more or fewer | one is added or removed at a time, after a while without changes |
//! | there are too few | one is placed for the service with the smallest share of its minimum |
//! | there are too many | one is removed: of an old version, not ready, or on the fullest host |
//! | a host drains, a version is old, a replica fails, or is old | it is replaced, a quarter of the service at a time |
//! | a host has much more to do than another | one replica is replaced there, after a while without changes |
//!
//! # Replacing
//!
//! Whatever the reason, a replica is replaced in one way: a new one is placed that names the old one; when it is ready, the old one is
//! removed, and its host lets it finish its requests. A replacement counts with its predecessor as one. The states of a pair:
//!
//! ```text
//!   old ready ── placed ──▶ old ready, new starting ── new ready ──▶ both ready ── removed ──▶ new ready
//!                              │            │
//!                              │            └─ the host of the new one is gone, or it is of an old version: old ready
//!                              └─ the host of the old one is gone: new starting
//! ```
//!
//! If no host has room for both, and others of the service serve, the old one is removed first.
//!
//! # Rejected
//!
//! - *A state machine for each roll, drain and move, kept in the store*: a decider that dies leaves it half-way, and each has other rules
//!   for a host that dies meanwhile. Here the pair of assignments is the whole state.
//! - *A score over all possible placements*: a person cannot tell why the result is what it is. Each rule here has one sentence for a reason.
//! - *Moving replicas of a host that is silent only after a longer time than its lease*: one number, the lease's time, is enough.

mod pairs;
mod placing;
mod rules;
mod scaling;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::record::{Assignment, HostReport, ReplicaReport, ReplicaState, Service};

/// All that a decision depends on, apart from the time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// The services by name.
    pub services: BTreeMap<String, Service>,
    /// Services with a description that this program cannot read: they stay as they are.
    pub unreadable: BTreeSet<String>,
    /// The hosts with a lease, by name.
    pub hosts: BTreeMap<String, HostReport>,
    /// The assigned replicas by name.
    pub assigned: BTreeMap<String, Assignment>,
    /// Hosts from which all replicas are to go.
    pub draining: BTreeSet<String>,
    /// When the number of a service's replicas was last changed, in milliseconds since 1970.
    pub changed_ms: BTreeMap<String, u64>,
    /// The revision of the store, for names of replicas: each assignment makes it larger.
    pub revision: u64,
}

/// A decision with its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The change.
    pub change: Change,
    /// Why, in words.
    pub reason: String,
}

/// The change that a decision makes.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Let a host run a replica.
    Place(Assignment),
    /// Let it end.
    Remove(Assignment),
}

/// A wish that cannot be met now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    /// The service.
    pub service: String,
    /// The missing part, in words.
    pub text: String,
}

/// The decisions that follow from a view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In the order in which they are to be carried out.
    pub decisions: Vec<Decision>,
    /// Wishes that cannot be met.
    pub shortages: Vec<Shortage>,
}

/// Decides. `now_ms` is the time in milliseconds since 1970.
pub fn plan(view: &View, now_ms: u64) -> Plan {
    let mut planner = Planner {
        view,
        now_ms,
        assigned: view.assigned.clone(),
        plan: Plan::default(),
        number: view.revision,
        wanted: BTreeMap::new(),
    };
    planner.remove_the_homeless();
    planner.end_replacements();
    planner.remove_the_useless();
    planner.decide_numbers();
    planner.add_the_missing();
    planner.remove_the_surplus();
    planner.replace();
    planner.level();
    planner.plan
}

impl View {
    /// The report of a replica's host about it.
    pub fn report(&self, assignment: &Assignment) -> Option<&ReplicaReport> {
        self.hosts.get(&assignment.host)?.replicas.get(&assignment.replica)
    }

    /// Whether a replica serves.
    pub fn is_ready(&self, assignment: &Assignment) -> bool {
        self.report(assignment).is_some_and(|report| report.state == ReplicaState::Ready)
    }
}

impl Decision {
    /// Its change, in words.
    pub fn done(&self) -> String {
        match &self.change {
            Change::Place(placed) => match &placed.replaces {
                Some(old) => format!("place {} on {} in place of {old}", placed.replica, placed.host),
                None => format!("place {} on {}", placed.replica, placed.host),
            },
            Change::Remove(removed) => format!("remove {} from {}", removed.replica, removed.host),
        }
    }

    /// The service of its replica.
    pub fn service(&self) -> &str {
        match &self.change {
            Change::Place(assignment) | Change::Remove(assignment) => &assignment.service.name,
        }
    }
}

/// A plan in the making. Each rule sees the assignments as the decisions before it leave them.
struct Planner<'a> {
    view: &'a View,
    now_ms: u64,
    assigned: BTreeMap<String, Assignment>,
    plan: Plan,
    number: u64,
    /// The number of replicas of each service, and why.
    wanted: BTreeMap<&'a str, (u32, String)>,
}

impl<'a> Planner<'a> {
    fn remove(&mut self, replica: &str, reason: impl Into<String>) {
        if let Some(removed) = self.assigned.remove(replica) {
            self.plan.decisions.push(Decision { change: Change::Remove(removed), reason: reason.into() });
        }
    }

    fn place(&mut self, service: &Service, host: &str, replaces: Option<&Assignment>, reason: String) {
        let replica = format!("{}.{}", service.name, self.number);
        self.number += 1;
        let failed_on = replaces.map(|old| self.failed_on(old)).unwrap_or_default();
        let assignment = Assignment {
            replica: replica.clone(),
            host: host.to_owned(),
            service: service.clone(),
            replaces: replaces.map(|old| old.replica.clone()),
            reason: reason.clone(),
            placed_ms: self.now_ms,
            failed_on,
        };
        self.plan.decisions.push(Decision { change: Change::Place(assignment.clone()), reason });
        self.assigned.insert(replica, assignment);
    }

    fn lacks(&mut self, service: &str, text: String) {
        self.plan.shortages.push(Shortage { service: service.to_owned(), text });
    }

    /// The services that are decided about.
    fn services(&self) -> impl Iterator<Item = &'a Service> + use<'a> {
        self.view.services.values()
    }

    /// The replicas of a service that count: of a pair the new one.
    fn counted(&self, service: &str) -> Vec<&Assignment> {
        let replaced: BTreeSet<&str> = self.assigned.values().filter_map(|one| one.replaces.as_deref()).collect();
        let of_service = self.assigned.values().filter(|one| one.service.name == service);
        of_service.filter(|one| !replaced.contains(one.replica.as_str())).collect()
    }

    /// The replica that this one replaces, if it is still there.
    fn predecessor(&self, one: &Assignment) -> Option<&Assignment> {
        self.assigned.get(one.replaces.as_ref()?)
    }

    /// Whether the hosts know of it and it serves.
    fn is_ready(&self, one: &Assignment) -> bool {
        self.view.is_ready(one)
    }

    fn is_left(&self, host: &str) -> bool {
        self.view.draining.contains(host) || self.view.hosts.get(host).is_some_and(|host| host.is_leaving)
    }

    fn is_current(&self, one: &Assignment) -> bool {
        self.view.services.get(&one.service.name).is_none_or(|wanted| one.service.runs_like(wanted))
    }

    /// How often it failed in a row.
    fn failures(&self, one: &Assignment) -> u32 {
        self.view.report(one).map_or(0, |report| report.failures)
    }

    /// The hosts on which a replica and its predecessors failed.
    fn failed_on(&self, one: &Assignment) -> Vec<String> {
        let mut hosts = one.failed_on.clone();
        if self.failures(one) >= FAILURES_MAX && !hosts.contains(&one.host) && hosts.len() < FAILED_ON_MAX {
            hosts.push(one.host.clone());
        }
        hosts
    }

    /// How long the number of replicas has been the same.
    fn settled_ms(&self, service: &str) -> u64 {
        let placed = self.assigned.values().filter(|one| one.service.name == service).map(|one| one.placed_ms).max();
        let changed = self.view.changed_ms.get(service).copied();
        self.now_ms.saturating_sub(placed.max(changed).unwrap_or(0))
    }
}

/// A replica that failed so often in a row on one host is tried on another one.
const FAILURES_MAX: u32 = 5;
/// The most hosts that a replica remembers to have failed on.
const FAILED_ON_MAX: usize = 16;
