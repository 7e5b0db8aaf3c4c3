//! The settings of a stage, fixed when it is built.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dapple_sched::Color;

use crate::Refused;

/// The questions that a stage asks about each request.
pub(crate) struct Policy<Req> {
    pub(crate) queue_len_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) cohort_max: usize,
    /// Whether a full queue refuses instead of letting callers wait.
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

/// The color in which a request is served.
pub(crate) enum ColorPolicy<Req> {
    /// A new one for each.
    Each,
    /// This one for all.
    One(Color),
    /// One for each key.
    By(Ask<Req, Color>),
}

/// The load of a stage, for the admission hook.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Load {
    /// Waiting requests.
    pub queue_len: usize,
    /// The limit of waiting requests.
    pub queue_len_max: usize,
    /// The weight of the waiting requests.
    pub queue_bytes: usize,
    /// Calls in service.
    pub in_service: usize,
    /// The limit of calls in service.
    pub width: usize,
    /// The expected wait of a request that comes now, from recent requests.
    pub delay: Duration,
}
