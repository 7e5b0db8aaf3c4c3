//! The replicas: stages, each with its own color, among which a balancer chooses.
//!
//! Lock order: `slots`, the balancer's, those of the stages.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use dapple_sched::Handle;
use dapple_sync::sync::{Notify, mpsc, oneshot};
use dapple_tower::balance::{Balancer, Config, Picked};
use dapple_tower::switch::{Mutex, lock};

use super::keep::{Begun, Kept, Running, Starting, keep};
use super::replica::{Check, Parts, Retired};
use super::route::Judge;
use super::scale::Replication;
use crate::Backoff;
use crate::Refused;
use crate::stage::core::{Core, drop_quietly, now};
use crate::stage::{Stage, StageBuilder, StageError, StageStats, Status};
use crate::supervise::Supervision;

/// Starts the replica with a number: at once, or after a while.
pub(super) type Make<Req, Resp, E> = Box<dyn FnMut(usize) -> Start<Req, Resp, E> + Send>;

pub(super) enum Start<Req, Resp, E> {
    Now(Parts<Req, Resp, E>),
    Later(Starting<Req, Resp, E>),
}

/// The identity of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// Started here, with this number.
    Own(usize),
    /// Run by others, with this name.
    Joined(Arc<str>),
}

/// The replicas of a stage.
pub(super) struct Set<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    pub(super) name: Arc<str>,
    pub(super) handle: Handle,
    supervision: Supervision,
    /// The number of calls that one replica serves at a time.
    pub(super) width: usize,
    max: usize,
    pub(super) backoff: Backoff,
    make: Mutex<Make<Req, Resp, E>>,
    pub(super) judge: Judge<Resp, E>,
    pub(super) balancer: Balancer<Key, Live<Req, Resp, E>>,
    slots: Mutex<Slots<Req, Resp, E>>,
    /// Notified when a replica enters or leaves.
    changed: Notify,
    front: OnceLock<Weak<Core<Req, Resp, StageError<E>>>>,
}

struct Slots<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    own: Vec<Slot<Req, Resp, E>>,
    /// The numbers of `own`, and of replicas that are ending.
    numbers: BTreeSet<usize>,
    joined: Vec<(Arc<str>, Stage<Req, Resp, E>)>,
    /// How many first starts are in progress, and when the last of these began.
    starting: usize,
    last_start: Option<Instant>,
    /// A replica started here has entered, or all starts have been tried.
    has_begun: bool,
    is_over: bool,
}

struct Slot<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    number: usize,
    /// The most recent stage of this replica.
    stage: Option<Stage<Req, Resp, E>>,
    /// Dropping it retires the replica.
    _wanted: oneshot::Sender<Infallible>,
}

/// A replica that can be chosen. Each choice holds a clone until its request ends.
pub(super) struct Live<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    pub(super) stage: Stage<Req, Resp, E>,
    pub(super) check: Option<Check>,
    /// Closes the channel with the last clone.
    _use: mpsc::Sender<Infallible>,
}

impl<Req, Resp, E> Set<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    pub(super) fn new(
        builder: &StageBuilder<Req>,
        rules: &Replication,
        judge: Judge<Resp, E>,
        make: Make<Req, Resp, E>,
    ) -> Set<Req, Resp, E> {
        let (name, width, supervision) = builder.of_replicas();
        let backoff = Backoff::new(rules.rejoin_after, rules.rejoin_after.saturating_mul(32)).jitter(0.0);
        let mut config = Config::default();
        config.backoff = backoff.clone();
        let slots = Slots {
            own: Vec::new(),
            numbers: BTreeSet::new(),
            joined: Vec::new(),
            starting: 0,
            last_start: None,
            has_begun: false,
            is_over: false,
        };
        Set {
            name,
            handle: builder.runtime_or_current(),
            supervision,
            width,
            max: rules.max,
            backoff,
            make: Mutex::new(make),
            judge,
            balancer: Balancer::new(config),
            slots: Mutex::new(slots),
            changed: Notify::new(),
            front: OnceLock::new(),
        }
    }

    /// Lets the width of the common queue's stage follow the number of replicas.
    pub(super) fn set_front(&self, front: &Arc<Core<Req, Resp, StageError<E>>>) {
        let _only_once = self.front.set(Arc::downgrade(front));
        self.stages().iter().for_each(|stage| front.links.add(&crate::graph::Linked::node(stage), "replica"));
    }

    /// Adjusts the number of replicas, each with the smallest free number. Leaving replicas finish
    /// their requests, and keep their numbers until then.
    pub(super) fn resize(self: &Arc<Self>, count: usize) {
        let mut gone = Vec::new();
        // Count one more start until all have begun.
        lock(&self.slots).starting += 1;
        loop {
            let mut slots = lock(&self.slots);
            let count = if slots.is_over { 0 } else { count };
            while slots.own.len() > count {
                let Some(slot) = slots.own.pop() else { break };
                gone.push((self.balancer.remove(&Key::Own(slot.number)), slot));
            }
            let number = (0..self.max).find(|number| !slots.numbers.contains(number));
            let Some(number) = number.filter(|_| slots.own.len() < count) else { break };
            slots.numbers.insert(number);
            let (_wanted, wanted) = oneshot::channel();
            slots.own.push(Slot { number, stage: None, _wanted });
            drop(slots);
            // The factory is user code: do not call it under the lock.
            let first = self.begin(number);
            let is_new = matches!(first, Begun::Starting(_));
            if is_new {
                let mut slots = lock(&self.slots);
                slots.starting += 1;
                slots.last_start = Some(now());
            }
            let kept = Kept::new(Arc::downgrade(self), number, is_new);
            let _detached = self.handle.spawn(keep(kept, Retired(wanted), first));
        }
        drop_quietly(gone);
        self.started();
    }

    /// Starts the replica with that number.
    pub(super) fn begin(&self, number: usize) -> Begun<Req, Resp, E> {
        let start = {
            let _entered = self.handle.enter();
            lock(&self.make)(number)
        };
        match start {
            Start::Now(parts) => Begun::Running(self.enter(number, parts)),
            Start::Later(starting) => Begun::Starting(starting),
        }
    }

    /// A first start has ended, successfully or not.
    pub(super) fn started(&self) {
        {
            let mut slots = lock(&self.slots);
            slots.starting -= 1;
            slots.has_begun |= slots.starting == 0;
        }
        self.tell();
    }

    /// Takes a started replica into service, unless it is not wanted any more.
    pub(super) fn enter(&self, number: usize, parts: Parts<Req, Resp, E>) -> Running<Req, Resp, E> {
        let Parts { factory, check, life } = parts;
        let stage = self.builder(&format!("{} {number}", self.name)).build(factory);
        let (live, uses) = Live::new(stage.clone(), check);
        let mut old = None;
        {
            let mut slots = lock(&self.slots);
            if let Some(slot) = slots.own.iter_mut().find(|slot| slot.number == number) {
                old = Some((slot.stage.replace(stage.clone()), self.balancer.insert(Key::Own(number), live)));
                slots.has_begun = true;
            }
        }
        drop_quietly(old);
        self.link(&stage);
        let (retire, retired) = oneshot::channel();
        Running { stage, uses, retire, life: life(Retired(retired)) }
    }

    /// Sends no more requests to it.
    pub(super) fn leave(&self, number: usize) {
        drop_quietly(self.balancer.remove(&Key::Own(number)));
        self.tell();
    }

    /// The replica has ended.
    pub(super) fn freed(&self, number: usize) {
        lock(&self.slots).numbers.remove(&number);
        self.changed.notify_waiters();
    }

    /// Adds a replica that others run, or replaces the one of that name. It never goes out of
    /// service, because nothing here could start it again; after the death of a handler the stage
    /// only pauses it.
    pub(super) fn join(&self, name: &str, parts: Parts<Req, Resp, E>) {
        let name: Arc<str> = name.into();
        let supervision = Supervision { deaths_max: 0, ..self.supervision.clone() };
        let stage = self.builder(&format!("{} at {name}", self.name)).supervision(supervision).build(parts.factory);
        let (live, _uses) = Live::new(stage.clone(), parts.check);
        let mut old = Vec::new();
        {
            let mut slots = lock(&self.slots);
            if slots.is_over {
                return;
            }
            old.extend(self.balancer.insert(Key::Joined(name.clone()), live).map(|live| live.stage));
            slots.joined.retain(|(joined, _)| *joined != name);
            slots.joined.push((name, stage.clone()));
        }
        drop_quietly(old);
        self.link(&stage);
    }

    /// Removes a joined replica, and returns whether it was there.
    pub(super) fn part(&self, name: &str) -> bool {
        let old = {
            let mut slots = lock(&self.slots);
            slots.joined.retain(|(joined, _)| **joined != *name);
            self.balancer.remove(&Key::Joined(name.into()))
        };
        let was_there = old.is_some();
        drop_quietly(old);
        self.tell();
        was_there
    }

    /// Gives up if all replicas are still in their first start: no request waits for it any more.
    pub(super) fn give_up_start(self: &Arc<Self>) {
        {
            let mut slots = lock(&self.slots);
            if slots.has_begun {
                return;
            }
            (slots.has_begun, slots.is_over) = (true, true);
        }
        tracing::warn!(stage = &*self.name, "no replica could be started before the stage was to stop");
        self.resize(0);
    }

    /// Ends all replicas, and resolves when they have ended.
    pub(super) async fn end(self: Arc<Self>) {
        lock(&self.slots).is_over = true;
        self.resize(0);
        let joined: Vec<Arc<str>> = lock(&self.slots).joined.iter().map(|(name, _)| name.clone()).collect();
        for name in joined {
            self.part(&name);
        }
        loop {
            let changed = self.changed.notified();
            if lock(&self.slots).numbers.is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Picks the replica for the next request: of two randomly drawn ones with room, the one with
    /// less work. It takes one without room only if all are full, and one that rests after a death
    /// only if all rest. Waits until the first has entered, or none could be started.
    pub(super) async fn pick(&self) -> Result<Picked<Key, Live<Req, Resp, E>>, Refused> {
        let may = |may: fn(Status, bool) -> bool| {
            self.balancer.pick_if(|one| may(one.value.stage.core.status(), one.in_flight < self.width))
        };
        loop {
            let changed = self.changed.notified();
            // Before the look, so that it sees a replica that enters later.
            let has_begun = lock(&self.slots).has_begun;
            let picked = may(|status, has_room| status == Status::Running && has_room)
                .or_else(|_| may(|status, _| status == Status::Running))
                .or_else(|_| may(|status, _| status == Status::Resting));
            match picked {
                Err(_) if !has_begun => changed.await,
                Err(refused) => {
                    let rest = refused.retry_after.max(self.backoff.wait(0, 0.0));
                    return Err(Refused::new(refused.reason, rest));
                }
                Ok(picked) => return Ok(picked),
            }
        }
    }

    /// Whether a recent first start is in progress.
    pub(super) fn is_starting(&self, now: Instant) -> bool {
        let slots = lock(&self.slots);
        let begun = slots.last_start.filter(|_| slots.starting > 0);
        begun.is_some_and(|begun| now.saturating_duration_since(begun) < START_MAX)
    }

    /// The number of replicas that others run.
    pub(super) fn joined_len(&self) -> usize {
        lock(&self.slots).joined.len()
    }

    pub(super) fn stages(&self) -> Vec<Stage<Req, Resp, E>> {
        let slots = lock(&self.slots);
        let own = slots.own.iter().filter_map(|slot| slot.stage.clone());
        own.chain(slots.joined.iter().map(|(_, stage)| stage.clone())).collect()
    }

    pub(super) fn stats(&self) -> Vec<StageStats> {
        self.stages().iter().map(Stage::stats).collect()
    }

    /// Room for requests in service and on their way; more are rarely sent.
    fn builder(&self, name: &str) -> StageBuilder<Req> {
        let builder = StageBuilder::new(name.to_owned()).runtime(self.handle.clone()).color(self.handle.new_color());
        builder.width(self.width).queue_len_max(usize::MAX).supervision(self.supervision.clone())
    }

    fn link(&self, stage: &Stage<Req, Resp, E>) {
        if let Some(front) = self.front.get().and_then(Weak::upgrade) {
            front.links.add(&crate::graph::Linked::node(stage), "replica");
        }
        self.tell();
    }

    /// Sets the width of the common queue to the room of all replicas. Without any, requests learn
    /// that instead of waiting.
    pub(super) fn tell(&self) {
        if let Some(front) = self.front.get().and_then(Weak::upgrade) {
            // Another thread may store an older value: so the last thread to store checks again.
            loop {
                let len = self.balancer.serving_len();
                front.set_width_to(len.max(1) * self.width);
                if self.balancer.serving_len() == len {
                    break;
                }
            }
        }
        self.changed.notify_waiters();
    }
}

impl<Req, Resp, E> Live<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    /// Returns also the channel that closes with the last clone.
    fn new(stage: Stage<Req, Resp, E>, check: Option<Check>) -> (Self, mpsc::Receiver<Infallible>) {
        let (_use, uses) = mpsc::channel(1);
        (Live { stage, check, _use }, uses)
    }
}

impl<Req, Resp, E> Clone for Live<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn clone(&self) -> Self {
        Live { stage: self.stage.clone(), check: self.check.clone(), _use: self._use.clone() }
    }
}

/// A longer start does not count any more.
pub(super) const START_MAX: Duration = Duration::from_secs(30);
