//! The timers of each peer.

use super::Random;
use crate::experiment::wait_until;
use crate::machine::thread_cpu;
use anyhow::{Context as _, Result};
use dapple::tokio_compat::BuilderExt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// One peer: its workers and its timers.
pub(super) trait TimerPeer: Sized + 'static {
    /// A timer in the form in which a program keeps many of them.
    type One: Send + 'static;

    fn start(workers: usize) -> Result<Self>;
    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static);
    /// Creates a timer without starting it.
    fn one(deadline: Instant) -> Self::One;
    /// Starts it; true if it has elapsed.
    fn poll(one: &mut Self::One, cx: &mut Context<'_>) -> bool;
    /// Moves its deadline. The caller polls it afterwards.
    fn reset(one: &mut Self::One, deadline: Instant);
    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send;
    fn yield_now() -> impl Future<Output = ()> + Send;
}

pub(super) fn start<P: TimerPeer>(workers: usize) -> Result<P> {
    P::start(workers)
}

/// The makers insert, re-arm and cancel, all at the same time, one phase after the other.
pub(super) struct Phases {
    makers: usize,
    phase: AtomicUsize,
    done: AtomicUsize,
    ns: AtomicU64,
    /// Processor time of all of them, in nanoseconds.
    cpu_ns: AtomicU64,
    /// The first maker's start and the last one's end in this phase, in nanoseconds since `start`.
    begin_ns: AtomicU64,
    end_ns: AtomicU64,
    start: Instant,
    pub(super) elapsed: AtomicU64,
}

impl Phases {
    pub(super) fn new(makers: usize) -> Phases {
        let (phase, done, ns) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU64::new(0));
        let (cpu_ns, elapsed) = (AtomicU64::new(0), AtomicU64::new(0));
        let (begin_ns, end_ns, start) = (AtomicU64::new(u64::MAX), AtomicU64::new(0), Instant::now());
        Phases { makers, phase, done, ns, cpu_ns, begin_ns, end_ns, start, elapsed }
    }

    /// The body of one maker.
    pub(super) async fn make<P: TimerPeer>(&'static self, count: usize, seed: u64) {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut timers: Vec<P::One> = Vec::with_capacity(count);
        self.done.fetch_add(1, Relaxed);

        self.told::<P>(1).await;
        let base = Instant::now() + FAR;
        self.timed(poll_fn(|cx| {
            for _ in 0..count {
                let mut one = P::one(base + FAR.mul_f64(random.share()));
                self.note(P::poll(&mut one, cx));
                timers.push(one);
            }
            Poll::Ready(())
        }))
        .await;

        // A program moves the timers of its most recently active connections, not in the order of
        // their creation.
        let order = shuffled(count, &mut random);
        self.told::<P>(2).await;
        self.timed(poll_fn(|cx| {
            for &index in &order {
                let one = &mut timers[index as usize];
                P::reset(one, base + FAR.mul_f64(random.share()));
                self.note(P::poll(one, cx));
            }
            Poll::Ready(())
        }))
        .await;

        self.told::<P>(3).await;
        self.timed(async { timers.clear() }).await;
    }

    async fn told<P: TimerPeer>(&self, phase: usize) {
        // Pairs with `next`, which has prepared the span.
        while self.phase.load(Acquire) < phase {
            P::yield_now().await;
        }
    }

    /// The work waits for nothing, so it stays on its thread.
    async fn timed(&self, work: impl Future<Output = ()>) {
        let (cpu, begin) = (thread_cpu(), Instant::now());
        work.await;
        let end = Instant::now();
        self.ns.fetch_add((end - begin).as_nanos() as u64, Relaxed);
        self.begin_ns.fetch_min((begin - self.start).as_nanos() as u64, Relaxed);
        self.end_ns.fetch_max((end - self.start).as_nanos() as u64, Relaxed);
        self.cpu_ns.fetch_add((thread_cpu() - cpu).as_nanos() as u64, Relaxed);
        // Pairs with `wait`.
        self.done.fetch_add(1, Release);
    }

    fn note(&self, has_elapsed: bool) {
        if has_elapsed {
            self.elapsed.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn wait_ready(&self) -> Result<()> {
        self.wait(1)
    }

    /// Starts the next phase of the makers; returns the sum of their times, and the time from the
    /// first start to the last end, in nanoseconds.
    pub(super) fn next(&self) -> Result<(u64, u64)> {
        let before = self.ns.load(Relaxed);
        self.begin_ns.store(u64::MAX, Relaxed);
        self.end_ns.store(0, Relaxed);
        let phase = self.phase.fetch_add(1, Release) + 1;
        self.wait(phase + 1)?;
        let span_ns = self.end_ns.load(Relaxed).saturating_sub(self.begin_ns.load(Relaxed));
        Ok((self.ns.load(Relaxed) - before, span_ns))
    }

    /// Processor time of all makers in all phases so far, without the waits between them.
    pub(super) fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu_ns.load(Relaxed))
    }

    fn wait(&self, phases: usize) -> Result<()> {
        wait_until("the timers are handled", || self.done.load(Acquire) >= phases * self.makers)
    }
}

/// The numbers below `count`, in random order.
fn shuffled(count: usize, random: &mut Random) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    for last in (1..count).rev() {
        order.swap(last, (random.share() * (last + 1) as f64) as usize);
    }
    order
}

/// Timers that are inserted, moved and canceled must not elapse.
const FAR: Duration = Duration::from_secs(120);

/// `dapple::time::Sleep`s.
pub(super) struct Dapple(dapple::Runtime);

impl Dapple {
    fn builder(workers: usize) -> dapple::Builder {
        // The maker of a million timers keeps its worker for seconds.
        dapple::builder().workers(workers).slow_callback(Duration::from_secs(3_600), |_| ())
    }
}

impl TimerPeer for Dapple {
    // It may move while it runs.
    type One = dapple::time::Sleep;

    fn start(workers: usize) -> Result<Dapple> {
        Ok(Dapple(Dapple::builder(workers).build().context("cannot start Dapple's workers")?))
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.spawn(future));
    }

    fn one(deadline: Instant) -> Self::One {
        dapple::time::sleep_until(deadline)
    }

    fn poll(one: &mut Self::One, cx: &mut Context<'_>) -> bool {
        Pin::new(one).poll(cx).is_ready()
    }

    fn reset(one: &mut Self::One, deadline: Instant) {
        one.reset(deadline);
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send {
        dapple::time::sleep_until(deadline)
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        dapple::yield_now()
    }
}

/// `tokio::time::Sleep`s, boxed, as they must not move.
pub(super) struct Tokio(tokio::runtime::Runtime);

impl TimerPeer for Tokio {
    type One = Pin<Box<tokio::time::Sleep>>;

    fn start(workers: usize) -> Result<Tokio> {
        Ok(Tokio(tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?))
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        // Unconstrained: a task's budget would let it poll only 128 timers.
        self.0.spawn(tokio::task::unconstrained(future));
    }

    fn one(deadline: Instant) -> Self::One {
        Box::pin(tokio::time::sleep_until(deadline.into()))
    }

    fn poll(one: &mut Self::One, cx: &mut Context<'_>) -> bool {
        one.as_mut().poll(cx).is_ready()
    }

    fn reset(one: &mut Self::One, deadline: Instant) {
        one.as_mut().reset(deadline.into());
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send {
        tokio::time::sleep_until(deadline.into())
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }
}

/// Tokio's timers in Dapple's tasks.
pub(super) struct TokioContext(dapple::Runtime);

impl TimerPeer for TokioContext {
    type One = <Tokio as TimerPeer>::One;

    fn start(workers: usize) -> Result<TokioContext> {
        Ok(TokioContext(Dapple::builder(workers).tokio().build().context("cannot start Dapple's workers")?))
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.spawn(future));
    }

    fn one(deadline: Instant) -> Self::One {
        Tokio::one(deadline)
    }

    fn poll(one: &mut Self::One, cx: &mut Context<'_>) -> bool {
        Tokio::poll(one, cx)
    }

    fn reset(one: &mut Self::One, deadline: Instant) {
        Tokio::reset(one, deadline);
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send {
        Tokio::sleep_until(deadline)
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        dapple::yield_now()
    }
}
