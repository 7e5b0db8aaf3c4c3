//! The owner of a group.

use std::fmt;
use std::ops::Deref;

use super::members::Members;

/// Tasks that end with their owner: none outlives its group.
///
/// It dereferences to [`Members`], which has its methods: start members, join them, end them all.
///
/// # What is guaranteed
///
/// - **[`Group::scope`] and [`Group::try_scope`] return when all members are over**, also when the
///   body returns early, with an error, or panics: remaining members are aborted and awaited. Over
///   means that the future, with all that it owned, has been dropped. This includes a member that
///   is aborted within its own scope: groups made inside a member or a scope count for the outer
///   group, and end with it.
/// - **A group that is dropped**, and a scope with a dropped future, cannot wait: it aborts its
///   members and returns. Each future is dropped in its color, at that color's next turn; a member
///   that is being polled ends this poll first. If the runtime stops before, it drops all of them.
///   If this happens inside another group's member or scope, that one waits for them.
/// - A group that is over takes no new members.
/// - Tasks that a member starts with the runtime's `spawn`, and its posts and blocking calls, are
///   not members.
///
/// # Panics of members
///
/// A panic of a member is the result of its join. A panic not joined when a scope ends becomes the
/// scope's panic; one in a dropped group goes to the runtime's panic handler.
///
/// # Cost
///
/// About twice that of a task that is spawned and joined: a member has one more allocation than its
/// task, and takes the group's lock when it starts, ends and is joined. A nested group also takes
/// the locks of the outer ones.
///
/// ```
/// use dapple_sync::task::Group;
///
/// struct Server {
///     connections: Group<()>, // all are over when the server is dropped
/// }
///
/// let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// runtime.block_on(async {
///     let server = Server { connections: Group::limited(1_000) };
///     server.connections.spawn(std::future::pending()).await;
///     drop(server);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Group<T: Send + 'static> {
    members: Members<T>,
}

impl<T: Send + 'static> Group<T> {
    /// A group in the current runtime, without a limit on its members.
    ///
    /// # Panics
    ///
    /// If no runtime is current.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// assert!(dapple_sync::task::Group::<()>::new().is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[allow(clippy::new_without_default, reason = "a group needs a runtime")]
    pub fn new() -> Group<T> {
        Group { members: Members::new(None) }
    }

    /// A group with at most `limit` members (at least 1) alive at a time: [`Members::spawn`] waits
    /// for a place. A member keeps its place until it has ended, whether it is joined or not.
    ///
    /// # Panics
    ///
    /// If no runtime is current.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let group = dapple_sync::task::Group::limited(10);
    ///     for n in 0..100 {
    ///         group.spawn(async move { n }).await;
    ///         assert!(group.len() <= 10);
    ///     }
    ///     assert_eq!(group.join_all().await.len(), 100);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn limited(limit: usize) -> Group<T> {
        Group { members: Members::new(Some(limit)) }
    }

    /// A handle of the group, for starting and joining members; it keeps nothing alive.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// let group = dapple_sync::task::Group::<()>::new();
    /// let members = group.members().clone();
    /// drop(group);
    /// assert!(members.is_over());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn members(&self) -> &Members<T> {
        &self.members
    }
}

impl<T: Send + 'static> Deref for Group<T> {
    type Target = Members<T>;

    fn deref(&self) -> &Members<T> {
        &self.members
    }
}

impl<T: Send + 'static> Drop for Group<T> {
    fn drop(&mut self) {
        self.members.cancel();
        self.members.forget();
    }
}

impl<T: Send + 'static> fmt::Debug for Group<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("len", &self.len()).field("is_over", &self.is_over()).finish()
    }
}
