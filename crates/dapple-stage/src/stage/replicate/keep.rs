//! What becomes of one replica that is started here.
//!
//! | it is | becomes | when |
//! |---|---|---|
//! | starting | in service | it is there |
//! | | resting | it could not be started |
//! | in service | resting | it has died, or was taken out |
//! | | retiring | fewer are wanted, or the stage is gone |
//! | resting | starting | its rest is over |
//! | | gone | fewer are wanted |
//! | retiring | gone | all that it was sent is answered, and it has ended |
//!
//! One task runs through this table. Only a replica in service is sent requests.

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_io::time::sleep;
use dapple_sync::sync::{mpsc, oneshot};

use super::replica::{Parts, Retired};
use super::set::Set;
use crate::BoxError;
use crate::race::{First, race};
use crate::stage::Stage;
use crate::stage::core::now;
use crate::stage::seat::BoxFuture;
use crate::stage::serve::message;

/// A replica in service.
pub(super) struct Running<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    pub(super) stage: Stage<Req, Resp, E>,
    /// Closed when nobody has chosen it any more.
    pub(super) uses: mpsc::Receiver<Infallible>,
    /// Dropped, it tells `life` to end.
    pub(super) retire: oneshot::Sender<Infallible>,
    pub(super) life: BoxFuture<()>,
}

/// A replica that is there, or comes.
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

/// Why a replica is not in service any more.
enum End {
    Retired,
    Died,
    Out,
}

pub(super) async fn keep<Req, Resp, E>(
    set: Weak<Set<Req, Resp, E>>,
    number: usize,
    mut retired: Retired,
    first: Begun<Req, Resp, E>,
) where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    let mut next = Some(first);
    let (mut failures, mut rest) = (0, Duration::ZERO);
    while let Some(begun) = next.take().or_else(|| set.upgrade().map(|set| set.begin(number))) {
        let running = match begun {
            Begun::Running(running) => Some(running),
            Begun::Starting(starting) => finish_start(&set, number, starting).await,
        };
        if let Some(running) = running {
            let since = now();
            if let End::Retired = running.serve(&set, number, &mut retired).await {
                break;
            }
            // One that flaps must not begin with the shortest rest each time.
            if now().saturating_duration_since(since) >= rest {
                failures = 0;
            }
        }
        let Some(backoff) = set.upgrade().map(|set| set.backoff.clone()) else { break };
        rest = backoff.wait(failures, 0.0);
        failures = failures.saturating_add(1);
        if let First::Left(()) = race(&mut retired, sleep(rest)).await {
            break;
        }
    }
    if let Some(set) = set.upgrade() {
        set.freed(number);
    }
}

async fn finish_start<Req, Resp, E>(
    set: &Weak<Set<Req, Resp, E>>,
    number: usize,
    starting: Starting<Req, Resp, E>,
) -> Option<Running<Req, Resp, E>>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    let result = CatchPanic(starting).await.and_then(|result| result);
    let set = set.upgrade()?;
    let running = match result {
        Ok(parts) => Some(set.enter(number, parts)),
        Err(problem) => {
            tracing::warn!(stage = &*set.name, number, %problem, "a replica could not be started; it is tried again");
            None
        }
    };
    // Those who wait are told when it is in.
    set.started();
    running
}

impl<Req, Resp, E> Running<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    /// To the end of the replica.
    async fn serve(self, set: &Weak<Set<Req, Resp, E>>, number: usize, retired: &mut Retired) -> End {
        let Running { stage, mut uses, retire, life } = self;
        let mut life = CatchPanic(life);
        let end = match race(retired, race(&mut life, stage.core.until_out())).await {
            First::Left(()) => End::Retired,
            First::Right(First::Left(ended)) => {
                let problem = ended.err().map_or("it has ended".to_owned(), |panicked| panicked.to_string());
                tracing::warn!(replica = stage.name(), problem, "a replica has died; another one is started");
                End::Died
            }
            First::Right(First::Right(())) => End::Out,
        };
        if let Some(set) = set.upgrade() {
            set.leave(number);
        }
        match end {
            End::Died => return end,
            End::Out => {}
            // Nothing comes after all who have chosen it have their answers.
            End::Retired => drop(uses.recv().await),
        }
        drop(retire);
        let _ended = life.await;
        end
    }
}

/// What a future of the user yields, or that it panicked.
struct CatchPanic<T>(BoxFuture<T>);

impl<T> Future for CatchPanic<T> {
    type Output = Result<T, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx)));
        match polled {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(panicked(&*payload))),
        }
    }
}

pub(super) fn panicked(payload: &(dyn Any + Send)) -> BoxError {
    format!("it panicked: {}", message(payload)).into()
}
