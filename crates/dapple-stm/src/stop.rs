//! The ways in which a transaction fails.

use std::fmt;

/// The result of [`Tx`](crate::Tx)'s methods and of transaction closures.
pub type StmResult<T> = Result<T, Stop>;

/// The end of an attempt; pass it on with `?`. The closure runs again, at once or when that may
/// help.
///
/// Not passing it on does no harm: a failed attempt stays failed. Only a
/// [`retry`](crate::Tx::retry) that is not passed on has no effect.
///
/// ```
/// use dapple_stm::{Stop, TVar, Tx};
///
/// fn both(tx: &mut Tx, a: &TVar<i32>, b: &TVar<i32>) -> Result<i32, Stop> {
///     Ok(tx.read(a)? + tx.read(b)?)
/// }
/// # assert_eq!(dapple_stm::atomically_blocking(|tx| both(tx, &TVar::new(1), &TVar::new(2))), 3);
/// ```
#[must_use = "pass it on with `?`"]
pub struct Stop(pub(crate) Kind);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The program asked for it.
    Retry,
    /// Another transaction was faster.
    Conflict,
}

impl Stop {
    pub(crate) fn conflict() -> Stop {
        Stop(Kind::Conflict)
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stop({:?})", self.0)
    }
}

/// The reason why a closure that may give up ends: the attempt is over, or the program gives up.
///
/// ```
/// use dapple_stm::{Abort, TVar, Tx};
///
/// fn withdraw(tx: &mut Tx, account: &TVar<u64>, amount: u64) -> Result<(), Abort<String>> {
///     let balance = tx.read(account)?; // `?` makes an `Abort` of a `Stop`
///     let rest = balance.checked_sub(amount).ok_or(Abort::Error(format!("only {balance} left")))?;
///     Ok(tx.write(account, rest)?)
/// }
///
/// let account = TVar::new(5);
/// let outcome = dapple_stm::atomically_or_abort(|tx| withdraw(tx, &account, 9)).blocking();
/// assert_eq!(outcome, Err(String::from("only 5 left")));
/// ```
#[derive(Debug)]
pub enum Abort<E> {
    /// Passed on from a method of [`Tx`](crate::Tx).
    Stop(Stop),
    /// Nothing is written; the transaction returns this error.
    Error(E),
}

impl<E> From<Stop> for Abort<E> {
    fn from(stop: Stop) -> Abort<E> {
        Abort::Stop(stop)
    }
}
