//! Views of a running program: counters, traces, dumps, and the names of tasks in them.
//!
//! Nothing here decides what runs. Imports from below: `sync`, `memory`, `color`, `runtime`. From
//! above it uses run queues and tasks, which a dump shows. Begin with `stats` for numbers, `trace`
//! for single callbacks, `dump` for the whole; `inspect` gathers a dump.

pub(crate) mod described;
pub(crate) mod dump;
pub(crate) mod inspect;
pub(crate) mod label;
pub(crate) mod named;
pub(crate) mod stats;
mod ticks;
pub(crate) mod trace;
mod waits;
