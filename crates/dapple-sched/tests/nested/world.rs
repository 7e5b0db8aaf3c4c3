//! Runs a program's steps on the scheduler.

use std::future::{Future, poll_fn};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dapple_sched::{Colored, Handle, TryWithError, when};

use super::history::{Answer, History};
use super::program::{COLORS, Program, Step, Use, Waking};

/// The differences between threads and a model of them.
pub(crate) struct Env {
    /// Lets other threads run.
    pub(crate) pause: fn(),
    /// Longer than anything should take on a loaded machine. A model has no clock; it ends after
    /// this many steps.
    pub(crate) patience: Duration,
    /// Runs this on another thread, and waits for it.
    pub(crate) beside: fn(Box<dyn FnOnce() + Send>),
    /// Makes a waker that panics, of a kind below [`super::BOMBS`].
    pub(crate) bomb: fn(usize) -> Waker,
    /// Closures may panic, and the scheduler too.
    pub(crate) unwinds: bool,
    /// Stops the runtime.
    pub(crate) stop: Box<dyn Fn() + Send + Sync>,
}

/// The shared data of all agents of a program.
pub(crate) struct World {
    handle: Handle,
    env: Env,
    states: Vec<Colored<usize>>,
    history: History,
    kept: Mutex<Vec<Kept>>,
    sleepers: Mutex<Vec<Waker>>,
    /// The number of futures, callbacks and tasks that have or may want each color.
    named: [AtomicUsize; COLORS],
    /// Callbacks and tasks that are not over.
    left: AtomicUsize,
    agents: AtomicUsize,
    /// A future or the handle of a task was forgotten.
    forgot: AtomicBool,
    forgotten: Mutex<Vec<Box<dyn Send>>>,
}

/// An agent.
struct Agent {
    id: usize,
    /// It may wait for tasks.
    on_thread: bool,
    waker: Mutex<Waker>,
}

/// A future that agents may poll.
struct Kept {
    uses: Vec<Use>,
    /// The agent that polls it.
    poller: Arc<Mutex<Option<Arc<Agent>>>>,
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    names: Names,
}

/// Counts for colors, until it is dropped.
struct Names(Arc<World>, Vec<usize>);

impl Drop for Names {
    fn drop(&mut self) {
        self.1.iter().for_each(|color| _ = self.0.named[*color].fetch_sub(1, SeqCst));
    }
}

/// A callback or a task that is not over.
struct Token(Arc<World>, Option<Names>);

impl Drop for Token {
    fn drop(&mut self) {
        self.1 = None;
        self.0.left.fetch_sub(1, SeqCst);
    }
}

/// Panics when it is dropped.
struct Fuse(bool);

impl Drop for Fuse {
    fn drop(&mut self) {
        if self.0 && !std::thread::panicking() {
            explode();
        }
    }
}

impl World {
    pub(crate) fn new(handle: Handle, env: Env) -> Arc<World> {
        let colors: Vec<_> = (0..COLORS).map(|home| handle.new_color_at(home)).collect();
        let states = (0..2 * COLORS).map(|state| Colored::with_color(0, &colors[state / 2])).collect();
        Arc::new(World {
            handle,
            env,
            states,
            history: History::default(),
            kept: Mutex::default(),
            sleepers: Mutex::default(),
            named: Default::default(),
            left: AtomicUsize::new(0),
            agents: AtomicUsize::new(0),
            forgot: AtomicBool::new(false),
            forgotten: Mutex::default(),
        })
    }

    /// The steps of one thread.
    pub(crate) fn run(self: &Arc<World>, steps: &[Step]) {
        self.act_all(&self.agent(true), steps);
    }

    /// Drops kept futures, waits for callbacks and tasks, and returns the mistakes found.
    pub(crate) fn end(self: &Arc<World>, program: &Program) -> Vec<String> {
        if !program.forgets {
            loop {
                let kept = std::mem::take(&mut *lock(&self.kept));
                if kept.is_empty() && self.left.load(SeqCst) == 0 {
                    break;
                }
                kept.into_iter().for_each(|kept| self.caught(|| drop(kept)));
                if !self.wait_until("callbacks and tasks end", || {
                    let sleepers = std::mem::take(&mut *lock(&self.sleepers));
                    sleepers.into_iter().for_each(Waker::wake);
                    self.left.load(SeqCst) == 0 || !lock(&self.kept).is_empty()
                }) {
                    break;
                }
            }
            (0..COLORS).for_each(|color| self.is_free(color));
        }
        self.history.wrong()
    }

    /// Whether a value was forgotten, which keeps its color for ever.
    #[allow(dead_code, reason = "only models count colors")]
    pub(crate) fn forgot(&self) -> bool {
        self.forgot.load(SeqCst)
    }

    fn forget<T: Send + 'static>(&self, what: T) {
        self.forgot.store(true, SeqCst);
        lock(&self.forgotten).push(Box::new(what));
    }

    /// Drops what agents have forgotten or kept, once the runtime has ended. Otherwise the world
    /// keeps itself.
    pub(crate) fn recall(&self) {
        let (forgotten, kept) = (std::mem::take(&mut *lock(&self.forgotten)), std::mem::take(&mut *lock(&self.kept)));
        forgotten.into_iter().for_each(|what| self.caught(|| drop(what)));
        kept.into_iter().for_each(|kept| self.caught(|| drop(kept)));
    }

    fn agent(&self, on_thread: bool) -> Arc<Agent> {
        let id = self.agents.fetch_add(1, SeqCst);
        Arc::new(Agent { id, on_thread, waker: Mutex::new(Waker::noop().clone()) })
    }

    fn names(self: &Arc<World>, uses: &[Use]) -> Names {
        let colors: Vec<usize> = uses.iter().map(|it| it.color()).collect();
        colors.iter().for_each(|color| _ = self.named[*color].fetch_add(1, SeqCst));
        Names(self.clone(), colors)
    }

    fn token(self: &Arc<World>, uses: &[Use]) -> Token {
        self.left.fetch_add(1, SeqCst);
        Token(self.clone(), Some(self.names(uses)))
    }

    fn caught(&self, f: impl FnOnce()) {
        if self.env.unwinds { drop(catch_unwind(AssertUnwindSafe(f))) } else { f() }
    }

    /// With a limit that only a bug reaches. False if it was reached.
    fn wait_until(&self, what: &str, done: impl Fn() -> bool) -> bool {
        let begin = Instant::now();
        while !done() {
            if begin.elapsed() > self.env.patience {
                self.history.is_wrong(format!("this did not happen: {what}"));
                return false;
            }
            (self.env.pause)();
        }
        true
    }

    fn act_all(self: &Arc<World>, agent: &Arc<Agent>, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Panic if self.history.opened_by(agent.id).is_empty() => {}
                Step::Panic => explode(),
                _ => self.caught(|| self.act(agent, step)),
            }
        }
    }

    fn act(self: &Arc<World>, agent: &Arc<Agent>, step: &Step) {
        match step {
            Step::Try(uses, inner) => self.try_hold(agent, uses, inner),
            Step::Start(uses, inner, waking) => self.poll(agent, self.future(uses, inner), *waking),
            Step::Poll(index, waking) => {
                if let Some(kept) = self.take(*index) {
                    self.poll(agent, kept, *waking);
                }
            }
            Step::Drop(index) => {
                let colors: Vec<usize> = self.take(*index).iter().flat_map(|kept| kept.names.1.clone()).collect();
                // A worker would wait for itself.
                colors.into_iter().filter(|_| agent.on_thread).for_each(|color| self.is_free(color));
            }
            Step::Forget(index) => self.forget(self.take(*index)),
            Step::Post(uses, inner, fused) => self.post(uses, inner, Fuse(*fused)),
            Step::Task(color, inner) => self.spawn(agent, *color, inner),
            Step::Beside(inner) => {
                let (world, inner, agent) = (self.clone(), inner.clone(), self.agent(agent.on_thread));
                (self.env.beside)(Box::new(move || world.act_all(&agent, &inner)));
            }
            Step::Stop if agent.on_thread && self.history.opened_by(agent.id).is_empty() => (self.env.stop)(),
            Step::Stop | Step::Sleep | Step::Panic => (self.env.pause)(),
        }
    }

    /// Checks that a color without holders and waiters is free.
    fn is_free(&self, color: usize) {
        self.wait_until("a color that nothing has or waits for is free", || {
            self.named[color].load(SeqCst) > 0
                || self.history.is_open(color)
                || self.states[2 * color].try_with(|_| ()) != Err(TryWithError::Busy)
        });
    }

    fn inside(self: &Arc<World>, agent: &Arc<Agent>, uses: &[Use], bare: bool, inner: &[Step]) {
        let _inside = self.history.enter(agent.id, uses, bare);
        (self.env.pause)();
        self.act_all(agent, inner);
        (self.env.pause)();
    }

    fn try_hold(self: &Arc<World>, agent: &Arc<Agent>, uses: &[Use], inner: &[Step]) {
        let state = |at: usize| &self.states[uses[at].state];
        let (answer, may_be_poisoned) = (self.history.answer(agent.id, uses), self.history.is_poisoned(uses));
        let run = || self.inside(agent, uses, false, inner);
        let modes: Vec<bool> = uses.iter().map(|it| it.reads).collect();
        let result = match modes[..] {
            [false] => state(0).try_with(|_| run()),
            [true] => state(0).try_read(|_| run()),
            [false, false] => when((state(0), state(1))).try_with(|_| run()),
            [true, false] => when((state(0).reading(), state(1))).try_with(|_| run()),
            [false, true] => when((state(0), state(1).reading())).try_with(|_| run()),
            _ => when((state(0).reading(), state(1).reading())).try_with(|_| run()),
        };
        let is_right = match result {
            Ok(()) => answer != Answer::Fails,
            Err(TryWithError::Poisoned) => may_be_poisoned || self.history.is_poisoned(uses),
            Err(_) => answer != Answer::Runs,
        };
        if !is_right {
            self.history.is_wrong(format!("agent {} tried {uses:?}: {result:?}, not {answer:?}", agent.id));
        }
    }

    fn future(self: &Arc<World>, uses: &[Use], inner: &[Step]) -> Kept {
        let poller = Arc::new(Mutex::new(None));
        let future = {
            let (world, uses, inner, poller) = (self.clone(), uses.to_vec(), inner.to_vec(), poller.clone());
            Box::pin(async move {
                let state = |at: usize| &world.states[uses[at].state];
                let run = || {
                    let agent: Arc<Agent> = lock(&poller).clone().expect("it is polled");
                    world.inside(&agent, &uses, false, &inner);
                };
                let modes: Vec<bool> = uses.iter().map(|it| it.reads).collect();
                match modes[..] {
                    [false] => state(0).with(|_| run()).await,
                    [true] => state(0).read(|_| run()).await,
                    [false, false] => when((state(0), state(1))).with(|_| run()).await,
                    [true, false] => when((state(0).reading(), state(1))).with(|_| run()).await,
                    [false, true] => when((state(0), state(1).reading())).with(|_| run()).await,
                    _ => when((state(0).reading(), state(1).reading())).with(|_| run()).await,
                }
            })
        };
        Kept { uses: uses.to_vec(), poller, future, names: self.names(uses) }
    }

    fn take(&self, index: usize) -> Option<Kept> {
        let mut kept = lock(&self.kept);
        let at = (!kept.is_empty()).then(|| index % kept.len())?;
        Some(kept.swap_remove(at))
    }

    fn poll(self: &Arc<World>, agent: &Arc<Agent>, mut kept: Kept, waking: Waking) {
        // It panics if a state that it should lend is already lent.
        if self.env.unwinds || self.history.answer(agent.id, &kept.uses) != Answer::Fails {
            *lock(&kept.poller) = Some(agent.clone());
            let own = lock(&agent.waker).clone();
            let ready = match waking {
                Waking::Own => kept.future.as_mut().poll(&mut Context::from_waker(&own)),
                Waking::Nothing => kept.future.as_mut().poll(&mut Context::from_waker(Waker::noop())),
                Waking::Bomb(kind) => {
                    // Not dropped if the poll panics: a second panic would end the process.
                    let bomb = ManuallyDrop::new((self.env.bomb)(kind));
                    let ready = kept.future.as_mut().poll(&mut Context::from_waker(&bomb));
                    self.caught(|| drop(ManuallyDrop::into_inner(bomb)));
                    ready
                }
            };
            if ready.is_ready() {
                return self.probe(agent);
            }
        }
        lock(&self.kept).push(kept);
    }

    /// Another thread tries to get the agent's states.
    fn probe(self: &Arc<World>, agent: &Agent) {
        let uses: Vec<Use> =
            self.history.opened_by(agent.id).into_iter().map(|color| Use { state: 2 * color, reads: false }).collect();
        if !uses.is_empty() {
            let (world, other) = (self.clone(), self.agent(false));
            (self.env.beside)(Box::new(move || uses.iter().for_each(|it| world.try_hold(&other, &[*it], &[]))));
        }
    }

    fn post(self: &Arc<World>, uses: &[Use], inner: &[Step], fuse: Fuse) {
        let (token, agent, owned) = (self.token(uses), self.agent(false), (uses.to_vec(), inner.to_vec()));
        let run = move || {
            let mut fuse = fuse;
            fuse.0 = false;
            token.0.inside(&agent, &owned.0, owned.0.len() == 1 && !owned.0[0].reads, &owned.1);
        };
        let state = |at: usize| &self.states[uses[at].state];
        let modes: Vec<bool> = uses.iter().map(|it| it.reads).collect();
        match modes[..] {
            [false] => state(0).color().post(run),
            [true] => state(0).post_read(|_| run()),
            [false, false] => when((state(0), state(1))).post(|_| run()),
            [true, false] => when((state(0).reading(), state(1))).post(|_| run()),
            [false, true] => when((state(0), state(1).reading())).post(|_| run()),
            _ => when((state(0).reading(), state(1).reading())).post(|_| run()),
        }
    }

    fn spawn(self: &Arc<World>, parent: &Agent, color: Option<usize>, inner: &[Step]) {
        let own: Vec<Use> = color.iter().map(|color| Use { state: 2 * color, reads: false }).collect();
        let (token, agent, steps) = (self.token(&own), self.agent(false), inner.to_vec());
        let reached = Arc::new(Reached::default());
        let began = Passed(reached.clone());
        let task = async move {
            let (world, began) = (&token.0, began);
            for step in &steps {
                poll_fn(|cx| {
                    let own = cx.waker().clone();
                    let before = std::mem::replace(&mut *lock(&agent.waker), own);
                    drop(before);
                    world.act_all(&agent, std::slice::from_ref(step));
                    Poll::Ready(())
                })
                .await;
                if matches!(step, Step::Sleep) {
                    began.0.0.store(1, SeqCst);
                    world.sleep().await;
                }
            }
        };
        let of_its_own = color.is_none();
        // The handle is dropped, or forgotten.
        let task = match color {
            Some(color) => self.states[2 * color].color().spawn(task),
            None => self.handle.spawn(task),
        };
        if inner.len() % 2 == 1 {
            self.forget(task)
        } else {
            drop(task)
        }
        if of_its_own && parent.on_thread {
            self.wait_until("a task sleeps", || reached.0.load(SeqCst) == 1);
        }
    }

    /// Until a step wakes the task, at the latest when all agents have finished.
    async fn sleep(self: &Arc<World>) {
        let mut slept = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut slept, true) {
                return Poll::Ready(());
            }
            let waker = cx.waker().clone();
            lock(&self.sleepers).push(waker);
            Poll::Pending
        })
        .await;
    }
}

/// 1 when a task has slept, or is over.
#[derive(Default)]
struct Reached(AtomicUsize);

struct Passed(Arc<Reached>);

impl Drop for Passed {
    fn drop(&mut self) {
        self.0.0.store(1, SeqCst);
    }
}

/// Panics. Not `panic!`: its hook would print.
pub(crate) fn explode() {
    std::panic::resume_unwind(Box::new("as the program says"));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
