//! Interim responses in transit from an origin to the client (RFC 9110, section 15.2).

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use dapple_http::hops;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode, Version};

use crate::http::Interims;
use dapple_client::relay::Via;

/// A bounded queue from the color of an origin's connection to that of a client. Further interim
/// responses are dropped.
#[derive(Debug, Default)]
pub(crate) struct Hints(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    waiting: Vec<(StatusCode, HeaderMap)>,
    /// How many have arrived in total.
    count: usize,
    waker: Option<Waker>,
}

impl Hints {
    /// Creates a queue if the client wants interim responses.
    pub(crate) fn wanted(interims: Option<&Interims>) -> Option<Arc<Hints>> {
        interims.map(|_| Arc::default())
    }

    /// Adds an interim response of an origin.
    pub(crate) fn push(&self, status: StatusCode, headers: &HeaderMap) {
        let mut inner = self.lock();
        inner.count += 1;
        let len: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        if inner.count > COUNT_MAX || len > LEN_MAX {
            return;
        }
        inner.waiting.push((status, headers.clone()));
        if let Some(waker) = inner.waker.take() {
            waker.wake();
        }
    }

    /// Whether any has arrived.
    pub(crate) fn is_any(&self) -> bool {
        self.lock().count > 0
    }

    /// Runs `work`, and passes on what arrives meanwhile.
    pub(crate) async fn passed_on<T>(&self, interims: &Interims, via: &Via, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let done = work.as_mut().poll(cx);
            let mut inner = self.lock();
            for (status, mut headers) in mem::take(&mut inner.waiting) {
                hops::strip(&mut headers);
                headers.remove(CONTENT_LENGTH);
                via.add_to(&mut headers, Version::HTTP_11);
                interims.push(status, &headers);
            }
            if done.is_pending() && !inner.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                inner.waker = Some(cx.waker().clone());
            }
            done
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing under the lock can panic halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `work`, and passes on what arrives meanwhile, if there are hints and a client that wants
/// them.
pub(crate) async fn passed_on<T>(
    hints: Option<&Hints>,
    interims: Option<&Interims>,
    via: &Via,
    work: impl Future<Output = T>,
) -> T {
    match hints.zip(interims) {
        Some((hints, interims)) => hints.passed_on(interims, via, work).await,
        None => work.await,
    }
}

/// How many interim responses may precede one reply, and how many bytes of fields each may have.
const COUNT_MAX: usize = 8;
const LEN_MAX: usize = 8 << 10;
