//! The state that the callbacks of one run change, and the check that the result is right.
//!
//! Every peer runs its callbacks on the same lanes, so all do the same work and pass the same
//! check. A lane is the state of one color. The state is plain memory in all but type: a callback
//! loads the counter, works, and stores it one higher, never with a read-modify-write. Two
//! overlapping callbacks of one color thus lose an update, and the count is too low. Relaxed
//! atomics instead of a `Cell`: if a peer breaks the rule, it shows a wrong sum, and the program
//! has no undefined behavior.

mod transfers;

use super::case::{BURST, Case, Workload};
use super::spin::Spin;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::{Duration, Instant};
use transfers::Token;

/// The result of the check for a run without any callback.
pub(crate) const NOTHING_RAN: &str = "no callback ran";

/// The state of one color. Far from its neighbors: otherwise the processor would prefetch lines
/// that another worker writes, and the run would measure that.
#[derive(Default)]
#[repr(align(512))]
pub(crate) struct Lane {
    /// Callbacks run; changed only by a callback that holds the color (and read by the
    /// measurement).
    count: AtomicU64,
    /// Callbacks that met an unexpected counter: a broken order, or an overlap.
    breaks: AtomicU64,
    /// Callbacks that must have run at the end. Each token or poster adds to it once, when it ends.
    due: AtomicU64,
    /// W5: units in the account; touched as `count`.
    balance: AtomicU64,
    /// For peers that lock: the lock is next to the guarded state, as in a `Mutex<T>`. In a
    /// separate array, the locks of 64 colors would share cache lines.
    pub(crate) lock: Mutex<()>,
    /// Likewise, for tasks that wait for it.
    pub(crate) task_lock: tokio::sync::Mutex<()>,
}

impl Lane {
    /// One callback: it must be the `expected`-th of its color.
    #[inline]
    pub(crate) fn step(&self, expected: u64, spin: Spin) {
        let count = self.count.load(Relaxed);
        if count != expected {
            self.breaks.store(self.breaks.load(Relaxed) + 1, Relaxed);
        }
        spin.run();
        self.count.store(count + 1, Relaxed);
    }

    /// One callback of a color with callbacks from several posters, each checked on its own lane.
    #[inline]
    fn step_unordered(&self) {
        self.count.store(self.count.load(Relaxed) + 1, Relaxed);
    }

    /// Adds to the callbacks that must have run at the end.
    fn owe(&self, callbacks: u64) {
        self.due.fetch_add(callbacks, Relaxed);
    }
}

/// One run: its lanes, and the flag that ends it.
pub(crate) struct Run {
    /// The case.
    pub(crate) case: Case,
    /// The work in each callback.
    pub(crate) spin: Spin,
    /// W1, W2, W4: a lane for each color. W5: one for each account. W3: the callbacks of each
    /// poster, changed only under the counter's color.
    pub(crate) lanes: Vec<Lane>,
    /// W3: the counter that all posters post to.
    pub(crate) counter: Lane,
    /// W2, W3: the position of each poster, changed only under the poster's color.
    pub(crate) posters: Vec<Lane>,
    /// W5: the transfers of each token.
    tokens: Vec<Token>,
    /// On its own cache line: every callback reads it, and it is written once.
    stop: Line<AtomicBool>,
    finished: Line<AtomicU64>,
}

#[repr(align(128))]
struct Line<T>(T);

impl Run {
    /// A run with all lanes at zero.
    pub(crate) fn new(case: Case, spin: Spin) -> Run {
        let posters = match case.workload {
            Workload::W2 => 1,
            Workload::W3 | Workload::W3InLine => case.colors,
            _ => 0,
        };
        let (lane, tokens): (fn() -> Lane, _) = match case.workload {
            Workload::W5 => (Lane::account, case.in_flight),
            _ => (Lane::default, 0),
        };
        Run {
            case,
            spin,
            lanes: (0..case.colors).map(|_| lane()).collect(),
            counter: Lane::default(),
            posters: (0..posters).map(|_| Lane::default()).collect(),
            tokens: (0..tokens).map(|_| Token::default()).collect(),
            stop: Line(AtomicBool::new(false)),
            finished: Line(AtomicU64::new(0)),
        }
    }

    /// Whether chains and posters must end.
    #[inline]
    pub(crate) fn stopping(&self) -> bool {
        self.stop.0.load(Relaxed)
    }

    /// Tells chains and posters to end.
    pub(crate) fn stop(&self) {
        self.stop.0.store(true, Relaxed);
    }

    /// W1: ends the chain before the `expected`-th callback of color `lane`.
    pub(crate) fn end_w1(&self, lane: &Lane, expected: u64) {
        lane.owe(expected / self.case.in_flight);
        self.finish();
    }

    /// W4: likewise, on color 0 or 1. A chain visits color 0 first.
    pub(crate) fn end_w4(&self, side: usize, expected: u64) {
        let visits = expected / self.case.in_flight;
        self.lanes[0].owe(visits + side as u64);
        self.lanes[1].owe(visits);
        self.finish();
    }

    /// W3 without posters: ends a thread after this many callbacks.
    pub(crate) fn end_w3(&self, poster: usize, callbacks: u64) {
        self.posters[poster].count.store(callbacks, Relaxed);
        self.finish();
    }

    /// W2: the poster's next burst. Calls `post` with the color's index, the callback's number in
    /// that color, and whether it is the last of the burst, which must bring the next one. False if
    /// the run is ending, and nothing was posted.
    #[inline]
    pub(crate) fn burst_w2(&self, mut post: impl FnMut(usize, u64, bool)) -> bool {
        if self.stopping() {
            self.finish();
            return false;
        }
        let (poster, lanes) = (&self.posters[0].count, self.lanes.len());
        let start = poster.load(Relaxed);
        let (mut index, mut round) = ((start % lanes as u64) as usize, start / lanes as u64);
        for left in (0..BURST).rev() {
            post(index, round, left == 0);
            index += 1;
            if index == lanes {
                (index, round) = (0, round + 1);
            }
        }
        poster.store(start + BURST, Relaxed);
        true
    }

    /// W3: the next burst of a poster. Calls `post` with the callback's number among the poster's,
    /// and whether it is the last of the burst, which must bring the next one. False if the run is
    /// ending, and nothing was posted.
    #[inline]
    pub(crate) fn burst_w3(&self, poster: usize, mut post: impl FnMut(u64, bool)) -> bool {
        if self.stopping() {
            self.finish();
            return false;
        }
        let position = &self.posters[poster].count;
        let start = position.load(Relaxed);
        for number in start..start + BURST {
            post(number, number + 1 == start + BURST);
        }
        position.store(start + BURST, Relaxed);
        true
    }

    /// W3: one callback of the counter's color, the `number`-th of `poster`.
    #[inline]
    pub(crate) fn step_w3(&self, poster: usize, number: u64) {
        self.lanes[poster].step(number, self.spin);
        self.counter.step_unordered();
    }

    /// Ends a chain, a poster's burst or a thread, after its due callbacks have been added.
    fn finish(&self) {
        self.finished.0.fetch_add(1, Release);
    }

    /// Callbacks run so far, without those that only control the run.
    pub(crate) fn ops(&self) -> u64 {
        match self.case.workload {
            Workload::W3 | Workload::W3InLine => self.counter.count.load(Relaxed),
            // Each transfer counts on both of its accounts.
            Workload::W5 => self.lanes.iter().map(|lane| lane.count.load(Relaxed)).sum::<u64>() / 2,
            _ => self.lanes.iter().map(|lane| lane.count.load(Relaxed)).sum(),
        }
    }

    /// Waits until `tokens` chains have ended and everything owed has run, at most `limit`.
    pub(crate) fn settle(&self, tokens: u64, limit: Duration) -> Result<(), String> {
        let end = Instant::now() + limit;
        let mut settled = false;
        loop {
            let finished = self.finished.0.load(Acquire);
            if finished == tokens {
                if !std::mem::replace(&mut settled, true) {
                    self.settle_posted();
                }
                if self.all_lanes().all(|lane| lane.count.load(Relaxed) >= lane.due.load(Relaxed)) {
                    return Ok(());
                }
            }
            if Instant::now() > end {
                return match finished == tokens {
                    // `verify` names what is missing.
                    true => Ok(()),
                    false => Err(format!(
                        "{finished} of {tokens} chains ended within {limit:?}: callbacks were lost or starved"
                    )),
                };
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Derives the due callbacks of each color from the final positions of posters and tokens.
    fn settle_posted(&self) {
        match self.case.workload {
            Workload::W2 => {
                let (posted, lanes) = (self.posters[0].count.load(Relaxed), self.lanes.len() as u64);
                for (index, lane) in self.lanes.iter().enumerate() {
                    let extra = u64::from((index as u64) < posted % lanes);
                    lane.due.store(posted / lanes + extra, Relaxed);
                }
            }
            Workload::W3 | Workload::W3InLine => {
                for (lane, poster) in self.lanes.iter().zip(&self.posters) {
                    lane.due.store(poster.count.load(Relaxed), Relaxed);
                }
                self.counter.due.store(self.posters.iter().map(|poster| poster.count.load(Relaxed)).sum(), Relaxed);
            }
            Workload::W5 => self.settle_transfers(),
            _ => {}
        }
    }

    fn all_lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().chain([&self.counter])
    }

    /// How often a callback met an unexpected counter.
    pub(crate) fn order_breaks(&self) -> u64 {
        self.all_lanes().map(|lane| lane.breaks.load(Relaxed)).sum()
    }

    /// Whether every color ran exactly its due callbacks, at least one ran, and, if required, in
    /// order.
    pub(crate) fn verify(&self, ordered: bool) -> Result<(), String> {
        for (index, lane) in self.all_lanes().enumerate() {
            let (count, due) = (lane.count.load(Relaxed), lane.due.load(Relaxed));
            if count != due {
                return Err(format!(
                    "color {index} counted {count} callbacks and {due} were due: two overlapped, or some were lost"
                ));
            }
        }
        if self.case.workload == Workload::W5 {
            self.verify_balances()?;
        }
        match self.order_breaks() {
            breaks if ordered && breaks > 0 => Err(format!("{breaks} callbacks ran out of order")),
            _ if self.ops() == 0 => Err(NOTHING_RAN.to_owned()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(workload: Workload) -> Run {
        Run::new(Case::new(workload, Some(2), Some(1), 0), Spin::none())
    }

    #[test]
    fn right_counts_pass() {
        let run = run(Workload::W1);
        for expected in 0..3 {
            run.lanes[1].step(expected, Spin::none());
        }
        run.lanes[1].owe(3);
        run.finish();
        assert_eq!(run.settle(1, Duration::ZERO), Ok(()));
        assert_eq!(run.verify(true), Ok(()));
        assert_eq!(run.ops(), 3);
    }

    #[test]
    fn lost_update_fails() {
        let run = run(Workload::W1);
        run.lanes[0].step(0, Spin::none());
        run.lanes[0].owe(2);
        run.finish();
        assert_eq!(run.settle(1, Duration::ZERO), Ok(()));
        assert!(run.verify(false).is_err_and(|problem| problem.contains("color 0 counted 1")));
    }

    #[test]
    fn wrong_order_fails_only_where_order_is_promised() {
        let run = run(Workload::W1);
        run.lanes[0].step(1, Spin::none());
        run.lanes[0].step(0, Spin::none());
        run.lanes[0].owe(2);
        assert!(run.verify(true).is_err_and(|problem| problem.contains("out of order")));
        assert_eq!(run.verify(false), Ok(()));
    }

    #[test]
    fn nothing_run_and_nothing_finished_fail() {
        let run = run(Workload::W4);
        assert!(run.verify(true).is_err());
        assert!(run.settle(1, Duration::ZERO).is_err());
    }

    #[test]
    fn a_missing_post_fails_in_w2_and_w3() {
        let w2 = run(Workload::W2);
        w2.posters[0].count.store(3, Relaxed);
        for (lane, expected) in [(0, 0), (1, 0)] {
            w2.lanes[lane].step(expected, Spin::none());
        }
        w2.settle_posted();
        assert!(w2.verify(true).is_err_and(|problem| problem.contains("color 0 counted 1 callbacks and 2")));
        let w3 = run(Workload::W3);
        w3.posters[1].count.store(1, Relaxed);
        w3.settle_posted();
        assert!(w3.verify(true).is_err());
    }
}
