//! What a stage was told when it was built: it does not change any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dapple_sched::Color;

use crate::Refused;

/// What a stage asks about each request.
pub(crate) struct Policy<Req> {
    pub(crate) queue_len_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) cohort_max: usize,
    /// Whether a full queue refuses, instead of letting callers wait.
    pub(crate) sheds: bool,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) patience: Option<Duration>,
    pub(crate) color: ColorPolicy<Req>,
    pub(crate) weigh: Option<Weigh<Req>>,
    pub(crate) rank: Option<Ask<Req, u8>>,
    pub(crate) deadline: Option<Ask<Req, Option<Instant>>>,
    pub(crate) admission: Option<AdmissionHook<Req>>,
    pub(crate) on_drop: Option<OnDrop<Req>>,
}

pub(crate) type Ask<Req, T> = Box<dyn Fn(&Req) -> T + Send + Sync>;
pub(crate) type OnDrop<Req> = Arc<dyn Fn(Req, &Refused) + Send + Sync>;
pub(crate) type Weigh<Req> = Ask<Req, usize>;
pub(crate) type AdmissionHook<Req> = Box<dyn Fn(&Req, &Load) -> Result<(), Refused> + Send + Sync>;

/// In which color a request is served.
pub(crate) enum ColorPolicy<Req> {
    /// Each has one of its own.
    Each,
    /// All have this one.
    One(Color),
    /// By a key of the request.
    By(Ask<Req, Color>),
}

/// How much a stage has to do, for the hook that decides before its queue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Load {
    /// Requests that wait.
    pub queue_len: usize,
    /// How many may wait.
    pub queue_len_max: usize,
    /// What those that wait weigh.
    pub queue_bytes: usize,
    /// Calls in service.
    pub in_service: usize,
    /// How many calls may be in service.
    pub width: usize,
    /// How long one that comes now would wait, by what requests took lately.
    pub delay: Duration,
}
