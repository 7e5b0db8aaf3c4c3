//! The workloads on Dapple's scheduler.
//!
//! Best form: the state of the callbacks lives as long as the process and is captured by reference,
//! so a closure is 24 bytes or less (the scheduler keeps blocks of 64 bytes, 40 of them for the
//! closure) and a post changes no reference count. A handle that moves from callback to callback
//! would need a clone at each step, because `post` borrows the color that it posts to.

use super::case::{Placement, W2_BURSTS, W3_BURSTS, Workload};
use super::ledger::{Lane, Run};
use super::trial::Started;
use anyhow::{Context, Result};
use dapple_sched::{Color, Colored, Handle, Runtime, when};

/// Starts the run's chains on a runtime with this many workers.
pub(crate) fn start(run: &'static Run, workers: usize, placement: Placement) -> Result<Started> {
    let runtime = Runtime::builder().workers(workers).build().context("cannot start Dapple's workers")?;
    start_on(runtime, run, &|index| placement.home(index, workers))
}

/// Starts the run's chains on a runtime; `home` names the worker where the `index`-th color of several begins.
pub(crate) fn start_on(runtime: Runtime, run: &'static Run, home: &dyn Fn(usize) -> usize) -> Result<Started> {
    let maker = Maker { handle: runtime.handle(), home };
    let tokens = match run.case.workload {
        Workload::W1 => start_w1(run, &maker),
        Workload::W2 => start_w2(run, &maker),
        Workload::W3 => start_w3(run, &maker),
        Workload::W3InLine => start_w3_in_line(run, &maker),
        Workload::W4 => start_w4(run, &maker),
        Workload::W5 => start_w5(run, &maker),
    };
    Ok(Started { tokens, keep: Box::new(runtime) })
}

/// Makes colors with a home on given workers.
struct Maker<'a> {
    handle: &'a Handle,
    home: &'a dyn Fn(usize) -> usize,
}

impl Maker<'_> {
    /// The `index`-th color of several.
    fn color(&self, index: usize) -> Color {
        self.handle.new_color_at((self.home)(index))
    }

    fn colors(&self, count: usize) -> Vec<Color> {
        (0..count).map(|index| self.color(index)).collect()
    }
}

/// A color of W1 and its state.
struct Chain {
    run: &'static Run,
    lane: &'static Lane,
    color: Color,
}

fn start_w1(run: &'static Run, maker: &Maker) -> u64 {
    for (index, lane) in run.lanes.iter().enumerate() {
        let chain: &'static Chain = Box::leak(Box::new(Chain { run, lane, color: maker.color(index) }));
        // One callback posts them all. The starting callback holds the color, so none of them runs
        // before the last of them is queued; then they take turns in the order of their numbers.
        chain
            .color
            .post(move || (0..run.case.in_flight).for_each(|token| chain.color.post(move || step_w1(chain, token))));
    }
    run.case.colors as u64 * run.case.in_flight
}

fn step_w1(chain: &'static Chain, expected: u64) {
    let run = chain.run;
    if run.stopping() {
        return run.end_w1(chain.lane, expected);
    }
    chain.lane.step(expected, run.spin);
    let next = expected + run.case.in_flight;
    chain.color.post(move || step_w1(chain, next));
}

/// The colors of W2, W3, W4 and W5.
struct Net {
    run: &'static Run,
    posters: Vec<Color>,
    targets: Vec<Color>,
}

impl Net {
    fn leak(run: &'static Run, maker: &Maker, posters: usize, targets: usize) -> &'static Net {
        Box::leak(Box::new(Net { run, posters: maker.colors(posters), targets: maker.colors(targets) }))
    }
}

fn start_w2(run: &'static Run, maker: &Maker) -> u64 {
    let net = Net::leak(run, maker, 1, run.case.colors);
    for _ in 0..W2_BURSTS {
        net.posters[0].post(move || burst_w2(net));
    }
    W2_BURSTS
}

fn burst_w2(net: &'static Net) {
    net.run.burst_w2(|index, round, last| {
        net.targets[index].post(move || {
            net.run.lanes[index].step(round, net.run.spin);
            if last {
                net.posters[0].post(move || burst_w2(net));
            }
        });
    });
}

fn start_w3(run: &'static Run, maker: &Maker) -> u64 {
    let net = Net::leak(run, maker, run.case.colors, 1);
    for poster in 0..net.posters.len() {
        for _ in 0..W3_BURSTS {
            net.posters[poster].post(move || burst_w3(net, poster as u32));
        }
    }
    net.posters.len() as u64 * W3_BURSTS
}

fn burst_w3(net: &'static Net, poster: u32) {
    net.run.burst_w3(poster as usize, |number, last| {
        net.targets[0].post(move || {
            net.run.step_w3(poster as usize, number);
            if last {
                net.posters[poster as usize].post(move || burst_w3(net, poster));
            }
        });
    });
}

/// The posters of W3 in line, and the counter's color as a state, because only states can be tried
/// in line.
struct Tally {
    run: &'static Run,
    posters: Vec<Color>,
    counter: Colored<()>,
}

fn start_w3_in_line(run: &'static Run, maker: &Maker) -> u64 {
    let (posters, counter) = (maker.colors(run.case.colors), Colored::with_color((), &maker.color(0)));
    let tally: &'static Tally = Box::leak(Box::new(Tally { run, posters, counter }));
    for poster in 0..tally.posters.len() {
        for _ in 0..W3_BURSTS {
            tally.posters[poster].post(move || burst_w3_in_line(tally, poster as u32));
        }
    }
    tally.posters.len() as u64 * W3_BURSTS
}

fn burst_w3_in_line(tally: &'static Tally, poster: u32) {
    tally.run.burst_w3(poster as usize, |number, last| {
        // Queued callbacks come first, so a poster's callbacks keep their order, in line or queued.
        if tally.counter.try_with(|()| count_w3_in_line(tally, poster, number, last)).is_err() {
            tally.counter.color().post(move || count_w3_in_line(tally, poster, number, last));
        }
    });
}

fn count_w3_in_line(tally: &'static Tally, poster: u32, number: u64, last: bool) {
    tally.run.step_w3(poster as usize, number);
    if last {
        tally.posters[poster as usize].post(move || burst_w3_in_line(tally, poster));
    }
}

fn start_w4(run: &'static Run, maker: &Maker) -> u64 {
    let net = Net::leak(run, maker, 0, 2);
    net.targets[0]
        .post(move || (0..run.case.in_flight).for_each(|token| net.targets[0].post(move || step_w4(net, 0, token))));
    run.case.in_flight
}

fn step_w4(net: &'static Net, side: usize, expected: u64) {
    let run = net.run;
    if run.stopping() {
        return run.end_w4(side, expected);
    }
    run.lanes[side].step(expected, run.spin);
    // Color 1 is visited as often as color 0 before the next round starts.
    let next = expected + side as u64 * run.case.in_flight;
    net.targets[1 - side].post(move || step_w4(net, 1 - side, next));
}

fn start_w5(run: &'static Run, maker: &Maker) -> u64 {
    let net = Net::leak(run, maker, 0, run.case.colors);
    (0..run.case.in_flight as u32).for_each(|token| post_w5(net, token, 0));
    run.case.in_flight
}

fn post_w5(net: &'static Net, token: u32, number: u64) {
    let pair = net.run.pair(token, number);
    when((&net.targets[pair.from as usize], &net.targets[pair.to as usize])).post(move |_| {
        if net.run.stopping() {
            return net.run.end_w5(token, number);
        }
        net.run.transfer(pair);
        post_w5(net, token, number + 1);
    });
}
