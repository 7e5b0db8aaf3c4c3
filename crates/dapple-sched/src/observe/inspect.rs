//! Gathers a [`Dump`]: worker by worker, then color by color.
//!
//! Lock order: the pool's lock, then a home lock, which is only tried. (Elsewhere a home lock comes
//! before a shard of the registry, and that before the pool's, so waiting here would make a cycle.)
//! While the pool's lock is held, no color in use is freed.

use std::ptr::NonNull;
use std::time::Duration;

use crate::color::cell::{ColorCell, State};
use crate::color::node::Origin;
use crate::color::rights::{ColorRef, HomeGuard};
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
use crate::memory::slab::Place;
use crate::observe::dump::{ColorDump, ColorState, Dump, QueuedDump, RunningDump, WorkerDump};
use crate::runtime::shared::{Running, Shared, Slot};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::lock::Guard;
use crate::worker::run_queue::RunQueue;

/// Makes the dump.
pub(crate) fn dump(shared: &Shared) -> Dump {
    let mut workers: Vec<WorkerDump> = shared.slots.iter().map(|slot| worker(shared, slot)).collect();
    let mut look = Look::new(shared);
    while !look.color(shared.default_cell()) {
        look.pause();
    }
    look.home = None;
    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    look.slabs();
    let Look { mut held, mut queued, by_home, left_out, alive, .. } = look;
    workers.iter_mut().zip(by_home).for_each(|(worker, callbacks)| worker.callbacks = callbacks + worker.tasks as u64);
    held.append(&mut queued);
    held.sort_by_key(|color| std::cmp::Reverse(color.callbacks));
    for worker in &mut workers {
        agree(worker, &held, left_out);
    }
    let (named, named_left_out) = shared.names.dump(NAMED_MAX);
    let (tasks, tasks_left_out) = crate::observe::waits::by_line(shared, &workers);
    Dump {
        workers,
        tasks,
        tasks_left_out,
        colors: held,
        colors_left_out: left_out,
        colors_alive: alive,
        named,
        named_left_out,
        // Relaxed: for statistics.
        tasks_live: shared.tasks_live.load(Relaxed),
    }
}

/// Removes the callback that a worker was seen to run, if its color was seen later and was not
/// running. The parts of the snapshot were not taken at the same moment, so the colors decide. If
/// the monitor reports a callback as long, it stays in any case.
fn agree(worker: &mut WorkerDump, colors: &[ColorDump], left_out: usize) {
    let idle = |color: &ColorDump| matches!(color.state, ColorState::Queued | ColorState::Posted);
    let agrees = |running: &RunningDump| {
        running.colorless
            || running.running_for.is_some()
            || left_out > 0
            || colors.iter().any(|color| color.color_id == running.color_id && !idle(color))
    };
    worker.running = worker.running.take().filter(agrees);
}

/// Number of callbacks that wait in the colors of each worker. Takes no home lock.
pub(crate) fn queued_by_home(shared: &Shared) -> Vec<u64> {
    let mut queued: Vec<u64> = shared.slots.iter().map(|slot| slot.lock().light.len() as u64).collect();
    let mut add = |cell: &ColorCell| {
        // Relaxed: only for statistics, in which a moving color counts for one of its homes.
        queued[usize::from(cell.home.load(Relaxed))] += cell.queued();
        true
    };
    add(shared.default_cell());
    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    {
        let mut place = Place::default();
        while shared.pool.each(&mut place, &mut add) {}
    }
    queued
}

fn worker(shared: &Shared, slot: &Slot) -> WorkerDump {
    // Before the lock, which is a spin lock.
    let mut queue = Vec::with_capacity(QUEUED_MAX);
    let mut run_queue = slot.lock();
    let (queue_len, tasks, stopped) = (run_queue.len(), run_queue.light.len(), run_queue.closed);
    run_queue.each(|home| {
        let ((rank, _), cell) = (home.place(), home.color());
        queue.push(QueuedDump { color_id: cell.id, priority: rank / 2, callbacks: cell.queued() });
        queue.len() < QUEUED_MAX
    });
    drop(run_queue);
    // Relaxed: if a callback runs long enough to matter, this sees it.
    let running = shared.running_id(slot).map(|color_id| RunningDump {
        color_id,
        colorless: slot.running.now() == Running::LightTasks,
        posted_from: slot.origin(),
        name: slot.shown.name(),
        running_for: stuck_for(shared, slot),
    });
    WorkerDump { running, asleep: slot.is_asleep(), stopped, callbacks: 0, queue_len, tasks, queue }
}

/// How long ago the monitor saw the last turn end.
fn stuck_for(shared: &Shared, slot: &Slot) -> Option<Duration> {
    // Relaxed: for statistics.
    let since_ns = slot.stuck_since_ns.load(Relaxed);
    (since_ns != 0).then(|| shared.started.elapsed().saturating_sub(Duration::from_nanos(since_ns)))
}

/// One walk through the colors.
struct Look<'a> {
    shared: &'a Shared,
    /// The home lock that is held, for consecutive colors with the same home.
    home: Option<Guard<'a, RunQueue>>,
    held: Vec<ColorDump>,
    queued: Vec<ColorDump>,
    /// Number of callbacks that wait in the colors of each worker.
    by_home: Vec<u64>,
    left_out: usize,
    alive: usize,
}

impl<'a> Look<'a> {
    fn new(shared: &'a Shared) -> Look<'a> {
        // No allocation while a lock is held.
        let (held, queued) = (Vec::with_capacity(COLORS_MAX), Vec::with_capacity(COLORS_MAX));
        let by_home = vec![0; shared.slots.len()];
        Look { shared, home: None, held, queued, by_home, left_out: 0, alive: 0 }
    }

    /// Reads one color; false if its home's lock was taken.
    fn color(&mut self, cell: &ColorCell) -> bool {
        // SAFETY: it is alive for the call, and is not freed through this.
        let color = unsafe { ColorRef::new(NonNull::from(cell)) };
        // Relaxed: checked under the lock.
        let home = usize::from(cell.home.load(Relaxed));
        if self.home.as_ref().is_none_or(|queue| queue.worker() != home) {
            // Never two at once.
            self.home = None;
            self.home = self.shared.slots[home].try_lock_briefly();
        }
        let Some(at_home) = self.home.as_mut().and_then(|queue| HomeGuard::of(&mut **queue, color)) else {
            return false;
        };
        self.alive += 1;
        let state = at_home.state();
        let callbacks = cell.queued();
        self.by_home[home] += callbacks;
        if state == State::Idle && callbacks == 0 {
            return true;
        }
        let (state, held_from) = told(&at_home);
        let list =
            if matches!(state, ColorState::Queued | ColorState::Posted) { &mut self.queued } else { &mut self.held };
        if list.len() == COLORS_MAX {
            self.left_out += 1;
        } else {
            list.push(ColorDump {
                color_id: cell.id,
                kind: cell.kind.into(),
                state,
                home,
                pinned: cell.is_pinned(),
                callbacks,
                held_from,
            });
        }
        true
    }

    /// Looks at all colors of the pool.
    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    fn slabs(&mut self) {
        let shared = self.shared;
        let mut place = Place::default();
        loop {
            let mut missed = false;
            let more = shared.pool.each(&mut place, |cell| {
                missed = !self.color(cell);
                !missed
            });
            if !more {
                break;
            }
            // The home lock is released with the pool's lock.
            self.home = None;
            if missed {
                self.pause();
            }
        }
        self.home = None;
    }

    /// Pauses: the lock's holder was preempted, or the color has moved.
    fn pause(&mut self) {
        self.home = None;
        crate::sync::yield_now();
    }
}

/// A color's state as a dump shows it, and the line that asked to hold it.
fn told(home: &HomeGuard<'_, &mut RunQueue>) -> (ColorState, Option<Origin>) {
    let state = match home.state() {
        State::Idle => ColorState::Posted,
        State::Queued => ColorState::Queued,
        State::Running => ColorState::Running,
        State::Held => {
            return home.holder().map_or((ColorState::Posted, None), |(holder, from)| (holder.shown(), from));
        }
        State::Reading => ColorState::Read { readers: home.readers() },
    };
    (state, None)
}

/// The most colors that a dump shows, held and waiting ones each.
const COLORS_MAX: usize = 1_000;

/// The most colors of one run queue that a dump shows.
const QUEUED_MAX: usize = 32;

/// The most named tasks that a dump shows.
const NAMED_MAX: usize = 1_000;
