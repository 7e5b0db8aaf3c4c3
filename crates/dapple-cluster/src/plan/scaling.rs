//! How many replicas a service has: as many as its load asks for, within its bounds.

use super::Planner;
use crate::record::{ReplicaState, Service};

impl<'a> Planner<'a> {
    /// Decides the number of replicas of each service.
    pub(super) fn decide_numbers(&mut self) {
        let wanted = self.services().map(|service| (service.name.as_str(), self.number_of(service)));
        self.wanted = wanted.collect();
    }

    fn number_of(&self, service: &'a Service) -> (u32, String) {
        let (min, max) = (service.min, service.max());
        let counted = self.counted(&service.name);
        let has = counted.len() as u32;
        let bounds = format!("{min} to {max}");
        if has < min {
            return (min, format!("{bounds}; the least number"));
        }
        if has > max {
            return (max, format!("{bounds}; the largest number"));
        }
        let loads: Vec<u32> = counted
            .iter()
            .filter_map(|one| self.view.report(one))
            .filter(|report| report.state == ReplicaState::Ready)
            // A host may report any number.
            .map(|report| report.load_percent.min(LOAD_MAX))
            .collect();
        // A replica that starts, or is about to go, changes the load of the others.
        let is_calm = loads.len() == counted.len() && counted.iter().all(|one| self.predecessor(one).is_none());
        let (sum, mean) = (loads.iter().sum::<u32>(), loads.iter().sum::<u32>() / (loads.len() as u32).max(1));
        let at = service.scale_at_percent;
        let settled_ms = self.settled_ms(&service.name);
        if is_calm && has > 0 && has < max && mean >= at && settled_ms >= MORE_AFTER_MS {
            return (has + 1, format!("{bounds}; {has} are {mean} % busy, and one more starts at {at} %"));
        }
        let of_fewer = sum / has.saturating_sub(1).max(1);
        if is_calm && has > min && has > 1 && of_fewer * 10 < at * 7 && settled_ms >= FEWER_AFTER_MS {
            return (has - 1, format!("{bounds}; one fewer would be {of_fewer} % busy, below seven tenths of {at} %"));
        }
        (has, format!("{bounds}; the load asks for no other number"))
    }
}

/// The largest load of a replica, in percent of its cores; more counts as this.
const LOAD_MAX: u32 = 10_000;
/// How long after a change the load of the replicas says that there are too few.
const MORE_AFTER_MS: u64 = 10_000;
/// How long after a change it says that there are too many.
const FEWER_AFTER_MS: u64 = 60_000;
