//! What admission control has done with requests.

use dapple_tower::admission::AdmissionStats;

use super::exposition::{Exposition, Kind};

/// Writes it.
pub fn write(stats: &AdmissionStats, out: &mut Exposition) {
    let name = "dapple_admission_requests_total";
    out.family(name, Kind::Counter, "Requests that were offered, by what became of them.");
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
        ("dapple_admission_waiting", "Requests that wait to begin.", stats.waiting as f64),
        ("dapple_admission_in_service", "Requests that have begun and not ended.", stats.in_service as f64),
        ("dapple_admission_cost_seconds", "Processor time of a request, on average.", stats.cost.as_secs_f64()),
        ("dapple_admission_delay_seconds", "How long a request would wait now.", stats.delay.as_secs_f64()),
    ];
    for (name, help, value) in gauges {
        out.single(name, Kind::Gauge, help, value);
    }
}
