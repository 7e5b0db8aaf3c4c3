//! Running a program on the scheduler.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::Poll;

use dapple_sched::{Color, Colored, Handle, JoinHandle, Priority, when, yield_now};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use super::WORKERS;
use super::history::{History, Over, Poster};
use super::program::{Kind, Op, Part, Program};
use crate::support::{Running, block_on};

/// The shared data of a program's threads, callbacks and tasks.
pub(super) struct World {
    handle: Handle,
    states: Vec<Colored<u32>>,
    history: History,
    /// Posts that were canceled before they started.
    canceled: Vec<AtomicBool>,
    panics: AtomicUsize,
    /// Posts that are not over yet.
    left: AtomicUsize,
    over: (Mutex<()>, Condvar),
}

impl World {
    pub(super) fn new(running: &Running, program: &Program) -> Arc<World> {
        let states = (0..program.colors).map(|n| Colored::with_color(0, &running.color(n % WORKERS))).collect();
        Arc::new(World {
            handle: running.model.handle(),
            states,
            history: History::new(program.colors),
            canceled: (0..program.ops).map(|_| AtomicBool::new(false)).collect(),
            panics: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
            over: (Mutex::new(()), Condvar::new()),
        })
    }

    /// The steps of a thread outside of the workers.
    pub(super) fn act(self: Arc<World>, agent: usize, ops: &[Op]) {
        let mut tasks = Vec::new();
        for op in ops {
            match op.kind {
                Kind::Task { own_color, aborted } => tasks.push((self.spawn(op, own_color), aborted)),
                _ => self.act_eagerly(Poster::Agent(agent), op),
            }
        }
        tasks.iter().filter(|(_, aborted)| *aborted).for_each(|(task, _)| task.abort());
        for (task, aborted) in tasks {
            if let Err(error) = block_on(task) {
                assert!(aborted || error.is_aborted(), "{error}");
            }
        }
    }

    pub(super) fn wait_until_all_is_over(&self) {
        let mut over = self.over.0.lock().unwrap();
        while self.left.load(SeqCst) > 0 {
            over = self.over.1.wait(over).unwrap();
        }
    }

    /// Checks the observations, with all threads joined; returns how many callbacks panicked.
    pub(super) fn end(self: Arc<World>, stopped: bool) -> u64 {
        self.history.check(|id| stopped || self.canceled[id].load(SeqCst));
        let panics = self.panics.load(SeqCst) as u64;
        assert_eq!(Arc::strong_count(&self), 1, "closures or tasks that were not dropped");
        panics
    }

    fn color(&self, part: Part) -> &Color {
        self.states[part.color].color()
    }

    fn is_free_of(&self, parts: &[Part], held: &[Part]) -> bool {
        parts.iter().all(|part| held.iter().all(|held| held.color != part.color))
    }

    fn spawn(self: &Arc<World>, op: &Op, own_color: bool) -> JoinHandle<()> {
        let (world, op) = (self.clone(), op.clone());
        let color = if own_color { self.handle.new_color_at(op.id % WORKERS) } else { self.color(op.parts[0]).clone() };
        color.spawn(async move {
            for step in &op.inner {
                world.act_in_task(&op, step).await;
            }
        })
    }

    async fn act_in_task(self: &Arc<World>, task: &Op, op: &Op) {
        match op.kind {
            Kind::Wait => self.wait(op).await,
            Kind::Drop => {
                let mut wait = pin!(self.wait(op));
                std::future::poll_fn(|cx| {
                    let _ = wait.as_mut().poll(cx);
                    Poll::Ready(())
                })
                .await;
            }
            Kind::Yield => yield_now().await,
            _ => self.act_eagerly(Poster::Op(task.id), op),
        }
    }

    /// Holds colors as a task does.
    async fn wait(self: &Arc<World>, op: &Op) {
        let states = &self.states;
        let inside = || self.inside(op.id, &op.parts, || ());
        match op.parts[..] {
            [Part { color, reads: false }] => states[color].with(|_| inside()).await,
            [Part { color, reads: true }] => states[color].read(|_| inside()).await,
            [a, b] => {
                let (one, other) = (&states[a.color], &states[b.color]);
                match (a.reads, b.reads) {
                    (false, false) => when((one, other)).with(|_| inside()).await,
                    (true, false) => when((one.reading(), other)).with(|_| inside()).await,
                    (false, true) => when((one, other.reading())).with(|_| inside()).await,
                    (true, true) => when((one.reading(), other.reading())).with(|_| inside()).await,
                }
            }
            [a, b, c] => {
                let (one, two, three) = (&states[a.color], &states[b.color], &states[c.color]);
                match (a.reads, c.reads) {
                    (false, false) => when((one, two, three)).with(|_| inside()).await,
                    (true, false) => when((one.reading(), two.reading(), three)).with(|_| inside()).await,
                    (false, true) => when((one, two, three.reading())).with(|_| inside()).await,
                    (true, true) => {
                        when((one.reading(), two.reading(), three.reading())).with(|_| inside()).await;
                    }
                }
            }
            _ => unreachable!("one to three parts"),
        }
    }

    /// The steps that need no waiting.
    fn act_eagerly(self: &Arc<World>, poster: Poster, op: &Op) {
        match op.kind {
            Kind::Post { priority, .. } => self.post(poster, op, Priority::new(priority)),
            Kind::Cancel => {
                let token = self.token(poster, op);
                if self.color(op.parts[0]).post_cancellable(move || token.run()).cancel() {
                    self.canceled[op.id].store(true, SeqCst);
                }
            }
            Kind::Try => self.try_hold(op),
            Kind::Task { .. } | Kind::Wait | Kind::Drop | Kind::Yield => {}
        }
    }

    fn try_hold(self: &Arc<World>, op: &Op) {
        let states = &self.states;
        let inside = || self.inside(op.id, &op.parts, || ());
        let _ = match op.parts[..] {
            [Part { color, reads: false }] => states[color].try_with(|_| inside()),
            [Part { color, reads: true }] => states[color].try_read(|_| inside()),
            [a, b] if a.reads => when((states[a.color].reading(), &states[b.color])).try_with(|_| inside()),
            _ => {
                let all: Vec<_> = op.parts.iter().map(|part| states[part.color].clone()).collect();
                when(&all).try_with(|_| inside())
            }
        };
    }

    fn post(self: &Arc<World>, poster: Poster, op: &Op, priority: Priority) {
        let states = &self.states;
        let token = self.token(poster, op);
        match op.parts[..] {
            [Part { color, reads: false }] => states[color].color().post_with(priority, move || token.run()),
            [Part { color, reads: true }] => states[color].post_read(move |_| token.run()),
            [a, b] => {
                let (one, other) = (self.color(a), self.color(b));
                match (a.reads, b.reads) {
                    (false, false) => when((one, other)).priority(priority).post(move |_| token.run()),
                    (true, false) => when((one.reading(), other)).post(move |_| token.run()),
                    (false, true) => when((one, other.reading())).post(move |_| token.run()),
                    (true, true) => when((one.reading(), other.reading())).post(move |_| token.run()),
                }
            }
            [a, b, c] => {
                let (one, two, three) = (self.color(a), self.color(b), self.color(c));
                match (a.reads, c.reads) {
                    (false, false) => when(&[one, two, three]).priority(priority).post(move |_| token.run()),
                    (true, false) => when((one.reading(), two.reading(), three)).post(move |_| token.run()),
                    (false, true) => when((one, two, three.reading())).post(move |_| token.run()),
                    (true, true) => when(&[one, two, three].map(|color| color.reading())).post(move |_| token.run()),
                }
            }
            _ => unreachable!("one to three parts"),
        }
    }

    /// The steps while its colors are held.
    fn inside(&self, id: usize, parts: &[Part], f: impl FnOnce()) {
        struct End<'a>(&'a World, usize, &'a [Part]);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.history.ends(self.1, self.2);
            }
        }
        self.history.starts(id, parts);
        let _end = End(self, id, parts);
        thread::yield_now();
        f();
    }

    fn token(self: &Arc<World>, poster: Poster, op: &Op) -> Token {
        self.history.posts(poster, op.id, &op.parts);
        self.left.fetch_add(1, SeqCst);
        Token { world: self.clone(), op: Some(op.clone()) }
    }
}

/// A post: is run or dropped, once.
struct Token {
    world: Arc<World>,
    op: Option<Op>,
}

impl Token {
    fn run(mut self) {
        let op = self.op.take().expect("run once");
        let world = &self.world;
        world.inside(op.id, &op.parts, || {
            world.history.is_over(op.id, Over::Ran);
            for inner in
                op.inner.iter().filter(|inner| inner.kind != Kind::Try || world.is_free_of(&inner.parts, &op.parts))
            {
                world.act_eagerly(Poster::Op(op.id), inner);
            }
        });
        if matches!(op.kind, Kind::Post { panics: true, .. }) {
            world.panics.fetch_add(1, SeqCst);
            // shuttle's locks do not work in a thread that unwinds.
            drop(self);
            // Not `panic!`: its hook would take it for a failure.
            std::panic::resume_unwind(Box::new("as the program says"));
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if let Some(op) = self.op.take() {
            // Dropping counts as running.
            self.world.inside(op.id, &op.parts, || self.world.history.is_over(op.id, Over::Dropped));
        }
        if self.world.left.fetch_sub(1, SeqCst) == 1 {
            drop(self.world.over.0.lock());
            self.world.over.1.notify_all();
        }
    }
}
