//! Figures of a run in common terms for all experiments.

use crate::usage::Switches;
use serde::Serialize;

/// The outcome of one run.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Seen {
    /// Operations per second of wall-clock time.
    pub(crate) rate_per_s: f64,
    /// User and system time per operation.
    pub(crate) cpu_us_per_op: f64,
    /// 99 of 100 operations took no longer; `None` if they are not timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_us: Option<f64>,
    /// Context switches per operation.
    #[serde(flatten)]
    pub(crate) switches: Option<Switches>,
}
