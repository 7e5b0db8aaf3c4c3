//! Metrics of the scheduler.

use dapple_sched::{Handle, WorkerStats};

use super::exposition::{Exposition, Kind};

/// Writes the metrics of each worker.
pub fn write(handle: &Handle, out: &mut Exposition) {
    let stats = handle.stats();
    type Field = fn(&WorkerStats) -> u64;
    let families: [(&str, Kind, &str, Field); 8] = [
        ("dapple_worker_callbacks_total", Kind::Counter, "Callbacks run, including polls of tasks.", |stats| {
            stats.callbacks
        }),
        ("dapple_worker_turns_total", Kind::Counter, "Turns that a worker ran.", |stats| stats.turns),
        ("dapple_worker_steals_total", Kind::Counter, "Steals by a worker from another.", |stats| stats.steals),
        ("dapple_worker_colors_stolen_total", Kind::Counter, "Colors that a worker stole.", |stats| {
            stats.colors_stolen
        }),
        ("dapple_worker_parks_total", Kind::Counter, "Times that a worker went to sleep.", |stats| stats.parks),
        ("dapple_worker_panics_total", Kind::Counter, "Callbacks and tasks that panicked.", |stats| stats.panics),
        ("dapple_worker_runnable_colors", Kind::Gauge, "Colors waiting in the worker's run queue.", |stats| {
            stats.queue_len
        }),
        ("dapple_worker_queued_callbacks", Kind::Gauge, "Callbacks waiting in those colors.", |stats| stats.queued),
    ];
    for (name, kind, help, field) in families {
        out.family(name, kind, help);
        for (worker, stats) in stats.workers.iter().enumerate() {
            out.sample(name, &[("worker", &worker.to_string())], field(stats) as f64);
        }
    }
    out.single("dapple_tasks_live", Kind::Gauge, "Tasks started and not finished.", stats.tasks_live as f64);
}
