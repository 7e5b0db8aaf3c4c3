//! Metrics of connections.

use super::exposition::{Exposition, Kind};
use crate::host::Admission;

/// Writes the metrics.
pub fn write(admission: &Admission, out: &mut Exposition) {
    out.single("dapple_connections_open", Kind::Gauge, "Open connections.", admission.open() as f64);
    let name = "dapple_connections_refused_total";
    out.family(name, Kind::Counter, "Connections turned away, by limit.");
    for (reason, count) in admission.refused_by_reason() {
        out.sample(name, &[("reason", reason)], count as f64);
    }
}
