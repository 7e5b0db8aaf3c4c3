//! The life of one replica that this stage starts.
//!
//! | state | next | when |
//! |---|---|---|
//! | starting | in service | its start succeeded |
//! | | resting | its start failed |
//! | | gone | fewer are wanted; its start is dropped |
//! | in service | resting | it has died; or it was taken out, has answered all its requests, and has ended |
//! | | retiring | fewer are wanted, or the stage was dropped |
//! | resting | starting | its rest is over |
//! | | gone | fewer are wanted |
//! | retiring | gone | it has answered all its requests, and has ended |
//!
//! One task runs through this table. Only a replica in service gets requests.

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_sync::sync::{mpsc, oneshot};
use dapple_sync::task::{First, race};
use dapple_tower::time::Sleep;

use super::replica::{Parts, Retired};
use super::set::Set;
use crate::BoxError;
use crate::stage::Stage;
use crate::stage::core::{drop_quietly, now};
use crate::stage::handler::BoxFuture;
use crate::stage::serve::message;

/// A replica in service.
pub(super) struct Running<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    pub(super) stage: Stage<Req, Resp, E>,
    /// Closed when no choice of this replica is in use any more.
    pub(super) uses: mpsc::Receiver<Infallible>,
    /// Dropping it tells `life` to end.
    pub(super) retire: oneshot::Sender<Infallible>,
    pub(super) life: BoxFuture<()>,
}

/// A replica that is in service or starting.
pub(super) enum Begun<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    Running(Running<Req, Resp, E>),
    Starting(Starting<Req, Resp, E>),
}

pub(super) type Starting<Req, Resp, E> = BoxFuture<Result<Parts<Req, Resp, E>, BoxError>>;

/// Why a replica left service.
enum End {
    Retired,
    Died,
    Out,
}

/// The number of a replica, while it is kept. Its drop returns the number, also when the runtime
/// has ended.
pub(super) struct Kept<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    set: Weak<Set<Req, Resp, E>>,
    number: usize,
    /// Its first start is in progress, and the set counts it.
    is_new: bool,
}

impl<Req, Resp, E> Kept<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    pub(super) fn new(set: Weak<Set<Req, Resp, E>>, number: usize, is_new: bool) -> Kept<Req, Resp, E> {
        Kept { set, number, is_new }
    }

    fn begin(&self) -> Option<Begun<Req, Resp, E>> {
        self.set.upgrade().map(|set| set.begin(self.number))
    }

    /// Handles the result of a start.
    fn started(&mut self, result: Result<Parts<Req, Resp, E>, BoxError>) -> Option<Running<Req, Resp, E>> {
        let set = self.set.upgrade()?;
        let running = match result {
            Ok(parts) => Some(set.enter(self.number, parts)),
            Err(problem) => {
                let number = self.number;
                tracing::warn!(stage = &*set.name, number, %problem, "a replica could not be started; the stage will try again");
                None
            }
        };
        // Waiting requests are notified when it has entered.
        self.no_longer_new(&set);
        running
    }

    fn no_longer_new(&mut self, set: &Set<Req, Resp, E>) {
        if mem::take(&mut self.is_new) {
            set.started();
        }
    }
}

impl<Req, Resp, E> Drop for Kept<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn drop(&mut self) {
        if let Some(set) = self.set.upgrade() {
            self.no_longer_new(&set);
            set.freed(self.number);
        }
    }
}

pub(super) async fn keep<Req, Resp, E>(mut kept: Kept<Req, Resp, E>, mut retired: Retired, first: Begun<Req, Resp, E>)
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    let mut next = Some(first);
    let (mut failures, mut rest) = (0, Duration::ZERO);
    while let Some(begun) = next.take().or_else(|| kept.begin()) {
        let running = match begun {
            Begun::Running(running) => Some(running),
            Begun::Starting(starting) => match race(&mut retired, CatchPanic::new(starting)).await {
                First::Left(()) => break,
                First::Right(result) => kept.started(result.and_then(|result| result)),
            },
        };
        if let Some(running) = running {
            let since = now();
            if let End::Retired = running.serve(&kept.set, kept.number, &mut retired).await {
                break;
            }
            // A flapping replica must not begin with the shortest rest each time.
            if now().saturating_duration_since(since) >= rest {
                failures = 0;
            }
        }
        let Some(backoff) = kept.set.upgrade().map(|set| set.backoff.clone()) else { break };
        rest = backoff.wait(failures, 0.0);
        failures = failures.saturating_add(1);
        if let First::Left(()) = race(&mut retired, Sleep::new(rest)).await {
            break;
        }
    }
}

impl<Req, Resp, E> Running<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    /// Runs until the replica ends.
    async fn serve(self, set: &Weak<Set<Req, Resp, E>>, number: usize, retired: &mut Retired) -> End {
        let Running { stage, mut uses, retire, life } = self;
        let mut life = CatchPanic::new(life);
        let end = match race(retired, race(&mut life, stage.core.until_out())).await {
            First::Left(()) => End::Retired,
            First::Right(First::Left(ended)) => {
                let problem = ended.err().map_or("its life has ended".to_owned(), |panicked| panicked.to_string());
                tracing::warn!(replica = stage.name(), problem, "a replica has died; the stage starts another one");
                End::Died
            }
            First::Right(First::Right(())) => End::Out,
        };
        if let Some(set) = set.upgrade() {
            set.leave(number);
        }
        match end {
            End::Died => return end,
            // The channel closes when all requests that chose this replica have their answers.
            End::Out | End::Retired => drop(uses.recv().await),
        }
        drop(retire);
        let _ended = life.await;
        end
    }
}

/// The output of a user's future, or the message of its panic. The future is dropped before that.
struct CatchPanic<T>(Option<BoxFuture<T>>);

impl<T> CatchPanic<T> {
    fn new(future: BoxFuture<T>) -> CatchPanic<T> {
        CatchPanic(Some(future))
    }
}

impl<T> Future for CatchPanic<T> {
    type Output = Result<T, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.0.as_mut().expect("it is not polled again after it was ready");
        let result = match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(payload) => Err(panicked(payload)),
        };
        drop_quietly(self.0.take());
        Poll::Ready(result)
    }
}

impl<T> Drop for CatchPanic<T> {
    fn drop(&mut self) {
        drop_quietly(self.0.take());
    }
}

pub(super) fn panicked(payload: Box<dyn Any + Send>) -> BoxError {
    format!("it panicked: {}", message(payload)).into()
}
