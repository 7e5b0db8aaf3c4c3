//! Several replicas of a stage with one common queue.
//!
//! Requests wait in one queue, and go to a replica as soon as one has room: none waits at one
//! replica while another is free. The wait of the oldest request also tells how many replicas are
//! needed.
//!
//! | part | role |
//! |---|---|
//! | `scale` | the wanted number, without a clock |
//! | `set` | the existing replicas, and a [`Balancer`](dapple_tower::balance::Balancer) of them |
//! | `keep` | **the table of a replica's states**, and the task that runs through it |
//! | `route` | the path from the queue to a replica |

mod keep;
mod replica;
mod route;
mod scale;
mod set;

use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_sched::{AbortHandle, Handle};
use dapple_sync::task::{First, race};
use dapple_tower::balance::Change;
use dapple_tower::switch::{Mutex, lock};
use dapple_tower::time::Sleep;
use futures_core::Stream;
use tower_service::Service;

pub use self::replica::{Replica, Retired};
pub use self::scale::Replication;

use self::replica::Parts;
use self::route::{Judge, Router, judge_any, judge_own};
use self::scale::Scale;
use self::set::{Live, Make, START_MAX, Set, Start};
use super::behind::know_stage;
use super::builder::StageBuilder;
use super::core::{Core, Order, now};
use super::error::StageError;
use super::handle::{Ask, Response, Stage};
use super::handler::of_services;
use super::stats::StageStats;
use crate::BoxError;
use crate::graph::{Linked, Node};

impl<Req: Send + 'static> StageBuilder<Req> {
    /// Makes replicas of a service, each with its own color, as many as the load needs between two
    /// bounds: *replicate* of Gribble's design framework (section 4.1). `make` makes the service of
    /// the replica with a number, counted from 0: a copy in this process, or a client of one on
    /// another machine. The stage calls it again for a replica that died.
    ///
    /// The [`width`](Self::width) is that of one replica (its upper bound). With a width of 1 each
    /// replica serves one request at a time; with its own color this makes it like a process.
    /// Colors chosen for the stage have no effect. A replica that goes out of service leaves, and
    /// the stage tries it again later. Of two randomly drawn replicas with room, the one with fewer
    /// requests gets the next.
    ///
    /// ```
    /// use dapple_stage::Stage;
    ///
    /// let runtime = dapple_io::runtime_builder().workers(2).build()?;
    /// runtime.block_on(async {
    ///     let sign = Stage::builder("sign").width(1).queue_len_max(500).replicate(2..=8, |replica| {
    ///         Stage::builder("signer").wrap_sync(move |text: String| format!("{text}, signed by {replica}"))
    ///     });
    ///     let signed = sign.ask("a letter".to_owned()).await.unwrap();
    ///     assert!(signed.starts_with("a letter, signed by "));
    ///     assert_eq!(sign.replicas().len(), 2);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// If no runtime is current and none was given.
    pub fn replicate<S>(
        self,
        replication: impl Into<Replication>,
        make: impl FnMut(usize) -> S + Send + 'static,
    ) -> Replicated<Req, S::Response, S::Error>
    where
        S: Service<Req> + Send + 'static,
        S::Future: Send + 'static,
        S::Response: Send + 'static,
        S::Error: Send + 'static,
    {
        let make = Arc::new(Mutex::new(make));
        let make = move |number| {
            let make = make.clone();
            Start::Now(Parts::of(of_services(move || lock(&make)(number))))
        };
        self.replicate_by(replication.into(), judge_own, Box::new(make))
    }

    /// As [`replicate`](Self::replicate), with replicas that run anywhere: in this process, in
    /// child processes, on other machines. `start` starts the replica with a number, from 0 to one
    /// less than the upper bound, and returns a [`Replica`]. A replica that could not be started or
    /// has died is started again, after a rest that doubles ([`Replication::rejoin_after`]). A
    /// replica that is not needed any more gets no requests, and retires when it has answered all
    /// of them; if it is still starting, its start is dropped.
    ///
    /// Requests wait until the first replica is in service or none could be started. If none is
    /// left later, requests are refused as [`Unavailable`](crate::Reason::Unavailable). A new start
    /// in progress keeps the current number for at most 30 s. Replicas run by others can
    /// [join](Replicated::join); they do not count for the bounds.
    ///
    /// # Panics
    /// If no runtime is current and none was given.
    pub fn replicate_with<Resp, F, Fut>(
        self,
        replication: impl Into<Replication>,
        mut start: F,
    ) -> Replicated<Req, Resp, BoxError>
    where
        Resp: Send + 'static,
        F: FnMut(usize) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Replica<Req, Resp>, BoxError>> + Send + 'static,
    {
        let make = move |number| {
            let starting = catch_unwind(AssertUnwindSafe(|| start(number)));
            Start::Later(Box::pin(async move {
                let starting = starting.map_err(keep::panicked)?;
                starting.await.map(|replica| replica.parts)
            }))
        };
        let replicated = self.replicate_by(replication.into(), judge_any, Box::new(make));
        replicated.check();
        replicated
    }

    fn replicate_by<Resp, E>(
        self,
        rules: Replication,
        judge: Judge<Resp, E>,
        make: Make<Req, Resp, E>,
    ) -> Replicated<Req, Resp, E>
    where
        Resp: Send + 'static,
        E: Send + 'static,
    {
        know_stage::<E>();
        let min = rules.min.max(1);
        let rules = Replication { min, max: rules.max.max(min), ..rules };
        let set = Arc::new(Set::new(&self, &rules, judge, make));
        set.resize(min);
        let front = self.runtime(set.handle.clone()).color_each().width(min * set.width).wrap(Router(set.clone()));
        set.set_front(&front.core);
        let watch = Watch {
            scale: Mutex::new(Scale::new(rules)),
            running: AtomicBool::new(false),
            is_checked: AtomicBool::new(false),
            followers: Mutex::default(),
            set,
        };
        Replicated { front, watch: Arc::new(watch) }
    }
}

/// Replicas of a service with one common queue; see [`StageBuilder::replicate`]. A handle and a
/// service, as [`Stage`] is.
pub struct Replicated<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    front: Front<Req, Resp, E>,
    watch: Arc<Watch<Req, Resp, E>>,
}

/// The stage with handlers that hand requests to replicas.
type Front<Req, Resp, E> = Stage<Req, Resp, StageError<E>>;

/// A request to it.
type Asked<Req, Resp, E> = Ask<Req, Resp, StageError<E>>;

/// Watches that there are as many replicas as needed.
struct Watch<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    scale: Mutex<Scale>,
    set: Arc<Set<Req, Resp, E>>,
    /// A task looks periodically; it ends when the stage is idle.
    running: AtomicBool,
    /// A task runs the health checks of replicas that have one.
    is_checked: AtomicBool,
    /// Tasks that follow streams of replicas run by others.
    followers: Mutex<Vec<AbortHandle>>,
}

impl<Req, Resp, E> Replicated<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    /// Waits for a place in the queue, sends the request, and waits for its response.
    ///
    /// Cancel safe: dropping it cancels the request.
    pub async fn ask(&self, request: Req) -> Result<Resp, StageError<E>> {
        let mut handle = self.clone();
        poll_fn(|cx| handle.poll_ready(cx)).await?;
        handle.call(request).await
    }

    /// As [`ask`](Self::ask), with the settings of one request ([`Ask`]): its deadline, rank and
    /// drop callback.
    ///
    /// ```
    /// use std::time::Duration;
    /// use dapple_stage::Stage;
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let sign = Stage::builder("sign").replicate(1..=4, |_| Stage::builder("signer").wrap_sync(|text: String| text.len()));
    ///     let in_time = sign.ask_with("a letter".to_owned(), |ask| {
    ///         ask.within(Duration::from_secs(60)).on_drop(|text, why| eprintln!("{text}: {why}"))
    ///     });
    ///     assert_eq!(in_time.await.unwrap(), 8);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// Cancel safe: dropping it cancels the request.
    pub async fn ask_with(
        &self,
        request: Req,
        say: impl FnOnce(Asked<Req, Resp, E>) -> Asked<Req, Resp, E>,
    ) -> Result<Resp, StageError<E>> {
        let mut ask = say(self.front.ask(request));
        ask.place().await;
        let response = ask.now();
        self.look();
        response.await.map_err(flat)
    }

    /// The runtime that starts the replicas.
    pub fn runtime(&self) -> &Handle {
        self.front.runtime()
    }

    /// The state of the common queue. `in_service` counts the requests of all replicas.
    pub fn stats(&self) -> StageStats {
        self.front.stats()
    }

    /// The state of each replica.
    pub fn replicas(&self) -> Vec<StageStats> {
        self.watch.set.stats()
    }

    /// Adds a service that others run, such as a remote stage, or replaces the one of that name. It
    /// does not count for the bounds, and reduces the number of replicas started here. Clones that
    /// panic or fail in `poll_ready` are made again, after rests as in
    /// [`Supervision`](crate::Supervision); these deaths never take the service out of the stage.
    pub fn join<S>(&self, name: &str, service: S)
    where
        S: Service<Req, Response = Resp, Error = E> + Clone + Send + 'static,
        S::Future: Send + 'static,
    {
        self.watch.set.join(name, Parts::of(of_services(move || service.clone())));
    }

    /// Removes a joined service, and returns whether it was there. Requests in flight continue.
    pub fn leave(&self, name: &str) -> bool {
        self.watch.set.part(name)
    }

    /// Stops taking requests, and resolves when all accepted requests are served and the replicas
    /// have ended. A first start that takes 30 s more is given up, and its waiting requests are
    /// refused as [`Unavailable`](crate::Reason::Unavailable). Cancel safe: if dropped, the stage
    /// stops all the same, and its replicas end with its last handle.
    pub fn stop(&self) -> impl Future<Output = ()> + Send + use<Req, Resp, E> {
        let (stopping, set) = (self.front.stop(), self.watch.set.clone());
        async move {
            let mut stopping = pin!(stopping);
            if let First::Right(()) = race(stopping.as_mut(), Sleep::new(START_MAX)).await {
                set.give_up_start();
                stopping.await;
            }
            set.end().await;
        }
    }

    /// Starts the task that runs health checks.
    fn check(&self) {
        if self.watch.is_checked.swap(true, SeqCst) {
            return;
        }
        // A check that hangs must not keep the replica in use.
        let checking =
            self.watch.set.balancer.check(CHECK_EVERY, |_, Live { check, .. }: Live<Req, Resp, E>| async move {
                match check {
                    Some(check) => check().await,
                    None => true,
                }
            });
        let _detached = self.front.runtime().spawn(checking);
    }

    /// Starts the task that checks the load periodically, while there is any.
    fn look(&self) {
        if self.watch.running.swap(true, SeqCst) {
            return;
        }
        let (front, watch) = (Arc::downgrade(&self.front.core), self.watch.clone());
        let handle: &Handle = self.front.runtime();
        let _detached = handle.spawn(async move {
            loop {
                Sleep::new(LOOK_EVERY).await;
                if watch.adjust(&front).is_break() {
                    return;
                }
            }
        });
    }
}

impl<Req: Send + 'static, Resp: Send + 'static> Replicated<Req, Resp, BoxError> {
    /// Lets replicas that others run [join](Self::join) and leave as a stream says, until the
    /// stream or the stage ends.
    pub fn follow(&self, changes: impl Stream<Item = Change<String, Replica<Req, Resp>>> + Send + 'static) {
        let following = follow(Arc::downgrade(&self.watch), changes);
        let following = self.front.runtime().spawn(following);
        lock(&self.watch.followers).push(following.abort_handle());
        self.check();
    }
}

async fn follow<Req, Resp, C>(watch: Weak<Watch<Req, Resp, BoxError>>, changes: C)
where
    Req: Send + 'static,
    Resp: Send + 'static,
    C: Stream<Item = Change<String, Replica<Req, Resp>>>,
{
    let mut changes = pin!(changes);
    while let Some(change) = poll_fn(|cx| changes.as_mut().poll_next(cx)).await {
        let Some(watch) = watch.upgrade() else { return };
        match change {
            Change::Insert(name, replica) => watch.set.join(&name, replica.parts),
            Change::Remove(name) => drop(watch.set.part(&name)),
        }
    }
}

impl<Req, Resp, E> Watch<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn adjust(&self, front: &Weak<Core<Req, Resp, StageError<E>>>) -> ControlFlow<()> {
        let Some(front) = front.upgrade() else { return ControlFlow::Break(()) };
        let now = now();
        let waited = front.oldest().map_or(Duration::ZERO, |arrived| now.saturating_duration_since(arrived));
        let in_service = front.load().in_service;
        let (wanted, is_least) = {
            let mut scale = lock(&self.scale);
            let before = scale.replicas();
            let wanted = if self.set.is_starting(now) {
                scale.hold();
                before
            } else {
                scale.look(now, waited, in_service, self.set.joined_len(), self.set.width)
            };
            if wanted != before {
                tracing::debug!(stage = &*front.name, before, wanted, "the number of replicas changes");
            }
            (wanted, scale.is_least())
        };
        self.set.resize(wanted);
        let nothing_to_see = is_least && in_service == 0 && waited.is_zero();
        if nothing_to_see {
            self.running.store(false, SeqCst);
            // A request may have come before the store, and have started no other task.
            let load = front.load();
            let come = load.in_service + load.queue_len > 0;
            if !come || self.running.swap(true, SeqCst) {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

impl<Req, Resp, E> Drop for Watch<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn drop(&mut self) {
        lock(&self.followers).iter().for_each(AbortHandle::abort);
    }
}

impl<Req, Resp, E> Clone for Replicated<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn clone(&self) -> Self {
        Replicated { front: self.front.clone(), watch: self.watch.clone() }
    }
}

impl<Req, Resp, E> fmt::Debug for Replicated<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replicas = self.watch.set.stages();
        f.debug_struct("Replicated").field("front", &self.front).field("replicas", &replicas).finish()
    }
}

impl<Req, Resp, E> Linked for Replicated<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn node(&self) -> Arc<dyn Node> {
        self.front.node()
    }
}

impl<Req, Resp, E> Service<Req> for Replicated<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    type Response = Resp;
    type Error = StageError<E>;
    type Future = ReplicatedResponse<Req, Resp, E>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StageError<E>>> {
        self.front.poll_ready(cx).map_err(flat)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let response = self.front.send(Order::new(request));
        self.look();
        ReplicatedResponse(response)
    }
}

/// The response of a replica. Dropping it cancels the request.
#[must_use = "a dropped response cancels the request"]
#[derive(Debug)]
pub struct ReplicatedResponse<Req, Resp, E>(Response<Req, Resp, StageError<E>>)
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static;

impl<Req, Resp, E> Future for ReplicatedResponse<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    type Output = Result<Resp, StageError<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map_err(flat)
    }
}

/// Merges the errors of the replica and of the common queue, which are one stage to the caller.
fn flat<E>(error: StageError<StageError<E>>) -> StageError<E> {
    match error {
        StageError::Service(error) => error,
        StageError::Refused(refused) => StageError::Refused(refused),
        StageError::Panicked(message) => StageError::Panicked(message),
        StageError::Expired(after) => StageError::Expired(after),
        StageError::Stopped => StageError::Stopped,
    }
}

/// A check costs nothing while there is a connection.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// Shorter than the default `up_after`.
const LOOK_EVERY: Duration = Duration::from_millis(25);
