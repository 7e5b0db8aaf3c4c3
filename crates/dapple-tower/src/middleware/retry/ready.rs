//! A policy for general use.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{Budget, Policy};
use crate::backoff::Backoff;
use crate::random::Random;
use crate::time::Sleep;
use crate::{BoxError, Reason, Refused};

/// A number of attempts with growing waits, within a [`Budget`], for requests that can be cloned.
///
/// The [`Judge`] decides which requests are retried: by default ([`ByError`]) after every error
/// except those that another attempt would only make worse. The wait is that of the backoff, or the
/// time in a [`Refused`] if that is longer. If that exceeds [`Attempts::wait_max`], the refusal is
/// returned instead.
///
/// ```
/// use std::time::Duration;
/// use dapple_tower::{Backoff, BoxError};
/// use dapple_tower::middleware::retry::{Attempts, Budget, Verdict};
///
/// let policy = Attempts::new(4)
///     .backoff(Backoff::new(Duration::from_millis(50), Duration::from_secs(5)))
///     .budget(Budget::default())
///     .judge(|result: Result<&u16, &BoxError>| match result {
///         Ok(502..=504) | Err(_) => Verdict::Again,
///         Ok(_) => Verdict::Done,
///     });
/// # let _ = policy;
/// ```
#[derive(Clone, Debug)]
pub struct Attempts<J = ByError> {
    attempts_max: u32,
    backoff: Backoff,
    wait_max: Duration,
    budget: Option<Budget>,
    judge: J,
    /// The attempts of this request. Each request has a clone.
    attempts: u32,
}

impl Attempts {
    /// At most this many attempts, including the first; waits from 10 ms to 1 s, half of it random.
    pub fn new(attempts_max: u32) -> Attempts {
        Attempts {
            attempts_max,
            backoff: Backoff::new(Duration::from_millis(10), Duration::from_secs(1)),
            wait_max: Duration::from_secs(10),
            budget: None,
            judge: ByError,
            attempts: 0,
        }
    }
}

impl<J> Attempts<J> {
    /// Sets the waits.
    pub fn backoff(self, backoff: Backoff) -> Attempts<J> {
        Attempts { backoff, ..self }
    }

    /// Sets the budget, which others may share. Default: none, so every request may use all its
    /// attempts.
    pub fn budget(self, budget: Budget) -> Attempts<J> {
        Attempts { budget: Some(budget), ..self }
    }

    /// Sets the longest wait that a refusal may ask for. Default: 10 s.
    pub fn wait_max(self, wait_max: Duration) -> Attempts<J> {
        Attempts { wait_max, ..self }
    }

    /// Sets the judge of retries.
    pub fn judge<K>(self, judge: K) -> Attempts<K> {
        let Attempts { attempts_max, backoff, wait_max, budget, attempts, .. } = self;
        Attempts { attempts_max, backoff, wait_max, budget, judge, attempts }
    }

    /// The wait before the next attempt, if there is one.
    fn next_wait(&mut self, verdict: Verdict) -> Option<Duration> {
        self.attempts += 1;
        if let (1, Some(budget)) = (self.attempts, &self.budget) {
            budget.deposit();
        }
        let asked = match verdict {
            Verdict::Done => return None,
            Verdict::Again => Duration::ZERO,
            Verdict::After(wait) => wait,
        };
        if self.attempts >= self.attempts_max || asked > self.wait_max {
            return None;
        }
        if self.budget.as_ref().is_some_and(|budget| !budget.withdraw()) {
            return None;
        }
        // Added, not compared: callers that got the same time from a refusal must not return
        // together.
        let wait = self.backoff.random_wait(self.attempts - 1, &mut Random::fresh());
        Some(asked.saturating_add(wait))
    }
}

impl<Req, Res, J> Policy<Req, Res> for Attempts<J>
where
    Req: Clone,
    J: Judge<Res>,
{
    type Future = Waiting;

    fn retry(&mut self, _: &mut Req, result: &mut Result<Res, BoxError>) -> Option<Waiting> {
        let verdict = self.judge.judge(result);
        self.next_wait(verdict).map(|wait| Waiting(Sleep::new(wait)))
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        // Not for the last attempt, which needs no copy.
        (self.attempts + 1 < self.attempts_max).then(|| request.clone())
    }
}

/// Judges retries. Closures implement it.
pub trait Judge<Res> {
    /// The verdict on this result.
    fn judge(&self, result: &Result<Res, BoxError>) -> Verdict;
}

/// The decision after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Return the result.
    Done,
    /// Try again.
    Again,
    /// Try again, but not before this time has passed.
    After(Duration),
}

impl<Res, F: Fn(Result<&Res, &BoxError>) -> Verdict> Judge<Res> for F {
    fn judge(&self, result: &Result<Res, BoxError>) -> Verdict {
        self(result.as_ref())
    }
}

/// Every error is tried again, a [`Refused`] after its time, except a refusal for being too late. A
/// service that shuts down may be one of several, or have a successor, so its refusals are tried
/// again.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByError;

impl<Res> Judge<Res> for ByError {
    fn judge(&self, result: &Result<Res, BoxError>) -> Verdict {
        let Err(error) = result else { return Verdict::Done };
        match Refused::find(&**error) {
            Some(Refused { reason: Reason::Deadline, .. }) => Verdict::Done,
            Some(refused) => Verdict::After(refused.retry_after),
            None => Verdict::Again,
        }
    }
}

/// The wait before the next attempt of [`Attempts`]. Cancel safe: if dropped, the wait ends.
#[must_use = "futures do nothing unless awaited"]
pub struct Waiting(Sleep);

impl Future for Waiting {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Waiting").field(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn refused(reason: Reason, retry_after: Duration) -> Result<(), BoxError> {
        Err(Refused::new(reason, retry_after).into())
    }

    #[test]
    fn waits_grow_and_end() {
        let mut policy = Attempts::new(4).backoff(Backoff::new(SECOND, 3 * SECOND).jitter(0.0));
        let waits: Vec<_> = (0..5).map(|_| policy.next_wait(Verdict::Again)).collect();
        assert_eq!(waits, [Some(SECOND), Some(2 * SECOND), Some(3 * SECOND), None, None]);
    }

    #[test]
    fn what_a_refusal_asks_for_is_waited_unless_it_is_too_long() {
        let mut policy = Attempts::new(9).backoff(Backoff::new(Duration::ZERO, Duration::ZERO)).wait_max(5 * SECOND);
        assert_eq!(policy.next_wait(ByError.judge(&refused(Reason::Rate, 5 * SECOND))), Some(5 * SECOND));
        assert_eq!(policy.next_wait(ByError.judge(&refused(Reason::Rate, 6 * SECOND))), None);
        assert_eq!(ByError.judge(&refused(Reason::Deadline, SECOND)), Verdict::Done);
        assert_eq!(ByError.judge(&refused(Reason::Stopping, SECOND)), Verdict::After(SECOND));
        assert_eq!(ByError.judge(&Ok(())), Verdict::Done);
    }

    #[test]
    fn one_attempt_is_no_retry_and_copies_nothing() {
        struct NeverCloned;
        impl Clone for NeverCloned {
            fn clone(&self) -> NeverCloned {
                panic!("the request is sent only once")
            }
        }
        for attempts in [0, 1] {
            let mut policy = Attempts::new(attempts);
            let copy: Option<NeverCloned> = Policy::<_, ()>::clone_request(&mut policy, &NeverCloned);
            assert!(copy.is_none());
            assert_eq!(policy.next_wait(Verdict::Again), None);
        }
    }

    #[test]
    fn the_budget_gets_one_deposit_for_each_request_and_pays_for_each_retry() {
        let budget = Budget::new(10 * SECOND, 0, 0.5);
        let policy = Attempts::new(3).budget(budget.clone());
        for _ in 0..10 {
            assert_eq!(policy.clone().next_wait(Verdict::Done), None);
        }
        assert_eq!(budget.balance(), 5);
        let mut of_one = policy.clone();
        assert!(of_one.next_wait(Verdict::Again).is_some());
        assert!(of_one.next_wait(Verdict::Again).is_some());
        assert_eq!(budget.balance(), 3);
    }
}
