//! W5: accounts held two at a time, and their required contents at the end.
//!
//! A transfer reads both accounts, works, and writes both, so that two transfers that overlap on an
//! account lose a count, a unit, or both. The accounts of a transfer are a function of its token
//! and its number, so the due counts are computed afterwards and cost the run nothing.

use super::{Lane, Run};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The content of every account at the start.
const OPENING_BALANCE: u64 = 1_000;

/// The transfers of one token; written once, when it ends.
#[derive(Default)]
pub(super) struct Token {
    transfers: AtomicU64,
}

/// The two accounts of a transfer: different, otherwise random. If colors were never held together,
/// or always in the same pairs, the task would be easier than in real programs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Pair {
    /// Loses a unit.
    pub(crate) from: u32,
    /// Gains it.
    pub(crate) to: u32,
}

impl Pair {
    /// The accounts of the `number`-th transfer of a token, among this many.
    #[inline]
    fn of(token: u32, number: u64, accounts: usize) -> Pair {
        let mut bits = (u64::from(token) << 40).wrapping_add(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        let below = |bits: u64, limit: usize| (((bits & 0xFFFF_FFFF) * limit as u64) >> 32) as u32;
        let from = below(bits >> 32, accounts);
        let other = below(bits, accounts - 1);
        Pair { from, to: other + u32::from(other >= from) }
    }

    /// The lower account and the higher: the order in which locks must be taken.
    #[inline]
    pub(crate) fn in_order(self) -> (u32, u32) {
        (self.from.min(self.to), self.from.max(self.to))
    }
}

impl Lane {
    /// An account with its opening balance.
    pub(super) fn account() -> Lane {
        Lane { balance: AtomicU64::new(OPENING_BALANCE), ..Lane::default() }
    }
}

impl Run {
    /// W5: the accounts of a token's `number`-th transfer.
    #[inline]
    pub(crate) fn pair(&self, token: u32, number: u64) -> Pair {
        Pair::of(token, number, self.case.colors)
    }

    /// W5: one transfer, by the holder of both accounts.
    #[inline]
    pub(crate) fn transfer(&self, pair: Pair) {
        let (from, to) = (&self.lanes[pair.from as usize], &self.lanes[pair.to as usize]);
        let (from_count, to_count) = (from.count.load(Relaxed), to.count.load(Relaxed));
        let (from_balance, to_balance) = (from.balance.load(Relaxed), to.balance.load(Relaxed));
        self.spin.run();
        // No transfer is refused for lack of units: balances go below zero and wrap.
        from.balance.store(from_balance.wrapping_sub(1), Relaxed);
        to.balance.store(to_balance.wrapping_add(1), Relaxed);
        from.count.store(from_count + 1, Relaxed);
        to.count.store(to_count + 1, Relaxed);
    }

    /// W5: ends a token after this many transfers.
    pub(crate) fn end_w5(&self, token: u32, transfers: u64) {
        self.tokens[token as usize].transfers.store(transfers, Relaxed);
        self.finish();
    }

    /// How often each account must have been held, according to the tokens.
    pub(super) fn settle_transfers(&self) {
        let mut due = vec![0; self.lanes.len()];
        for (token, ended) in self.tokens.iter().enumerate() {
            for number in 0..ended.transfers.load(Relaxed) {
                let pair = self.pair(token as u32, number);
                due[pair.from as usize] += 1;
                due[pair.to as usize] += 1;
            }
        }
        for (lane, due) in self.lanes.iter().zip(due) {
            lane.due.store(due, Relaxed);
        }
    }

    /// Whether no unit was gained or lost.
    pub(super) fn verify_balances(&self) -> Result<(), String> {
        let sum = self.lanes.iter().fold(0_u64, |sum, lane| sum.wrapping_add(lane.balance.load(Relaxed)));
        let due = OPENING_BALANCE * self.lanes.len() as u64;
        match sum == due {
            true => Ok(()),
            false => Err(format!(
                "the accounts hold {} units instead of {due}: two transfers overlapped on an account",
                sum.cast_signed()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::case::{Case, Workload};
    use super::super::super::spin::Spin;
    use super::*;

    fn run(accounts: usize) -> Run {
        Run::new(Case::new(Workload::W5, Some(accounts), Some(2), 0), Spin::none())
    }

    #[test]
    fn pairs_are_distinct_in_range_and_reach_all_accounts() {
        for accounts in [2, 3, 4, 1_000] {
            let mut held = vec![0; accounts];
            for number in 0..20_000 {
                let pair = Pair::of(3, number, accounts);
                assert_ne!(pair.from, pair.to);
                held[pair.from as usize] += 1;
                held[pair.to as usize] += 1;
            }
            let fair = 40_000 / accounts;
            assert!(held.iter().all(|held| (fair / 3..fair * 2).contains(held)), "{held:?}");
        }
    }

    #[test]
    fn right_transfers_pass() {
        let run = run(3);
        for (token, transfers) in [(0, 5), (1, 7)] {
            (0..transfers).for_each(|number| run.transfer(run.pair(token, number)));
            run.end_w5(token, transfers);
        }
        run.settle_transfers();
        assert_eq!(run.verify(true), Ok(()));
        assert_eq!(run.ops(), 12);
    }

    #[test]
    fn a_lost_transfer_fails() {
        let run = run(3);
        run.transfer(run.pair(0, 0));
        run.end_w5(0, 2);
        run.settle_transfers();
        assert!(run.verify(true).is_err_and(|problem| problem.contains("were due")));
    }

    #[test]
    fn a_lost_unit_fails() {
        let run = run(2);
        run.transfer(run.pair(0, 0));
        run.end_w5(0, 1);
        run.settle_transfers();
        run.lanes[0].balance.store(0, Relaxed);
        assert!(run.verify(true).is_err_and(|problem| problem.contains("instead of 2000")));
    }

    #[test]
    fn nothing_run_fails() {
        let run = run(2);
        run.end_w5(0, 0);
        run.settle_transfers();
        assert!(run.verify(true).is_err());
    }
}
