//! One upstream: its connections, how it is, and what was counted of it.

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

/// See the module.
pub(crate) struct Upstream {
    pub(crate) target: Target,
    /// The address, for logs and metrics.
    pub(crate) name: Arc<str>,
    /// What it is called in `Host`, where it is not called as the client does.
    authority: Authority,
    common: Arc<Common>,
    /// As the log has said last.
    pub(super) is_in: AtomicBool,
    host: Arc<Host<Upload>>,
    /// Why it did not answer the last time that it did not.
    last_failure: Mutex<String>,
    pub(crate) counts: Counts,
}

/// What was counted since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: AtomicU64,
    /// Requests that came to no response.
    pub(crate) failures: AtomicU64,
    /// Tries here after one failed, here or elsewhere.
    pub(crate) retries: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) reused: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) checks: AtomicU64,
    pub(crate) checks_failed: AtomicU64,
    /// How often it was put out.
    pub(crate) outs: AtomicU64,
    /// Responses, and what their heads took in all.
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

    /// It answered, after so long.
    fn answered(&self, after: Duration) {
        let us = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        self.counts.answers.fetch_add(1, Ordering::Relaxed);
        self.counts.answers_us.fetch_add(us, Ordering::Relaxed);
    }

    /// It did not answer, and this is why.
    pub(crate) fn failed(&self, why: String) {
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Why it did not answer the last time that it did not.
    pub(crate) fn last_failure(&self) -> String {
        self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connections in all; of HTTP/1.1 those that wait.
    pub(crate) fn connections(&self) -> (usize, usize) {
        self.host.connections()
    }

    /// It is no longer in the list: what is in flight goes on, and nothing is kept.
    pub(crate) fn retire(&self) {
        self.host.retire();
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.host.is_retired()
    }
}
