//! The same program on the real scheduler.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use dapple_sched::{Color, Colored, JoinHandle, PostError, Priority, when};

use super::program::{Kind, Op, Part};
use crate::nested_bomb;

/// Names the two or three colors of an operation, each in its mode; of three, the first two have
/// the same mode.
macro_rules! with_set {
    ($world:expr, $op:expr, |$set:ident| $body:expr) => {{
        let color = |at: usize| &$world.colors[$op.parts[at].color];
        let modes: Vec<bool> = $op.parts.iter().map(|part| part.reads).collect();
        macro_rules! set {
            ($named:expr) => {{
                let $set = when($named);
                $body
            }};
        }
        match modes[..] {
            [false, false] => set!((color(0), color(1))),
            [true, false] => set!((color(0).reading(), color(1))),
            [false, true] => set!((color(0), color(1).reading())),
            [true, true] => set!((color(0).reading(), color(1).reading())),
            [false, false, false] => set!((color(0), color(1), color(2))),
            [true, true, false] => set!((color(0).reading(), color(1).reading(), color(2))),
            [false, false, true] => set!((color(0), color(1), color(2).reading())),
            [true, true, true] => set!((color(0).reading(), color(1).reading(), color(2).reading())),
            _ => unreachable!("two or three colors, as `parts` makes them"),
        }
    }};
}

/// The result of a step, as its agent saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// The agent did not come that far.
    Unknown,
    Runs,
    Refused,
    Canceled,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Start(usize),
    End(usize),
}

/// The shared data of a running program's callbacks.
pub(super) struct World {
    pub(super) colors: Vec<Color>,
    /// The events in each color, in order. Readers write here at the same time, hence the locks.
    pub(super) seen: Vec<Mutex<Vec<Event>>>,
    /// Never poisoned.
    states: Vec<Colored<()>>,
    pub(super) account: Vec<Colored<usize>>,
    fates: Vec<AtomicU8>,
    /// Holds inside of holds that had a wrong result.
    pub(super) wrong: Mutex<Vec<String>>,
}

impl World {
    pub(super) fn new(colors: Vec<Color>, ops: usize) -> Arc<World> {
        Arc::new(World {
            seen: colors.iter().map(|_| Mutex::new(Vec::new())).collect(),
            states: colors.iter().map(|color| Colored::with_color((), color)).collect(),
            account: colors.iter().map(|color| Colored::with_color(0, color)).collect(),
            colors,
            fates: (0..ops).map(|_| AtomicU8::new(0)).collect(),
            wrong: Mutex::default(),
        })
    }

    pub(super) fn fates(&self) -> Vec<Fate> {
        let fate = |fate: &AtomicU8| match fate.load(SeqCst) {
            0 => Fate::Unknown,
            1 => Fate::Runs,
            2 => Fate::Refused,
            _ => Fate::Canceled,
        };
        self.fates.iter().map(fate).collect()
    }

    fn learn(&self, op: &Op, fate: Fate) {
        self.fates[op.id].store(fate as u8, SeqCst);
    }

    fn note(&self, parts: &[Part], event: Event) {
        for part in parts {
            self.seen[part.color].lock().unwrap().push(event);
        }
    }

    /// Runs `f` while the colors of `op` are held.
    fn inside(&self, op: &Op, f: impl FnOnce()) {
        struct End<'a>(&'a World, &'a Op);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.note(&self.1.parts, Event::End(self.1.id));
            }
        }
        self.note(&op.parts, Event::Start(op.id));
        let _end = End(self, op);
        f();
    }

    /// Runs the steps of an agent, in order. `alive` is dropped at the end of everything; the agent
    /// holds `held` meanwhile.
    pub(super) fn act(self: &Arc<World>, ops: &[Op], held: &[Part], alive: &Sender<()>) {
        let mut aborted = Vec::new();
        for op in ops {
            match op.kind {
                Kind::Task { fresh, aborted: aborts } => {
                    let task = self.spawn(op, fresh, alive);
                    self.learn(op, Fate::Runs);
                    if aborts {
                        aborted.push(task);
                    }
                }
                _ => self.act_once(op, held, alive),
            }
        }
        aborted.iter().for_each(JoinHandle::abort);
    }

    fn spawn(self: &Arc<World>, op: &Op, fresh: bool, alive: &Sender<()>) -> JoinHandle<()> {
        let color = if fresh { Color::new() } else { self.colors[op.parts[0].color].clone() };
        let (world, op, alive) = (self.clone(), op.clone(), alive.clone());
        color.spawn(async move {
            for step in &op.inner {
                if step.kind == Kind::Wait {
                    world.wait(step).await;
                } else {
                    world.act_once(step, op.own_color(), &alive);
                }
            }
        })
    }

    async fn wait(&self, op: &Op) {
        // Noted in place, because an aborted task does not come back from here.
        let inside = || self.inside(op, || self.learn(op, Fate::Runs));
        match op.parts[..] {
            [Part { color, reads: false }] => self.states[color].with(|()| inside()).await,
            [Part { color, reads: true }] => self.states[color].read(|()| inside()).await,
            _ => with_set!(self, op, |set| set.with(|_| inside()).await),
        }
    }

    /// Whether it was free.
    fn try_hold(&self, op: &Op, inside: impl FnOnce()) -> bool {
        match op.parts[..] {
            [Part { color, reads: false }] => self.states[color].try_with(|()| inside()),
            [Part { color, reads: true }] => self.states[color].try_read(|()| inside()),
            _ => with_set!(self, op, |set| set.try_with(|_| inside())),
        }
        .is_ok()
    }

    /// Holds in line, and another one inside of that. The agent holds `held` meanwhile: all of it,
    /// or none.
    fn hold(&self, op: &Op, held: &[Part]) -> Fate {
        let again = || {
            let may = op.parts.iter().all(|part| part.reads || op.parts.len() > 1);
            self.expect(op, "inside of itself", self.try_hold(op, || ()), may);
        };
        let ran = if op.is_apart_from(held) {
            self.try_hold(op, || self.inside(op, again))
        } else {
            let ran = self.try_hold(op, again);
            self.expect(op, "as a part of what is held", ran, op.may_nest_in(held));
            ran
        };
        if ran { Fate::Runs } else { Fate::Refused }
    }

    fn expect(&self, op: &Op, place: &str, ran: bool, may: bool) {
        if ran != may {
            let answer = if ran { "runs" } else { "was refused" };
            self.wrong.lock().unwrap().push(format!("{:?} {answer} {place}", op.parts));
        }
    }

    /// Waits, by a single poll; then the wait is dropped, or moved to a task.
    fn begin_to_wait(self: &Arc<World>, op: &Op, bomb: Option<usize>, alive: &Sender<()>) {
        let waiting = (self.clone(), op.clone());
        let mut wait = Box::pin(async move { waiting.0.wait(&waiting.1).await });
        let bomb = ManuallyDrop::new(bomb.map_or(Waker::noop().clone(), nested_bomb::waker));
        // The waker has panicked.
        let polled = catch_unwind(AssertUnwindSafe(|| wait.as_mut().poll(&mut Context::from_waker(&bomb))));
        match (polled, op.kind) {
            (Ok(Poll::Ready(())), _) => {}
            (Ok(Poll::Pending), Kind::Moved { .. }) => {
                let alive = alive.clone();
                Color::new().spawn(async move {
                    wait.await;
                    drop(alive);
                });
            }
            _ => {
                let _ = catch_unwind(AssertUnwindSafe(|| drop(wait)));
                self.learn(op, Fate::Canceled);
            }
        }
    }

    fn post(&self, op: &Op, priority: Priority, callback: impl FnOnce() + Send + 'static) {
        match op.parts[..] {
            [Part { color, reads: false }] => self.colors[color].post_with(priority, callback),
            [Part { color, reads: true }] => self.states[color].post_read(move |()| callback()),
            _ => with_set!(self, op, |set| set.priority(priority).post(move |_| callback())),
        }
    }

    /// A callback.
    fn run(self: &Arc<World>, op: &Op, alive: &Sender<()>) {
        self.inside(op, || {
            self.act(&op.inner, &op.parts, alive);
            let last = op.writes().last();
            for color in op.writes() {
                let _ = self.account[color].try_with(|uses| {
                    *uses += 1;
                    if op.panics() && Some(color) == last {
                        // Not `panic!`: its hook would print.
                        std::panic::resume_unwind(Box::new("as the program says"));
                    }
                });
            }
        });
    }

    fn act_once(self: &Arc<World>, op: &Op, held: &[Part], alive: &Sender<()>) {
        let callback = {
            let (world, op, alive) = (self.clone(), op.clone(), alive.clone());
            move || world.run(&op, &alive)
        };
        let fate = match op.kind {
            Kind::Post { priority, .. } => {
                self.post(op, Priority::new(priority), callback);
                Fate::Runs
            }
            Kind::TryPost => match self.colors[op.parts[0].color].try_post(callback) {
                Ok(()) => Fate::Runs,
                Err(PostError::Full(_)) => Fate::Refused,
                Err(other) => panic!("{other:?}"),
            },
            Kind::Cancel => {
                let posted = self.colors[op.parts[0].color].post_cancellable(callback);
                if posted.cancel() { Fate::Canceled } else { Fate::Runs }
            }
            Kind::Hold if op.is_apart_from(held) || op.is_part_of(held) => self.hold(op, held),
            Kind::Glance { bomb } | Kind::Moved { bomb } if op.is_apart_from(held) => {
                return self.begin_to_wait(op, bomb, alive);
            }
            Kind::Hold | Kind::Glance { .. } | Kind::Moved { .. } => return,
            Kind::Task { .. } | Kind::Wait => unreachable!("only as steps of an agent or a task"),
        };
        self.learn(op, fate);
    }
}
