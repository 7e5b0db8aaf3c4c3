//! How many connections there are, and how many were refused.

use super::exposition::{Exposition, Kind};
use crate::host::Admission;

/// Writes them.
pub fn write(admission: &Admission, out: &mut Exposition) {
    out.single("dapple_connections_open", Kind::Gauge, "Connections that are open.", admission.open() as f64);
    let name = "dapple_connections_refused_total";
    out.family(name, Kind::Counter, "Connections that were turned away, by the limit that they met.");
    for (reason, count) in admission.refused_by_reason() {
        out.sample(name, &[("reason", reason)], count as f64);
    }
}
