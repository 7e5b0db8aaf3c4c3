//! The named sequencer: one order for all members and all senders.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_service::Service;

use super::group::{Broadcast, Delivered, Member, Ordering, Settings};
use crate::BoxError;
use crate::operators::direct::{Delivery, Receipt};

/// A message with its position in the global order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Numbered<M> {
    /// The name of the sequencer that gave the number.
    pub sequencer: Arc<str>,
    /// The number, from 0 and without gaps for one sequencer.
    pub number: u64,
    /// The message.
    pub message: M,
}

/// The fate of a numbered message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sequenced<K, R> {
    /// Its position in the global order.
    pub number: u64,
    /// Its fate at each member.
    pub delivered: Delivered<K, R>,
}

/// Broadcasts the messages of many senders so that all members see them in the same order: the *named
/// sequencer*.
///
/// A group has one; senders elsewhere reach it as they reach any service. All messages pass it, so
/// it bounds the group's rate; for each message it only gives a number and sends it on. If it dies,
/// another one under another name may take over, and the members join that one; messages in flight
/// at the old one may then be at some members only. From the name and number of a message a member
/// can tell where the order was broken.
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::{Arc, Mutex};
/// use dapple_stage::operators::broadcast::{Numbered, Sequencer, Settings};
/// use tower::{ServiceExt, service_fn};
///
/// let seen: [Arc<Mutex<Vec<u32>>>; 2] = Default::default();
/// let sequencer = Sequencer::new("first", Settings::default());
/// for (name, seen) in ["a", "b"].into_iter().zip(seen.clone()) {
///     sequencer.join_local(name, service_fn(move |numbered: Numbered<u32>| {
///         seen.lock().unwrap().push(numbered.message);
///         std::future::ready(Ok::<_, Infallible>(()))
///     }));
/// }
/// let threads = [1, 2, 3].map(|n| {
///     let sequencer = sequencer.clone();
///     std::thread::spawn(move || dapple_sched::block_on(sequencer.oneshot(n)).unwrap())
/// });
/// threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
/// assert_eq!(seen[0].lock().unwrap().len(), 3);
/// assert_eq!(*seen[0].lock().unwrap(), *seen[1].lock().unwrap());
/// ```
pub struct Sequencer<K, M, R> {
    name: Arc<str>,
    broadcast: Broadcast<K, Numbered<M>, R>,
}

impl<K, M, R> Sequencer<K, M, R>
where
    K: Ord + Clone,
    M: Clone + Send + 'static,
    R: Send + 'static,
{
    /// A sequencer of this name, for a group without members. Ignores the settings' ordering.
    pub fn new(name: &str, settings: Settings) -> Sequencer<K, M, R> {
        Sequencer { name: name.into(), broadcast: Broadcast::new(settings.ordered(Ordering::PerSender)) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As [`Broadcast::join`].
    pub fn join<S>(&self, name: K, sink: S)
    where
        S: Service<Delivery<Numbered<M>>, Response = Receipt<R>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
    {
        self.broadcast.join(name, sink);
    }

    /// As [`Broadcast::join_local`].
    pub fn join_local<S>(&self, name: K, service: S)
    where
        R: Clone,
        S: Service<Numbered<M>, Response = R> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
    {
        self.broadcast.join_local(name, service);
    }

    /// As [`Broadcast::leave`].
    pub fn leave(&self, name: &K) -> bool {
        self.broadcast.leave(name)
    }

    /// As [`Broadcast::members`].
    pub fn members(&self) -> Vec<Member<K>> {
        self.broadcast.members()
    }
}

impl<K, M, R> Service<M> for Sequencer<K, M, R>
where
    K: Ord + Clone + Send + 'static,
    M: Clone + Send + 'static,
    R: Send + 'static,
{
    type Response = Sequenced<K, R>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Sequenced<K, R>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.broadcast.claim().poll_ready(cx).map(Ok)
    }

    /// # Panics
    /// If `poll_ready` was not ready.
    fn call(&mut self, message: M) -> Self::Future {
        let credit = self.broadcast.claim().take().expect("await `poll_ready` before each `call`");
        let mut given = 0;
        let sequencer = self.name.clone();
        let sending = self.broadcast.send(|number| {
            given = number;
            Numbered { sequencer, number, message }
        });
        Box::pin(async move {
            let _credit = credit;
            Ok(Sequenced { number: given, delivered: sending.await })
        })
    }
}

impl<K, M, R> Clone for Sequencer<K, M, R> {
    fn clone(&self) -> Sequencer<K, M, R> {
        Sequencer { name: self.name.clone(), broadcast: self.broadcast.clone() }
    }
}

impl<K: fmt::Debug, M, R> fmt::Debug for Sequencer<K, M, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequencer").field("name", &self.name).field("broadcast", &self.broadcast).finish()
    }
}
