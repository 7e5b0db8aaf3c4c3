//! Recordings with a planted bottleneck, predictions, and files.

mod files;
mod planted;
mod predictions;
mod program;
mod properties;
mod real;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
