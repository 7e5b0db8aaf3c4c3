//! The rules for the number of replicas: too few, too many, and those that are of no use.

use super::Planner;
use crate::record::Assignment;

impl Planner<'_> {
    /// Removes the replicas of services and hosts that are no more.
    pub(super) fn remove_the_homeless(&mut self) {
        let gone: Vec<(String, String)> = self
            .assigned
            .values()
            .filter(|one| !self.view.unreadable.contains(&one.service.name))
            .filter_map(|one| {
                let reason = if !self.view.services.contains_key(&one.service.name) {
                    format!("the service {} was removed", one.service.name)
                } else if !self.view.hosts.contains_key(&one.host) {
                    format!("the host {} is gone: its lease has ended", one.host)
                } else {
                    return None;
                };
                Some((one.replica.clone(), reason))
            })
            .collect();
        for (replica, reason) in gone {
            self.remove(&replica, reason);
        }
    }

    /// Removes replicas that do not serve and would be replaced in any case.
    pub(super) fn remove_the_useless(&mut self) {
        let useless: Vec<(String, String)> = self
            .services()
            .flat_map(|service| self.counted(&service.name).into_iter().cloned().collect::<Vec<_>>())
            .filter(|one| !self.is_ready(one) && self.predecessor(one).is_none())
            .filter_map(|one| {
                let reason = if self.is_left(&one.host) {
                    format!("it does not serve, and the host {} drains", one.host)
                } else if !self.is_current(&one) {
                    "it does not serve, and the description of the service has changed".to_owned()
                } else {
                    return None;
                };
                Some((one.replica, reason))
            })
            .collect();
        for (replica, reason) in useless {
            self.remove(&replica, reason);
        }
    }

    /// Places a replica at a time, for the service with the smallest share of its number.
    pub(super) fn add_the_missing(&mut self) {
        let mut lacking: Vec<_> = self.services().collect();
        loop {
            lacking.retain(|service| (self.counted(&service.name).len() as u32) < self.wanted[service.name.as_str()].0);
            let share = |name: &str| self.counted(name).len() as f64 / f64::from(self.wanted[name].0);
            let least = lacking.iter().enumerate().min_by(|a, b| share(&a.1.name).total_cmp(&share(&b.1.name)));
            let Some((at, service)) = least.map(|(at, service)| (at, *service)) else { return };
            let (has, (wanted, why)) = (self.counted(&service.name).len(), self.wanted[service.name.as_str()].clone());
            match self.host_for(service, None) {
                Ok(host) => {
                    let reason = format!("{} has {has} of {wanted} replicas ({why}); {}", service.name, host.reason);
                    self.place(service, &host.name, None, reason);
                }
                Err(why_not) => {
                    self.lacks(&service.name, format!("{has} of {wanted} replicas have a host: {why_not}"));
                    lacking.swap_remove(at);
                }
            }
        }
    }

    /// Removes replicas beyond the wanted number.
    pub(super) fn remove_the_surplus(&mut self) {
        for service in self.services() {
            let (wanted, why) = self.wanted[service.name.as_str()].clone();
            loop {
                let counted = self.counted(&service.name);
                let has = counted.len() as u32;
                if has <= wanted {
                    break;
                }
                let rank = |one: &Assignment| {
                    let use_milli = (self.use_of(&one.host) * 1000.0) as u64;
                    (self.is_left(&one.host), !self.is_ready(one), !self.is_current(one), use_milli)
                };
                let last = counted.into_iter().max_by_key(|one| (rank(one), one.replica.clone()));
                let Some(replica) = last.map(|one| one.replica.clone()) else { break };
                self.remove(&replica, format!("{} has {has} replicas, and {wanted} are wanted ({why})", service.name));
            }
        }
    }
}
