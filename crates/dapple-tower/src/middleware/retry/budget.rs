//! The budget of retries, as a share of first attempts.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::switch::{Mutex, lock};
use crate::time::now;

/// Limits retries to a share of the requests, so that they do not add to the cause of the failures:
/// each request deposits, each retry withdraws, and deposits expire. As tower's `TpsBudget` and
/// finagle's. Clones share one budget: use one for all requests to the same destination.
///
/// ```
/// use std::time::Duration;
/// use dapple_tower::middleware::retry::Budget;
///
/// // One retry for five requests of the last ten seconds, and no reserve.
/// let budget = Budget::new(Duration::from_secs(10), 0, 0.2);
/// assert!(!budget.withdraw());
/// (0..5).for_each(|_| budget.deposit());
/// assert!(budget.withdraw());
/// assert!(!budget.withdraw());
/// ```
#[derive(Clone)]
pub struct Budget {
    tokens: Arc<Mutex<Tokens>>,
}

impl Budget {
    /// In each period of `ttl` (1 s to 60 s): `retry_share` of its requests (0 to 1,000; 0.2 is one
    /// for five), and `min_per_s` retries a second as a reserve, for clients that send few
    /// requests.
    ///
    /// # Panics
    ///
    /// If one of them is out of its range.
    pub fn new(ttl: Duration, min_per_s: u32, retry_share: f32) -> Budget {
        let range = Duration::from_secs(1)..=Duration::from_secs(60);
        assert!(range.contains(&ttl), "the period of a retry budget is {ttl:?}: choose from 1 s to 60 s");
        assert!((0.0..=1000.0).contains(&retry_share), "the share of retries is {retry_share}: choose from 0 to 1,000");
        Budget { tokens: Arc::new(Mutex::new(Tokens::new(ttl, min_per_s, retry_share.into(), now()))) }
    }

    /// Records a request.
    pub fn deposit(&self) {
        lock(&self.tokens).deposit(now());
    }

    /// Takes a retry out of the budget; false if none is left.
    pub fn withdraw(&self) -> bool {
        lock(&self.tokens).withdraw(now())
    }

    /// The number of retries that could be withdrawn now.
    pub fn balance(&self) -> u64 {
        lock(&self.tokens).balance(now())
    }
}

/// A fifth of the requests of the last 10 s, and ten retries a second as a reserve.
impl Default for Budget {
    fn default() -> Budget {
        Budget::new(Duration::from_secs(10), 10, 0.2)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("balance", &self.balance()).finish_non_exhaustive()
    }
}

/// The budget with the time as an argument: deposits and withdrawals in slots of a tenth of the
/// period.
struct Tokens {
    slots: [Slot; SLOTS],
    /// The slot that is being filled, counted from the start.
    current: u64,
    start: Instant,
    slot_len: Duration,
    /// In thousandths of a retry, as all amounts.
    reserve: u64,
    deposit: u64,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    deposited: u64,
    withdrawn: u64,
}

impl Tokens {
    fn new(ttl: Duration, min_per_s: u32, retry_share: f64, now: Instant) -> Tokens {
        let reserve = (f64::from(min_per_s) * ttl.as_secs_f64() * RETRY as f64).round() as u64;
        let deposit = (retry_share * RETRY as f64).round() as u64;
        let slots = [Slot::default(); SLOTS];
        Tokens { slots, current: 0, start: now, slot_len: ttl / SLOTS as u32, reserve, deposit }
    }

    fn deposit(&mut self, now: Instant) {
        let amount = self.deposit;
        let slot = self.slot(now);
        slot.deposited = slot.deposited.saturating_add(amount);
    }

    fn withdraw(&mut self, now: Instant) -> bool {
        let is_covered = self.balance(now) > 0;
        if is_covered {
            self.slot(now).withdrawn += RETRY;
        }
        is_covered
    }

    fn balance(&mut self, now: Instant) -> u64 {
        self.slot(now);
        let sum = |of: fn(&Slot) -> u64| self.slots.iter().map(of).fold(0, u64::saturating_add);
        let income = sum(|slot| slot.deposited).saturating_add(self.reserve);
        income.saturating_sub(sum(|slot| slot.withdrawn)) / RETRY
    }

    /// The current slot; clears expired ones.
    fn slot(&mut self, now: Instant) -> &mut Slot {
        let passed = now.saturating_duration_since(self.start).as_nanos() / self.slot_len.as_nanos();
        let number = u64::try_from(passed).unwrap_or(u64::MAX).max(self.current);
        let stale = (number - self.current).min(SLOTS as u64);
        (number - stale + 1..=number).for_each(|number| self.slots[(number % SLOTS as u64) as usize] = Slot::default());
        self.current = number;
        &mut self.slots[(number % SLOTS as u64) as usize]
    }
}

const SLOTS: usize = 10;
/// One retry, in thousandths.
const RETRY: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_reserve_is_there_without_requests_and_comes_back() {
        let start = Instant::now();
        let mut tokens = Tokens::new(SECOND, 5, 1.0, start);
        assert!((0..5).all(|_| tokens.withdraw(start)));
        assert!(!tokens.withdraw(start));
        assert!(!tokens.withdraw(start + SECOND * 9 / 10));
        assert_eq!(tokens.balance(start + SECOND), 5);
    }

    #[test]
    fn deposits_expire() {
        let start = Instant::now();
        let mut tokens = Tokens::new(10 * SECOND, 0, 0.5, start);
        (0..10).for_each(|_| tokens.deposit(start));
        assert_eq!(tokens.balance(start + 9 * SECOND), 5);
        assert_eq!(tokens.balance(start + 10 * SECOND), 0);
        (0..10).for_each(|_| tokens.deposit(start + 1_000 * SECOND));
        assert_eq!(tokens.balance(start + 1_000 * SECOND), 5);
        assert_eq!(tokens.balance(start + 99_999 * SECOND), 0);
    }

    #[test]
    fn a_clock_that_goes_back_does_no_harm() {
        let start = Instant::now() + SECOND;
        let mut tokens = Tokens::new(SECOND, 0, 1.0, start);
        tokens.deposit(start + SECOND);
        tokens.deposit(start);
        assert_eq!(tokens.balance(start - SECOND), 2);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Deposit,
        Withdraw,
        Wait(u64),
    }

    proptest! {
        /// Over any nine tenths of the period, retries never exceed the deposits of twice that time
        /// plus the reserve; and if even the shortest window covers a retry, it is never refused.
        #[test]
        fn retries_stay_within_the_share(
            steps in proptest::collection::vec(prop_oneof![
                3 => Just(Step::Deposit),
                3 => Just(Step::Withdraw),
                1 => (0_u64..3_000).prop_map(Step::Wait),
            ], 1..400),
            min_per_s in 0_u32..3,
            percent in 0_u64..300,
        ) {
            let start = Instant::now();
            let ttl = 5 * SECOND;
            let mut tokens = Tokens::new(ttl, min_per_s, percent as f64 / 100.0, start);
            let (mut at, mut deposits, mut retries) = (0, Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Wait(ms) => at += ms,
                    Step::Deposit => {
                        tokens.deposit(start + Duration::from_millis(at));
                        deposits.push(at);
                    }
                    Step::Withdraw => {
                        let within = |list: &[u64], ms: u64| list.iter().filter(|then| at - **then < ms).count() as u64;
                        let reserve = u64::from(min_per_s) * 5_000;
                        let at_least = (within(&deposits, 4_500) * percent * 10 + reserve) / 1_000;
                        let at_most = (within(&deposits, 10_000) * percent * 10 + reserve) / 1_000;
                        if tokens.withdraw(start + Duration::from_millis(at)) {
                            retries.push(at);
                            prop_assert!(within(&retries, 4_500) <= at_most);
                        } else {
                            prop_assert!(within(&retries, 5_000) >= at_least, "refused although covered");
                        }
                    }
                }
            }
        }
    }
}
