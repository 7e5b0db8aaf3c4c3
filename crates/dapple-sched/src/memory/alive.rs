//! A pointer with a lifetime.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

/// A pointer to a value that is alive for `'a`.
///
/// Unlike a reference, it may still be used to free the value: it is a copy of the pointer that the
/// allocation returned.
pub(crate) struct Alive<'a, T> {
    at: NonNull<T>,
    alive: PhantomData<&'a T>,
}

impl<'a, T> Alive<'a, T> {
    /// # Safety
    /// The value is alive for `'a`, and no `&mut` to it exists meanwhile.
    #[inline]
    pub(crate) unsafe fn new(at: NonNull<T>) -> Alive<'a, T> {
        Alive { at, alive: PhantomData }
    }

    #[inline]
    pub(crate) fn ptr(self) -> NonNull<T> {
        self.at
    }

    /// A reference for as long as the value lives.
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
