//! The replicas themselves: stages, each with a color of its own, and the choice among them.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tower_service::Service;

use crate::refused::{Reason, Refused};
use crate::stage::{Response, Stage, StageError, StageStats, Status};

/// Makes the replica of a number.
pub(crate) type MakeStage<Req, Resp, E> = Box<dyn Fn(usize) -> Stage<Req, Resp, E> + Send + Sync>;

/// The replicas of a stage.
pub(crate) struct Set<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    make: MakeStage<Req, Resp, E>,
    /// How many calls one of them serves at a time.
    pub(crate) width: usize,
    rejoin_after: Duration,
    places: Mutex<Places<Req, Resp, E>>,
}

struct Places<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    replicas: Vec<Replica<Req, Resp, E>>,
    /// Where the search begins, so that equals take turns.
    turn: usize,
}

struct Replica<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    number: usize,
    stage: Stage<Req, Resp, E>,
    /// Since when it is out, and how often it was.
    out: Option<Instant>,
    outs: u32,
}

impl<Req, Resp, E> Set<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    pub(crate) fn new(make: MakeStage<Req, Resp, E>, width: usize, rejoin_after: Duration) -> Set<Req, Resp, E> {
        Set { make, width, rejoin_after, places: Mutex::new(Places { replicas: Vec::new(), turn: 0 }) }
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Places<Req, Resp, E>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that there are so many, each with a number of its own, the smallest that is free. Those that go finish what they have.
    pub(crate) fn resize(&self, count: usize) {
        let mut gone = Vec::new();
        loop {
            let number = {
                let mut places = self.places();
                while places.replicas.len() > count {
                    gone.extend(places.replicas.pop());
                }
                if places.replicas.len() == count {
                    break;
                }
                (0..).find(|n| places.replicas.iter().all(|replica| replica.number != *n)).unwrap_or(0)
            };
            // The factory is of the user: not under the lock. Only one looks at the scale at a time.
            let stage = (self.make)(number);
            self.places().replicas.push(Replica { number, stage, out: None, outs: 0 });
        }
        drop(gone);
    }

    /// Tries those again that were taken out long enough ago. Yields how many are in.
    pub(crate) fn rejoin(&self, now: Instant) -> usize {
        let mut again = Vec::new();
        let mut live = 0;
        for replica in &mut self.places().replicas {
            if replica.stage.stats().status != Status::Out {
                live += 1;
                replica.out = None;
                continue;
            }
            let since = *replica.out.get_or_insert(now);
            let wait = self.rejoin_after * 2_u32.pow(replica.outs.min(5));
            if now.saturating_duration_since(since) >= wait {
                again.push(replica.number);
            }
        }
        for number in again {
            let stage = (self.make)(number);
            let mut places = self.places();
            if let Some(replica) = places.replicas.iter_mut().find(|replica| replica.number == number) {
                let old = std::mem::replace(&mut replica.stage, stage);
                (replica.out, replica.outs) = (None, replica.outs + 1);
                drop(places);
                drop(old);
            }
            live += 1;
        }
        live
    }

    /// The replica with the fewest requests, of those that serve; one that rests only where all do.
    fn choose(&self) -> Option<Stage<Req, Resp, E>> {
        let mut places = self.places();
        let count = places.replicas.len();
        places.turn = (places.turn + 1) % count.max(1);
        let turn = places.turn;
        let rank = |place: usize| {
            let stats = places.replicas[place].stage.stats();
            let usable = matches!(stats.status, Status::Running | Status::Resting);
            usable.then_some((stats.status == Status::Resting, stats.in_service + stats.queue_len))
        };
        let best = (0..count).map(|n| (turn + n) % count).filter_map(|place| Some((rank(place)?, place)));
        let (_, place) = best.min_by_key(|(rank, _)| *rank)?;
        Some(places.replicas[place].stage.clone())
    }

    pub(crate) fn stages(&self) -> Vec<Stage<Req, Resp, E>> {
        self.places().replicas.iter().map(|replica| replica.stage.clone()).collect()
    }

    pub(crate) fn stats(&self) -> Vec<StageStats> {
        self.places().replicas.iter().map(|replica| replica.stage.stats()).collect()
    }
}

/// The handler of a replicated stage: hands each request to a replica.
pub(crate) struct Router<Req, Resp, E>(pub(crate) Arc<Set<Req, Resp, E>>)
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static;

impl<Req, Resp, E> Clone for Router<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn clone(&self) -> Self {
        Router(self.0.clone())
    }
}

impl<Req, Resp, E> Service<Req> for Router<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    type Response = Resp;
    type Error = StageError<E>;
    type Future = Routed<Req, Resp, E>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), StageError<E>>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Routed<Req, Resp, E> {
        match self.0.choose() {
            Some(stage) => Routed(Ok(stage.ask(request).now())),
            None => Routed(Err(Some(Refused::new(Reason::Unavailable, self.0.rejoin_after)))),
        }
    }
}

/// The response of the replica that was chosen.
pub(crate) struct Routed<Req, Resp, E>(Result<Response<Req, Resp, E>, Option<Refused>>)
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static;

impl<Req, Resp, E> Future for Routed<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    type Output = Result<Resp, StageError<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(response) => Pin::new(response).poll(cx),
            Err(refused) => {
                let refused = refused.take().expect("a response is not polled again after it was ready");
                Poll::Ready(Err(refused.into()))
            }
        }
    }
}
