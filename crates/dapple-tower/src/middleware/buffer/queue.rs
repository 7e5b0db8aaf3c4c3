//! The queue, driven by its waiting callers.
//!
//! | state of the service | `service` | `driver` | next |
//! |---|---|---|---|
//! | at rest | `Some` | `None` | driven, by the first ticket that is polled |
//! | being driven | `None` | that ticket | idle (no request waits), awaited (it is not ready), failed |
//! | awaited: it wakes the driver | `Some` | that ticket | driven, by any ticket that is polled; handed on, when the driver is served or dropped |
//! | handed on | `Some` | the ticket that was woken for it | as awaited |
//! | failed | gone | any | none; the places are closed, so that callers waiting for one get the error, too |
//!
//! A semaphore bounds the queue. The queue itself is not a
//! [`Limit`](dapple_sync::sync::limit::Limit): it keeps requests, not permits, and one waiter
//! drives for all. A limit's line knows the next waiter, but a queue also has to choose the next
//! driver.
//!
//! Foreign code (the service, wakers, requests) is called and dropped outside of the lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use dapple_sched::environment::HashMap;
use dapple_sched::foreign::KeptWaker;
use dapple_sync::sync::{OwnedSemaphorePermit, Semaphore};
use tower_service::Service;

use super::ServiceError;
use crate::BoxError;
use crate::switch::{Mutex, MutexGuard, lock};

/// The parts of a service that the queue needs, with its type erased.
trait Inner<Req, F>: Send {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>>;
    fn call(&mut self, request: Req) -> F;
}

impl<Req, S> Inner<Req, S::Future> for S
where
    S: Service<Req> + Send,
    S::Error: Into<BoxError>,
{
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Service::poll_ready(self, cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> S::Future {
        Service::call(self, request)
    }
}

pub(super) struct Queue<Req, F> {
    state: Mutex<State<Req, F>>,
    /// Closed after `failure` is set, so that no caller waits for a place any more.
    places: Arc<Semaphore>,
}

struct State<Req, F> {
    service: Option<Box<dyn Inner<Req, F>>>,
    /// The ticket to wake when the service is ready.
    driver: Option<u64>,
    failure: Option<ServiceError>,
    /// In the order of the calls.
    waiting: BTreeMap<u64, Waiting<Req>>,
    /// The ticket with a request being handed over, and its waker. `None` also if the ticket was
    /// dropped.
    calling: Option<(u64, Option<KeptWaker>)>,
    /// Futures of requests that have reached the service, until their tickets look.
    called: HashMap<u64, F>,
    next_number: u64,
}

struct Waiting<Req> {
    request: Req,
    /// Its place in the queue, freed when the request has reached the service.
    permit: OwnedSemaphorePermit,
    waker: Option<KeptWaker>,
}

impl<Req, F> Queue<Req, F> {
    pub(super) fn new<S>(service: S, places: Arc<Semaphore>) -> Queue<Req, F>
    where
        S: Service<Req, Future = F> + Send + 'static,
        S::Error: Into<BoxError>,
    {
        let service: Option<Box<dyn Inner<Req, F>>> = Some(Box::new(service));
        let state = State {
            service,
            driver: None,
            failure: None,
            waiting: BTreeMap::new(),
            calling: None,
            called: HashMap::default(),
            next_number: 0,
        };
        Queue { state: Mutex::new(state), places }
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    pub(super) fn failure(&self) -> Option<ServiceError> {
        lock(&self.state).failure.clone()
    }

    fn push(&self, request: Req, permit: OwnedSemaphorePermit) -> u64 {
        let mut state = lock(&self.state);
        let number = state.next_number;
        state.next_number += 1;
        state.waiting.insert(number, Waiting { request, permit, waker: None });
        number
    }

    /// Hands requests over until the service is not ready, or no request waits.
    fn drive(&self, mut driving: Driving<'_, Req, F>, cx: &mut Context<'_>) {
        loop {
            match driving.service().poll_ready(cx) {
                Poll::Pending => return driving.rest(true),
                Poll::Ready(Err(error)) => return driving.fail(ServiceError::new(error)),
                Poll::Ready(Ok(())) => {}
            }
            let mut state = lock(&self.state);
            let Some((number, Waiting { request, permit, waker })) = state.waiting.pop_first() else {
                drop(state);
                return driving.rest(false);
            };
            // It is in neither list now; a ticket polled at this moment stores its waker here.
            state.calling = Some((number, waker));
            drop(state);
            let response = driving.service().call(request);
            let mut state = lock(&self.state);
            let (waker, unwanted) = match state.calling.take() {
                Some((_, waker)) => (waker, state.called.insert(number, response)),
                None => (None, Some(response)),
            };
            drop(state);
            drop((permit, unwanted));
            if let Some(waker) = waker {
                waker.wake();
            }
            if lock(&self.state).waiting.is_empty() {
                return driving.rest(false);
            }
        }
    }

    /// Wakes a waiting ticket to become the driver, because the current one stops.
    fn hand_on(&self, mut state: MutexGuard<'_, State<Req, F>>) {
        // Once woken, it looks, and stores its waker again if necessary.
        let next = state.waiting.iter_mut().find_map(|(number, waiting)| Some((*number, waiting.waker.take()?)));
        state.driver = next.as_ref().map(|(number, _)| *number);
        drop(state);
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }
}

/// The service, out of the queue while it is driven.
struct Driving<'queue, Req, F> {
    queue: &'queue Queue<Req, F>,
    service: Option<Box<dyn Inner<Req, F>>>,
}

impl<Req, F> Driving<'_, Req, F> {
    fn service(&mut self) -> &mut dyn Inner<Req, F> {
        &mut **self.service.as_mut().expect("the service is here until it is put back")
    }

    /// Puts the service back. Either the service wakes the driver, or no ticket needs a wake.
    fn rest(mut self, is_awaited: bool) {
        let mut state = lock(&self.queue.state);
        state.service = self.service.take();
        // A ticket that came meanwhile relies on the current driver.
        if !is_awaited && !state.waiting.is_empty() {
            return self.queue.hand_on(state);
        }
        if !is_awaited {
            state.driver = None;
        }
    }

    fn fail(&mut self, failure: ServiceError) {
        let service = self.service.take();
        let mut state = lock(&self.queue.state);
        state.failure = Some(failure);
        let waiting = std::mem::take(&mut state.waiting);
        let calling = state.calling.take();
        drop(state);
        self.queue.places.close();
        drop(service);
        if let Some((_, Some(waker))) = calling {
            waker.wake();
        }
        for waiting in waiting.into_values() {
            if let Some(waker) = waiting.waker {
                waker.wake();
            }
        }
    }
}

impl<Req, F> Drop for Driving<'_, Req, F> {
    fn drop(&mut self) {
        if self.service.is_some() {
            self.fail(ServiceError::new("it panicked".into()));
        }
    }
}

/// The place of a request in the queue. Dropping it removes the request.
pub(super) struct Ticket<Req, F> {
    queue: Arc<Queue<Req, F>>,
    number: u64,
}

impl<Req, F> Ticket<Req, F> {
    pub(super) fn new(queue: Arc<Queue<Req, F>>, request: Req, permit: OwnedSemaphorePermit) -> Ticket<Req, F> {
        let number = queue.push(request, permit);
        Ticket { queue, number }
    }

    /// Ready with the response's future when the request has reached the service.
    pub(super) fn poll_called(&mut self, cx: &mut Context<'_>) -> Poll<Result<F, ServiceError>> {
        let waker = KeptWaker::from(cx.waker());
        let mut state = lock(&self.queue.state);
        if let Some(poll) = self.look(&mut state) {
            drop(state);
            return poll;
        }
        let place = match &mut state.calling {
            Some((number, waker)) if *number == self.number => Some(waker),
            _ => state.waiting.get_mut(&self.number).map(|waiting| &mut waiting.waker),
        };
        let before = place.and_then(|place| place.replace(waker));
        let service = state.service.take();
        if service.is_some() {
            state.driver = Some(self.number);
        }
        drop(state);
        drop(before);
        // The current driver sees this request before it puts the service back.
        let Some(service) = service else { return Poll::Pending };
        self.queue.drive(Driving { queue: &self.queue, service: Some(service) }, cx);
        let mut state = lock(&self.queue.state);
        self.look(&mut state).unwrap_or(Poll::Pending)
    }

    fn look(&self, state: &mut State<Req, F>) -> Option<Poll<Result<F, ServiceError>>> {
        if let Some(response) = state.called.remove(&self.number) {
            return Some(Poll::Ready(Ok(response)));
        }
        state.failure.clone().map(|failure| Poll::Ready(Err(failure)))
    }
}

impl<Req, F> Drop for Ticket<Req, F> {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        let waiting = state.waiting.remove(&self.number);
        let called = state.called.remove(&self.number);
        let calling = state.calling.take_if(|(number, _)| *number == self.number);
        let hands_on = state.driver == Some(self.number) && state.service.is_some();
        if hands_on {
            self.queue.hand_on(state);
        } else {
            drop(state);
        }
        drop((waiting, called, calling));
    }
}
