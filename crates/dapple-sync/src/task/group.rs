//! The owner of a group.

use std::fmt;
use std::ops::Deref;

use super::members::Members;

/// Tasks that end with it: none outlives its group.
///
/// What can be done with a group is in [`Members`], to which it dereferences: start members, join them, end them all.
///
/// # What is guaranteed
///
/// - **[`Group::scope`] and [`Group::try_scope`] return when all members are over**, also when the body returns early, with
///   an error, or panics: members that are left are aborted and waited for. Over means that the future, with all that it
///   owned, has been dropped. So is a member that is aborted in the middle of a scope of its own: groups that are made inside
///   of a member or of a scope count for the outer group, and end with it.
/// - **A group that is dropped**, and a scope whose future is dropped, cannot wait: it aborts its members and returns. Each
///   future is dropped in its color as soon as that has a turn; a member that is in the middle of a poll ends this poll
///   first. If the runtime stops before, all are dropped when it stops. Where that is inside of another group's member or
///   scope, that one waits for them.
/// - Nobody can become a member of a group that is over.
/// - What a member starts with `spawn` of the runtime, posts, or hands to the blocking pool is not a member.
///
/// # Panics of members
///
/// A panic of a member is the result of who joins it. One that nobody has joined when a scope ends becomes the scope's
/// panic; one in a group that is dropped goes to the runtime's panic handler.
///
/// # Cost
///
/// About twice that of a task that is spawned and joined: a member has one allocation beside its task, and takes the
/// group's lock when it starts, ends and is joined. A group inside of others takes theirs, too.
///
/// ```
/// use dapple_sync::task::Group;
///
/// struct Server {
///     connections: Group<()>, // all over when the server is dropped
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
    /// A group in the current runtime, of as many members as are wanted.
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
    #[allow(clippy::new_without_default, reason = "it needs a runtime")]
    pub fn new() -> Group<T> {
        Group { members: Members::new(None) }
    }

    /// A group in which at most `limit` members (1 at least) are alive at a time: [`Members::spawn`] waits for a place. A
    /// member has its place until it has ended; who joins it does not matter.
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

    /// The way into the group, for others: it keeps nothing alive.
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
