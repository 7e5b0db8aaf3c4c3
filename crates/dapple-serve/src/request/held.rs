//! A service with a `Clone` and `Drop` that may panic, because they are user code.

use super::caught::caught;

/// A service, or `None` if its clone panicked. Dropping it does not panic.
pub(crate) struct Held<V>(Option<V>);

impl<V> Held<V> {
    pub(crate) fn of(service: V) -> Held<V> {
        Held(Some(service))
    }

    /// The service, unless a panic destroyed it.
    pub(crate) fn into_inner(mut self) -> Option<V> {
        self.0.take()
    }
}

impl<V: Clone> Held<V> {
    /// Returns a clone, unless cloning panics.
    pub(crate) fn another(&self) -> Held<V> {
        Held(self.0.as_ref().and_then(|service| caught(|| service.clone()).ok()))
    }
}

impl<V> Drop for Held<V> {
    fn drop(&mut self) {
        // The panic hook has reported it.
        let _ = caught(|| self.0.take());
    }
}
