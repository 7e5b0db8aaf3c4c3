//! Interim responses on their way from an origin to the client that asked (RFC 9110, section 15.2).

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode, Version};

use super::fields::{self, Pseudonym};
use crate::http::Interims;

/// From the color of a connection to an origin to that of a client. Bounded: what an origin says beyond that is not passed on.
#[derive(Debug, Default)]
pub(crate) struct Hints(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    waiting: Vec<(StatusCode, HeaderMap)>,
    /// How many have come, whatever became of them.
    count: usize,
    waker: Option<Waker>,
}

impl Hints {
    /// For a client that wants them.
    pub(crate) fn wanted(interims: Option<&Interims>) -> Option<Arc<Hints>> {
        interims.map(|_| Arc::default())
    }

    /// An origin said something ahead of its answer.
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

    /// Whether anything has come.
    pub(crate) fn is_any(&self) -> bool {
        self.lock().count > 0
    }

    /// Does `work`, and passes on meanwhile what comes.
    pub(crate) async fn passed_on<T>(
        &self,
        interims: &Interims,
        pseudonym: &Pseudonym,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let done = work.as_mut().poll(cx);
            let mut inner = self.lock();
            for (status, mut headers) in mem::take(&mut inner.waiting) {
                fields::strip(&mut headers);
                headers.remove(CONTENT_LENGTH);
                pseudonym.add_to(&mut headers, Version::HTTP_11);
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
        // Nothing that can panic half-way happens under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does `work`, and passes on meanwhile what comes, where both want that.
pub(crate) async fn passed_on<T>(
    hints: Option<&Hints>,
    interims: Option<&Interims>,
    pseudonym: &Pseudonym,
    work: impl Future<Output = T>,
) -> T {
    match hints.zip(interims) {
        Some((hints, interims)) => hints.passed_on(interims, pseudonym, work).await,
        None => work.await,
    }
}

/// How many go ahead of one answer, and how many bytes of fields each may have.
const COUNT_MAX: usize = 8;
const LEN_MAX: usize = 8 << 10;
