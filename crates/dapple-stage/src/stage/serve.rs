//! Service: the task that calls a handler with one request or a cohort.

use std::any::Any;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dapple_sched::Color;
use dapple_sched::environment;
use dapple_sched::foreign::discard;
use dapple_tower::switch::lock;
use dapple_tower::time::Sleep;

use super::core::{Core, drop_quietly, now, quietly};
use super::error::StageError;
use super::handler::{BoxFuture, Handler};
use super::handlers::NextHandler;
use super::job::{Job, Reply};
use super::limits::Throttle;
use super::queue::{Entry, QueueRank, Wakes};
use crate::Reason;

/// Requests taken from the queue, with their positions there.
type Taken<Req, Resp, E> = Vec<(QueueRank, Entry<Job<Req, Resp, E>>)>;

/// Work to start: the requests and their handler.
pub(crate) struct Work<Req, Resp, E> {
    pub(crate) taken: Taken<Req, Resp, E>,
    pub(crate) next_handler: NextHandler<Req, Resp, E>,
    pub(crate) generation: u64,
    pub(crate) color: Option<Color>,
    pub(crate) wakes: Wakes,
}

/// Starts the task that serves.
pub(crate) fn start<Req, Resp, E>(core: Arc<Core<Req, Resp, E>>, work: Work<Req, Resp, E>)
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    let Work { taken, next_handler, generation, color, wakes } = work;
    wakes.call();
    let handle = core.handle.clone();
    let mut turn = Turn { core, generation, taken, next_handler: Some(next_handler), over: false };
    if !turn.sit() {
        return;
    }
    let _detached = match color {
        None => handle.spawn(turn.serve()),
        Some(color) => {
            let _entered = handle.enter();
            color.spawn(turn.serve())
        }
    };
}

/// A place in service. Its drop gives the place back, however the task ends.
struct Turn<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    core: Arc<Core<Req, Resp, E>>,
    generation: u64,
    taken: Taken<Req, Resp, E>,
    next_handler: Option<NextHandler<Req, Resp, E>>,
    over: bool,
}

/// How a call ended.
enum End<Resp, E> {
    Results(Vec<Result<Resp, E>>),
    /// The handler is of no further use.
    Failed(E),
    Panicked(String),
    Expired(Duration),
    /// All callers have stopped waiting.
    Canceled,
}

impl<Req, Resp, E> Turn<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    async fn serve(mut self) {
        let Some(NextHandler::Taken(handler)) = self.next_handler.take() else {
            unreachable!("the turn has a handler before its task starts")
        };
        let started = now();
        let limit = self.limit(started);
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        let mut waited = Duration::ZERO;
        for (_, entry) in mem::take(&mut self.taken) {
            waited = waited.max(started.saturating_duration_since(entry.item.arrived));
            requests.push(entry.item.request);
            replies.push(entry.item.reply);
        }
        let mut call = Call {
            handler: Some(handler),
            requests,
            future: None,
            replies,
            results: None,
            early: Early::default(),
            limit: limit.map(Sleep::until),
            throttle: self.core.clone(),
            rest: None,
            started,
            busy: Duration::ZERO,
        };
        let end = (&mut call).await;
        let Call { mut handler, mut future, requests, replies, early, busy, .. } = call;
        // Drop the rest of the call before its caller learns the end.
        if !requests.is_empty() {
            // A handler that was not called may be in a waiting line, in which it would get a place
            // that it does not use.
            drop_quietly((handler.take(), requests));
        } else if future.is_some() {
            drop_quietly(future.take());
        }
        let count = replies.len();
        let latency = now().saturating_duration_since(started);
        self.finish(handler, &end, (early, count), Times { waited, latency, busy });
        // Including results that no caller waits for: the next request starts even if their drop
        // panics.
        quietly(|| put(replies, end));
        self.core.start_all();
    }

    /// Makes the handler if none was idle. This happens here and not in the task, because one
    /// thread at a time starts, so none waits for the factory. Returns false if the factory failed
    /// and the requests are back in the queue.
    fn sit(&mut self) -> bool {
        let mut factory = match self.next_handler.take() {
            Some(NextHandler::Make(factory)) => factory,
            taken => {
                self.next_handler = taken;
                return true;
            }
        };
        let entered = self.core.handle.enter();
        let made = catch_unwind(AssertUnwindSafe(&mut factory));
        drop(entered);
        let mut handlers = lock(&self.core.handlers);
        let old = handlers.factory_back(self.generation, factory);
        if made.is_ok() {
            handlers.totals.restarts += u64::from(mem::take(&mut handlers.totals.deaths) > 0);
        }
        drop(handlers);
        drop_quietly(old);
        match made {
            Ok(handler) => {
                self.next_handler = Some(NextHandler::Taken(handler));
                true
            }
            Err(payload) => {
                self.factory_died(message(payload));
                false
            }
        }
    }

    fn factory_died(&mut self, message: String) {
        tracing::error!(stage = &*self.core.name, "no handler could be made, because its factory panicked: {message}");
        let out = {
            let mut handlers = lock(&self.core.handlers);
            handlers.in_service -= 1;
            handlers.totals.deaths += 1;
            self.over = true;
            handlers.generation == self.generation && handlers.supervisor.died(now())
        };
        for (place, entry) in mem::take(&mut self.taken) {
            if let Err((reason, entry)) = self.core.queue.put_back(place, entry) {
                self.core.drop_entry(entry, reason);
            }
        }
        self.after_death(out);
    }

    /// When to give up the call: at the stage's time limit, or at the deadline of a single request.
    fn limit(&self, started: Instant) -> Option<Instant> {
        let limit = self.core.policy.time_limit.and_then(|limit| started.checked_add(limit));
        let deadline = match &self.taken[..] {
            [(_, entry)] => entry.deadline,
            _ => None,
        };
        limit.into_iter().chain(deadline).min()
    }

    /// Gives the place in service back, and the handler if it is reusable.
    fn finish(
        &mut self,
        handler: Option<Box<dyn Handler<Req, Resp, E>>>,
        end: &End<Resp, E>,
        (early, count): (Early, usize),
        times: Times,
    ) {
        let now = now();
        let died = matches!(end, End::Failed(_) | End::Panicked(_));
        let waiting = self.core.queue.len();
        let mut handlers = lock(&self.core.handlers);
        let busy = handlers.in_service >= handlers.width && waiting > 0;
        handlers.in_service -= 1;
        self.over = true;
        handlers.totals.add(end, count, &times);
        handlers.totals.served += early.served;
        handlers.totals.failed += early.failed;
        let mut out = false;
        // The end of an earlier version says nothing about the current one.
        if handlers.generation == self.generation {
            if died {
                handlers.totals.deaths += 1;
                out = handlers.supervisor.died(now);
            } else if matches!(end, End::Results(_)) {
                handlers.supervisor.succeeded(now);
            }
            if let (Some(control), End::Results(_)) = (&mut handlers.control, end) {
                control.on_end(now, times.latency, busy);
                handlers.width = control.width();
            }
        }
        let surplus = match handler {
            Some(handler) if !died => handlers.handler_back(self.generation, handler),
            other => other,
        };
        self.core.set_delay(&handlers, waiting);
        drop(handlers);
        drop_quietly(surplus);
        if let End::Panicked(message) = end {
            tracing::error!(stage = &*self.core.name, "a handler panicked: {message}");
        }
        self.after_death(out);
    }

    /// Takes the stage out of service if its handlers died too often.
    fn after_death(&self, out: bool) {
        if !out {
            return;
        }
        let core = &self.core;
        let shut = {
            let handlers = lock(&core.handlers);
            // Another version may have taken over since.
            handlers.supervisor.is_out().then(|| core.queue.shut(Reason::Unavailable, true))
        };
        let Some(shut) = shut else { return };
        core.went_out.notify_waiters();
        let entries = shut.told();
        tracing::error!(
            stage = &*core.name,
            dropped = entries.len(),
            "out of service, because its handlers died too often; it refuses requests until another version takes over"
        );
        for entry in entries {
            core.drop_entry(entry, Reason::Unavailable);
        }
    }
}

impl<Req, Resp, E> Drop for Turn<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    /// The task was dropped because its runtime stops; its callers learn it from their replies.
    fn drop(&mut self) {
        if self.over {
            return;
        }
        lock(&self.core.handlers).in_service -= 1;
        drop_quietly((self.next_handler.take(), mem::take(&mut self.taken)));
        self.core.start_all();
    }
}

/// Requests of a cohort that ended before the last of it had room at its destination.
#[derive(Default)]
struct Early {
    served: u64,
    failed: u64,
}

/// The times of a request.
pub(crate) struct Times {
    /// In the queue.
    pub(crate) waited: Duration,
    /// In service.
    pub(crate) latency: Duration,
    /// Of a worker.
    pub(crate) busy: Duration,
}

impl super::handlers::Totals {
    fn add<Resp, E>(&mut self, end: &End<Resp, E>, count: usize, times: &Times) {
        match end {
            End::Results(results) => {
                let served = results.iter().take(count).filter(|result| result.is_ok()).count();
                self.served += served as u64;
                self.failed += (count - served) as u64;
                self.service_time.add(times.latency);
            }
            End::Failed(_) => self.failed += count as u64,
            End::Panicked(_) => self.panicked += count as u64,
            End::Expired(_) => self.expired += count as u64,
            End::Canceled => self.canceled += count as u64,
        }
        self.queue_delay.add(times.waited);
        self.worker_time += times.busy;
        self.busy.add(times.busy.max(Duration::from_nanos(1)));
    }
}

/// Tells the callers how the call ended.
fn put<Resp, E>(replies: Vec<Reply<Resp, E>>, end: End<Resp, E>) {
    let results: Vec<Result<Resp, StageError<E>>> = match end {
        End::Results(results) => results.into_iter().map(|result| result.map_err(StageError::Service)).collect(),
        End::Failed(error) => vec![Err(StageError::Service(error))],
        End::Panicked(message) => replies.iter().map(|_| Err(StageError::Panicked(message.clone()))).collect(),
        End::Expired(after) => replies.iter().map(|_| Err(StageError::Expired(after))).collect(),
        End::Canceled => return,
    };
    let mut results = results.into_iter();
    for reply in replies {
        let missing =
            || Err(StageError::Panicked("the handler returned fewer results than it had requests".to_owned()));
        // An unwanted result is dropped here and may panic; the other results must
        // still be delivered.
        let result = results.next().unwrap_or_else(missing);
        quietly(|| reply.put(result));
    }
    drop_quietly(results);
}

/// One call of a handler, from its readiness until its results can be delivered. Returns its end,
/// once; a panic inside ends it.
struct Call<Req, Resp, E> {
    handler: Option<Box<dyn Handler<Req, Resp, E>>>,
    /// Until the handler is ready.
    requests: Vec<Req>,
    future: Option<BoxFuture<Vec<Result<Resp, E>>>>,
    replies: Vec<Reply<Resp, E>>,
    /// The results, while they wait for room at their destinations.
    results: Option<Vec<Result<Resp, E>>>,
    early: Early,
    limit: Option<Sleep>,
    throttle: Arc<dyn Throttle>,
    /// The pause until the stage's share of the workers' time allows more.
    rest: Option<Sleep>,
    started: Instant,
    /// The time of a worker.
    busy: Duration,
}

// Nothing in it is pinned in place: the futures are boxed.
impl<Req, Resp, E> Unpin for Call<Req, Resp, E> {}

impl<Req, Resp, E> Future for Call<Req, Resp, E> {
    type Output = End<Resp, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<End<Resp, E>> {
        let call = &mut *self;
        if call.results.is_none() && call.poll_share(cx).is_ready() {
            let began = environment::now();
            let polled = catch_unwind(AssertUnwindSafe(|| call.poll_handler(cx)));
            let took = environment::now() - began;
            call.busy += took;
            call.throttle.took(took);
            match polled {
                Ok(Poll::Ready(Ok(results))) => {
                    drop_quietly(call.future.take());
                    call.results = Some(results);
                }
                Ok(Poll::Ready(Err(error))) => return Poll::Ready(End::Failed(error)),
                Ok(Poll::Pending) => {}
                Err(payload) => return Poll::Ready(End::Panicked(message(payload))),
            }
        }
        if call.results.is_some() && call.poll_room(cx).is_ready() {
            return Poll::Ready(End::Results(call.results.take().expect("checked in the line before")));
        }
        // Polls each reply, so that each can wake the task.
        let waited_for = call.replies.iter_mut().filter_map(|reply| reply.poll_closed(cx).is_pending().then_some(()));
        if waited_for.count() == 0 {
            return Poll::Ready(End::Canceled);
        }
        let over = call.limit.as_mut().is_some_and(|limit| Pin::new(limit).poll(cx).is_ready());
        if over { Poll::Ready(End::Expired(now().saturating_duration_since(call.started))) } else { Poll::Pending }
    }
}

impl<Req, Resp, E> Call<Req, Resp, E> {
    /// Ready when the stage's share of the workers' time lets the handler continue.
    fn poll_share(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(rest) = &mut self.rest {
                if Pin::new(rest).poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.rest = None;
            }
            match self.throttle.look() {
                Ok(()) => return Poll::Ready(()),
                Err(until) => self.rest = Some(Sleep::until(until)),
            }
        }
    }

    fn poll_handler(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<Result<Resp, E>>, E>> {
        if self.future.is_none() {
            let handler = self.handler.as_mut().expect("it is there until the call has ended");
            match handler.poll_ready(cx) {
                Poll::Ready(Ok(())) => self.future = Some(handler.call(mem::take(&mut self.requests))),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        let future = self.future.as_mut().expect("it was just made");
        future.as_mut().poll(cx).map(Ok)
    }

    /// Ready when each response has room at its destination or is not awaited any more. Results
    /// before one that must wait are delivered at once: if a cohort kept their slots in the next
    /// queue, it could wait for ever for its own slot.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(results) = &mut self.results else { return Poll::Ready(()) };
        let mut all = self.replies.iter_mut().zip(results.iter());
        let waits = all.position(|(reply, result)| {
            result.is_ok() && reply.poll_closed(cx).is_pending() && reply.poll_room(cx).is_pending()
        });
        let Some(waits) = waits else { return Poll::Ready(()) };
        for (reply, result) in self.replies.drain(..waits).zip(results.drain(..waits)) {
            self.early.served += u64::from(result.is_ok());
            self.early.failed += u64::from(result.is_err());
            quietly(|| reply.put(result.map_err(StageError::Service)));
        }
        Poll::Pending
    }
}

/// The message of a panic.
pub fn message(payload: Box<dyn Any + Send>) -> String {
    let message = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(message), _) => (*message).to_owned(),
        (_, Some(message)) => message.clone(),
        _ => "(no message)".to_owned(),
    };
    discard(payload);
    message
}
