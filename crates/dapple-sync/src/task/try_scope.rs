//! Scopes that end at the first error.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::thread;

use dapple_sched::JoinError;
use tokio_util::sync::CancellationToken;

use super::group::Group;
use super::members::Members;
use crate::switch::Mutex;

impl<T: Send + 'static> Group<T> {
    /// As [`Group::scope`], but the first error or panic of a member ends all: the body is dropped
    /// at its current `.await`, the other members are aborted, and when they are over, the error is
    /// returned. So the body sees only results, no errors.
    ///
    /// Members still running when the body ends are aborted, whether it returns an error or not.
    ///
    /// Cancel safety: as [`Group::scope`].
    ///
    /// # Errors
    ///
    /// The first error of a member, or that of the body. If both happen at once, that of the
    /// member.
    ///
    /// # Panics
    ///
    /// With the panic of the body or the first of a member. All members are over before.
    ///
    /// ```
    /// use dapple_sync::task::Group;
    ///
    /// let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
    /// let error = runtime.block_on(Group::try_scope(|group| async move {
    ///     group.spawn(std::future::pending()).await; // aborted by the other's error
    ///     group.spawn(async { "seven".parse::<u8>() }).await;
    ///     Ok(group.join_all().await)
    /// }));
    /// assert!(error.is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn try_scope<R, E, F, Fut>(body: F) -> Result<R, E>
    where
        E: Send + 'static,
        F: FnOnce(TryMembers<T, E>) -> Fut,
        Fut: Future<Output = Result<R, E>>,
    {
        try_enclose(Group::new(), body).await
    }

    /// As [`Group::try_scope`], with at most `limit` members alive at a time; see
    /// [`Group::limited`].
    ///
    /// Cancel safety, errors and panics: as [`Group::try_scope`].
    ///
    /// ```
    /// use dapple_sync::task::Group;
    ///
    /// let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
    /// let numbers = runtime.block_on(Group::try_scope_limited(2, |group| async move {
    ///     for text in ["1", "2", "3"] {
    ///         group.spawn(async move { text.parse::<u8>() }).await;
    ///     }
    ///     Ok::<_, std::num::ParseIntError>(group.join_all().await)
    /// }));
    /// assert_eq!(numbers.map(|numbers| numbers.iter().sum::<u8>()), Ok(6));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn try_scope_limited<R, E, F, Fut>(limit: usize, body: F) -> Result<R, E>
    where
        E: Send + 'static,
        F: FnOnce(TryMembers<T, E>) -> Fut,
        Fut: Future<Output = Result<R, E>>,
    {
        try_enclose(Group::limited(limit), body).await
    }
}

async fn try_enclose<T, R, E, F, Fut>(group: Group<Option<T>>, body: F) -> Result<R, E>
where
    T: Send + 'static,
    E: Send + 'static,
    F: FnOnce(TryMembers<T, E>) -> Fut,
    Fut: Future<Output = Result<R, E>>,
{
    let failure = Arc::new(Failure { first: Mutex::new(None), happened: CancellationToken::new() });
    let watched = failure.clone();
    let output = group.enclose(|members| async move {
        let mut happened = pin!(watched.happened.clone().cancelled_owned());
        let mut body = pin!(body(TryMembers { members, failure: watched }));
        poll_fn(|cx| match happened.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => body.as_mut().poll(cx).map(Some),
        })
        .await
    });
    let output = output.await;
    match failure.take() {
        Some(First::Error(error)) => Err(error),
        Some(First::Panic(panic)) => resume_unwind(panic.into_panic()),
        // `enclose` has rethrown any panic that was not joined.
        None => output.expect(STOPPED),
    }
}

/// A handle of a group that ends at the first error; see [`Group::try_scope`]. [`Members`]
/// documents the common methods.
///
/// ```
/// use dapple_sync::task::Group;
///
/// let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// let first = runtime.block_on(Group::try_scope(|group| async move {
///     group.spawn(async { Ok::<_, String>(7) }).await;
///     group.spawn(std::future::pending()).await;
///     let first = group.join_next().await;
///     assert!(!group.is_empty() && group.len() == 1);
///     group.cancel();
///     assert!(group.token().is_cancelled());
///     Ok(first)
/// }));
/// assert_eq!(first, Ok(Some(7)));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TryMembers<T: Send + 'static, E: Send + 'static> {
    members: Members<Option<T>>,
    failure: Arc<Failure<E>>,
}

/// The cause of the group's end.
struct Failure<E> {
    first: Mutex<Option<First<E>>>,
    happened: CancellationToken,
}

enum First<E> {
    Error(E),
    /// A member's panic that was joined before the body could be dropped.
    Panic(JoinError),
}

impl<T: Send + 'static, E: Send + 'static> TryMembers<T, E> {
    /// As [`Members::spawn`], for a member that may fail.
    ///
    /// Cancel safe, as that. There is an example at [`Group::try_scope`].
    #[track_caller]
    #[must_use = "in a group with a limit, a member may start only when this is awaited"]
    pub fn spawn<F>(&self, future: F) -> impl Future<Output = ()> + Send + use<T, E, F>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let fails = Fails { members: self.members.clone(), failure: self.failure.clone() };
        self.members.spawn(async move {
            match future.await {
                Ok(value) => Some(value),
                Err(error) => {
                    fails.failure.set(First::Error(error));
                    fails.end();
                    None
                }
            }
        })
    }

    /// The next member's result, as [`Members::join_next`]. After a member has failed it never
    /// resolves: the body is about to be dropped.
    ///
    /// Cancel safe. There is an example at [`TryMembers`].
    ///
    /// # Panics
    ///
    /// If the runtime has stopped, and the member with it: its result is neither a value nor an
    /// error.
    pub fn join_next(&self) -> impl Future<Output = Option<T>> + Send + use<T, E> {
        let TryMembers { members, failure } = self.clone();
        async move {
            loop {
                match members.join_next().await {
                    None => return None,
                    Some(Ok(Some(value))) => return Some(value),
                    Some(Err(panic)) if panic.is_panic() => {
                        failure.set(First::Panic(panic));
                        failure.happened.cancel();
                        pending().await
                    }
                    // A member has failed, which ends the body; or the group was canceled.
                    Some(Ok(None)) => {}
                    Some(Err(_)) => assert!(members.is_over(), "{STOPPED}"),
                }
            }
        }
    }

    /// The results of all members, as [`Members::join_all`]. After a member has failed it never
    /// resolves.
    ///
    /// **Not** cancel safe, as that. There is an example at [`Group::try_scope`].
    ///
    /// # Panics
    ///
    /// As [`TryMembers::join_next`].
    pub fn join_all(&self) -> impl Future<Output = Vec<T>> + Send + use<T, E> {
        let members = self.clone();
        async move {
            let mut values = Vec::new();
            while let Some(value) = members.join_next().await {
                values.push(value);
            }
            values
        }
    }

    /// Aborts all members, without an error; see [`Members::cancel`], and the example at
    /// [`TryMembers`].
    pub fn cancel(&self) {
        self.members.cancel();
    }

    /// Members that have started and not ended; there is an example at [`TryMembers`].
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is no such member; there is an example at [`TryMembers`].
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// As [`Members::token`]; there is an example at [`TryMembers`].
    pub fn token(&self) -> &CancellationToken {
        self.members.token()
    }
}

/// Stays with a member, and sees its panic.
struct Fails<T: Send + 'static, E: Send + 'static> {
    members: Members<Option<T>>,
    failure: Arc<Failure<E>>,
}

impl<T: Send + 'static, E: Send + 'static> Fails<T, E> {
    fn end(&self) {
        self.failure.happened.cancel();
        self.members.cancel();
    }
}

impl<T: Send + 'static, E: Send + 'static> Drop for Fails<T, E> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.end();
        }
    }
}

impl<E> Failure<E> {
    /// Keeps only the first one.
    fn set(&self, failure: First<E>) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            *first = Some(failure);
        }
    }

    fn take(&self) -> Option<First<E>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T: Send + 'static, E: Send + 'static> Clone for TryMembers<T, E> {
    fn clone(&self) -> TryMembers<T, E> {
        TryMembers { members: self.members.clone(), failure: self.failure.clone() }
    }
}

impl<T: Send + 'static, E: Send + 'static> fmt::Debug for TryMembers<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryMembers").field("len", &self.len()).finish_non_exhaustive()
    }
}

const STOPPED: &str = "the runtime has stopped, and a member of the group with it";
