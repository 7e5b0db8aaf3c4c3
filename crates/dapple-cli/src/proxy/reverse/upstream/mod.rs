//! One upstream: its connections, state and counters.

mod attempt;
mod check;
mod trust;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dapple_client::upstream::Host;
use http::uri::Authority;

use super::common::Common;
use super::target::Target;
use crate::proxy::upstream::upload::Upload;

pub(crate) use self::attempt::{Answer, Missed, Outgoing, attempt};
pub(crate) use self::check::{Checks, check_health};
pub(crate) use self::trust::trusting;

/// One upstream.
pub(crate) struct Upstream {
    pub(crate) target: Target,
    /// The address, for logs and metrics.
    pub(crate) name: Arc<str>,
    /// Its own name for `Host`, used if it does not get the client's.
    authority: Authority,
    common: Arc<Common>,
    /// The state that the log reported last.
    pub(super) is_in: AtomicBool,
    host: Arc<Host<Upload>>,
    /// The reason of its last failure.
    last_failure: Mutex<String>,
    pub(crate) counts: Counts,
}

/// The counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: AtomicU64,
    /// Requests that got no response.
    pub(crate) failures: AtomicU64,
    /// Tries here after a failure, here or elsewhere.
    pub(crate) retries: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) reused: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) checks: AtomicU64,
    pub(crate) checks_failed: AtomicU64,
    /// How often it was taken out of service.
    pub(crate) outs: AtomicU64,
    /// Responses, and the total time to their heads.
    pub(crate) answers: AtomicU64,
    pub(crate) answers_us: AtomicU64,
}

impl Upstream {
    pub(crate) fn new(target: Target, common: Arc<Common>) -> Arc<Upstream> {
        let authority = target.authority().unwrap_or_else(|_| Authority::from_static("upstream"));
        Arc::new(Upstream {
            name: target.to_string().into(),
            host: Host::new(target.clone(), common.config.clone()),
            target,
            authority,
            common,
            is_in: AtomicBool::new(true),
            last_failure: Mutex::default(),
            counts: Counts::default(),
        })
    }

    /// Notes that it answered after this time.
    fn answered(&self, after: Duration) {
        let us = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        self.counts.answers.fetch_add(1, Ordering::Relaxed);
        self.counts.answers_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Notes the reason why it did not answer.
    pub(crate) fn failed(&self, why: String) {
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// The reason of its last failure.
    pub(crate) fn last_failure(&self) -> String {
        self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of connections; and of idle HTTP/1.1 ones.
    pub(crate) fn connections(&self) -> (usize, usize) {
        self.host.connections()
    }

    /// Notes that it left the list: requests in flight continue, and no connection is kept.
    pub(crate) fn retire(&self) {
        self.host.retire();
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.host.is_retired()
    }
}
