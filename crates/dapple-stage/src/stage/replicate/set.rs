//! The replicas themselves: stages, each with a color of its own, among which a balancer chooses.
//!
//! Locks are taken in this order: `slots`, the balancer's, those of the stages.

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

/// Makes the replica of a number: at once, or after a while.
pub(super) type Make<Req, Resp, E> = Box<dyn FnMut(usize) -> Start<Req, Resp, E> + Send>;

pub(super) enum Start<Req, Resp, E> {
    Now(Parts<Req, Resp, E>),
    Later(Starting<Req, Resp, E>),
}

/// Which replica it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// Started here, with a number.
    Own(usize),
    /// Run by somebody else, with a name.
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
    /// How many calls one of them serves at a time.
    pub(super) width: usize,
    max: usize,
    pub(super) backoff: Backoff,
    make: Mutex<Make<Req, Resp, E>>,
    pub(super) judge: Judge<Resp, E>,
    pub(super) balancer: Balancer<Key, Live<Req, Resp, E>>,
    slots: Mutex<Slots<Req, Resp, E>>,
    /// Told when there is a replica more or less.
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
    /// Those of `own`, and those of replicas that are ending.
    numbers: BTreeSet<usize>,
    joined: Vec<(Arc<str>, Stage<Req, Resp, E>)>,
    /// How many are being started for the first time, and when the last of these was begun.
    starting: usize,
    last_start: Option<Instant>,
    /// One that was started here has come in, or all have been tried.
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
    /// The last that there was.
    stage: Option<Stage<Req, Resp, E>>,
    /// Dropped, it retires the replica.
    _wanted: oneshot::Sender<Infallible>,
}

/// A replica that can be chosen. Each choice holds a clone for as long as its request takes.
pub(super) struct Live<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    pub(super) stage: Stage<Req, Resp, E>,
    pub(super) check: Option<Check>,
    /// Tells when the last clone is gone.
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

    /// Has the stage before the replicas follow their number.
    pub(super) fn set_front(&self, front: &Arc<Core<Req, Resp, StageError<E>>>) {
        let _only_once = self.front.set(Arc::downgrade(front));
        self.stages().iter().for_each(|stage| front.links.add(&crate::graph::Linked::node(stage), "replica"));
    }

    /// Sees to it that there are so many, each with a number of its own, the smallest that is free. Those that go finish what they
    /// have, and keep their numbers until then.
    pub(super) fn resize(self: &Arc<Self>, count: usize) {
        let mut gone = Vec::new();
        // As if one more were being started, until all have begun.
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
            // The factory is of the user: not under the lock.
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

    /// Starts the replica of that number.
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

    /// A first start has ended, well or not.
    pub(super) fn started(&self) {
        {
            let mut slots = lock(&self.slots);
            slots.starting -= 1;
            slots.has_begun |= slots.starting == 0;
        }
        self.tell();
    }

    /// Takes in what was started, unless it is not wanted any more.
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

    /// Nothing more is sent to it.
    pub(super) fn leave(&self, number: usize) {
        drop_quietly(self.balancer.remove(&Key::Own(number)));
        self.tell();
    }

    /// It has ended.
    pub(super) fn freed(&self, number: usize) {
        lock(&self.slots).numbers.remove(&number);
        self.changed.notify_waiters();
    }

    /// Takes in one that somebody else runs, in place of one of that name. It is never taken out, as nobody here could start it
    /// again: its handlers rest after deaths.
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

    /// Sends nothing more to one that has joined; whether it was there.
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

    /// Where all are still being started for the first time, that is given up: nobody waits for it any more.
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

    /// The replica for the next request: of two by chance the one with less, of those that have room; of those that have none, only
    /// where all have none; one that rests after a death, where all do. Waits until the first has come in, or none could be started.
    pub(super) async fn pick(&self) -> Result<Picked<Key, Live<Req, Resp, E>>, Refused> {
        let may = |may: fn(Status, bool) -> bool| {
            self.balancer.pick_if(|one| may(one.value.stage.core.status(), one.in_flight < self.width))
        };
        loop {
            let changed = self.changed.notified();
            // Before the look: one that comes in later is not missed.
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

    /// Whether one that was wanted lately is being started for the first time.
    pub(super) fn is_starting(&self, now: Instant) -> bool {
        let slots = lock(&self.slots);
        let begun = slots.last_start.filter(|_| slots.starting > 0);
        begun.is_some_and(|begun| now.saturating_duration_since(begun) < START_MAX)
    }

    /// How many there are that others run.
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

    /// What is in service and what is on its way to it: more is hardly ever sent.
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

    /// As many are served at a time as replicas have room for. With none in, requests are told so instead of waiting.
    pub(super) fn tell(&self) {
        if let Some(front) = self.front.get().and_then(Weak::upgrade) {
            // Another one may set what it has seen earlier: whoever sets last looks again.
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
    /// With what says that the last clone is gone.
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

/// Nobody counts on a start that takes longer.
pub(super) const START_MAX: Duration = Duration::from_secs(30);
