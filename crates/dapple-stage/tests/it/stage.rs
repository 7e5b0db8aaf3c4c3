//! One stage: its queue, width, colors, limits, and what happens when handlers die.

mod colors;
mod deaths;
mod limits;
mod queue;
mod support;
