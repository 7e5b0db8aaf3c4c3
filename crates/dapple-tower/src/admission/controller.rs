//! The decision, without a clock or a wait: its inputs and their times fully determine its answers.
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
//! | granted | yes | yes, minus its run time so far |
//! | suspended | no | the part of it that is expected to come back within the target, judged by earlier suspensions |
//! | resuming | no; it goes before all waiting requests | yes |
//! | dropped, and after the end | no | no |
//!
//! The controller takes back a grant that is not used, and suspends its request: a loop around
//! `select!` may keep the future and not poll it any more. See [`Controller::revoke_unused`].
//!
//! A request expected to cost no more than a refusal is *exempt*: it is granted at once, without a
//! processor.

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
    /// The deadlines of queued requests.
    deadlines: BTreeSet<(Instant, usize)>,
    /// Requests that have begun, were suspended, and could continue.
    resuming: VecDeque<usize>,
    resuming_ns: u64,
    granted: Vec<usize>,
    /// Requests granted without a processor.
    exempt: usize,
    suspended: usize,
    suspended_ns: u64,
    /// The mean time of a suspension, once that is known.
    suspension_ns: Option<f64>,
    /// One prediction in a hundred falls short by more than this.
    margin_ns: f64,
    /// When a poll of a handler last ended.
    last_end: Option<Instant>,
    requests: Slab<Request>,
    /// Requests with a changed state; their waiters must be notified.
    news: Vec<usize>,
    stats: AdmissionStats,
}

#[derive(Debug)]
struct Request {
    offer: Offer,
    expected_ns: u64,
    used_ns: u64,
    suspended_ns: u64,
    /// The predicted time from its arrival to its end, not counting its own waits.
    predicted_ns: u64,
    /// When its state last changed.
    since: Instant,
    state: State,
    /// It has cost almost nothing so far, and the same is expected for the rest.
    is_exempt: bool,
    /// The state of its grant.
    grant: Grant,
}

/// The state of a grant.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Grant {
    New,
    /// The last check for unused grants has seen it.
    Seen,
    /// The handler is being polled with it.
    Used,
    /// It was not used, and the request was suspended.
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

    /// Takes a request, or refuses it with a reason. The returned key names the request until
    /// [`Controller::end`].
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

    /// Decides whether to take it, and predicts its end in that case. May drop others in its favor.
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
        // After a period in which nothing ran, the request waited for some other cause, such as a
        // machine that was paused.
        let is_calm = self.granted.is_empty() && self.queue.len() == 0 && self.resuming.is_empty();
        let was_calm = self.last_end.is_none_or(|end| now - end > self.config.target_delay);
        // A refusal would cost as much.
        if most_ns <= CHEAP_NS {
            return Ok(delay_ns + most_ns);
        }
        // Load must not decide whether a service looks alive. More than a few such checks at a time
        // are a load themselves.
        let is_vital = offer.class == Class::VITAL && self.queue.len_in(Class::VITAL) < VITAL_MAX;
        if (is_calm && was_calm) || is_vital {
            return self.room_for(offer, now).map(|()| delay_ns + most_ns);
        }
        let limit_ns = self.limit_ns(most_ns);
        if delay_ns > limit_ns {
            // A client with more waiting than this one makes room with its newest request.
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

    /// The longest time that a request waits before it begins, if it then costs `most_ns`.
    fn limit_ns(&self, most_ns: u64) -> u64 {
        let target_ns = ns(self.config.target_delay);
        let in_time_ns = target_ns.saturating_sub(self.margin_ns as u64 + most_ns);
        // This many keep the processors busy; more would only wait.
        let mean_ns = self.costs.mean_ns().unwrap_or(0);
        let enough_ns = (ENOUGH * mean_ns / self.processors as u64).max(target_ns / 4);
        in_time_ns.min(enough_ns).max(target_ns / 8)
    }

    /// Whether another client has more waiting in this class; if so, drops that client's newest
    /// request. Where almost nothing waits because handlers are long, recent use decides instead.
    fn yields_to(&mut self, offer: &Offer, now: Instant) -> bool {
        let own = self.queue.len_of(offer.class, offer.client);
        let Some((client, len)) = self.queue.largest(offer.class) else { return false };
        // More by at least one request: having just arrived gives a newcomer no stronger claim.
        let request_ns = self.costs.mean_ns().unwrap_or(0) as f64;
        let has_had_more = || 2.0 * self.recent.of(offer.client, now) + request_ns < self.recent.of(client, now);
        if client == offer.client || (len <= own + 1 && (own > 0 || !has_had_more())) {
            return false;
        }
        let evicted = self.queue.evict_newest(offer.class, client);
        evicted.is_some_and(|key| self.drop_request(key, Reason::Share { len }))
    }

    /// Finds a place in the queue, taking it from a lower class if necessary.
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

    /// Drops requests of lower classes that would now be late, because a request of this class goes
    /// first.
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
            // The caller checks at once.
            self.news.retain(|&other| other != key);
        }
        key
    }

    /// The current state of a request.
    pub(super) fn state(&self, key: usize) -> &State {
        &self.requests[key].state
    }

    /// Whether a request costs almost nothing.
    pub(super) fn is_exempt(&self, key: usize) -> bool {
        self.requests[key].is_exempt
    }

    /// Whether requests cost so much that their wait outside matters.
    pub(super) fn is_dear(&self) -> bool {
        self.costs.mean_ns().is_some_and(|mean| mean > CHEAP_NS)
    }

    /// Begins a poll of a granted request; false if the grant was revoked.
    pub(super) fn claim(&mut self, key: usize) -> bool {
        let request = &mut self.requests[key];
        let is_granted = request.state == State::Granted;
        if is_granted {
            request.grant = Grant::Used;
        }
        is_granted
    }

    /// Whether others wait for a request that was granted and has not begun.
    pub(super) fn waits_for_unused(&self) -> bool {
        (self.queue.len() > 0 || !self.resuming.is_empty()) && self.granted.iter().any(|&key| self.is_unused(key))
    }

    /// If others wait, takes back grants from before the last check that were not used since.
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

    /// The handler of a granted request has run for `ran`, and is pending: it has no processor any
    /// more.
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

    /// A suspended request could continue. It is granted, or resumes when its turn comes.
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

    /// Ends a request that its caller has given up, in any state.
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
        // Dropped requests were counted earlier.
        self.stats.cancelled += u64::from(!matches!(self.requests[key].state, State::Dropped(_)));
        self.requests.remove(key);
        self.news.retain(|&other| other != key);
        self.grant(now);
    }

    /// The next request with a state changed by others.
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

    /// The wait of a new request of this class before it begins.
    pub(super) fn delay(&self, class: Class, now: Instant) -> Duration {
        Duration::from_nanos(self.work_ahead_ns(class, now) / self.processors as u64)
    }

    /// Gives idle processors to the next requests, and drops those among them that are too late.
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

    /// Drops queued requests past their deadline.
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

    /// Why a request at its turn must not begin any more, if so.
    fn too_late(&self, key: usize, now: Instant) -> Option<Reason> {
        let Request { offer, expected_ns, predicted_ns, .. } = &self.requests[key];
        // The cost may be better known by now.
        let expected_ns = self.costs.expect(offer.kind).map_or(*expected_ns, |expected| expected.mean_ns);
        let done = now + Duration::from_nanos(expected_ns);
        if offer.deadline.is_some_and(|deadline| done > deadline) {
            return Some(Reason::Deadline);
        }
        // Late, and later than predicted: the machine was slower than usual. Others wait for the
        // same processor, and can still be in time.
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
        // Added now, because a request that is given up early has used processor time, too.
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

    /// The work that would run before a newcomer of this class.
    fn work_ahead_ns(&self, class: Class, now: Instant) -> u64 {
        let target_ns = ns(self.config.target_delay) as f64;
        let back_soon = self.suspension_ns.map_or(0.0, |mean_ns| (target_ns / mean_ns.max(1.0)).min(1.0));
        let suspended_ns = (self.suspended_ns as f64 * back_soon) as u64;
        if self.idle > 0 {
            // A processor is free: running work is not ahead, and nothing waits.
            return suspended_ns;
        }
        let running: u64 = self.granted.iter().map(|&key| self.requests[key].residual_ns(now)).sum();
        running + self.resuming_ns + suspended_ns + self.queue.work_ahead_ns(class)
    }

    /// Follows the error that one prediction in a hundred exceeds: up by a large step when it is
    /// exceeded, otherwise down by a small one.
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

    /// The expected rest of a running request: one that has exceeded its expectation is expected to
    /// run for a while longer.
    fn residual_ns(&self, now: Instant) -> u64 {
        let running_ns = ns(now.saturating_duration_since(self.since));
        self.remaining_ns().saturating_sub(running_ns).max(running_ns / 4)
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Requests below this cost are never refused for delay: a refusal costs about as much, and gains
/// nothing.
pub(super) const CHEAP_NS: u64 = 50_000;
/// This many requests of the mean cost in the queue keep a processor busy 98 % of the time at 1.1
/// times its capacity, if arrivals are independent (M/D/1/K).
const ENOUGH: u64 = 14;
/// This many of the highest class may wait under any load; more are judged like others. A health
/// checker sends one at a time, but every client knows the path of a health check.
const VITAL_MAX: usize = 16;
/// How many targets long it remembers a client's use.
const MEMORY_OF_TARGETS: u32 = 10;
/// Shares of the target.
const MARGIN_FIRST: f64 = 0.1;
const MARGIN_MIN: f64 = 0.04;
const MARGIN_MAX: f64 = 0.5;
const MARGIN_STEP: f64 = 0.02;
const OF_SUSPENSION: f64 = 0.05;

#[cfg(test)]
mod tests;
