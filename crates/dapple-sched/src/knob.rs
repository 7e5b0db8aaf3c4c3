//! Experiment.
use std::sync::OnceLock;
fn read(name: &str, default: u64) -> u64 { std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default) }
macro_rules! knob { ($f:ident, $n:literal, $d:expr) => {
/// Experiment.
pub fn $f() -> u64 { static V: OnceLock<u64> = OnceLock::new(); *V.get_or_init(|| read($n, $d)) } } }
knob!(together, "DX_TOGETHER", 8);
knob!(share, "DX_SHARE", 0);
knob!(short, "DX_SHORT", 20_000);
knob!(worth, "DX_WORTH", 40_000);
knob!(batch, "DX_BATCH", 256);
knob!(req, "DX_REQ", 300);
knob!(adopt, "DX_ADOPT", 1);
knob!(spin, "DX_SPIN", 16);
