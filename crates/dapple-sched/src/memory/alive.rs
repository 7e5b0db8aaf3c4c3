//! A pointer with a lifetime.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

/// A pointer to something that is alive for `'a`.
///
/// Unlike a reference it may still be what the thing is freed through: it is a copy of the pointer that came from where the
/// thing was allocated.
pub(crate) struct Alive<'a, T> {
    at: NonNull<T>,
    alive: PhantomData<&'a T>,
}

impl<'a, T> Alive<'a, T> {
    /// # Safety
    /// What is there is alive for `'a`, and nothing has a `&mut` to it meanwhile.
    #[inline]
    pub(crate) unsafe fn new(at: NonNull<T>) -> Alive<'a, T> {
        Alive { at, alive: PhantomData }
    }

    #[inline]
    pub(crate) fn ptr(self) -> NonNull<T> {
        self.at
    }

    /// The same for as long as the value itself is there.
    #[inline]
    pub(crate) fn get(self) -> &'a T {
        // SAFETY: promised to `new`.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Clone for Alive<'_, T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Alive<'_, T> {}

impl<T> Deref for Alive<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.get()
    }
}

impl<T> PartialEq for Alive<'_, T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
