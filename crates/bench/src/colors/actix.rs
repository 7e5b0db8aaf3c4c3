//! The workloads on actors: `actix`, an actor per color, a thread ("arbiter") per worker.
//!
//! An actor stays for ever on the thread that started it, so the placement of the colors decides
//! where they run: gathered, all are on one thread and the others are idle.
//!
//! Best form: `do_send`, which neither waits for room nor allocates a slot for an answer, to
//! addresses that are made once. For messages to itself, an actor has `notify`, which is three
//! times as fast, because it bypasses the mailbox. `notify` does not keep the order of several
//! messages, so it is used only with one in flight.

use super::case::{Peer, Placement, W2_BURSTS, W3_BURSTS, Workload};
use super::ledger::{Lane, Run};
use super::trial::Started;
use crate::words::name;
use actix::{Actor, Addr, Arbiter, AsyncContext, Context, Handler, Message, System};
use anyhow::{Result, bail};

/// Starts the run's actors on this many threads.
pub(crate) fn start(run: &'static Run, workers: usize, placement: Placement) -> Result<Started> {
    let system = System::new();
    let arbiters: Vec<Arbiter> = (0..workers).map(|_| Arbiter::new()).collect();
    let threads = Threads { arbiters, placement };
    let tokens = match run.case.workload {
        Workload::W1 => start_w1(run, &threads),
        Workload::W2 => start_w2(run, &threads),
        Workload::W3 => start_w3(run, &threads),
        Workload::W4 => start_w4(run, &threads),
        other => bail!("{} has no form of {}", name(Peer::Actix), name(other)),
    };
    Ok(Started { tokens, keep: Box::new((system, threads.arbiters)) })
}

struct Threads {
    arbiters: Vec<Arbiter>,
    placement: Placement,
}

impl Threads {
    /// Starts the `index`-th of several actors at its placement.
    fn start<A: Actor<Context = Context<A>> + Send>(&self, index: usize, actor: A) -> Addr<A> {
        self.start_with(index, actor, |_| ())
    }

    /// Likewise; `first` gives it a message before it runs.
    fn start_with<A: Actor<Context = Context<A>> + Send>(
        &self,
        index: usize,
        actor: A,
        first: impl FnOnce(Addr<A>) + Send + 'static,
    ) -> Addr<A> {
        let arbiter = &self.arbiters[self.placement.home(index, self.arbiters.len())];
        A::start_in_arbiter(&arbiter.handle(), move |context| {
            first(context.address());
            actor
        })
    }
}

/// Actors with an ordinary mailbox.
macro_rules! actors {
    ($($actor:ty),*) => {$(
        impl Actor for $actor {
            type Context = Context<Self>;
        }
    )*};
}

actors!(Chain, PosterW2, TargetW2, PosterW3, CounterW3, SideW4);

/// W1 and W4: the number of the callback that it brings.
struct Step(u64);

/// W2 and W3: permission for a poster to continue.
struct GoOn;

/// W2 and W3: a callback's number among its poster's, and whether its poster may continue after it.
struct Posted {
    poster: u32,
    number: u64,
    last: bool,
}

/// The peers of an actor. If two actors refer to each other, each gets the other's address only
/// after both were started.
struct Meet<T>(T);

impl Message for Step {
    type Result = ();
}

impl Message for GoOn {
    type Result = ();
}

impl Message for Posted {
    type Result = ();
}

impl<T> Message for Meet<T> {
    type Result = ();
}

/// W1: a color.
struct Chain {
    run: &'static Run,
    lane: &'static Lane,
}

impl Handler<Step> for Chain {
    type Result = ();

    fn handle(&mut self, Step(expected): Step, context: &mut Context<Self>) {
        if self.run.stopping() {
            return self.run.end_w1(self.lane, expected);
        }
        self.lane.step(expected, self.run.spin);
        let next = Step(expected + self.run.case.in_flight);
        match self.run.case.in_flight {
            1 => context.notify(next),
            _ => context.address().do_send(next),
        }
    }
}

fn start_w1(run: &'static Run, threads: &Threads) -> u64 {
    for (index, lane) in run.lanes.iter().enumerate() {
        // All of them before the color runs, so that they take turns in the order of their numbers.
        threads.start_with(index, Chain { run, lane }, |chain| {
            (0..run.case.in_flight).for_each(|token| chain.do_send(Step(token)));
        });
    }
    run.case.colors as u64 * run.case.in_flight
}

struct PosterW2 {
    run: &'static Run,
    targets: Vec<Addr<TargetW2>>,
}

struct TargetW2 {
    run: &'static Run,
    lane: &'static Lane,
    poster: Addr<PosterW2>,
}

impl Handler<Meet<Vec<Addr<TargetW2>>>> for PosterW2 {
    type Result = ();

    fn handle(&mut self, Meet(targets): Meet<Vec<Addr<TargetW2>>>, _: &mut Context<Self>) {
        self.targets = targets;
    }
}

impl Handler<GoOn> for PosterW2 {
    type Result = ();

    fn handle(&mut self, _: GoOn, _: &mut Context<Self>) {
        self.run.burst_w2(|index, number, last| self.targets[index].do_send(Posted { poster: 0, number, last }));
    }
}

impl Handler<Posted> for TargetW2 {
    type Result = ();

    fn handle(&mut self, posted: Posted, _: &mut Context<Self>) {
        self.lane.step(posted.number, self.run.spin);
        if posted.last {
            self.poster.do_send(GoOn);
        }
    }
}

fn start_w2(run: &'static Run, threads: &Threads) -> u64 {
    let poster = threads.start(0, PosterW2 { run, targets: Vec::new() });
    let target = |(index, lane)| threads.start(index, TargetW2 { run, lane, poster: poster.clone() });
    poster.do_send(Meet(run.lanes.iter().enumerate().map(target).collect::<Vec<_>>()));
    (0..W2_BURSTS).for_each(|_| poster.do_send(GoOn));
    W2_BURSTS
}

struct PosterW3 {
    run: &'static Run,
    poster: u32,
    counter: Addr<CounterW3>,
}

struct CounterW3 {
    run: &'static Run,
    posters: Vec<Addr<PosterW3>>,
}

impl Handler<GoOn> for PosterW3 {
    type Result = ();

    fn handle(&mut self, _: GoOn, _: &mut Context<Self>) {
        let poster = self.poster;
        self.run.burst_w3(poster as usize, |number, last| self.counter.do_send(Posted { poster, number, last }));
    }
}

impl Handler<Meet<Vec<Addr<PosterW3>>>> for CounterW3 {
    type Result = ();

    fn handle(&mut self, Meet(posters): Meet<Vec<Addr<PosterW3>>>, _: &mut Context<Self>) {
        self.posters = posters;
    }
}

impl Handler<Posted> for CounterW3 {
    type Result = ();

    fn handle(&mut self, posted: Posted, _: &mut Context<Self>) {
        self.run.step_w3(posted.poster as usize, posted.number);
        if posted.last {
            self.posters[posted.poster as usize].do_send(GoOn);
        }
    }
}

fn start_w3(run: &'static Run, threads: &Threads) -> u64 {
    let counter = threads.start(0, CounterW3 { run, posters: Vec::new() });
    let poster = |index| threads.start(index, PosterW3 { run, poster: index as u32, counter: counter.clone() });
    let posters: Vec<_> = (0..run.case.colors).map(poster).collect();
    counter.do_send(Meet(posters.clone()));
    for poster in &posters {
        (0..W3_BURSTS).for_each(|_| poster.do_send(GoOn));
    }
    run.case.colors as u64 * W3_BURSTS
}

/// W4: one of the two colors.
struct SideW4 {
    run: &'static Run,
    side: usize,
    other: Option<Addr<SideW4>>,
}

impl Handler<Meet<Addr<SideW4>>> for SideW4 {
    type Result = ();

    fn handle(&mut self, Meet(other): Meet<Addr<SideW4>>, context: &mut Context<Self>) {
        self.other = Some(other);
        // The chains begin here, all of them before the first comes back.
        let tokens = if self.side == 0 { self.run.case.in_flight } else { 0 };
        (0..tokens).for_each(|token| context.address().do_send(Step(token)));
    }
}

impl Handler<Step> for SideW4 {
    type Result = ();

    fn handle(&mut self, Step(expected): Step, _: &mut Context<Self>) {
        if self.run.stopping() {
            return self.run.end_w4(self.side, expected);
        }
        self.run.lanes[self.side].step(expected, self.run.spin);
        if let Some(other) = &self.other {
            // Color 1 is visited as often as color 0 before the next round starts.
            other.do_send(Step(expected + self.side as u64 * self.run.case.in_flight));
        }
    }
}

fn start_w4(run: &'static Run, threads: &Threads) -> u64 {
    let [left, right] = [0, 1].map(|side| threads.start(side, SideW4 { run, side, other: None }));
    right.do_send(Meet(left.clone()));
    left.do_send(Meet(right));
    run.case.in_flight
}
