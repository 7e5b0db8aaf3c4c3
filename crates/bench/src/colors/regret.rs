//! The rows of `bench regret` that are about callbacks.

use super::case::{Case, Peer, Placement, Workload};
use super::outside::Outside;
use super::trial::{Measured, TrialArgs};
use super::{apart, spin};
use crate::experiment::Seen;
use crate::regret::{Ask, Made, Row, Rule};
use std::sync::OnceLock;

/// Each workload with both placements.
pub(crate) fn regret_rows() -> Vec<Row> {
    let case = |workload, colors, in_flight, work_ns| Case::new(workload, colors, in_flight, work_ns);
    let cases = [
        ("w1-1", case(Workload::W1, None, Some(1), 0)),
        ("w1-64", case(Workload::W1, None, Some(64), 0)),
        ("w2-1000", case(Workload::W2, Some(1_000), None, 0)),
        ("w2-100000", case(Workload::W2, Some(100_000), None, 0)),
        ("w3-queued", case(Workload::W3, None, None, 0)),
        ("w3-in-line", case(Workload::W3InLine, None, None, 0)),
        ("w4", case(Workload::W4, None, None, 0)),
        ("w5-0ns", case(Workload::W5, None, None, 0)),
        ("w5-100ns", case(Workload::W5, None, None, 100)),
    ];
    let mut rows = Vec::new();
    for (name, case) in cases {
        for (start, placement) in [("", Placement::Gathered), ("/split", Placement::Split)] {
            let what = format!("{}{}", case.title(), if start.is_empty() { "" } else { "; split over the workers" });
            let make = move |ask: &Ask| once(case, placement, ask);
            rows.push(Row::new(format!("{name}{start}"), what, Rule::InProcess, make));
        }
    }
    rows
}

fn once(case: Case, placement: Placement, ask: &Ask) -> Made {
    let &Ask { workers, run, secs, .. } = ask;
    let placement = (workers > 1).then_some(placement);
    let spin_rounds = (case.work_ns as f64 * rounds_per_ns()).round() as u64;
    let trial = TrialArgs { case, peer: Peer::Dapple, workers, placement, run, secs, spin_rounds };
    match apart(&trial, &Outside::default()) {
        Ok(Measured { problem: Some(problem), .. }) => Made::Failed(problem),
        Ok(Measured { rate_per_s, cpu_ns_per_op, switches, .. }) => {
            let cpu_us_per_op = cpu_ns_per_op / 1e3;
            Made::Seen(Seen { rate_per_s, cpu_us_per_op, p99_us: None, switches: Some(switches) })
        }
        Err(error) => Made::Failed(format!("{error:#}")),
    }
}

/// The same work in all runs.
fn rounds_per_ns() -> f64 {
    static CALIBRATED: OnceLock<f64> = OnceLock::new();
    *CALIBRATED.get_or_init(spin::calibrate)
}
