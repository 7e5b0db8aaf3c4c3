//! The receiving side: runs each message at most once, in the order that its sender chose.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_tower::random::Random;
use dapple_tower::switch::{Mutex, lock};
use tower_service::Service;

use super::inbox::{Inbox, Running};
use super::message::{Delivery, Receipt, Session, Settled};
use crate::{BoxError, Reason, Refused};

/// Wraps a service and runs each message once, even if it comes several times, in the order that
/// its sender chose ([`Order`](super::Order)). Clones are one receiver.
///
/// | kept | bound | when it is reached |
/// |---|---|---|
/// | outcomes of a sender's messages | the newest 1,024, and only messages that the sender still asks about | newer ones are refused |
/// | senders | 1,024, or [`senders_max`](Receiver::senders_max) | the receiver forgets the sender that was silent longest. That sender's messages in flight become *unknown* to it, and do not run twice |
///
/// A receiver that restarts knows no senders: their messages in flight are *unknown* to them, and
/// later messages proceed.
///
/// A started message continues as long as its sender awaits any of its attempts. A service that
/// refuses ([`Refused`]) has not run the message, so it may be sent again.
pub struct Receiver<M, S: Service<M>> {
    service: S,
    senders: Arc<Mutex<Senders<M, S::Response>>>,
}

type Shared<M, R> = Arc<Inbox<M, R>>;

struct Senders<M, R> {
    epoch: u64,
    next: u64,
    max: usize,
    /// Each with the time when it was last heard of.
    sessions: BTreeMap<u64, (u64, Shared<M, R>)>,
    heard: u64,
}

impl<M, S> Receiver<M, S>
where
    M: Send + 'static,
    S: Service<M> + Clone + Send + 'static,
    S::Response: Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    /// Wraps `service`.
    pub fn new(service: S) -> Receiver<M, S> {
        let epoch = Random::fresh().next();
        let senders = Senders { epoch, next: 0, max: SENDERS_MAX, sessions: BTreeMap::new(), heard: 0 };
        Receiver { service, senders: Arc::new(Mutex::new(senders)) }
    }

    /// Sets how many senders it remembers, at least one.
    pub fn senders_max(self, max: usize) -> Receiver<M, S> {
        lock(&self.senders).max = max.max(1);
        self
    }

    /// The number of senders it knows.
    pub fn senders_len(&self) -> usize {
        lock(&self.senders).sessions.len()
    }
}

impl<M, R> Senders<M, R> {
    fn open(&mut self, inbox: Inbox<M, R>) -> (Session, Option<Shared<M, R>>) {
        let mut forgotten = None;
        if self.sessions.len() >= self.max {
            let oldest = self.sessions.iter().min_by_key(|(_, (heard, _))| *heard).map(|(number, _)| *number);
            forgotten = oldest.and_then(|number| self.sessions.remove(&number)).map(|(_, inbox)| inbox);
        }
        self.next += 1;
        self.heard += 1;
        self.sessions.insert(self.next, (self.heard, Arc::new(inbox)));
        (Session { epoch: self.epoch, number: self.next }, forgotten)
    }

    fn find(&mut self, session: Session) -> Option<Shared<M, R>> {
        if session.epoch != self.epoch {
            return None;
        }
        let (heard, inbox) = self.sessions.get_mut(&session.number)?;
        self.heard += 1;
        *heard = self.heard;
        Some(inbox.clone())
    }
}

impl<M, S> Service<Delivery<M>> for Receiver<M, S>
where
    M: Send + 'static,
    S: Service<M> + Clone + Send + 'static,
    S::Response: Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    type Response = Receipt<S::Response>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Receipt<S::Response>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, delivery: Delivery<M>) -> Self::Future {
        let (session, sequence, floor, message) = match delivery {
            Delivery::Open { floor, order } => {
                let (session, forgotten) = lock(&self.senders).open(Inbox::new(floor, order));
                drop(forgotten);
                return Box::pin(std::future::ready(Ok(Receipt::Opened(session))));
            }
            Delivery::Message { session, sequence, floor, message } => (session, sequence, floor, message),
        };
        let inbox = lock(&self.senders).find(session);
        let Some(inbox) = inbox else {
            return Box::pin(std::future::ready(Ok(Receipt::Forgotten)));
        };
        // The message takes its position in the queue now, not when it is first polled.
        if let Err(len) = inbox.put(sequence, floor, message) {
            let refused = Refused::new(Reason::Full { len }, RETRY_AFTER);
            return Box::pin(std::future::ready(Err(refused.into())));
        }
        let service = self.service.clone();
        let mut waiting = inbox.wait(sequence, move |message| run(service.clone(), message));
        Box::pin(poll_fn(move |cx| waiting.poll(cx)).into_ok())
    }
}

fn run<M, S>(mut service: S, message: M) -> Running<S::Response>
where
    M: Send + 'static,
    S: Service<M> + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    S::Response: Send,
{
    Box::pin(async move {
        let ready = poll_fn(|cx| service.poll_ready(cx).map_err(Into::into)).await;
        if let Err(error) = ready {
            let error: BoxError = error;
            return Receipt::Busy(error.to_string());
        }
        let response = service.call(message);
        let result: Result<_, BoxError> = response.await.map_err(Into::into);
        match result {
            Ok(response) => Receipt::Settled(Settled::Done(response)),
            Err(error) if super::message::is_not_run(&error) => Receipt::Busy(error.to_string()),
            Err(error) => Receipt::Settled(Settled::Failed(error.to_string())),
        }
    })
}

/// Turns an infallible future into one that returns a `Result`.
trait IntoOk: Future + Sized {
    fn into_ok(self) -> impl Future<Output = Result<Self::Output, BoxError>> + Send;
}

impl<F: Future + Send> IntoOk for F
where
    F::Output: Send,
{
    async fn into_ok(self) -> Result<F::Output, BoxError> {
        Ok(self.await)
    }
}

impl<M, S: Service<M> + Clone> Clone for Receiver<M, S> {
    fn clone(&self) -> Receiver<M, S> {
        Receiver { service: self.service.clone(), senders: self.senders.clone() }
    }
}

impl<M, S: Service<M>> fmt::Debug for Receiver<M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("senders", &lock(&self.senders).sessions.len()).finish_non_exhaustive()
    }
}

const SENDERS_MAX: usize = 1024;
const RETRY_AFTER: Duration = Duration::from_millis(100);
