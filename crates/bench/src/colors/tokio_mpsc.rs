//! The workloads on tokio with a task and an unbounded channel per color.
//!
//! Best form: a task owns its color's state, so there is no lock. The channel is unbounded, so
//! there is no semaphore to wait for and nothing can deadlock. Tasks send to themselves and to each
//! other through handles made once. A task takes all waiting messages together (`recv_many`: a
//! quarter faster with 64 in flight, slower with one). The cooperative budget is tokio's: without
//! it, a task with a full channel would never let the next color run.

use super::case::{Peer, W2_BURSTS, W3_BURSTS, Workload};
use super::ledger::{Lane, Run};
use super::trial::Started;
use crate::words::name;
use anyhow::{Result, bail};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A runtime with this many workers, without I/O and timers, so that it has only tasks to run.
pub(super) fn runtime(workers: usize) -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(workers).build()?)
}

/// Starts the run's tasks on a runtime with this many workers.
pub(crate) fn start(run: &'static Run, workers: usize) -> Result<Started> {
    let runtime = runtime(workers)?;
    let entered = runtime.enter();
    let tokens = match run.case.workload {
        Workload::W1 => start_w1(run),
        Workload::W2 => start_w2(run),
        Workload::W3 => start_w3(run, workers),
        Workload::W4 => start_w4(run),
        other => bail!("{} has no form of {}", name(Peer::TokioMpsc), name(other)),
    };
    drop(entered);
    Ok(Started { tokens, keep: Box::new(runtime) })
}

/// Sends; a receiver that has ended with the run is no error.
fn send<T>(to: &UnboundedSender<T>, message: T) {
    let _ = to.send(message);
}

/// Calls `each` for every message, in order, until all senders are gone.
async fn for_each<T>(mut inbox: UnboundedReceiver<T>, many: bool, mut each: impl FnMut(T)) {
    const TOGETHER: usize = 64;
    if many {
        let mut waiting = Vec::with_capacity(TOGETHER);
        while inbox.recv_many(&mut waiting, TOGETHER).await > 0 {
            waiting.drain(..).for_each(&mut each);
        }
    } else {
        while let Some(message) = inbox.recv().await {
            each(message);
        }
    }
}

fn start_w1(run: &'static Run) -> u64 {
    for lane in &run.lanes {
        let (to_self, inbox) = unbounded_channel();
        (0..run.case.in_flight).for_each(|token| send(&to_self, token));
        tokio::spawn(color_w1(run, lane, to_self, inbox));
    }
    run.case.colors as u64 * run.case.in_flight
}

async fn color_w1(
    run: &'static Run,
    lane: &'static Lane,
    to_self: UnboundedSender<u64>,
    inbox: UnboundedReceiver<u64>,
) {
    for_each(inbox, run.case.in_flight > 1, |expected| {
        if run.stopping() {
            run.end_w1(lane, expected);
        } else {
            lane.step(expected, run.spin);
            send(&to_self, expected + run.case.in_flight);
        }
    })
    .await;
}

/// A callback of W2 and W3: its number, and whether its poster may continue.
struct Posted {
    poster: u32,
    number: u64,
    last: bool,
}

fn start_w2(run: &'static Run) -> u64 {
    let (to_poster, mut go_on) = unbounded_channel();
    (0..W2_BURSTS).for_each(|_| send(&to_poster, ()));
    let targets: Vec<_> = run.lanes.iter().map(|lane| spawn_target_w2(run, lane, to_poster.clone())).collect();
    tokio::spawn(async move {
        while go_on.recv().await.is_some() {
            run.burst_w2(|index, number, last| send(&targets[index], Posted { poster: 0, number, last }));
        }
    });
    W2_BURSTS
}

fn spawn_target_w2(run: &'static Run, lane: &'static Lane, to_poster: UnboundedSender<()>) -> UnboundedSender<Posted> {
    let (to_target, inbox) = unbounded_channel::<Posted>();
    tokio::spawn(for_each(inbox, false, move |posted| {
        lane.step(posted.number, run.spin);
        if posted.last {
            send(&to_poster, ());
        }
    }));
    to_target
}

fn start_w3(run: &'static Run, workers: usize) -> u64 {
    let (to_counter, inbox) = unbounded_channel::<Posted>();
    let posters: Vec<_> = (0..run.case.colors).map(|poster| spawn_poster_w3(run, poster, to_counter.clone())).collect();
    // With one worker, taking messages together gains a fifth; with two it loses a third, because
    // the workers then contend for the channel.
    tokio::spawn(for_each(inbox, workers == 1, move |posted| {
        run.step_w3(posted.poster as usize, posted.number);
        if posted.last {
            send(&posters[posted.poster as usize], ());
        }
    }));
    run.case.colors as u64 * W3_BURSTS
}

fn spawn_poster_w3(run: &'static Run, poster: usize, to_counter: UnboundedSender<Posted>) -> UnboundedSender<()> {
    let (to_poster, mut go_on) = unbounded_channel();
    (0..W3_BURSTS).for_each(|_| send(&to_poster, ()));
    tokio::spawn(async move {
        while go_on.recv().await.is_some() {
            run.burst_w3(poster, |number, last| send(&to_counter, Posted { poster: poster as u32, number, last }));
        }
    });
    to_poster
}

fn start_w4(run: &'static Run) -> u64 {
    let (to_0, inbox_0) = unbounded_channel();
    let (to_1, inbox_1) = unbounded_channel();
    (0..run.case.in_flight).for_each(|token| send(&to_0, token));
    tokio::spawn(color_w4(run, 0, to_1, inbox_0));
    tokio::spawn(color_w4(run, 1, to_0, inbox_1));
    run.case.in_flight
}

async fn color_w4(run: &'static Run, side: usize, to_other: UnboundedSender<u64>, inbox: UnboundedReceiver<u64>) {
    for_each(inbox, run.case.in_flight > 1, |expected| {
        if run.stopping() {
            run.end_w4(side, expected);
        } else {
            run.lanes[side].step(expected, run.spin);
            send(&to_other, expected + side as u64 * run.case.in_flight);
        }
    })
    .await;
}
