//! The workloads on actors: `kameo`, an actor per color.
//!
//! Of the actor crates, this one has the most changes, and its actors are tasks that run on all
//! workers; `actix` is older and faster.
//!
//! Best form: unbounded mailboxes and `tell` by `try_send`, which neither waits for room nor
//! allocates a slot for an answer; refs that are made once; no tracing compiled in. The crate boxes
//! each message and counts a reference to its receiver, which we cannot avoid. W5 has no sensible
//! form, because the holder of one actor cannot hold another.

use super::case::{Peer, W2_BURSTS, W3_BURSTS, Workload};
use super::ledger::{Lane, Run};
use super::tokio_mpsc::runtime;
use super::trial::Started;
use crate::words::name;
use anyhow::{Result, bail};
use kameo::Actor;
use kameo::actor::{ActorRef, PreparedActor, Spawn};
use kameo::error::Infallible;
use kameo::mailbox;
use kameo::message::{Context, Message};

/// Starts the run's actors on a runtime with this many workers.
pub(crate) fn start(run: &'static Run, workers: usize) -> Result<Started> {
    let runtime = runtime(workers)?;
    let entered = runtime.enter();
    let tokens = match run.case.workload {
        Workload::W1 => start_w1(run),
        Workload::W2 => start_w2(run),
        Workload::W3 => start_w3(run),
        Workload::W4 => start_w4(run),
        other => bail!("{} has no form of {}", name(Peer::Kameo), name(other)),
    };
    drop(entered);
    Ok(Started { tokens, keep: Box::new(runtime) })
}

/// Sends a message; an actor that has ended with the run is no error.
fn tell<A: Actor + Message<M>, M: Send + 'static>(to: &ActorRef<A>, message: M) {
    let _ = to.tell(message).try_send();
}

fn prepare<A: Actor>() -> PreparedActor<A> {
    A::prepare_with_mailbox(mailbox::unbounded())
}

/// Actors with their arguments as their state.
macro_rules! actors {
    ($($actor:ty),*) => {$(
        impl Actor for $actor {
            type Args = Self;
            type Error = Infallible;

            async fn on_start(state: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
                Ok(state)
            }
        }
    )*};
}

actors!(Chain, PosterW2, TargetW2, PosterW3, CounterW3, SideW4);

/// W1: a color. Its message is the number of the callback that it brings.
struct Chain {
    run: &'static Run,
    lane: &'static Lane,
}

impl Message<u64> for Chain {
    type Reply = ();

    async fn handle(&mut self, expected: u64, context: &mut Context<Self, ()>) {
        if self.run.stopping() {
            return self.run.end_w1(self.lane, expected);
        }
        self.lane.step(expected, self.run.spin);
        tell(context.actor_ref(), expected + self.run.case.in_flight);
    }
}

fn start_w1(run: &'static Run) -> u64 {
    for lane in &run.lanes {
        let chain = prepare::<Chain>();
        (0..run.case.in_flight).for_each(|token| tell(chain.actor_ref(), token));
        chain.spawn(Chain { run, lane });
    }
    run.case.colors as u64 * run.case.in_flight
}

/// W2 and W3: permission for a poster to continue.
struct GoOn;

/// W2 and W3: a callback's number among its poster's, and whether its poster may continue after it.
struct Posted {
    poster: u32,
    number: u64,
    last: bool,
}

struct PosterW2 {
    run: &'static Run,
    targets: Vec<ActorRef<TargetW2>>,
}

struct TargetW2 {
    run: &'static Run,
    lane: &'static Lane,
    poster: ActorRef<PosterW2>,
}

impl Message<GoOn> for PosterW2 {
    type Reply = ();

    async fn handle(&mut self, _: GoOn, _: &mut Context<Self, ()>) {
        self.run.burst_w2(|index, number, last| tell(&self.targets[index], Posted { poster: 0, number, last }));
    }
}

impl Message<Posted> for TargetW2 {
    type Reply = ();

    async fn handle(&mut self, posted: Posted, _: &mut Context<Self, ()>) {
        self.lane.step(posted.number, self.run.spin);
        if posted.last {
            tell(&self.poster, GoOn);
        }
    }
}

fn start_w2(run: &'static Run) -> u64 {
    let poster = prepare::<PosterW2>();
    let targets = run.lanes.iter().map(|lane| {
        let target = TargetW2 { run, lane, poster: poster.actor_ref().clone() };
        TargetW2::spawn_with_mailbox(target, mailbox::unbounded())
    });
    let targets = targets.collect();
    (0..W2_BURSTS).for_each(|_| tell(poster.actor_ref(), GoOn));
    poster.spawn(PosterW2 { run, targets });
    W2_BURSTS
}

struct PosterW3 {
    run: &'static Run,
    poster: u32,
    counter: ActorRef<CounterW3>,
}

struct CounterW3 {
    run: &'static Run,
    posters: Vec<ActorRef<PosterW3>>,
}

impl Message<GoOn> for PosterW3 {
    type Reply = ();

    async fn handle(&mut self, _: GoOn, _: &mut Context<Self, ()>) {
        let poster = self.poster;
        self.run.burst_w3(poster as usize, |number, last| tell(&self.counter, Posted { poster, number, last }));
    }
}

impl Message<Posted> for CounterW3 {
    type Reply = ();

    async fn handle(&mut self, posted: Posted, _: &mut Context<Self, ()>) {
        self.run.step_w3(posted.poster as usize, posted.number);
        if posted.last {
            tell(&self.posters[posted.poster as usize], GoOn);
        }
    }
}

fn start_w3(run: &'static Run) -> u64 {
    let counter = prepare::<CounterW3>();
    let posters = (0..run.case.colors as u32).map(|poster| {
        let actor = PosterW3 { run, poster, counter: counter.actor_ref().clone() };
        PosterW3::spawn_with_mailbox(actor, mailbox::unbounded())
    });
    let posters: Vec<_> = posters.collect();
    for poster in &posters {
        (0..W3_BURSTS).for_each(|_| tell(poster, GoOn));
    }
    counter.spawn(CounterW3 { run, posters });
    run.case.colors as u64 * W3_BURSTS
}

/// W4: one of the two colors.
struct SideW4 {
    run: &'static Run,
    side: usize,
    other: ActorRef<SideW4>,
}

impl Message<u64> for SideW4 {
    type Reply = ();

    async fn handle(&mut self, expected: u64, _: &mut Context<Self, ()>) {
        if self.run.stopping() {
            return self.run.end_w4(self.side, expected);
        }
        self.run.lanes[self.side].step(expected, self.run.spin);
        // Color 1 is visited as often as color 0 before the next round starts.
        tell(&self.other, expected + self.side as u64 * self.run.case.in_flight);
    }
}

fn start_w4(run: &'static Run) -> u64 {
    let (left, right) = (prepare::<SideW4>(), prepare::<SideW4>());
    let (to_left, to_right) = (left.actor_ref().clone(), right.actor_ref().clone());
    (0..run.case.in_flight).for_each(|token| tell(&to_left, token));
    left.spawn(SideW4 { run, side: 0, other: to_right });
    right.spawn(SideW4 { run, side: 1, other: to_left });
    run.case.in_flight
}
