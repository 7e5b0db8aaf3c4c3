//! One request and its reply, from the head of the request to the last byte of the reply.

use std::time::Instant;

use dapple_http::Request;
use http::StatusCode;

use super::Sinks;
use super::log::Line;
use super::metrics::{Ending, MethodIndex};
use crate::http::{Client, Observer, Served};

/// The facts of a request until its reply is sent, or cannot be.
pub(crate) struct Exchange {
    sinks: &'static Sinks,
    started: Instant,
    method: MethodIndex,
    /// `None` if the service never answered.
    status: Option<StatusCode>,
    sent: u64,
    is_complete: bool,
    line: Option<Line>,
    served: Option<Box<Served>>,
}

impl Exchange {
    /// Starts an exchange now.
    pub(super) fn begin(sinks: &'static Sinks, request: &Request<'_>, client: &Client) -> Exchange {
        let line = sinks.log.as_ref().map(|log| Line::begin(log.format(), request, client));
        Exchange::new(sinks, MethodIndex::of(&request.method), line)
    }

    /// Starts an exchange for input that is not a request.
    pub(super) fn refused(sinks: &'static Sinks, reason: &str, client: &Client) -> Exchange {
        let line = sinks.log.as_ref().map(|log| Line::refused(log.format(), reason, client));
        Exchange::new(sinks, MethodIndex::unknown(), line)
    }

    fn new(sinks: &'static Sinks, method: MethodIndex, line: Option<Line>) -> Exchange {
        Exchange {
            sinks,
            started: Instant::now(),
            method,
            status: None,
            sent: 0,
            is_complete: false,
            line,
            served: None,
        }
    }

    /// Notes the status that the service chose.
    pub(super) fn answered(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    /// Notes the part of another server.
    pub(super) fn served(&mut self, served: Option<Box<Served>>) {
        self.served = served;
    }
}

impl Observer for Exchange {
    fn sent(&mut self, len: u64) {
        self.sent += len;
    }

    fn complete(&mut self) {
        self.is_complete = true;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let duration_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let worker = self.sinks.handle.worker_index();
        let (status, sent, is_complete) = (self.status, self.sent, self.is_complete);
        let ending = Ending { status, sent, is_complete, duration_us, worker };
        if let Some(metrics) = &self.sinks.metrics {
            metrics.count(self.method, &ending);
        }
        if let (Some(log), Some(line)) = (&self.sinks.log, &self.line) {
            log.put(worker, |lines| line.end(&ending, self.served.as_deref(), lines));
        }
    }
}
