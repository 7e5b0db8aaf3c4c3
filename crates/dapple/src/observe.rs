//! Insight into a running program: dumps, counters, slow callbacks and traces.

#[doc(inline)]
pub use dapple_io::ClockDump;
#[doc(inline)]
pub use dapple_sched::{
    ColorDump, ColorKind, ColorState, ColorStats, Dump, HasObserver, Label, NamedDump, Observer, QueuedDump,
    RunningDump, RuntimeStats, SlowCallback, Slowness, TraceEvent, TraceKind, WorkerDump, WorkerStats, count_time,
};
