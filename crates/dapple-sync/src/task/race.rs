//! Awaits the first of two futures.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// The output of the first future to be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First<A, B> {
    /// Of the left future.
    Left(A),
    /// Of the right future.
    Right(B),
}

/// Awaits two futures, and drops the later one. If both are ready, the left one wins.
///
/// ```
/// use dapple_sync::task::{First, race};
/// use std::future::{pending, ready};
///
/// # dapple_sched::block_on(async {
/// assert_eq!(race(pending::<()>(), ready(1)).await, First::Right(1));
/// assert_eq!(race(ready(1), ready(2)).await, First::Left(1));
/// # });
/// ```
///
/// # Cancel safety
///
/// Cancel safe if both futures are.
pub async fn race<A: Future, B: Future>(left: A, right: B) -> First<A::Output, B::Output> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    let first = poll_fn(|cx| match left.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(First::Left(output)),
        Poll::Pending => right.as_mut().poll(cx).map(First::Right),
    });
    first.await
}
