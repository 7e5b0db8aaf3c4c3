//! One stage: its queue, width, colors, limits, and the deaths of its handlers.

mod colors;
mod deaths;
mod drops;
mod graph;
mod hostile;
mod limits;
mod pipeline;
mod queue;
mod refusals;
mod replicas;
mod support;
mod timers;
