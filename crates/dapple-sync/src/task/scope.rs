//! Groups opened by a function, and over when it returns.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::Poll;

use super::group::Group;
use super::members::Members;
use super::nested::inside;

impl<T: Send + 'static> Group<T> {
    /// Runs `body` with a group, and returns its output when the body and **all members are over**.
    /// Members still running when the body ends are aborted; join them first if they must finish.
    ///
    /// Cancel safety: if it is dropped, the body is dropped and the members are aborted; [`Group`]
    /// states the guarantees for that case.
    ///
    /// # Panics
    ///
    /// With the panic of the body; otherwise with the first panic of a member that was not joined.
    /// All members are over before.
    ///
    /// ```
    /// use dapple_sync::task::Group;
    ///
    /// let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
    /// let first = runtime.block_on(Group::scope(|group| async move {
    ///     group.spawn(async { "quick" }).await;
    ///     group.spawn(std::future::pending()).await; // aborted when the quick one has ended
    ///     group.join_next().await.expect("there are two members").expect("it does not panic")
    /// }));
    /// assert_eq!(first, "quick");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn scope<F, Fut>(body: F) -> Fut::Output
    where
        F: FnOnce(Members<T>) -> Fut,
        Fut: Future,
    {
        Group::new().enclose(body).await
    }

    /// As [`Group::scope`], with at most `limit` members alive at a time; see [`Group::limited`].
    ///
    /// Cancel safety and panics: as [`Group::scope`].
    ///
    /// ```
    /// use dapple_sync::task::Group;
    ///
    /// let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
    /// runtime.block_on(Group::scope_limited(3, |group| async move {
    ///     for n in 0..10 {
    ///         group.spawn(async move { n }).await;
    ///     }
    ///     assert_eq!(group.join_all().await.len(), 10);
    /// }));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn scope_limited<F, Fut>(limit: usize, body: F) -> Fut::Output
    where
        F: FnOnce(Members<T>) -> Fut,
        Fut: Future,
    {
        Group::limited(limit).enclose(body).await
    }

    pub(crate) async fn enclose<F, Fut>(self, body: F) -> Fut::Output
    where
        F: FnOnce(Members<T>) -> Fut,
        Fut: Future,
    {
        let members = self.members().clone();
        // Groups made by the body are nested in this one.
        let body = inside(members.shared.clone(), async move { body(members).await });
        let output = catch(body).await;
        self.cancel();
        self.all_ended().await;
        match output {
            Err(payload) => resume_unwind(payload),
            Ok(output) => match self.take_panic() {
                Some(panic) => resume_unwind(panic.into_panic()),
                None => output,
            },
        }
    }
}

/// Awaits a future that may panic. Drops it at the end.
async fn catch<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(output) => output.map(Ok),
        Err(payload) => Poll::Ready(Err(payload)),
    })
    .await
}
