//! What the scheduler counts.

use dapple_sched::{Handle, WorkerStats};

use super::exposition::{Exposition, Kind};

/// Writes each worker's numbers.
pub fn write(handle: &Handle, out: &mut Exposition) {
    let stats = handle.stats();
    type Field = fn(&WorkerStats) -> u64;
    let families: [(&str, Kind, &str, Field); 8] = [
        ("dapple_worker_callbacks_total", Kind::Counter, "Callbacks run, polls of tasks included.", |stats| {
            stats.callbacks
        }),
        ("dapple_worker_turns_total", Kind::Counter, "How often a worker took up a color.", |stats| stats.turns),
        ("dapple_worker_steals_total", Kind::Counter, "How often a worker took colors from another.", |stats| {
            stats.steals
        }),
        ("dapple_worker_colors_stolen_total", Kind::Counter, "How many colors it took.", |stats| stats.colors_stolen),
        ("dapple_worker_parks_total", Kind::Counter, "How often it went to sleep.", |stats| stats.parks),
        ("dapple_worker_panics_total", Kind::Counter, "Callbacks and tasks that panicked.", |stats| stats.panics),
        ("dapple_worker_runnable_colors", Kind::Gauge, "Colors that wait in its run queue.", |stats| stats.queue_len),
        ("dapple_worker_queued_callbacks", Kind::Gauge, "Callbacks that wait in its colors.", |stats| stats.queued),
    ];
    for (name, kind, help, field) in families {
        out.family(name, kind, help);
        for (worker, stats) in stats.workers.iter().enumerate() {
            out.sample(name, &[("worker", &worker.to_string())], field(stats) as f64);
        }
    }
    out.single("dapple_tasks_live", Kind::Gauge, "Tasks that have begun and not ended.", stats.tasks_live as f64);
}
