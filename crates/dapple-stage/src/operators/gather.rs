//! Scatter and gather: asks all parts of a whole, and answers in time with the shares that came.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_sched::foreign::contain;
use dapple_tower::flights::Flights;
use dapple_tower::time::Sleep;
use dapple_tower::with_causes;
use tower_service::Service;

use crate::BoxError;

/// Asks every part for its share of an answer, and returns the shares that came within a time limit.
///
/// A part that is slow, fails or panics costs *harvest*, the fraction of the whole that an answer
/// covers, and not *yield*, the fraction of requests that get an answer. Each part has a weight, such
/// as its number of documents.
///
/// | when | then |
/// |---|---|
/// | all parts have answered or failed | the answer returns at once |
/// | the time limit has passed | the answer returns; unfinished calls are dropped |
/// | the harvest is below [`harvest_min`](Gather::harvest_min) | [`TooLittle`] says which parts are missing, and why |
/// | the caller gives up | all calls are dropped |
///
/// `poll_ready` does not wait: each part becomes ready within the time limit or is missing. Put a
/// [`Stage`](crate::Stage) in front to limit the requests under way. Costs a box for each part and
/// request, and a clone of the message.
///
/// Partial answers by harvest and yield are from Gribble's dissertation (2.2.1).
///
/// ```
/// use std::time::Duration;
/// use dapple_stage::operators::gather::Gather;
/// use tower::{ServiceExt, service_fn};
///
/// let index = |found: u32| service_fn(move |_word: &'static str| async move {
///     if found == 0 { Err("the disk is gone") } else { Ok(found) }
/// });
/// let search = Gather::new(Duration::from_secs(1)).part("a-m", 3_000, index(7)).part("n-z", 1_000, index(0));
/// let answer = dapple_sched::block_on(search.oneshot("color")).unwrap();
/// assert_eq!(answer.answers, [("a-m", 7)]);
/// assert_eq!(answer.harvest(), 0.75);
/// assert_eq!(answer.missing[0].name, "n-z");
/// ```
pub struct Gather<K, S> {
    parts: Arc<Vec<Part<K, S>>>,
    time_limit: Duration,
    harvest_min: f64,
}

#[derive(Clone)]
struct Part<K, S> {
    name: K,
    weight: u64,
    service: S,
}

/// The shares of an answer that came in time.
#[derive(Clone, Debug)]
pub struct Gathered<K, R> {
    /// The answers with the names of their parts, in the order in which they came.
    pub answers: Vec<(K, R)>,
    /// The parts without an answer, in the order in which they were added.
    pub missing: Vec<Missing<K>>,
    weight: u64,
    weight_all: u64,
}

/// A part that gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing<K> {
    /// Its name.
    pub name: K,
    /// Why there is no answer.
    pub why: Absence,
}

/// Why a part gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Absence {
    /// It did not answer within the time limit.
    Late,
    /// It failed with this error, or panicked.
    Failed(String),
}

/// The error of an answer that covers less than [`Gather::harvest_min`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TooLittle {
    /// The fraction of the whole that answered, from 0 to 1.
    pub harvest: f64,
    /// The least harvest that the caller requested.
    pub harvest_min: f64,
    /// The missing parts and their reasons, in words.
    pub missing: String,
}

impl fmt::Display for TooLittle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooLittle { harvest, harvest_min, missing } = self;
        write!(f, "the answer covers {harvest:.2} of the whole, and {harvest_min:.2} is the least; missing: {missing}")
    }
}

impl Error for TooLittle {}

impl<K, S> Gather<K, S> {
    /// Makes an operator without parts, which answers this long after a request at the latest.
    pub fn new(time_limit: Duration) -> Gather<K, S> {
        Gather { parts: Arc::new(Vec::new()), time_limit, harvest_min: 0.0 }
    }

    /// Adds a part with a name and its weight in the whole.
    pub fn part(mut self, name: K, weight: u64, service: S) -> Gather<K, S>
    where
        K: Clone,
        S: Clone,
    {
        Arc::make_mut(&mut self.parts).push(Part { name, weight, service });
        self
    }

    /// Sets the least harvest of an answer, from 0 to 1. Default: 0, so that an answer without any
    /// share is an answer, too.
    ///
    /// # Panics
    /// If `min` is not between 0 and 1.
    pub fn harvest_min(mut self, min: f64) -> Gather<K, S> {
        assert!((0.0..=1.0).contains(&min), "a harvest is a fraction from 0 to 1, not {min}");
        self.harvest_min = min;
        self
    }
}

impl<K, R> Gathered<K, R> {
    /// The fraction of the whole that answered, by weight, from 0 to 1. It is 1 without any weight.
    pub fn harvest(&self) -> f64 {
        if self.weight_all == 0 { 1.0 } else { self.weight as f64 / self.weight_all as f64 }
    }

    /// Whether all parts have answered.
    pub fn is_whole(&self) -> bool {
        self.missing.is_empty()
    }
}

impl<K, S, M> Service<M> for Gather<K, S>
where
    K: Clone + fmt::Display + Send + Sync + 'static,
    S: Service<M> + Clone + Send + Sync + 'static,
    S::Response: Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    M: Clone + Send + 'static,
{
    type Response = Gathered<K, S::Response>;
    type Error = TooLittle;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, TooLittle>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), TooLittle>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, message: M) -> Self::Future {
        let (parts, harvest_min, mut late) = (self.parts.clone(), self.harvest_min, Sleep::new(self.time_limit));
        Box::pin(async move {
            let mut flights = Flights::new();
            // A new set of flights counts from 0, so a key is the index of its part.
            for part in parts.iter() {
                flights.push(ask(part.service.clone(), message.clone()));
            }
            drop(message);
            let mut reasons: Vec<_> = parts.iter().map(|_| Some(Absence::Late)).collect();
            let (mut answers, mut weight) = (Vec::with_capacity(parts.len()), 0_u64);
            poll_fn(|cx| {
                loop {
                    match flights.poll_next(cx) {
                        Poll::Ready(None) => return Poll::Ready(()),
                        Poll::Ready(Some((key, share))) => {
                            let (index, part) = (key as usize, &parts[key as usize]);
                            match share {
                                Ok(share) => {
                                    weight = weight.saturating_add(part.weight);
                                    answers.push((part.name.clone(), share));
                                    reasons[index] = None;
                                }
                                Err(reason) => reasons[index] = Some(Absence::Failed(reason)),
                            }
                        }
                        Poll::Pending => return Pin::new(&mut late).poll(cx),
                    }
                }
            })
            .await;
            drop(flights);
            let missing: Vec<_> = reasons
                .into_iter()
                .zip(parts.iter())
                .filter_map(|(why, part)| Some(Missing { name: part.name.clone(), why: why? }))
                .collect();
            let weight_all = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.weight));
            Gathered { answers, missing, weight, weight_all }.at_least(harvest_min)
        })
    }
}

impl<K: fmt::Display, R> Gathered<K, R> {
    fn at_least(self, harvest_min: f64) -> Result<Gathered<K, R>, TooLittle> {
        let harvest = self.harvest();
        if harvest >= harvest_min {
            return Ok(self);
        }
        let missing: Vec<_> = self.missing.iter().map(|part| format!("{} ({})", part.name, part.why)).collect();
        Err(TooLittle { harvest, harvest_min, missing: missing.join(", ") })
    }
}

/// Asks one part. A panic of its service is its error.
async fn ask<S, M>(mut service: S, message: M) -> Result<S::Response, String>
where
    S: Service<M>,
    S::Error: Into<BoxError>,
{
    let words = |error: S::Error| with_causes(&*error.into());
    let mut asked = Box::pin(async move {
        poll_fn(|cx| service.poll_ready(cx)).await.map_err(words)?;
        service.call(message).await.map_err(words)
    });
    poll_fn(move |cx| contain(|| asked.as_mut().poll(cx)).unwrap_or_else(|| Poll::Ready(Err("it panicked".into()))))
        .await
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Absence::Late => f.write_str("no answer in time"),
            Absence::Failed(reason) => f.write_str(reason),
        }
    }
}

impl<K, S> Clone for Gather<K, S> {
    fn clone(&self) -> Gather<K, S> {
        Gather { parts: self.parts.clone(), time_limit: self.time_limit, harvest_min: self.harvest_min }
    }
}

impl<K, S> fmt::Debug for Gather<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gather")
            .field("parts", &self.parts.len())
            .field("time_limit", &self.time_limit)
            .field("harvest_min", &self.harvest_min)
            .finish()
    }
}
