//! Counts a request, from its head to the end of its reply.

use std::sync::Arc;
use std::time::Instant;

use dapple_sched::environment;
use http::{Method, StatusCode};

use crate::handle::Numbers;
use crate::metrics::{Ending, MethodIndex};

/// Counts when it is dropped. If dropped before there is a reply, the client has left.
pub(crate) struct Counted {
    numbers: Arc<Numbers>,
    method: MethodIndex,
    started: Instant,
    status: Option<StatusCode>,
    sent: u64,
    is_complete: bool,
}

impl Counted {
    /// Starts counting a request when its head has arrived.
    pub(super) fn begin(numbers: &Arc<Numbers>, method: &Method) -> Counted {
        Counted {
            numbers: numbers.clone(),
            method: MethodIndex::of(method),
            started: environment::now(),
            status: None,
            sent: 0,
            // The reply to it has no body on the wire, whatever the service returns.
            is_complete: *method == Method::HEAD,
        }
    }

    /// Notes the status of the reply.
    pub(super) fn answered(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    /// Notes that `len` bytes of the reply's body were sent.
    pub(super) fn sent(&mut self, len: usize) {
        self.sent += len as u64;
    }

    /// Notes that the whole body was sent.
    pub(super) fn complete(&mut self) {
        self.is_complete = true;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let ending = Ending {
            status: self.status,
            sent: self.sent,
            is_complete: self.is_complete && self.status.is_some(),
            duration_us: u64::try_from((environment::now() - self.started).as_micros()).unwrap_or(u64::MAX),
            worker: self.numbers.runtime.worker_index(),
        };
        self.numbers.requests.count(self.method, &ending);
    }
}
