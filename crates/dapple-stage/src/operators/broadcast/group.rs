//! The members of a group, and the messages to them.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_tower::flights::Flights;
use dapple_tower::switch::{Mutex, lock};
use tower_service::Service;

use crate::operators::credits::Claim;
use crate::operators::direct::{Delivery, DeliveryError, Link, Order, Receipt, Receiver, Retransmit, Sender};
use crate::stage::panic_message;
use crate::{Backoff, BoxError};
use dapple_sync::sync::limit::Limit;

/// The order in which each member sees the messages of one [`Broadcast`] and its clones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ordering {
    /// Any order, several at once.
    #[default]
    Unordered,
    /// The order of the calls, one after the other.
    PerSender,
}

/// The guarantees of a [`Broadcast`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Whether a message is sent again until every member of the view has answered. Default: yes.
    pub is_reliable: bool,
    /// The order. Default: unordered.
    pub ordering: Ordering,
    /// How often a message is sent at most. Default: 8.
    pub attempts: u32,
    /// The wait for an answer before the message is sent again; best effort waits once, for the
    /// first of these. Default: 100 ms to 2 s.
    pub backoff: Backoff,
    /// The number of messages in flight, up to 1,024; more wait in `poll_ready`, so the slowest
    /// member slows the sender down. Default: 64.
    pub window: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            is_reliable: true,
            ordering: Ordering::Unordered,
            attempts: 8,
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(2)),
            window: 64,
        }
    }
}

impl Settings {
    /// Each message is sent once, in any order.
    pub fn best_effort() -> Settings {
        Settings { is_reliable: false, ..Settings::default() }
    }

    /// Sets the order.
    pub fn ordered(self, ordering: Ordering) -> Settings {
        Settings { ordering, ..self }
    }

    fn retransmit(&self) -> Retransmit {
        let order = match (self.ordering, self.is_reliable) {
            (Ordering::Unordered, _) => Order::Any,
            (Ordering::PerSender, true) => Order::Gapless,
            (Ordering::PerSender, false) => Order::Skipping,
        };
        Retransmit {
            attempts: if self.is_reliable { self.attempts } else { 1 },
            backoff: self.backoff.clone(),
            settle: self.is_reliable,
            order,
            ..Retransmit::default()
        }
    }
}

/// The fate of a message at each member that was in the view when it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivered<K, R> {
    /// The members that have it, each with its answer.
    pub delivered: Vec<(K, R)>,
    /// The members that failed or may lack it, each with the reason.
    pub failed: Vec<(K, DeliveryError)>,
    /// The failed members that have left the view.
    pub removed: Vec<K>,
}

impl<K, R> Delivered<K, R> {
    /// Whether every member still in the view has the message.
    pub fn is_whole(&self) -> bool {
        self.failed.len() == self.removed.len()
    }
}

/// Sends each message to all members. A handle; its clones are the same sender with the same view.
///
/// The [module](super) states the guarantees. A message costs one clone for each member and
/// attempt. When the response future is dropped, the message is not sent again, and only some
/// members may have it; spawn the future if that matters.
///
/// ```
/// use std::convert::Infallible;
/// use dapple_stage::operators::broadcast::{Broadcast, Ordering, Settings};
/// use tower::{ServiceExt, service_fn};
///
/// let broadcast = Broadcast::new(Settings::default().ordered(Ordering::PerSender));
/// broadcast.join_local("a", service_fn(async |n: u32| Ok::<_, Infallible>(n + 1)));
/// broadcast.join_local("b", service_fn(async |n: u32| Ok::<_, Infallible>(n + 2)));
/// let result = dapple_sched::block_on(broadcast.oneshot(10))?;
/// assert_eq!(result.delivered, [("a", 11), ("b", 12)]);
/// # Ok::<(), Infallible>(())
/// ```
pub struct Broadcast<K, M, R> {
    shared: Arc<Shared<K, M, R>>,
    claim: Claim,
}

struct Shared<K, M, R> {
    settings: Settings,
    view: Mutex<View<K, M, R>>,
}

struct View<K, M, R> {
    members: BTreeMap<K, (u64, BoxLink<M, R>)>,
    joined: u64,
    sent: u64,
}

/// A member, as seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member<K> {
    /// Its name.
    pub name: K,
    /// The position in the order of joining. A member that joins again is a new one.
    pub joined: u64,
}

type Sending<R> = Pin<Box<dyn Future<Output = Result<R, DeliveryError>> + Send>>;

type BoxLink<M, R> = Box<dyn Linked<M, R>>;

/// A link to a member, independent of its service type.
trait Linked<M, R>: Send {
    fn send(&self, message: M) -> Sending<R>;
}

struct To<S> {
    sink: S,
    link: Arc<Link>,
    /// Maps a panic on the way to a delivery error.
    panicked: fn(String) -> DeliveryError,
}

impl<M, R, S> Linked<M, R> for To<S>
where
    M: Clone + Send + 'static,
    R: Send + 'static,
    S: Service<Delivery<M>, Response = Receipt<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    fn send(&self, message: M) -> Sending<R> {
        let sender = Sender::new(self.sink.clone(), &self.link);
        let (mut sending, panicked) = (Box::pin(sender.run(message)), self.panicked);
        // A member's panic affects this member only: the others get the message, and the sender
        // gets an error.
        Box::pin(poll_fn(move |cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| sending.as_mut().poll(cx)));
            polled.unwrap_or_else(|payload| {
                Poll::Ready(Err(panicked(format!("the service panicked: {}", panic_message(payload)))))
            })
        }))
    }
}

impl<K, M, R> Broadcast<K, M, R>
where
    K: Ord + Clone,
    M: Clone + Send + 'static,
    R: Send + 'static,
{
    /// A group without members.
    pub fn new(settings: Settings) -> Broadcast<K, M, R> {
        let window = settings.window.clamp(1, WINDOW_MAX);
        let view = View { members: BTreeMap::new(), joined: 0, sent: 0 };
        let shared = Arc::new(Shared { settings, view: Mutex::new(view) });
        Broadcast { shared, claim: Claim::new(Limit::new(window)) }
    }

    /// Adds a member, or replaces the one of that name. It gets messages sent from now on. `sink`
    /// leads to a [`Receiver`], here or elsewhere.
    pub fn join<S>(&self, name: K, sink: S)
    where
        S: Service<Delivery<M>, Response = Receipt<R>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
    {
        self.join_as(name, sink, DeliveryError::Unknown);
    }

    fn join_as<S>(&self, name: K, sink: S, panicked: fn(String) -> DeliveryError)
    where
        S: Service<Delivery<M>, Response = Receipt<R>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
    {
        let link = Link::new(self.shared.settings.retransmit());
        let old = {
            let mut view = lock(&self.shared.view);
            view.joined += 1;
            let joined = view.joined;
            view.members.insert(name, (joined, Box::new(To { sink, link, panicked })))
        };
        drop(old);
    }

    /// Adds a service of this process as a member, like [`join`](Broadcast::join), with its own
    /// [`Receiver`]. A panic of the service is a failure at that message.
    pub fn join_local<S>(&self, name: K, service: S)
    where
        R: Clone,
        S: Service<M, Response = R> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
    {
        self.join_as(name, Receiver::new(service), DeliveryError::Failed);
    }

    /// Removes a member, and returns whether it was there. Messages already in transit to it
    /// continue.
    pub fn leave(&self, name: &K) -> bool {
        let old = lock(&self.shared.view).members.remove(name);
        old.is_some()
    }

    /// The members in the order of their names.
    pub fn members(&self) -> Vec<Member<K>> {
        let view = lock(&self.shared.view);
        view.members.iter().map(|(name, (joined, _))| Member { name: name.clone(), joined: *joined }).collect()
    }

    /// Sends the message that `message` makes from the count of earlier ones. The order of these
    /// calls is the order at all members.
    pub(super) fn send(&self, message: impl FnOnce(u64) -> M) -> Pin<Box<dyn Future<Output = Delivered<K, R>> + Send>>
    where
        K: Send + 'static,
    {
        let mut flights = Flights::new();
        let mut names = BTreeMap::new();
        {
            // One lock covers all members, so that two messages have the same order on each link.
            let mut view = lock(&self.shared.view);
            let message = message(view.sent);
            view.sent += 1;
            for (name, (joined, link)) in &view.members {
                let key = flights.push(link.send(message.clone()));
                names.insert(key, Member { name: name.clone(), joined: *joined });
            }
        }
        let shared = self.shared.clone();
        Box::pin(async move {
            let mut results = BTreeMap::new();
            while let Some((key, result)) = poll_fn(|cx| flights.poll_next(cx)).await {
                results.insert(key, result);
            }
            let results = results.into_iter().filter_map(|(key, result)| Some((names.remove(&key)?, result)));
            shared.result(results)
        })
    }
}

impl<K: Ord + Clone, M, R> Shared<K, M, R> {
    fn result(&self, results: impl Iterator<Item = (Member<K>, Result<R, DeliveryError>)>) -> Delivered<K, R> {
        let mut all = Delivered { delivered: Vec::new(), failed: Vec::new(), removed: Vec::new() };
        for (member, result) in results {
            match result {
                Ok(response) => all.delivered.push((member.name, response)),
                Err(error) => {
                    let lacks_it = !matches!(error, DeliveryError::Failed(_));
                    if lacks_it && self.settings.is_reliable {
                        self.remove(&member);
                        all.removed.push(member.name.clone());
                    }
                    all.failed.push((member.name, error));
                }
            }
        }
        all
    }

    /// Removes a member that lacks a message, unless it has joined again meanwhile.
    fn remove(&self, member: &Member<K>) {
        let mut view = lock(&self.view);
        let is_same = view.members.get(&member.name).is_some_and(|(joined, _)| *joined == member.joined);
        let old = if is_same { view.members.remove(&member.name) } else { None };
        drop(view);
        drop(old);
    }
}

impl<K, M, R> Service<M> for Broadcast<K, M, R>
where
    K: Ord + Clone + Send + 'static,
    M: Clone + Send + 'static,
    R: Send + 'static,
{
    type Response = Delivered<K, R>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Delivered<K, R>, std::convert::Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.claim.poll_ready(cx).map(Ok)
    }

    /// # Panics
    /// If `poll_ready` was not ready.
    fn call(&mut self, message: M) -> Self::Future {
        let credit = self.claim.take().expect("await `poll_ready` before each `call`");
        let sending = self.send(|_| message);
        Box::pin(async move {
            let _credit = credit;
            Ok(sending.await)
        })
    }
}

impl<K, M, R> Broadcast<K, M, R> {
    pub(super) fn claim(&mut self) -> &mut Claim {
        &mut self.claim
    }
}

impl<K, M, R> Clone for Broadcast<K, M, R> {
    fn clone(&self) -> Broadcast<K, M, R> {
        Broadcast { shared: self.shared.clone(), claim: self.claim.clone() }
    }
}

impl<K: fmt::Debug, M, R> fmt::Debug for Broadcast<K, M, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = lock(&self.shared.view);
        let names: Vec<_> = view.members.keys().collect();
        f.debug_struct("Broadcast").field("settings", &self.shared.settings).field("members", &names).finish()
    }
}

/// The largest distance between unsettled messages that a receiver accepts from one sender.
const WINDOW_MAX: usize = 1024;
