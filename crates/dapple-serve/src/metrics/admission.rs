//! Metrics of admission control.

use dapple_tower::admission::AdmissionStats;

use super::exposition::{Exposition, Kind};

/// Writes the metrics.
pub fn write(stats: &AdmissionStats, out: &mut Exposition) {
    let name = "dapple_admission_requests_total";
    out.family(name, Kind::Counter, "Requests offered, by outcome.");
    let outcomes = [
        ("refused", stats.refused),
        ("dropped", stats.dropped),
        ("finished", stats.finished),
        ("cancelled", stats.cancelled),
    ];
    for (outcome, count) in outcomes {
        out.sample(name, &[("outcome", outcome)], count as f64);
    }
    let gauges = [
        ("dapple_admission_waiting", "Requests waiting to start.", stats.waiting as f64),
        ("dapple_admission_in_service", "Requests started and not finished.", stats.in_service as f64),
        ("dapple_admission_cost_seconds", "Average processor time of a request.", stats.cost.as_secs_f64()),
        ("dapple_admission_delay_seconds", "How long a request would wait now.", stats.delay.as_secs_f64()),
    ];
    for (name, help, value) in gauges {
        out.single(name, Kind::Gauge, help, value);
    }
}
