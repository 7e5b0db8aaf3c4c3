//! Groups inside of groups: a group that is made inside of another's member, or of its scope, counts for that one, too.

use std::future::Future;
use std::sync::{Arc, Weak};

use super::local::WithLocal;

/// What an outer group and the groups inside of it know of each other. Calls go from the inside to the outside while
/// nothing is locked, but for [`Nest::end_all`], which goes to the inside.
pub(crate) trait Nest: Send + Sync {
    /// A group is inside of this one from now on; its number, or `None` if this one is over.
    fn adopt(&self, inner: Weak<dyn Nest>) -> Option<usize>;

    /// It is not any more.
    fn release(&self, inner: usize);

    /// Nobody can become a member any more.
    fn is_over(&self) -> bool;

    /// A member more, of this group or of one inside of it. False: the group is over, and nothing is counted.
    fn begin(&self) -> bool;

    /// One less.
    fn end(&self);

    /// Aborts all members, and those of the groups inside; nobody can become one any more.
    fn end_all(&self);
}

/// A group in a type that names no lifetime, not even `dyn Nest + 'static`: of a future in which one is, rustc cannot tell
/// that it is `Send`.
#[derive(Clone)]
pub(crate) struct Current(Arc<dyn Nest>);

crate::task_local! {
    /// The innermost group whose member or scope is being polled or dropped.
    static CURRENT: Current;
}

/// The group that a new one is inside of.
pub(crate) fn current() -> Option<Arc<dyn Nest>> {
    CURRENT.try_get().ok().map(|current| current.0)
}

/// Lets groups that the future makes be inside of this one.
pub(crate) fn inside<F: Future>(nest: Arc<dyn Nest>, future: F) -> WithLocal<Current, F> {
    CURRENT.scope(Current(nest), future)
}
