//! Tasks: futures that wait for states, for each other and for bells, that are aborted, and that panic.

use super::book::{Excuse, Kind};
use super::lane::{Entry, Lane, Mode};
use super::life::{Joinable, Life, bell};
use super::ops::{act, seed, unpack};
use super::sets::{self, Members};
use super::state::{State, panic_on_purpose, work};
use super::token::{Token, Waiting};
use crate::rng::Rng;
use dapple_sched::yield_now;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

type Boxed<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A task with each poll, and its end, inside its color.
struct InLane {
    lane: Arc<Lane>,
    token: Option<Token>,
    aborted: Arc<AtomicBool>,
    future: Option<Boxed<'static>>,
    kind: Kind,
}

impl Future for InLane {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let _inside = this.lane.enter(Mode::Write, Entry::Turn);
        let (Some(future), Some(token)) = (&mut this.future, &mut this.token) else {
            this.lane.book.problem(|| "a task was polled after its end".to_owned());
            return Poll::Ready(());
        };
        // Also if the poll panics.
        token.set_ran(true);
        let poll = future.as_mut().poll(cx);
        token.set_ran(poll.is_ready());
        if poll.is_ready() {
            this.future = None;
            this.token = None;
        }
        poll
    }
}

impl Drop for InLane {
    fn drop(&mut self) {
        let _inside = self.lane.enter(Mode::Write, Entry::Inline);
        self.future = None;
        let Some(token) = self.token.take() else { return };
        // A shutdown drops background tasks without counting them; here they count as dropped by
        // their owner.
        if !token.has_run() && (self.kind == Kind::Background || self.aborted.load(Relaxed)) {
            self.lane.book.excuse(self.kind, Excuse::Canceled);
        }
    }
}

/// Starts a task, and leaves its handle to others or drops it.
pub(crate) fn start(life: &Arc<Life>, rng: &mut Rng, fuel: u8) {
    let until_the_end = rng.once_in(50) && life.may_await_end();
    let task = if until_the_end { spawn_until_the_end(life, rng) } else { spawn(life, rng, fuel) };
    if rng.once_in(2) {
        life.bag.put_task(task, rng);
    }
}

fn spawn(life: &Arc<Life>, rng: &mut Rng, fuel: u8) -> Joinable {
    let own_color = rng.once_in(2);
    let (lane, color) =
        if own_color { (Lane::private(&life.book), life.handle.new_color()) } else { life.pick_color(rng) };
    let future = in_lane(&lane, Kind::Task, wander(life.clone(), seed(rng, fuel)));
    let aborted = future.aborted.clone();
    let handle = if own_color { life.handle.spawn(future) } else { color.spawn(future) };
    Joinable { handle, aborted, endless: false }
}

/// A task that ends at the shutdown.
fn spawn_until_the_end(life: &Arc<Life>, rng: &mut Rng) -> Joinable {
    let (lane, color) = life.pick_color(rng);
    let (wander, closing) = (wander(life.clone(), seed(rng, 0)), life.handle.closing());
    let future = in_lane(&lane, Kind::Task, async move {
        closing.await;
        wander.await;
    });
    let aborted = future.aborted.clone();
    Joinable { handle: color.spawn(future), aborted, endless: true }
}

/// Starts a task that a graceful shutdown does not wait for.
pub(crate) fn start_background(life: &Arc<Life>, rng: &mut Rng) {
    if life.book.outstanding_of(Kind::Background) >= BACKGROUND_MAX {
        return;
    }
    let (lane, color) = life.pick_color(rng);
    let wander = wander(life.clone(), seed(rng, 0));
    let endless = rng.once_in(4);
    let future = in_lane(&lane, Kind::Background, async move {
        wander.await;
        if endless {
            std::future::pending::<()>().await;
        }
    });
    let aborted = future.aborted.clone();
    let handle = color.spawn_background(future);
    life.bag.put_task(Joinable { handle, aborted, endless: true }, rng);
}

fn in_lane(lane: &Arc<Lane>, kind: Kind, future: impl Future<Output = ()> + Send + 'static) -> InLane {
    InLane {
        lane: lane.clone(),
        token: Some(Token::queued(lane, kind)),
        aborted: Arc::new(AtomicBool::new(false)),
        future: Some(Box::pin(future)),
        kind,
    }
}

/// The body of a task: a few steps, one after the other.
async fn wander(life: Arc<Life>, seed: u64) {
    let (mut rng, fuel) = unpack(seed);
    for _ in 0..rng.range(1, 8) {
        let rng = &mut rng;
        let step: Boxed<'_> = match rng.below(11) {
            0..3 => Box::pin(yield_now()),
            3 => with(&life, life.pick_state(rng), rng),
            4 => read(&life, life.pick_state(rng), rng),
            5 => Box::pin(with_set(&life, rng)),
            6 => Box::pin(unpolled(&life, rng)),
            7 => Box::pin(both(&life, rng)),
            8 => Box::pin(hear_bell(&life, rng, fuel)),
            9 if fuel > 0 && !life.is_full() => Box::pin(join_child(&life, rng, fuel - 1)),
            10 if life.panics(rng) => panic_on_purpose(&life.book),
            _ => Box::pin(async {
                work(rng);
                if fuel > 0 && !life.is_full() {
                    act(&life, rng, fuel - 1);
                }
            }),
        };
        step.await;
    }
}

fn with<'a>(life: &'a Life, state: &'a State, rng: &mut Rng) -> Boxed<'a> {
    let (token, mut rng) = (Token::new(&state.lane, Kind::With), Rng::new(rng.draw()));
    let waiting = Waiting::new(&life.book, Kind::With);
    Box::pin(async move {
        let change = state.state.with(|value| {
            token.run(Mode::Write, Entry::Inline, || {
                if life.panics(&mut rng) {
                    value.tear();
                }
                value.write(&mut rng);
            });
        });
        change.await;
        waiting.over();
    })
}

fn read<'a>(life: &'a Life, state: &'a State, rng: &mut Rng) -> Boxed<'a> {
    let (token, mut rng) = (Token::new(&state.lane, Kind::Read), Rng::new(rng.draw()));
    let waiting = Waiting::new(&life.book, Kind::Read);
    Box::pin(async move {
        let look = state.state.read(|value| {
            token.run(Mode::Read, Entry::Inline, || {
                if life.panics(&mut rng) {
                    panic_on_purpose(&life.book);
                }
                value.read(&mut rng);
            });
        });
        look.await;
        waiting.over();
    })
}

async fn with_set(life: &Life, rng: &mut Rng) {
    let members = Members::draw(life, rng);
    sets::with(&members, life, Rng::new(rng.draw())).await;
}

/// One of the waits for a held state, over `members` if it is for several.
pub(crate) fn any_wait<'a>(life: &'a Life, members: &'a Members, rng: &mut Rng) -> Boxed<'a> {
    match rng.below(3) {
        0 => with(life, life.pick_state(rng), rng),
        1 => read(life, life.pick_state(rng), rng),
        _ => sets::with(members, life, Rng::new(rng.draw())),
    }
}

/// Starts a wait, does other things, and then polls it again, or not.
async fn unpolled(life: &Life, rng: &mut Rng) {
    let members = Members::draw(life, rng);
    let mut wait = any_wait(life, &members, rng);
    if poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx))).await.is_ready() {
        return;
    }
    for _ in 0..rng.below(4) {
        yield_now().await;
    }
    if rng.once_in(2) {
        wait.await;
    }
}

/// Two waits at once.
async fn both(life: &Life, rng: &mut Rng) {
    let (one_set, other_set) = (Members::draw(life, rng), Members::draw(life, rng));
    let mut one = Some(any_wait(life, &one_set, rng));
    let mut other = Some(any_wait(life, &other_set, rng));
    poll_fn(|cx| {
        for wait in [&mut one, &mut other] {
            if wait.as_mut().is_some_and(|wait| wait.as_mut().poll(cx).is_ready()) {
                *wait = None;
            }
        }
        if one.is_none() && other.is_none() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Waits for an event from a callback or another thread.
async fn hear_bell(life: &Arc<Life>, rng: &mut Rng, fuel: u8) {
    let (bell, ring) = bell();
    if rng.once_in(2) {
        life.bag.put_bell(bell, rng);
    } else {
        let (lane, color) = life.pick_color(rng);
        let token = Token::queued(&lane, Kind::Post);
        let seed = seed(rng, fuel);
        color.post(move || {
            token.run(Mode::Write, Entry::Turn, || {
                work(&mut Rng::new(seed));
                drop(bell);
            });
        });
    }
    ring.await;
}

async fn join_child(life: &Arc<Life>, rng: &mut Rng, fuel: u8) {
    let child = spawn(life, rng, fuel);
    match rng.below(8) {
        0 => child.abort(),
        1 => {
            yield_now().await;
            child.abort();
        }
        _ => {}
    }
    life.joined(child.handle.await);
}

/// The most background tasks of a runtime at one time.
const BACKGROUND_MAX: u64 = 32;
