//! The sending side: sends again until there is an answer, and reports exactly what became of a
//! message.

use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_sync::sync::Mutex as AsyncMutex;
use dapple_tower::flights::Flights;
use dapple_tower::random::Random;
use dapple_tower::switch::{Mutex, lock};
use dapple_tower::time::Sleep;
use tower_service::Service;

use super::inbox::WINDOW;
use super::message::{Delivery, DeliveryError, Order, Receipt, Session, Settled, is_not_run};
use crate::operators::credits::Claim;
use crate::{Backoff, BoxError};
use dapple_sync::sync::limit::{Limit, Permit};

/// How often and when a message is sent again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Retransmit {
    /// Attempts at most, at least one. Default: 8.
    pub attempts: u32,
    /// The wait for an answer before the message is sent again. Default: 100 ms to 2 s, doubled
    /// each time.
    pub backoff: Backoff,
    /// Unanswered messages at most, up to 1,024; more wait in `poll_ready`. Default: 64.
    pub window: usize,
    /// The order in which the receiver hands messages on. Default: as they come.
    pub order: Order,
    /// Whether to ask the receiver at the end what became of an unanswered message, and to withdraw
    /// it. Default: yes. This makes *unknown* rarer, and costs at most twice the longest wait.
    pub settle: bool,
}

impl Default for Retransmit {
    fn default() -> Retransmit {
        Retransmit {
            attempts: 8,
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(2)),
            window: 64,
            order: Order::Any,
            settle: true,
        }
    }
}

/// Sends each message again until it is answered, to a [`Receiver`](super::Receiver) that runs it
/// at most once.
///
/// Messages are numbered. The receiver remembers the outcomes that the sender may still ask for, so
/// that it repeats a lost answer instead of running the message again.
///
/// The caller learns which of these happened:
///
/// | outcome | the message | when |
/// |---|---|---|
/// | a response | ran once | |
/// | [`DeliveryError::Failed`] | ran once, and the service failed | |
/// | [`DeliveryError::NotDone`] | has not run and never will | all attempts were refused; or none was answered, and the receiver has withdrawn it |
/// | [`DeliveryError::Unknown`] | ran once at most | the receiver is out of reach, or has crashed or forgotten this sender after an attempt was made |
///
/// Cancel safe in that nothing runs twice: if the response is dropped, the message is not sent
/// again, but it may have run. Clones are one sender. A message costs one clone for each attempt.
///
/// The reliable operator of Gribble's direct composition, "at-most-once delivery" (4.2).
///
/// ```
/// use std::convert::Infallible;
/// use dapple_stage::operators::direct::{AtMostOnce, Receiver, Retransmit};
/// use tower::{ServiceExt, service_fn};
///
/// let receiver = Receiver::new(service_fn(async |n: u32| Ok::<_, Infallible>(n + 1)));
/// // Here both are in one process; a remote stage with messages of type `Delivery` works as well.
/// let sender = AtMostOnce::new(receiver, Retransmit::default());
/// assert_eq!(dapple_sched::block_on(sender.oneshot(1)), Ok(2));
/// ```
pub struct AtMostOnce<M, S, R> {
    sink: S,
    claim: Claim,
    link: Arc<Link>,
    message: PhantomData<fn(M) -> R>,
}

/// The state that all clones share.
pub(crate) struct Link {
    settings: Retransmit,
    numbers: Mutex<Numbers>,
    /// Locked while a session is being opened.
    session: AsyncMutex<Option<Session>>,
    /// How often opening failed, and the last reason. Waiting senders use it to fail at once;
    /// otherwise each would try as long again.
    unopened: Mutex<(u64, String)>,
    random: Mutex<Random>,
}

#[derive(Default)]
struct Numbers {
    next: u64,
    open: BTreeSet<u64>,
}

impl Link {
    pub(crate) fn new(settings: Retransmit) -> Arc<Link> {
        Arc::new(Link {
            settings,
            numbers: Mutex::default(),
            session: AsyncMutex::new(None),
            unopened: Mutex::default(),
            random: Mutex::new(Random::fresh()),
        })
    }

    /// Assigns the next number.
    fn begin(self: &Arc<Link>) -> Numbered {
        let mut numbers = lock(&self.numbers);
        let sequence = numbers.next;
        numbers.next += 1;
        numbers.open.insert(sequence);
        Numbered { link: self.clone(), sequence }
    }

    fn floor(&self) -> u64 {
        let numbers = lock(&self.numbers);
        numbers.open.first().copied().unwrap_or(numbers.next)
    }

    fn wait(&self, attempt: u32) -> Sleep {
        let wait = self.settings.backoff.random_wait(attempt, &mut lock(&self.random));
        Sleep::new(wait)
    }
}

/// A number that stays unsettled until this is dropped.
struct Numbered {
    link: Arc<Link>,
    sequence: u64,
}

impl Drop for Numbered {
    fn drop(&mut self) {
        lock(&self.link.numbers).open.remove(&self.sequence);
    }
}

type Attempt<R> = Pin<Box<dyn Future<Output = Result<Receipt<R>, BoxError>> + Send>>;

/// One message in transit.
pub(crate) struct Sender<S> {
    /// Locked for cloning only: services need not be `Sync`.
    sink: Mutex<S>,
    number: Numbered,
}

/// The known facts about the attempts so far.
struct Tries<R> {
    flights: Flights<Attempt<R>>,
    /// The `flights` that carry the message.
    carriers: BTreeSet<u64>,
    /// Whether the receiver may have seen the message.
    has_come: bool,
    /// Whether an attempt may have run the message.
    has_risk: bool,
    why: String,
}

/// The result of one wait.
enum News<R> {
    Over(Result<R, DeliveryError>),
    /// The receiver does not know this sender, and no attempt can have run.
    Forgotten,
    /// Time to try again.
    Again,
}

impl<S> Sender<S> {
    /// Takes the next number.
    pub(crate) fn new(sink: S, link: &Arc<Link>) -> Sender<S> {
        Sender { sink: Mutex::new(sink), number: link.begin() }
    }

    fn attempt<M, R>(&self, delivery: Delivery<M>) -> Attempt<R>
    where
        M: Send + 'static,
        S: Service<Delivery<M>, Response = Receipt<R>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
    {
        let mut sink = lock(&self.sink).clone();
        Box::pin(async move {
            poll_fn(|cx| sink.poll_ready(cx)).await.map_err(Into::into)?;
            sink.call(delivery).await.map_err(Into::into)
        })
    }

    /// The current session; opens one if there is none.
    async fn session<M, R>(&self) -> Result<Session, DeliveryError>
    where
        M: Send + 'static,
        R: Send + 'static,
        S: Service<Delivery<M>, Response = Receipt<R>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
    {
        let link = &self.number.link;
        let unopened = lock(&link.unopened).0;
        let mut session = link.session.lock().await;
        if let Some(session) = *session {
            return Ok(session);
        }
        let not_reached = |why: &str| Err(DeliveryError::NotDone(format!("the receiver was not reached: {why}")));
        if let (now, why) = &*lock(&link.unopened)
            && *now != unopened
        {
            return not_reached(why);
        }
        let mut why = "no answer in time".to_owned();
        let mut flights = Flights::<Attempt<R>>::new();
        for attempt in 0..link.settings.attempts.max(1) {
            flights.push(self.attempt(Delivery::Open { floor: link.floor(), order: link.settings.order }));
            let mut wait = pin!(link.wait(attempt));
            loop {
                match next_or_timeout(&mut flights, wait.as_mut()).await {
                    Some(Ok(Receipt::Opened(opened))) => {
                        *session = Some(opened);
                        return Ok(opened);
                    }
                    Some(Ok(_)) => why = "the receiver's answer does not fit the request".into(),
                    Some(Err(error)) => why = error.to_string(),
                    None => break,
                }
            }
        }
        let result = not_reached(&why);
        let mut unopened = lock(&link.unopened);
        *unopened = (unopened.0 + 1, why);
        result
    }

    pub(crate) async fn run<M, R>(self, message: M) -> Result<R, DeliveryError>
    where
        M: Clone + Send + 'static,
        R: Send + 'static,
        S: Service<Delivery<M>, Response = Receipt<R>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
    {
        let link = self.number.link.clone();
        let sequence = self.number.sequence;
        let mut session = self.session::<M, R>().await?;
        let mut tries = Tries {
            flights: Flights::new(),
            carriers: BTreeSet::new(),
            has_come: false,
            has_risk: false,
            why: "no answer in time".into(),
        };
        let attempts = link.settings.attempts.max(1);
        let last = attempts.saturating_add(if link.settings.settle { SETTLE_ATTEMPTS } else { 0 });
        let mut attempt = 0;
        while attempt < last {
            let message = (attempt < attempts).then(|| message.clone());
            let carries = message.is_some();
            if !carries && !tries.has_come && !tries.may_have_run() {
                break;
            }
            let delivery = Delivery::Message { session, sequence, floor: link.floor(), message };
            let key = tries.flights.push(self.attempt(delivery));
            tries.carriers.extend(carries.then_some(key));
            match tries.wait(link.wait(attempt)).await {
                News::Over(result) => return self.over(session, result).await,
                News::Again => attempt += 1,
                News::Forgotten => {
                    self.forget(session).await;
                    attempt += 1;
                    session = self.session::<M, R>().await?;
                }
            }
        }
        if tries.may_have_run() {
            Err(DeliveryError::Unknown(tries.why))
        } else {
            Err(DeliveryError::NotDone(tries.why))
        }
    }

    async fn over<R>(&self, session: Session, result: Result<R, DeliveryError>) -> Result<R, DeliveryError> {
        if matches!(result, Err(DeliveryError::Unknown(_))) {
            self.forget(session).await;
        }
        result
    }

    async fn forget(&self, session: Session) {
        let mut current = self.number.link.session.lock().await;
        if *current == Some(session) {
            *current = None;
        }
    }
}

impl<R> Tries<R> {
    fn may_have_run(&self) -> bool {
        self.has_risk || !self.carriers.is_empty()
    }

    /// Waits for a decisive answer, or until the next attempt is due.
    async fn wait(&mut self, wait: Sleep) -> News<R> {
        let mut wait = pin!(wait);
        loop {
            let Some((key, answer)) = next_with_key(&mut self.flights, wait.as_mut()).await else { return News::Again };
            let carried = self.carriers.remove(&key);
            match answer {
                Ok(Receipt::Settled(settled)) => {
                    return News::Over(match settled {
                        Settled::Done(response) => Ok(response),
                        Settled::Failed(why) => Err(DeliveryError::Failed(why)),
                        Settled::NotDone(why) => Err(DeliveryError::NotDone(why)),
                    });
                }
                Ok(Receipt::Forgotten) if !self.may_have_run() => return News::Forgotten,
                Ok(Receipt::Forgotten) => {
                    let why = "the receiver has restarted, or has forgotten this sender, since the message was sent";
                    return News::Over(Err(DeliveryError::Unknown(why.into())));
                }
                Ok(Receipt::Busy(why)) => {
                    self.has_come = true;
                    self.why = why;
                }
                Ok(Receipt::Opened(_)) => self.why = "the receiver's answer does not fit the request".into(),
                Err(error) => {
                    self.has_risk |= carried && !is_not_run(&error);
                    self.why = error.to_string();
                }
            }
        }
    }
}

/// The next flight that ends, or `None` after the wait.
async fn next_or_timeout<F: Future>(flights: &mut Flights<F>, wait: Pin<&mut Sleep>) -> Option<F::Output> {
    next_with_key(flights, wait).await.map(|(_, output)| output)
}

async fn next_with_key<F: Future>(flights: &mut Flights<F>, mut wait: Pin<&mut Sleep>) -> Option<(u64, F::Output)> {
    poll_fn(|cx| {
        if let Poll::Ready(Some(ended)) = flights.poll_next(cx) {
            return Poll::Ready(Some(ended));
        }
        wait.as_mut().poll(cx).map(|()| None)
    })
    .await
}

impl<M, S, R> AtMostOnce<M, S, R>
where
    S: Service<Delivery<M>, Response = Receipt<R>>,
{
    /// Sends to `sink`, which must lead to a [`Receiver`](super::Receiver).
    pub fn new(sink: S, settings: Retransmit) -> AtMostOnce<M, S, R> {
        let window = settings.window.clamp(1, WINDOW as usize);
        AtMostOnce { sink, claim: Claim::new(Limit::new(window)), link: Link::new(settings), message: PhantomData }
    }
}

impl<M, S, R> Service<M> for AtMostOnce<M, S, R>
where
    M: Clone + Send + 'static,
    R: Send + 'static,
    S: Service<Delivery<M>, Response = Receipt<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    type Response = R;
    type Error = DeliveryError;
    type Future = Pin<Box<dyn Future<Output = Result<R, DeliveryError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DeliveryError>> {
        self.claim.poll_ready(cx).map(Ok)
    }

    /// # Panics
    /// If `poll_ready` was not ready.
    fn call(&mut self, message: M) -> Self::Future {
        let credit = self.claim.take().expect("await `poll_ready` before each `call`");
        let sender = Sender::new(self.sink.clone(), &self.link);
        Box::pin(holding(credit, sender.run(message)))
    }
}

async fn holding<F: Future>(credit: Permit, future: F) -> F::Output {
    let _credit = credit;
    future.await
}

impl<M, S: Clone, R> Clone for AtMostOnce<M, S, R> {
    fn clone(&self) -> AtMostOnce<M, S, R> {
        AtMostOnce { sink: self.sink.clone(), claim: self.claim.clone(), link: self.link.clone(), message: PhantomData }
    }
}

impl<M, S: fmt::Debug, R> fmt::Debug for AtMostOnce<M, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtMostOnce").field("sink", &self.sink).field("settings", &self.link.settings).finish()
    }
}

/// How often the sender asks for the outcome at the end.
const SETTLE_ATTEMPTS: u32 = 2;
