//! Nested groups: a group made inside another's member or scope also counts for that one.

use std::future::Future;
use std::sync::{Arc, Weak};

use super::local::WithLocal;

/// The interface between an outer group and its nested groups. Calls go from the inner to the outer
/// group without a lock, except [`Nest::end_all`], which goes inward.
pub(crate) trait Nest: Send + Sync {
    /// Adds a nested group and returns its number; `None` if this group is over.
    fn adopt(&self, inner: Weak<dyn Nest>) -> Option<usize>;

    /// Removes a nested group.
    fn release(&self, inner: usize);

    /// Whether no new members are taken.
    fn is_over(&self) -> bool;

    /// Counts one more member, of this group or a nested one. False if the group is over; then the
    /// member is not counted.
    fn begin(&self) -> bool;

    /// Counts one less.
    fn end(&self);

    /// Aborts all members, also of nested groups, and takes no new ones.
    fn end_all(&self);
}

/// A group in a type that names no lifetime, not even `dyn Nest + 'static`: rustc cannot tell that
/// a future with such a type is `Send`.
#[derive(Clone)]
pub(crate) struct Current(Arc<dyn Nest>);

crate::task_local! {
    /// The innermost group with a member or scope that is being polled or dropped.
    static CURRENT: Current;
}

/// The outer group for a new one.
pub(crate) fn current() -> Option<Arc<dyn Nest>> {
    CURRENT.try_get().ok().map(|current| current.0)
}

/// Makes groups created by the future nested in this one.
pub(crate) fn inside<F: Future>(nest: Arc<dyn Nest>, future: F) -> WithLocal<Current, F> {
    CURRENT.scope(Current(nest), future)
}
