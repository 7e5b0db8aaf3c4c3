//! The builder of a stage.

use std::future::{Future, ready};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dapple_sched::{Color, Handle};
use tower_service::Service;

use super::core::Core;
use super::handle::Stage;
use super::handler::{self, Factory, FnService};
use super::handlers::{Handlers, Totals};
use super::limits::Bucket;
use super::policy::{ColorPolicy, Load, Policy};
use super::queue::Limits;
use super::shared_queue::SharedQueue;
use super::width::{Width, WidthControl};
use crate::Refused;
use crate::supervise::{Supervision, Supervisor};

/// Configures a stage: its queue, width, colors and limits. [`Stage::builder`] makes one; each
/// method named `wrap…` makes the stage.
///
/// | setting | default |
/// |---|---|
/// | [`queue_len_max`](Self::queue_len_max) | 1,024 requests wait |
/// | [`queue_bytes_max`](Self::queue_bytes_max) | no limit on their weight |
/// | [`width`](Self::width) | 64 calls in service |
/// | [`color_each`](Self::color_each) | each request has a color of its own |
/// | [`shed`](Self::shed) | callers wait while the queue is full |
/// | [`deadline`](Self::deadline), [`time_limit`](Self::time_limit), [`rate`](Self::rate), [`worker_share`](Self::worker_share) | no limit |
/// | [`supervision`](Self::supervision) | [`Supervision::default`] |
///
/// ```
/// use std::time::Duration;
/// use dapple_stage::{Stage, Width};
///
/// let runtime = dapple_io::runtime_builder().workers(2).build()?;
/// runtime.block_on(async {
///     let parse = Stage::builder("parse")
///         .queue_len_max(200)
///         .queue_bytes_max(1 << 20, |text: &String| text.len())
///         .width(Width::adaptive(1..=16))
///         .deadline(Duration::from_secs(1))
///         .worker_share(0.5) // of the workers' time
///         .wrap_sync(|text: String| text.parse::<u32>());
///     assert_eq!(parse.ask("17".to_owned()).await, Ok(Ok(17)));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "call a `wrap` method to make the stage"]
pub struct StageBuilder<Req> {
    name: Arc<str>,
    runtime: Option<Handle>,
    width: Width,
    rate: Option<(u32, Duration)>,
    share: Option<f64>,
    supervision: Supervision,
    policy: Policy<Req>,
}

impl<Req: Send + 'static> StageBuilder<Req> {
    pub(crate) fn new(name: String) -> StageBuilder<Req> {
        StageBuilder {
            name: name.into(),
            runtime: None,
            width: Width::fixed(64),
            rate: None,
            share: None,
            supervision: Supervision::default(),
            policy: Policy {
                queue_len_max: 1_024,
                bytes_max: usize::MAX,
                cohort_max: 1,
                sheds: false,
                time_limit: None,
                patience: None,
                color: ColorPolicy::Each,
                weigh: None,
                rank: None,
                deadline: None,
                admission: None,
                on_drop: None,
            },
        }
    }

    /// Sets the runtime that serves. Default: the runtime that is current when the stage is made.
    pub fn runtime(mut self, handle: Handle) -> Self {
        self.runtime = Some(handle);
        self
    }

    pub(crate) fn runtime_or_current(&self) -> Handle {
        self.runtime.clone().unwrap_or_else(Handle::current)
    }

    /// The settings that replicas inherit: the name, the width of one, and the supervision.
    pub(crate) fn of_replicas(&self) -> (Arc<str>, usize, Supervision) {
        (self.name.clone(), self.width.max, self.supervision.clone())
    }

    /// Sets how many requests may wait, at least 1.
    pub fn queue_len_max(mut self, len: usize) -> Self {
        self.policy.queue_len_max = len.max(1);
        self
    }

    /// Limits the total weight of waiting requests; `weigh` returns the bytes of one. A request
    /// that does not fit is refused, even after a wait for a place, because its weight was not
    /// known then. While nothing fits, callers wait.
    pub fn queue_bytes_max(mut self, bytes: usize, weigh: impl Fn(&Req) -> usize + Send + Sync + 'static) -> Self {
        self.policy.bytes_max = bytes;
        self.policy.weigh = Some(Box::new(weigh));
        self
    }

    /// Sets how many calls may be in service: a number, or [bounds](Width::adaptive) between which
    /// measurement finds it. A cohort is one call.
    pub fn width(mut self, width: impl Into<Width>) -> Self {
        self.width = width.into();
        self
    }

    /// Lets a full queue refuse at once. Otherwise `poll_ready` waits for a place.
    pub fn shed(mut self) -> Self {
        self.policy.sheds = true;
        self
    }

    /// Serves each request in a new color, in parallel with all others. This is the default.
    pub fn color_each(mut self) -> Self {
        self.policy.color = ColorPolicy::Each;
        self
    }

    /// Serves all requests in this color: they do not overlap between two `.await`s. To serve one
    /// request at a time also across `.await`s, see [`width`](Self::width).
    pub fn color(mut self, color: Color) -> Self {
        self.policy.color = ColorPolicy::One(color);
        self
    }

    /// Serves requests with equal keys in the same color; others may run in parallel.
    pub fn color_by<K: Hash>(mut self, key: impl Fn(&Req) -> K + Send + Sync + 'static) -> Self {
        self.policy.color = ColorPolicy::By(Box::new(move |request| Color::of(&key(request))));
        self
    }

    /// Decides whether to take a request, before the queue does. It runs on the caller's side, and
    /// should be short.
    pub fn admission(mut self, admit: impl Fn(&Req, &Load) -> Result<(), Refused> + Send + Sync + 'static) -> Self {
        self.policy.admission = Some(Box::new(admit));
        self
    }

    /// Sets the default time from arrival after which a response is useless. A request that still
    /// waits then is dropped; if it is in service, the stage gives it up.
    pub fn deadline(mut self, time: Duration) -> Self {
        self.policy.patience = Some(time);
        self
    }

    /// Takes a request's deadline from the request itself. [`Ask::deadline`](super::Ask::deadline)
    /// overrides it.
    pub fn deadline_of(mut self, deadline: impl Fn(&Req) -> Option<Instant> + Send + Sync + 'static) -> Self {
        self.policy.deadline = Some(Box::new(deadline));
        self
    }

    /// Sets the *drop callback* (the thesis, 7.1): it runs instead of a request that is refused or
    /// dropped from the queue, unless the request has its own. It runs at once, in a new color.
    /// Without one, the request is dropped at once, and its caller gets the error.
    pub fn on_drop(mut self, run: impl Fn(Req, &Refused) + Send + Sync + 'static) -> Self {
        self.policy.on_drop = Some(Arc::new(run));
        self
    }

    /// Sets the rank of a request. Higher ranks are served first, equal ranks in the order of
    /// arrival.
    pub fn rank(mut self, rank: impl Fn(&Req) -> u8 + Send + Sync + 'static) -> Self {
        self.policy.rank = Some(Box::new(rank));
        self
    }

    /// Gives up a call after this time: its future is dropped at its current `.await`. A handler
    /// that computes without an `.await` cannot be stopped.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.policy.time_limit = Some(limit);
        self
    }

    /// Starts at most `count` requests in each `per`; the others wait in the queue. After a rest
    /// `count` may start together.
    pub fn rate(mut self, count: u32, per: Duration) -> Self {
        self.rate = Some((count, per));
        self
    }

    /// Limits the share of all workers' time that its handlers may take, from 0 to 1. The stage
    /// keeps to it over some tenths of a second, so that other stages get their share (Gribble,
    /// 10.1.2). Above the limit no request starts, and a request in service rests at its next
    /// `.await`. A handler that computes without an `.await` cannot be stopped; its excess is
    /// deducted afterwards. Values below a thousandth count as a thousandth, values above 1 as 1.
    ///
    /// # Panics
    /// If `share` is not a number.
    pub fn worker_share(mut self, share: f64) -> Self {
        assert!(!share.is_nan(), "the share of the workers' time is not a number: choose from 0 to 1");
        self.share = Some(share);
        self
    }

    /// Sets what happens when its handlers die.
    pub fn supervision(mut self, supervision: Supervision) -> Self {
        self.supervision = supervision;
        self
    }

    /// Makes a stage with handlers that are clones of `service`.
    ///
    /// A handler serves one call at a time. The stage clones a new one when none is idle, and to
    /// replace one that died.
    ///
    /// # Panics
    /// If no runtime is current and none was given.
    pub fn wrap<S>(self, service: S) -> Stage<Req, S::Response, S::Error>
    where
        S: Service<Req> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Response: Send + 'static,
        S::Error: Send + 'static,
    {
        self.wrap_with(move || service.clone())
    }

    /// Makes a stage with handlers from a factory, at most `width` of them. With a width of 1, one
    /// handler sees all requests and may keep state, which is made again when it dies.
    ///
    /// # Panics
    /// If no runtime is current and none was given. A panic of the factory counts as a death of the
    /// handler, and loses no request.
    pub fn wrap_with<S>(self, make: impl FnMut() -> S + Send + 'static) -> Stage<Req, S::Response, S::Error>
    where
        S: Service<Req> + Send + 'static,
        S::Future: Send + 'static,
        S::Response: Send + 'static,
        S::Error: Send + 'static,
    {
        self.build(handler::of_services(make))
    }

    /// Makes a stage of an async function.
    ///
    /// # Panics
    /// If no runtime is current and none was given.
    pub fn wrap_fn<F, Fut, Resp, E>(self, serve: F) -> Stage<Req, Resp, E>
    where
        F: Fn(Req) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Result<Resp, E>> + Send + 'static,
        Resp: Send + 'static,
        E: Send + 'static,
    {
        self.wrap(FnService(serve))
    }

    /// Makes a stage of a plain function that cannot fail.
    ///
    /// # Panics
    /// If no runtime is current and none was given.
    pub fn wrap_sync<F, Resp>(self, serve: F) -> Stage<Req, Resp>
    where
        F: Fn(Req) -> Resp + Clone + Send + 'static,
        Resp: Send + 'static,
    {
        self.wrap_fn(move |request| ready(Ok(serve(request))))
    }

    /// Makes a stage that serves cohorts: `serve` gets up to `len_max` waiting requests at once, so
    /// that their shared code and data are in the cache (Gribble, 4.1). It does not wait for a full
    /// cohort. With colors by key, a cohort has one color.
    ///
    /// `serve` returns one result for each request, in the same order. A panic ends the whole
    /// cohort; a deadline ends no request in service.
    ///
    /// ```
    /// use dapple_stage::Stage;
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let stage = Stage::builder("squares").width(1).wrap_cohorts(16, async |numbers: Vec<u64>| {
    ///         numbers.into_iter().map(|n| n.checked_mul(n).ok_or("too large")).collect()
    ///     });
    ///     let (five, large) = (stage.ask(5).now(), stage.ask(u64::MAX).now());
    ///     assert_eq!(five.await, Ok(25));
    ///     assert_eq!(large.await.unwrap_err().into_service(), Some("too large"));
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// If no runtime is current and none was given.
    pub fn wrap_cohorts<F, Fut, Resp, E>(mut self, len_max: usize, serve: F) -> Stage<Req, Resp, E>
    where
        F: Fn(Vec<Req>) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Vec<Result<Resp, E>>> + Send + 'static,
        Resp: Send + 'static,
        E: Send + 'static,
    {
        self.policy.cohort_max = len_max.max(1);
        self.build(handler::of_cohorts(serve))
    }

    pub(crate) fn build<Resp, E>(self, factory: Factory<Req, Resp, E>) -> Stage<Req, Resp, E>
    where
        Resp: Send + 'static,
        E: Send + 'static,
    {
        let handle = self.runtime_or_current();
        let handlers = Handlers {
            width: self.width.min,
            control: WidthControl::new(self.width),
            in_service: 0,
            idle: Vec::new(),
            factory: Some(factory),
            generation: 0,
            supervisor: Supervisor::new(self.supervision),
            rate: self.rate.map(|(count, per)| Bucket::of_rate(count, per)),
            starting: false,
            alarm: None,
            stopping: false,
            totals: Totals::default(),
        };
        let share = self.share.map(|share| Bucket::of_share(share, handle.workers()));
        let queue = SharedQueue::new(Limits { len_max: self.policy.queue_len_max, bytes_max: self.policy.bytes_max });
        Stage::new(Core::new(self.name, handle, self.policy, handlers, queue, share))
    }
}
