//! Replacing: a new replica beside an old one, for any reason.

use std::cmp::Reverse;

use super::{FAILURES_MAX, Planner};
use crate::record::{Assignment, Service};

/// Why a replica is to be replaced, the most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    Drains,
    IsOutdated,
    Fails,
    IsOld,
}

impl Planner<'_> {
    /// Removes the old replica of each pair with a new one that serves, and new ones that are of no use any more.
    pub(super) fn end_replacements(&mut self) {
        let pairs: Vec<(Assignment, Assignment)> = self
            .assigned
            .values()
            .filter(|new| self.view.services.contains_key(&new.service.name))
            .filter_map(|new| Some((new.clone(), self.predecessor(new)?.clone())))
            .collect();
        for (new, old) in pairs {
            if self.is_ready(&new) {
                self.remove(&old.replica, format!("{} serves in its place: {}", new.replica, new.reason));
            } else if !self.is_current(&new) {
                self.remove(&new.replica, "the description of the service has changed again");
            } else if self.is_left(&new.host) {
                self.remove(&new.replica, format!("the host {} drains now, too", new.host));
            } else if self.is_futile(&new, &old) {
                self.remove(&new.replica, format!("it cannot start in place of {}, which serves well", old.replica));
            }
        }
    }

    /// A replacement for its age or its place alone that fails, of one that serves.
    fn is_futile(&self, new: &Assignment, old: &Assignment) -> bool {
        self.failures(new) >= FAILURES_MAX
            && self.is_ready(old)
            && old.service.runs_like(&new.service)
            && !self.is_left(&old.host)
    }

    /// Replaces replicas, a quarter of a service at a time.
    pub(super) fn replace(&mut self) {
        for service in self.services() {
            let counted: Vec<Assignment> = self.counted(&service.name).into_iter().cloned().collect();
            let pending = counted.iter().filter(|one| self.predecessor(one).is_some()).count();
            let mut left = (counted.len() / 4).max(1).saturating_sub(pending);
            let all_serve = counted.iter().all(|one| self.is_ready(one));
            let mut candidates: Vec<(Why, &Assignment)> = counted
                .iter()
                .filter(|one| self.predecessor(one).is_none())
                .filter_map(|one| Some((self.why_replace(service, one, all_serve)?, one)))
                .collect();
            candidates.sort_by_key(|(why, one)| (*why, one.placed_ms, one.replica.clone()));
            self.tell_of_failures(service, &counted);
            for (why, old) in candidates {
                if left == 0 {
                    break;
                }
                if self.replace_one(service, old, why, &counted) {
                    left -= 1;
                }
            }
        }
    }

    fn why_replace(&self, service: &Service, one: &Assignment, all_serve: bool) -> Option<Why> {
        if self.is_left(&one.host) {
            return Some(Why::Drains);
        }
        if !self.is_current(one) {
            return Some(Why::IsOutdated);
        }
        if self.failures(one) >= FAILURES_MAX {
            return Some(Why::Fails);
        }
        let age_max = service.rejuvenate_s?.saturating_mul(1000);
        (all_serve && self.now_ms.saturating_sub(one.placed_ms) >= age_max).then_some(Why::IsOld)
    }

    /// Whether a replacement has begun.
    fn replace_one(&mut self, service: &Service, old: &Assignment, why: Why, counted: &[Assignment]) -> bool {
        let reason = match why {
            Why::Drains => format!("the host {} drains", old.host),
            Why::IsOutdated if old.service.version != service.version => {
                format!("version {} becomes {}", old.service.version, service.version)
            }
            Why::IsOutdated => "the description of the service has changed".to_owned(),
            Why::Fails => format!("{} failed {} times in a row on {}", old.replica, self.failures(old), old.host),
            Why::IsOld => {
                format!("{} is {} s old", old.replica, self.now_ms.saturating_sub(old.placed_ms) / 1000)
            }
        };
        match self.host_for(service, Some(old)) {
            Ok(host) if why == Why::Fails && !self.is_ready(old) => {
                // It serves no request, so nothing is lost by its end.
                let mut moved = old.clone();
                moved.failed_on = self.failed_on(old);
                self.remove(&old.replica, reason.clone());
                self.place(service, &host.name, Some(&moved), format!("{reason}; {}", host.reason));
                true
            }
            Ok(host) => {
                self.place(service, &host.name, Some(old), format!("{reason}; {}", host.reason));
                true
            }
            Err(why_not) => {
                let others = counted.iter().filter(|one| one.replica != old.replica && self.is_ready(one)).count();
                let all_serve = counted.iter().all(|one| self.is_ready(one));
                if why == Why::IsOutdated && others > 0 && all_serve {
                    let reason = format!("{reason}; there is no room for both, and {others} others serve: {why_not}");
                    self.remove(&old.replica, reason);
                    return true;
                }
                if why != Why::Fails {
                    self.lacks(&service.name, format!("{} stays as it is, though {reason}: {why_not}", old.replica));
                }
                false
            }
        }
    }

    /// Says which replicas do not start.
    fn tell_of_failures(&mut self, service: &Service, counted: &[Assignment]) {
        let failing = counted.iter().filter(|one| self.failures(one) >= 3).max_by_key(|one| Reverse(&one.replica));
        let Some((one, report)) = failing.and_then(|one| Some((one, self.view.report(one)?))) else { return };
        let text =
            format!("{} failed {} times in a row on {}: {}", one.replica, report.failures, one.host, report.failure);
        self.lacks(&service.name, text);
    }
}
