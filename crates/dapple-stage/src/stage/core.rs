//! The state of a stage that its handles share: requests enter the queue, and start as soon as one
//! may be served.
//!
//! Two locks, taken in this order: `handlers`, then the queue's. Each change that may let a request
//! start calls [`Core::start_all`]. One thread at a time starts, so that requests of one color
//! start in the order of acceptance.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use dapple_sched::{Color, Handle};
use dapple_sync::sync::Notify;
use dapple_tower::switch::{Mutex, lock};
use dapple_tower::time::Sleep;

use super::behind::know_stage;
use super::handler::Factory;
use super::handlers::{Alarm, Handlers};
use super::job::{DropCallback, Job, Reply};
use super::limits::Bucket;
use super::limits::Throttle;
use super::policy::{ColorPolicy, Load, Policy};
use super::queue::{Entry, QueueRank};
use super::serve::{self, Work};
use super::shared_queue::SharedQueue;
use super::stats::{Counters, StageStats, Status};
use crate::graph::{Links, Node};
use crate::{Reason, Refused};

/// The state that all handles of a stage and its tasks share.
pub(crate) struct Core<Req, Resp, E> {
    pub(crate) name: Arc<str>,
    pub(crate) handle: Handle,
    pub(crate) policy: Policy<Req>,
    pub(crate) queue: SharedQueue<Job<Req, Resp, E>>,
    pub(crate) handlers: Mutex<Handlers<Req, Resp, E>>,
    pub(crate) counters: Counters,
    pub(crate) links: Links,
    /// The budget of workers' time. It has its own lock, because each resumed handler reads it.
    share: Option<Mutex<Bucket>>,
    /// The expected wait of a request that comes now.
    delay_ns: AtomicU64,
    /// Notified when no request waits and none is in service.
    at_rest: Notify,
    /// Notified when the stage goes out of service.
    pub(crate) went_out: Notify,
}

/// A request and its caller's settings.
pub(crate) struct Order<Req> {
    pub(crate) request: Req,
    pub(crate) deadline: Option<Instant>,
    pub(crate) rank: Option<u8>,
    pub(crate) on_drop: Option<DropCallback<Req>>,
}

impl<Req> Order<Req> {
    pub(crate) fn new(request: Req) -> Order<Req> {
        Order { request, deadline: None, rank: None, on_drop: None }
    }
}

/// The work that may start now, or the time of the next check.
enum Next<Req, Resp, E> {
    Start(Work<Req, Resp, E>),
    Later(Option<Instant>),
}

impl<Req, Resp, E> Core<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    pub(crate) fn new(
        name: Arc<str>,
        handle: Handle,
        policy: Policy<Req>,
        handlers: Handlers<Req, Resp, E>,
        queue: SharedQueue<Job<Req, Resp, E>>,
        share: Option<Bucket>,
    ) -> Core<Req, Resp, E> {
        know_stage::<E>();
        Core {
            name,
            handle,
            policy,
            queue,
            handlers: Mutex::new(handlers),
            counters: Counters::default(),
            links: Links::default(),
            share: share.map(Mutex::new),
            delay_ns: AtomicU64::new(0),
            at_rest: Notify::new(),
            went_out: Notify::new(),
        }
    }

    /// Takes a request, or refuses it with a reason.
    pub(crate) fn submit(
        self: &Arc<Self>,
        ticket: &mut Option<u64>,
        order: Order<Req>,
        reply: Reply<Resp, E>,
    ) -> Result<QueueRank, Refused> {
        let now = now();
        let Order { request, deadline, rank, on_drop } = order;
        let deadline = deadline.or_else(|| self.deadline_of(&request, now));
        if deadline.is_some_and(|deadline| deadline <= now) {
            self.queue.release(ticket);
            return Err(self.refuse(request, on_drop, Reason::Deadline));
        }
        if let Err(refused) = self.admit(&request) {
            self.queue.release(ticket);
            self.instead(request, on_drop, &refused);
            return Err(refused);
        }
        let color = self.color_of(&request);
        let entry = Entry {
            bytes: self.policy.weigh.as_ref().map_or(0, |weigh| weigh(&request)),
            rank: rank.or_else(|| self.policy.rank.as_ref().map(|rank| rank(&request))).unwrap_or(0),
            deadline,
            item: Job { request, reply, color, arrived: now, on_drop },
        };
        // Count first, because other threads may serve the request at once: `served` never exceeds
        // `accepted`.
        self.counters.accepted.fetch_add(1, Relaxed);
        match self.queue.push(ticket, entry) {
            Ok(place) => {
                self.start_all();
                Ok(place)
            }
            Err((reason, entry)) => {
                self.counters.accepted.fetch_sub(1, Relaxed);
                let Job { request, on_drop, .. } = entry.item;
                Err(self.refuse(request, on_drop, reason))
            }
        }
    }

    fn deadline_of(&self, request: &Req, now: Instant) -> Option<Instant> {
        let asked = self.policy.deadline.as_ref().and_then(|deadline| deadline(request));
        asked.or_else(|| self.policy.patience.and_then(|patience| now.checked_add(patience)))
    }

    fn admit(&self, request: &Req) -> Result<(), Refused> {
        let Some(admission) = &self.policy.admission else { return Ok(()) };
        let result = admission(request, &self.load());
        if let Err(refused) = &result {
            self.counters.refused(&refused.reason);
        }
        result
    }

    pub(crate) fn load(&self) -> Load {
        let (queue_len, queue_bytes, _) = self.queue.lengths();
        let (in_service, width, delay) = {
            let handlers = lock(&self.handlers);
            (handlers.in_service, handlers.width, self.delay_behind(&handlers, queue_len))
        };
        let queue_len_max = self.policy.queue_len_max;
        Load { queue_len, queue_len_max, queue_bytes, in_service, width, delay }
    }

    pub(crate) fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay_ns.load(Relaxed))
    }

    fn color_of(&self, request: &Req) -> Option<Color> {
        match &self.policy.color {
            ColorPolicy::Each => None,
            ColorPolicy::One(color) => Some(color.clone()),
            ColorPolicy::By(color) => {
                let _entered = self.handle.enter();
                Some(color(request))
            }
        }
    }

    /// Starts all requests that may start, and schedules the next check if time alone can allow
    /// more.
    pub(crate) fn start_all(self: &Arc<Self>) {
        if std::mem::replace(&mut lock(&self.handlers).starting, true) {
            return;
        }
        loop {
            let now = now();
            for entry in self.queue.expire(now) {
                self.drop_entry(entry, Reason::Deadline);
            }
            let mut handlers = lock(&self.handlers);
            match self.next(&mut handlers, now) {
                Next::Start(work) => {
                    drop(handlers);
                    serve::start(self.clone(), work);
                }
                Next::Later(at) => {
                    handlers.starting = false;
                    self.set_alarm(&mut handlers, at);
                    let at_rest = handlers.in_service == 0 && self.queue.len() == 0;
                    drop(handlers);
                    if at_rest {
                        self.at_rest.notify_waiters();
                    }
                    return;
                }
            }
        }
    }

    fn next(&self, handlers: &mut Handlers<Req, Resp, E>, now: Instant) -> Next<Req, Resp, E> {
        if self.queue.len() == 0 {
            return Next::Later(None);
        }
        if let Err(at) = self.share_lets_start(handlers, now) {
            return Next::Later(at);
        }
        let most = match handlers.may_start(now, self.policy.cohort_max) {
            Ok(most) => most,
            Err(at) => return Next::Later(at),
        };
        let (taken, wakes) = self.queue.take(most, |one, other| one.color == other.color);
        if taken.is_empty() {
            return Next::Later(None);
        }
        let next_handler =
            handlers.start(taken.len()).expect("the factory is there, because one thread at a time starts");
        let generation = handlers.generation;
        let color = taken[0].1.item.color.clone();
        Next::Start(Work { taken, next_handler, generation, color, wakes })
    }

    /// Whether the share of the workers' time allows one more call in service; otherwise the time
    /// of the next check, if time can change that.
    fn share_lets_start(&self, handlers: &Handlers<Req, Resp, E>, now: Instant) -> Result<(), Option<Instant>> {
        let Some(share) = &self.share else { return Ok(()) };
        let mean = handlers.totals.busy.mean();
        // No call was measured yet: do not start all at once.
        if mean.is_zero() && handlers.in_service >= self.handle.workers() {
            return Err(None);
        }
        lock(share).look(now, mean.as_secs_f64() * handlers.in_service as f64).map_err(Some)
    }

    /// Sets a task that checks again at `at`, or at the first deadline. An empty queue needs none.
    fn set_alarm(self: &Arc<Self>, handlers: &mut Handlers<Req, Resp, E>, at: Option<Instant>) {
        let at = at.filter(|_| self.queue.len() > 0).into_iter().chain(self.queue.deadline()).min();
        let Some(at) = at else {
            if let Some(alarm) = handlers.alarm.take() {
                alarm.abort.abort();
            }
            return;
        };
        // An alarm that fires early only causes a useless check.
        if handlers.alarm.as_ref().is_some_and(|alarm| alarm.at <= at) {
            return;
        }
        handlers.totals.alarms += 1;
        let number = handlers.totals.alarms;
        let core = self.clone();
        let task = self.handle.spawn(async move {
            Sleep::until(at).await;
            core.rang(number);
        });
        let alarm = Alarm { at, number, abort: task.abort_handle() };
        if let Some(old) = handlers.alarm.replace(alarm) {
            old.abort.abort();
        }
    }

    fn rang(self: &Arc<Self>, number: u64) {
        let mut handlers = lock(&self.handlers);
        if handlers.alarm.as_ref().is_some_and(|alarm| alarm.number == number) {
            handlers.alarm = None;
        }
        drop(handlers);
        self.start_all();
    }

    /// The caller of a request has stopped waiting. A request in service learns it from its reply.
    pub(crate) fn cancel(self: &Arc<Self>, place: QueueRank) {
        if let Some(entry) = self.queue.cancel(place) {
            drop_quietly(entry);
            self.counters.canceled.fetch_add(1, Relaxed);
            if self.queue.len() == 0 {
                self.start_all();
            }
        }
    }

    /// Refuses a waiting request.
    pub(crate) fn drop_entry(&self, entry: Entry<Job<Req, Resp, E>>, reason: Reason) {
        let Job { request, reply, on_drop, .. } = entry.item;
        let refused = self.refuse(request, on_drop, reason);
        quietly(|| reply.put(Err(refused.into())));
    }

    fn refuse(&self, request: Req, on_drop: Option<DropCallback<Req>>, reason: Reason) -> Refused {
        self.counters.refused(&reason);
        let refused = Refused::new(reason, self.delay());
        self.instead(request, on_drop, &refused);
        refused
    }

    /// Runs the drop callback of a request, or frees its state here. Not in the request's own
    /// color, which may be busy for long: its state must be freed now.
    fn instead(&self, request: Req, on_drop: Option<DropCallback<Req>>, refused: &Refused) {
        let refused = refused.clone();
        let run: Box<dyn FnOnce() + Send> = match (on_drop, self.policy.on_drop.clone()) {
            (Some(run), _) => Box::new(move || run(request, &refused)),
            (None, Some(run)) => Box::new(move || run(request, &refused)),
            // The thread that starts requests must survive a panic here.
            (None, None) => return drop_quietly(request),
        };
        // Only a stopped runtime refuses, and then nothing runs any more.
        drop_quietly(self.handle.new_color().try_post(run));
    }

    /// Replaces the service with another version.
    pub(crate) fn replace(self: &Arc<Self>, factory: Factory<Req, Resp, E>) {
        let mut handlers = lock(&self.handlers);
        handlers.generation += 1;
        let old = (std::mem::take(&mut handlers.idle), handlers.factory.replace(factory));
        if handlers.supervisor.is_out() && !handlers.stopping {
            self.queue.open();
        }
        handlers.supervisor.reset();
        drop(handlers);
        drop_quietly(old);
        self.start_all();
    }

    /// As `set_width`, for a width that is updated continually.
    pub(crate) fn set_width_to(self: &Arc<Self>, width: usize) {
        if lock(&self.handlers).width != width {
            self.set_width(width);
        }
    }

    /// The arrival time of the request that will be served next.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.queue.first(|job| job.arrived)
    }

    pub(crate) fn set_width(self: &Arc<Self>, width: usize) {
        let mut handlers = lock(&self.handlers);
        handlers.width = width.max(1);
        handlers.control = None;
        let idle_max = handlers.width.saturating_sub(handlers.in_service);
        let surplus = if handlers.idle.len() > idle_max { handlers.idle.split_off(idle_max) } else { Vec::new() };
        drop(handlers);
        drop_quietly(surplus);
        self.start_all();
    }

    /// Stops taking requests; with `clear`, also refuses the waiting ones.
    pub(crate) fn shut(self: &Arc<Self>, clear: bool) {
        let mut handlers = lock(&self.handlers);
        handlers.stopping = true;
        let shut = self.queue.shut(Reason::Stopping, clear);
        drop(handlers);
        for entry in shut.told() {
            self.drop_entry(entry, Reason::Stopping);
        }
        self.start_all();
    }

    /// Resolves when no request waits and none is in service.
    pub(crate) async fn rest(&self) {
        loop {
            let notified = self.at_rest.notified();
            // Read both under one lock: a request that starts in between would be in neither count.
            let is_at_rest = {
                let handlers = lock(&self.handlers);
                handlers.in_service == 0 && self.queue.len() == 0
            };
            if is_at_rest {
                return;
            }
            notified.await;
        }
    }

    /// Resolves when the stage goes out of service.
    pub(crate) async fn until_out(&self) {
        loop {
            let notified = self.went_out.notified();
            if lock(&self.handlers).supervisor.is_out() {
                return;
            }
            notified.await;
        }
    }

    /// The state of the stage.
    pub(crate) fn status(&self) -> Status {
        lock(&self.handlers).status(now())
    }

    /// Updates the delay that refusals report.
    pub(crate) fn set_delay(&self, handlers: &Handlers<Req, Resp, E>, waiting: usize) {
        let delay_ns = u64::try_from(self.delay_behind(handlers, waiting).as_nanos()).unwrap_or(u64::MAX);
        self.delay_ns.store(delay_ns, Relaxed);
    }

    /// The expected wait of a new request after this many others, from recent service times.
    fn delay_behind(&self, handlers: &Handlers<Req, Resp, E>, waiting: usize) -> Duration {
        let calls = waiting.div_ceil(self.policy.cohort_max) as f64;
        let delay_ns = handlers.totals.service_time.mean().as_nanos() as f64 * calls / handlers.width as f64;
        Duration::from_nanos(delay_ns as u64)
    }

    pub(crate) fn stats(&self) -> StageStats {
        let (queue_len, queue_bytes, callers_waiting) = self.queue.lengths();
        let refused_for = self.counters.refused_for();
        let mut handlers = lock(&self.handlers);
        let status = handlers.status(now());
        let totals = &handlers.totals;
        StageStats {
            name: self.name.to_string(),
            status,
            queue_len,
            queue_len_max: self.policy.queue_len_max,
            queue_bytes,
            callers_waiting,
            in_service: handlers.in_service,
            width: handlers.width,
            accepted: self.counters.accepted.load(Relaxed),
            served: totals.served,
            failed: totals.failed,
            refused: refused_for.iter().map(|(_, count)| count).sum(),
            refused_for,
            canceled: self.counters.canceled.load(Relaxed) + totals.canceled,
            expired: totals.expired,
            panicked: totals.panicked,
            restarts: totals.restarts,
            replaced: handlers.generation,
            queue_delay: totals.queue_delay.mean(),
            service_time: totals.service_time.mean(),
            worker_time: totals.worker_time,
        }
    }
}

/// The runtime's clock, which stands still in tests.
pub(crate) fn now() -> Instant {
    dapple_io::time::Instant::now().into_std()
}

/// Drops a user's value, which may panic.
pub(crate) fn drop_quietly<T>(value: T) {
    quietly(|| drop(value));
}

/// Runs work on a user's values, which may panic when they are dropped or woken.
pub(crate) fn quietly(work: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(work)) {
        dapple_sched::foreign::discard(payload);
        tracing::error!("a request, response, service or waker of a stage panicked while it was dropped or woken");
    }
}

impl<Req, Resp, E> Throttle for Core<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn look(&self) -> Result<(), Instant> {
        self.share.as_ref().map_or(Ok(()), |share| lock(share).look(now(), 0.0))
    }

    fn took(&self, time: Duration) {
        if let Some(share) = &self.share {
            lock(share).take(time.as_secs_f64());
        }
    }
}

impl<Req, Resp, E> Node for Core<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn stats(&self) -> Option<StageStats> {
        Some(Core::stats(self))
    }

    fn links(&self) -> Vec<(Arc<dyn Node>, &'static str)> {
        self.links.all()
    }
}
