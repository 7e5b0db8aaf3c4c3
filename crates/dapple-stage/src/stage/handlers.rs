//! All handlers of a stage: how many may work at a time, and when the next one may start.

use std::time::{Duration, Instant};

use dapple_sched::AbortHandle;

use super::handler::{Factory, Handler};
use super::limits::Bucket;
use super::stats::{Mean, Status};
use super::width::WidthControl;
use crate::supervise::Supervisor;

/// The state that the tasks of a stage share under one lock. No user code runs under it: handlers
/// are made and dropped outside.
pub(crate) struct Handlers<Req, Resp, E> {
    pub(crate) width: usize,
    pub(crate) control: Option<WidthControl>,
    pub(crate) in_service: usize,
    pub(crate) idle: Vec<Box<dyn Handler<Req, Resp, E>>>,
    /// `None` while the starting thread makes a handler with it.
    pub(crate) factory: Option<Factory<Req, Resp, E>>,
    /// How often another version took over. Handlers of earlier versions are not reused.
    pub(crate) generation: u64,
    pub(crate) supervisor: Supervisor,
    pub(crate) rate: Option<Bucket>,
    /// A thread is starting requests, and will check again before it clears this.
    pub(crate) starting: bool,
    pub(crate) alarm: Option<Alarm>,
    pub(crate) stopping: bool,
    pub(crate) totals: Totals,
}

/// The task that checks again at a certain time.
pub(crate) struct Alarm {
    pub(crate) at: Instant,
    pub(crate) number: u64,
    pub(crate) abort: AbortHandle,
}

/// Totals since the start.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) alarms: u64,
    pub(crate) served: u64,
    pub(crate) failed: u64,
    pub(crate) canceled: u64,
    pub(crate) expired: u64,
    pub(crate) panicked: u64,
    pub(crate) deaths: u64,
    pub(crate) restarts: u64,
    pub(crate) queue_delay: Mean,
    pub(crate) service_time: Mean,
    pub(crate) worker_time: Duration,
    /// The time of one call.
    pub(crate) busy: Mean,
}

/// The handler for the next request.
pub(crate) enum NextHandler<Req, Resp, E> {
    Taken(Box<dyn Handler<Req, Resp, E>>),
    /// The factory must make a handler first.
    Make(Factory<Req, Resp, E>),
}

impl<Req, Resp, E> Handlers<Req, Resp, E> {
    /// The state of the stage.
    pub(crate) fn status(&mut self, now: Instant) -> Status {
        match self.supervisor.resting(now) {
            _ if self.supervisor.is_out() => Status::Out,
            _ if self.stopping => Status::Stopping,
            (0, _) => Status::Running,
            _ => Status::Resting,
        }
    }

    /// How many requests may start together at `now`; otherwise the time of the next check, if time
    /// can change it.
    pub(crate) fn may_start(&mut self, now: Instant, cohort_max: usize) -> Result<usize, Option<Instant>> {
        if self.supervisor.is_out() {
            return Err(None);
        }
        let (resting, until) = self.supervisor.resting(now);
        if self.in_service + resting >= self.width {
            return Err(until);
        }
        let mut most = cohort_max;
        if let Some(rate) = &mut self.rate {
            rate.look(now, 1.0).map_err(Some)?;
            most = most.min(rate.whole());
        }
        Ok(most)
    }

    /// Takes a handler for `count` requests that start now.
    pub(crate) fn start(&mut self, count: usize) -> Option<NextHandler<Req, Resp, E>> {
        let next_handler = match self.idle.pop() {
            Some(handler) => NextHandler::Taken(handler),
            None => NextHandler::Make(self.factory.take()?),
        };
        self.in_service += 1;
        if let Some(rate) = &mut self.rate {
            rate.take(count as f64);
        }
        Some(next_handler)
    }

    /// Returns a handler to the idle ones. If it is of no further use, the caller gets it back, to
    /// drop it outside of the lock.
    pub(crate) fn handler_back(
        &mut self,
        generation: u64,
        handler: Box<dyn Handler<Req, Resp, E>>,
    ) -> Option<Box<dyn Handler<Req, Resp, E>>> {
        if generation != self.generation || self.idle.len() + self.in_service >= self.width {
            return Some(handler);
        }
        self.idle.push(handler);
        None
    }

    /// Returns the factory, in the same way.
    pub(crate) fn factory_back(
        &mut self,
        generation: u64,
        factory: Factory<Req, Resp, E>,
    ) -> Option<Factory<Req, Resp, E>> {
        if generation != self.generation {
            return Some(factory);
        }
        self.factory = Some(factory);
        None
    }
}
