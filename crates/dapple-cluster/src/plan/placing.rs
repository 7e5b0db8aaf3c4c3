//! Where a replica goes: free room, few of its own kind, little load.

use super::Planner;
use crate::record::{Assignment, HostReport, Service};

/// A host for a replica, and why.
pub(super) struct Choice {
    pub(super) name: String,
    pub(super) reason: String,
}

/// Why a host cannot take a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Obstacle {
    Drains,
    HasPort,
    Failed,
    Cores,
    Memory,
    MemoryInUse,
}

impl Planner<'_> {
    /// The best host for a replica, in place of `old`, if it is given.
    ///
    /// # Errors
    ///
    /// In words, why there is none.
    pub(super) fn host_for(&self, service: &Service, old: Option<&Assignment>) -> Result<Choice, String> {
        let mut fitting = Vec::new();
        let mut obstacles = Vec::new();
        for (name, host) in &self.view.hosts {
            match self.obstacle(service, name, host, old) {
                None => fitting.push((name, host)),
                Some(obstacle) => obstacles.push((obstacle, name.as_str())),
            }
        }
        let rank = |name: &String, host: &HostReport| {
            let same = self.assigned.values().filter(|one| &one.host == name && one.service.name == service.name);
            // Of a pair on one host, one goes.
            let same = same.filter(|one| old.is_none_or(|old| one.replica != old.replica)).count();
            // A replacement stays where the socket and the caches are, if nothing speaks for another host.
            let is_elsewhere = old.is_some_and(|old| old.host != *name && !self.is_left(&old.host));
            let load = f64::from(host.load_percent.min(100)) / 100.0;
            (same, is_elsewhere, ((self.use_of(name) + load) * 1000.0) as u64)
        };
        match fitting.into_iter().min_by_key(|(name, host)| (rank(name, host), (*name).clone())) {
            Some((name, host)) => {
                let (same, ..) = rank(name, host);
                let reason = format!(
                    "{name} has {same} others of it, promised {:.0} % of what it offers, and is {} % busy",
                    self.use_of(name) * 100.0,
                    host.load_percent
                );
                Ok(Choice { name: name.clone(), reason })
            }
            None => Err(in_words(service, obstacles)),
        }
    }

    fn obstacle(&self, service: &Service, name: &str, host: &HostReport, old: Option<&Assignment>) -> Option<Obstacle> {
        if self.is_left(name) {
            return Some(Obstacle::Drains);
        }
        let has_port = self.assigned.values().any(|one| {
            let takes_over =
                old.is_some_and(|old| old.replica == one.replica && old.service.take_over) && service.take_over;
            one.host == name && service.port != 0 && one.service.port == service.port && !takes_over
        });
        if has_port {
            return Some(Obstacle::HasPort);
        }
        if old.is_some_and(|old| self.failed_on(old).iter().any(|failed| failed == name)) {
            return Some(Obstacle::Failed);
        }
        let (cores, memory) = self.promised(name);
        if cores.saturating_add(service.cores_milli()) > (host.cores * 1000.0) as u64 {
            return Some(Obstacle::Cores);
        }
        if memory.saturating_add(service.memory_mb) > host.memory_mb {
            return Some(Obstacle::Memory);
        }
        (host.memory_free_mb < service.memory_mb).then_some(Obstacle::MemoryInUse)
    }

    /// The thousandths of cores and the memory that a host has promised to its replicas.
    fn promised(&self, host: &str) -> (u64, u64) {
        let here = self.assigned.values().filter(|one| one.host == host);
        // Another program may have written any number.
        here.fold((0u64, 0u64), |(cores, memory), one| {
            (cores.saturating_add(one.service.cores_milli()), memory.saturating_add(one.service.memory_mb))
        })
    }

    /// The promised part of what a host offers: the larger one of cores and memory.
    pub(super) fn use_of(&self, name: &str) -> f64 {
        let Some(host) = self.view.hosts.get(name) else { return 1.0 };
        let (cores, memory) = self.promised(name);
        let part = |promised: f64, has: f64| if has > 0.0 { promised / has } else { 1.0 };
        part(cores as f64 / 1000.0, host.cores).max(part(memory as f64, host.memory_mb as f64))
    }

    /// The part of a host that one replica takes.
    fn part_of(&self, name: &str, service: &Service) -> f64 {
        let Some(host) = self.view.hosts.get(name) else { return 1.0 };
        (service.cores / host.cores.max(0.001)).max(service.memory_mb as f64 / (host.memory_mb.max(1)) as f64)
    }

    /// Moves one replica from the fullest host to the emptiest one, if both are closer to each other
    /// afterwards, and nothing else is going on.
    pub(super) fn level(&mut self) {
        let is_calm = self.plan.decisions.is_empty()
            && self.plan.shortages.is_empty()
            && self.assigned.values().all(|one| self.is_ready(one) && self.predecessor(one).is_none())
            && self.services().all(|service| self.settled_ms(&service.name) >= LEVEL_AFTER_MS);
        if !is_calm {
            return;
        }
        let hosts = || self.view.hosts.keys().filter(|name| !self.is_left(name));
        let by_use = |a: &&String, b: &&String| self.use_of(a).total_cmp(&self.use_of(b));
        let (Some(full), Some(empty)) = (hosts().max_by(by_use), hosts().min_by(by_use)) else { return };
        let (full, empty) = (full.clone(), empty.clone());
        let helps = |one: &&Assignment| {
            let service = &one.service;
            let of_service = |host: &str| {
                self.assigned.values().filter(|one| one.host == host && one.service.name == service.name).count()
            };
            let after = (
                self.use_of(&full) - self.part_of(&full, service),
                self.use_of(&empty) + self.part_of(&empty, service),
            );
            after.0 >= after.1
                && of_service(&empty) < of_service(&full)
                && self.obstacle(service, &empty, &self.view.hosts[&empty], None).is_none()
        };
        let moved =
            self.assigned.values().filter(|one| one.host == full && self.view.services.contains_key(&one.service.name));
        let Some(moved) = moved.filter(helps).min_by_key(|one| one.replica.clone()).cloned() else { return };
        let reason = format!(
            "{full} has promised {:.0} % of what it offers, and {empty} {:.0} %",
            self.use_of(&full) * 100.0,
            self.use_of(&empty) * 100.0
        );
        let service = self.view.services[&moved.service.name].clone();
        self.place(&service, &empty, Some(&moved), reason);
    }
}

/// Counts the obstacles, one host for each as an example.
fn in_words(service: &Service, mut obstacles: Vec<(Obstacle, &str)>) -> String {
    if obstacles.is_empty() {
        return "there is no host".to_owned();
    }
    obstacles.sort_unstable();
    let parts = obstacles.chunk_by(|(a, _), (b, _)| a == b).map(|same| {
        let (obstacle, first) = same[0];
        let hosts = match same.len() {
            1 => first.to_owned(),
            count => format!("{count} hosts"),
        };
        match obstacle {
            Obstacle::Drains => format!("{hosts}: to be emptied"),
            Obstacle::HasPort => format!("{hosts}: port {} is taken", service.port),
            Obstacle::Failed => format!("{hosts}: it failed there"),
            Obstacle::Cores => format!("{hosts}: fewer than {} cores are free", service.cores),
            Obstacle::Memory => format!("{hosts}: less than {} MB are free", service.memory_mb),
            Obstacle::MemoryInUse => format!("{hosts}: less than {} MB are available", service.memory_mb),
        }
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// How long nothing has changed before replicas are moved for balance.
const LEVEL_AFTER_MS: u64 = 30_000;
