//! The decision, without a clock and without waiting: what it is told, and when, decides what it answers.
//!
//! # The life of a request
//!
//! ```text
//!   offer ──► refused
//!     │
//!     ├─────► waiting ──► dropped (for a higher class, for another client, for being late)
//!     │          │
//!     ▼          ▼   it is granted a processor
//!   granted ◄────┘
//!     │  its handler is polled          its handler pends           it is woken
//!     └──────► (measured) ──► finished   ──► suspended ──► resuming ──► granted
//! ```
//!
//! | state | has a processor | counts as work ahead of a newcomer |
//! |---|---|---|
//! | waiting | no | yes, if its class is at least the newcomer's |
//! | granted | yes | yes, less what it has run |
//! | suspended | no | as much of it as comes back within the target, judged by how long others were suspended |
//! | resuming | no; it goes before all that wait | yes |
//! | dropped, and after the end | no | no |
//!
//! A grant that is not used is taken back, and its request suspended: a loop around `select!` may keep the future and poll it no
//! more. See [`Controller::revoke_unused`].
//!
//! What is expected to cost no more than a refusal does is *exempt*: it is granted at once, without a processor.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use slab::Slab;

use super::config::{AdmissionStats, Class, Config, Offer};
use super::costs::{Costs, Expected};
use super::queue::Queue;
use super::recent::Recent;
use crate::{Reason, Refused};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Controller {
    config: Config,
    processors: usize,
    /// How many of them are not granted.
    idle: usize,
    costs: Costs,
    queue: Queue,
    recent: Recent,
    /// Deadlines of those in the queue that have one.
    deadlines: BTreeSet<(Instant, usize)>,
    /// Those that have begun, were suspended, and could go on.
    resuming: VecDeque<usize>,
    resuming_ns: u64,
    granted: Vec<usize>,
    /// Granted without a processor.
    exempt: usize,
    suspended: usize,
    suspended_ns: u64,
    /// The mean time for which a handler is suspended, once that is known.
    suspension_ns: Option<f64>,
    /// What predictions fall short by, one time in a hundred.
    margin_ns: f64,
    /// When a handler was last polled to some end.
    last_end: Option<Instant>,
    requests: Slab<Request>,
    /// Whose state has changed, so that whoever waits with it has to be told.
    news: Vec<usize>,
    stats: AdmissionStats,
}

#[derive(Debug)]
struct Request {
    offer: Offer,
    expected_ns: u64,
    used_ns: u64,
    suspended_ns: u64,
    /// When it was expected to be done, from its arrival on, without what it waits for by itself.
    predicted_ns: u64,
    /// Since when it is in its state.
    since: Instant,
    state: State,
    /// It has cost next to nothing, and is not expected to.
    is_exempt: bool,
    /// While it is granted.
    grant: Grant,
}

/// What has become of a grant.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Grant {
    New,
    /// The last look for unused grants has seen it.
    Seen,
    /// The handler is polled by it.
    Used,
    /// It was not used, and the request is suspended.
    Revoked,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    Waiting,
    Granted,
    Suspended,
    Resuming,
    Dropped(Refused),
}

impl Controller {
    pub(super) fn new(config: Config, processors: usize) -> Controller {
        let target_ns = ns(config.target_delay) as f64;
        Controller {
            processors,
            idle: processors,
            recent: Recent::new(MEMORY_OF_TARGETS * config.target_delay),
            config,
            costs: Costs::new(),
            queue: Queue::default(),
            deadlines: BTreeSet::new(),
            resuming: VecDeque::new(),
            resuming_ns: 0,
            granted: Vec::new(),
            exempt: 0,
            suspended: 0,
            suspended_ns: 0,
            suspension_ns: None,
            margin_ns: target_ns * MARGIN_FIRST,
            last_end: None,
            requests: Slab::new(),
            news: Vec::new(),
            stats: AdmissionStats::default(),
        }
    }

    /// Takes a request, or says why not. What it returns names the request until [`Controller::end`].
    pub(super) fn offer(&mut self, offer: Offer, now: Instant) -> Result<usize, Refused> {
        self.stats.offered += 1;
        let expected = self.costs.expect(offer.kind);
        let decision = self.decide(&offer, expected, now);
        match decision {
            Ok(predicted_ns) => Ok(self.take(offer, expected, predicted_ns, now)),
            Err(refused) => {
                self.stats.refused += 1;
                Err(refused)
            }
        }
    }

    /// Whether to take it, and when it will be done in that case. May drop others in its favor.
    fn decide(&mut self, offer: &Offer, expected: Option<Expected>, now: Instant) -> Result<u64, Refused> {
        let Expected { mean_ns, most_ns } = expected.unwrap_or(Expected { mean_ns: 0, most_ns: 0 });
        let waited_ns = ns(now.saturating_duration_since(offer.arrived));
        let in_service = self.requests.len() - self.queue.len();
        if in_service >= self.config.in_service_max {
            return Err(self.refusal(Reason::Full { len: in_service }, now));
        }
        let mut delay_ns = waited_ns + self.work_ahead_ns(offer.class, now) / self.processors as u64;
        if offer.deadline.is_some_and(|deadline| now + Duration::from_nanos(delay_ns - waited_ns + mean_ns) > deadline)
        {
            return Err(self.refusal(Reason::Deadline, now));
        }
        // Where nothing has run for a while, what has waited waited for something else, such as a machine that stood still.
        let is_calm = self.granted.is_empty() && self.queue.len() == 0 && self.resuming.is_empty();
        let was_calm = self.last_end.is_none_or(|end| now - end > self.config.target_delay);
        // To refuse it would cost as much.
        if most_ns <= CHEAP_NS {
            return Ok(delay_ns + most_ns);
        }
        // Whether a service lives is not to be judged by its load. More than a few such questions at a time are a load themselves.
        let is_vital = offer.class == Class::VITAL && self.queue.len_in(Class::VITAL) < VITAL_MAX;
        if (is_calm && was_calm) || is_vital {
            return self.room_for(offer, now).map(|()| delay_ns + most_ns);
        }
        let limit_ns = self.limit_ns(most_ns);
        if delay_ns > limit_ns {
            // Of whoever has more than this client, the newest makes room.
            if !self.yields_to(offer, now) {
                let len = self.queue.len_of(offer.class, offer.client);
                let others = self.queue.len_in(offer.class) > len;
                let [predicted, target] = [delay_ns, limit_ns].map(|wait_ns| Duration::from_nanos(wait_ns + mean_ns));
                let reason = match others && len > 0 {
                    true => Reason::Share { len },
                    false => Reason::Delay { predicted, target },
                };
                return Err(self.refusal(reason, now));
            }
            delay_ns = delay_ns.min(limit_ns);
        }
        self.room_for(offer, now)?;
        self.shed_below(offer.class, mean_ns, limit_ns);
        Ok(delay_ns + most_ns)
    }

    /// What a request may wait before it begins, if it then costs `most_ns`.
    fn limit_ns(&self, most_ns: u64) -> u64 {
        let target_ns = ns(self.config.target_delay);
        let in_time_ns = target_ns.saturating_sub(self.margin_ns as u64 + most_ns);
        // So many keep the processors busy; more would only wait.
        let mean_ns = self.costs.mean_ns().unwrap_or(0);
        let enough_ns = (ENOUGH * mean_ns / self.processors as u64).max(target_ns / 4);
        in_time_ns.min(enough_ns).max(target_ns / 8)
    }

    /// Whether somebody else has more waiting than this client, in its class; that one's newest request is dropped. Where next to
    /// nothing waits, as handlers are long, it is who has had more of late.
    fn yields_to(&mut self, offer: &Offer, now: Instant) -> bool {
        let own = self.queue.len_of(offer.class, offer.client);
        let Some((client, len)) = self.queue.largest(offer.class) else { return false };
        // By a request at least: who has just come is not poorer for that.
        let request_ns = self.costs.mean_ns().unwrap_or(0) as f64;
        let has_had_more = || 2.0 * self.recent.of(offer.client, now) + request_ns < self.recent.of(client, now);
        if client == offer.client || (len <= own + 1 && (own > 0 || !has_had_more())) {
            return false;
        }
        let evicted = self.queue.evict_newest(offer.class, client);
        evicted.is_some_and(|key| self.drop_request(key, Reason::Share { len }))
    }

    /// A place in the queue, if need be that of a lower class.
    fn room_for(&mut self, offer: &Offer, now: Instant) -> Result<(), Refused> {
        if self.queue.len() < self.config.queue_len_max {
            return Ok(());
        }
        if let Some(key) = self.queue.evict_below(offer.class) {
            self.drop_request(key, Reason::Class);
            return Ok(());
        }
        if self.yields_to(offer, now) {
            return Ok(());
        }
        Err(self.refusal(Reason::Full { len: self.queue.len() }, now))
    }

    /// Drops of the lower classes what would be late, now that a request of this class goes before it.
    fn shed_below(&mut self, class: Class, mean_ns: u64, limit_ns: u64) {
        let begun_ns = self.resuming_ns + mean_ns;
        while class > Class::LOW
            && (begun_ns + self.queue.work_ahead_ns(Class::LOW)) / self.processors as u64 > limit_ns
        {
            let Some(key) = self.queue.evict_below(class) else { return };
            self.drop_request(key, Reason::Class);
        }
    }

    fn take(&mut self, offer: Offer, expected: Option<Expected>, predicted_ns: u64, now: Instant) -> usize {
        let is_exempt = expected.is_none_or(|expected| expected.most_ns <= CHEAP_NS);
        let expected_ns = expected.map_or(0, |expected| expected.mean_ns);
        let key = self.requests.insert(Request {
            offer,
            expected_ns,
            used_ns: 0,
            suspended_ns: 0,
            predicted_ns,
            since: now,
            state: if is_exempt { State::Granted } else { State::Waiting },
            is_exempt,
            grant: Grant::New,
        });
        if is_exempt {
            self.exempt += 1;
        } else {
            self.queue.push(offer.class, offer.client, key, expected_ns);
            self.deadlines.extend(offer.deadline.map(|deadline| (deadline, key)));
            self.grant(now);
            // The caller looks at once.
            self.news.retain(|&other| other != key);
        }
        key
    }

    /// What has happened to a request.
    pub(super) fn state(&self, key: usize) -> &State {
        &self.requests[key].state
    }

    /// Whether a request costs next to nothing.
    pub(super) fn is_exempt(&self, key: usize) -> bool {
        self.requests[key].is_exempt
    }

    /// Whether requests are dear enough for what they wait outside to matter.
    pub(super) fn is_dear(&self) -> bool {
        self.costs.mean_ns().is_some_and(|mean| mean > CHEAP_NS)
    }

    /// The handler of a granted request is about to be polled; false if the grant was revoked.
    pub(super) fn claim(&mut self, key: usize) -> bool {
        let request = &mut self.requests[key];
        let is_granted = request.state == State::Granted;
        if is_granted {
            request.grant = Grant::Used;
        }
        is_granted
    }

    /// Whether others wait for a request that has been granted and has not begun.
    pub(super) fn waits_for_unused(&self) -> bool {
        (self.queue.len() > 0 || !self.resuming.is_empty()) && self.granted.iter().any(|&key| self.is_unused(key))
    }

    /// Takes back what was granted before the last look and has not been used since, if others wait.
    pub(super) fn revoke_unused(&mut self, now: Instant) {
        if !self.waits_for_unused() {
            return;
        }
        let unused: Vec<_> = self.granted.iter().copied().filter(|&key| self.is_unused(key)).collect();
        for key in unused {
            if self.requests[key].grant == Grant::New {
                self.requests[key].grant = Grant::Seen;
            } else {
                self.set_suspended(key, Duration::ZERO, now);
                self.requests[key].grant = Grant::Revoked;
            }
        }
        self.grant(now);
    }

    fn is_unused(&self, key: usize) -> bool {
        self.requests[key].grant != Grant::Used
    }

    /// The handler of a granted request has run for `ran`, and pends: it has no processor any more.
    pub(super) fn suspend(&mut self, key: usize, ran: Duration, now: Instant) {
        self.set_suspended(key, ran, now);
        self.grant(now);
    }

    fn set_suspended(&mut self, key: usize, ran: Duration, now: Instant) {
        self.give_back(key, ran, now);
        let request = &mut self.requests[key];
        request.state = State::Suspended;
        request.since = now;
        self.suspended += 1;
        self.suspended_ns += request.remaining_ns();
    }

    /// A suspended request could go on. It is granted, or resumes when its turn comes.
    pub(super) fn resume(&mut self, key: usize, now: Instant) {
        let request = &mut self.requests[key];
        if request.state != State::Suspended {
            return;
        }
        let suspended_ns = ns(now - request.since);
        request.suspended_ns += suspended_ns;
        request.since = now;
        request.state = if request.is_exempt { State::Granted } else { State::Resuming };
        let (is_exempt, was_revoked) = (request.is_exempt, request.grant == Grant::Revoked);
        let remaining_ns = request.remaining_ns();
        self.suspended -= 1;
        self.suspended_ns -= remaining_ns;
        if !was_revoked {
            let mean_ns = self.suspension_ns.get_or_insert(suspended_ns as f64);
            *mean_ns += OF_SUSPENSION * (suspended_ns as f64 - *mean_ns);
        }
        if is_exempt {
            self.exempt += 1;
            return;
        }
        self.resuming_ns += remaining_ns;
        self.resuming.push_back(key);
        self.grant(now);
        self.news.retain(|&other| other != key);
    }

    /// The handler of a granted request has run for `ran` and is done.
    pub(super) fn finish(&mut self, key: usize, ran: Duration, now: Instant) {
        self.give_back(key, ran, now);
        let request = self.requests.remove(key);
        self.costs.learn(request.offer.kind, Duration::from_nanos(request.used_ns));
        let took_ns = ns(now.saturating_duration_since(request.offer.arrived)).saturating_sub(request.suspended_ns);
        self.adjust_margin(took_ns as f64 - request.predicted_ns as f64);
        self.stats.finished += 1;
        self.grant(now);
    }

    /// Nobody wants this request any more, whatever its state.
    pub(super) fn end(&mut self, key: usize, now: Instant) {
        let request = &self.requests[key];
        let (offer, remaining_ns) = (request.offer, request.remaining_ns());
        match request.state.clone() {
            State::Waiting => {
                self.queue.remove(offer.class, offer.client, key);
                self.forget_deadline(key);
            }
            State::Granted => self.give_back(key, Duration::ZERO, now),
            State::Suspended => {
                self.suspended -= 1;
                self.suspended_ns -= remaining_ns;
            }
            State::Resuming => {
                self.resuming.retain(|&other| other != key);
                self.resuming_ns -= remaining_ns;
            }
            State::Dropped(_) => {}
        }
        // What was dropped has been counted.
        self.stats.cancelled += u64::from(!matches!(self.requests[key].state, State::Dropped(_)));
        self.requests.remove(key);
        self.news.retain(|&other| other != key);
        self.grant(now);
    }

    /// The next one whose state has changed without its doing.
    pub(super) fn next_news(&mut self) -> Option<usize> {
        self.news.pop()
    }

    pub(super) fn stats(&self, now: Instant) -> AdmissionStats {
        AdmissionStats {
            waiting: self.queue.len(),
            in_service: self.granted.len() + self.exempt + self.suspended + self.resuming.len(),
            cost: Duration::from_nanos(self.costs.mean_ns().unwrap_or(0)),
            delay: self.delay(Class::NORMAL, now),
            ..self.stats
        }
    }

    /// What a request of this class would wait before it begins.
    pub(super) fn delay(&self, class: Class, now: Instant) -> Duration {
        Duration::from_nanos(self.work_ahead_ns(class, now) / self.processors as u64)
    }

    /// Gives idle processors to whoever is next; drops on the way whom it would help no more.
    fn grant(&mut self, now: Instant) {
        self.expire(now);
        while self.idle > 0 {
            let key = if let Some(key) = self.resuming.pop_front() {
                self.resuming_ns -= self.requests[key].remaining_ns();
                key
            } else if let Some(key) = self.queue.pop() {
                self.forget_deadline(key);
                if let Some(reason) = self.too_late(key, now) {
                    self.drop_request(key, reason);
                    continue;
                }
                key
            } else {
                return;
            };
            self.idle -= 1;
            self.granted.push(key);
            let request = &mut self.requests[key];
            request.state = State::Granted;
            request.grant = Grant::New;
            request.since = now;
            self.news.push(key);
        }
    }

    /// Drops those in the queue whose deadline has passed.
    fn expire(&mut self, now: Instant) {
        while let Some(&(deadline, key)) = self.deadlines.first() {
            if deadline > now {
                return;
            }
            let Offer { class, client, .. } = self.requests[key].offer;
            self.queue.remove(class, client, key);
            self.drop_request(key, Reason::Deadline);
        }
    }

    fn forget_deadline(&mut self, key: usize) {
        if let Some(deadline) = self.requests[key].offer.deadline {
            self.deadlines.remove(&(deadline, key));
        }
    }

    /// Why a request whose turn has come is not to begin any more, if so.
    fn too_late(&self, key: usize, now: Instant) -> Option<Reason> {
        let Request { offer, expected_ns, predicted_ns, .. } = &self.requests[key];
        // More may be known by now.
        let expected_ns = self.costs.expect(offer.kind).map_or(*expected_ns, |expected| expected.mean_ns);
        let done = now + Duration::from_nanos(expected_ns);
        if offer.deadline.is_some_and(|deadline| done > deadline) {
            return Some(Reason::Deadline);
        }
        // Late, and later than it was promised: something took longer than it used to. Others wait for the same processor,
        // and can still be in time.
        let target = self.config.target_delay;
        let took = done.saturating_duration_since(offer.arrived);
        let is_late = took > target && ns(took) > predicted_ns + predicted_ns / 8 && self.queue.len() > 0;
        is_late.then_some(Reason::Delay { predicted: took, target })
    }

    fn drop_request(&mut self, key: usize, reason: Reason) -> bool {
        self.forget_deadline(key);
        let refused = Refused::new(reason, self.config.target_delay);
        self.requests[key].state = State::Dropped(refused);
        self.stats.dropped += 1;
        self.news.push(key);
        true
    }

    /// Takes the processor back from a granted request.
    fn give_back(&mut self, key: usize, ran: Duration, now: Instant) {
        debug_assert_eq!(self.requests[key].state, State::Granted, "only a granted request has a processor");
        let request = &mut self.requests[key];
        request.used_ns += ns(ran);
        // Now, as whoever gives up before the end has had it, too.
        self.recent.add(request.offer.client, ns(ran), now);
        if request.is_exempt {
            self.exempt -= 1;
            request.is_exempt = request.used_ns <= CHEAP_NS;
        } else {
            self.granted.retain(|&other| other != key);
            self.idle += 1;
        }
        if request.used_ns > CHEAP_NS {
            self.last_end = Some(now);
        }
    }

    /// What would run before a newcomer of this class.
    fn work_ahead_ns(&self, class: Class, now: Instant) -> u64 {
        let target_ns = ns(self.config.target_delay) as f64;
        let back_soon = self.suspension_ns.map_or(0.0, |mean_ns| (target_ns / mean_ns.max(1.0)).min(1.0));
        let suspended_ns = (self.suspended_ns as f64 * back_soon) as u64;
        if self.idle > 0 {
            // One is free: what the others run is not ahead, and nothing waits.
            return suspended_ns;
        }
        let running: u64 = self.granted.iter().map(|&key| self.requests[key].residual_ns(now)).sum();
        running + self.resuming_ns + suspended_ns + self.queue.work_ahead_ns(class)
    }

    /// Follows the error that one prediction in a hundred exceeds: up by much when it is exceeded, down by little when not.
    fn adjust_margin(&mut self, error_ns: f64) {
        let target_ns = ns(self.config.target_delay) as f64;
        let step_ns = target_ns * MARGIN_STEP;
        self.margin_ns += if error_ns > self.margin_ns { step_ns } else { -step_ns / 99.0 };
        self.margin_ns = self.margin_ns.clamp(target_ns * MARGIN_MIN, target_ns * MARGIN_MAX);
    }

    fn refusal(&self, reason: Reason, now: Instant) -> Refused {
        Refused::new(reason, self.delay(Class::LOW, now))
    }
}

impl Request {
    fn remaining_ns(&self) -> u64 {
        self.expected_ns.saturating_sub(self.used_ns)
    }

    /// What a running one will still run: one that has exceeded what was expected goes on for a while.
    fn residual_ns(&self, now: Instant) -> u64 {
        let running_ns = ns(now.saturating_duration_since(self.since));
        self.remaining_ns().saturating_sub(running_ns).max(running_ns / 4)
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What costs less is never refused for its delay: a refusal costs about as much, and helps nobody.
pub(super) const CHEAP_NS: u64 = 50_000;
/// So many requests of the mean cost in the queue keep a processor busy 98 % of the time at 1.1 times its capacity, if
/// arrivals are independent (M/D/1/K).
const ENOUGH: u64 = 14;
/// So many of the highest class may wait whatever the load; beyond that they are judged like others. Whoever checks asks one at
/// a time, and the path of a health check is known to everybody.
const VITAL_MAX: usize = 16;
/// For so many targets it counts what a client has had.
const MEMORY_OF_TARGETS: u32 = 10;
/// Shares of the target.
const MARGIN_FIRST: f64 = 0.1;
const MARGIN_MIN: f64 = 0.04;
const MARGIN_MAX: f64 = 0.5;
const MARGIN_STEP: f64 = 0.02;
const OF_SUSPENSION: f64 = 0.05;

#[cfg(test)]
mod tests;
