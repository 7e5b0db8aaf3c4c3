//! The wrapper of tokio's types: adds a budget, and contains panics of wakers.
//!
//! Where tokio wakes several waiters, it calls their wakers in a loop, and a panic ends that loop:
//! the later ones would never be woken.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use dapple_sched::{foreign, poll_budgeted};
use pin_project_lite::pin_project;

/// Declares a wrapper of a tokio type: `Deref` gives its other methods, and conversions exist both
/// ways.
macro_rules! around_tokio {
    ($(#[$doc:meta])* $name:ident [$($param:ident $(: ?$bound:ident)?)?] of $inner:ty) => {
        $(#[$doc])*
        // The same layout as the inner type; `owned` relies on that.
        #[repr(transparent)]
        pub struct $name $(<$param $(: ?$bound)?>)? ($inner);

        impl $(<$param $(: ?$bound)?>)? std::ops::Deref for $name $(<$param>)? {
            type Target = $inner;

            fn deref(&self) -> &$inner {
                &self.0
            }
        }

        impl $(<$param $(: ?$bound)?>)? std::ops::DerefMut for $name $(<$param>)? {
            fn deref_mut(&mut self) -> &mut $inner {
                &mut self.0
            }
        }

        impl $(<$param>)? From<$inner> for $name $(<$param>)? {
            fn from(inner: $inner) -> Self {
                $name(inner)
            }
        }

        impl $(<$param>)? From<$name $(<$param>)?> for $inner {
            fn from(outer: $name $(<$param>)?) -> Self {
                outer.0
            }
        }

        impl $(<$param $(: ?$bound)?>)? std::fmt::Debug for $name $(<$param>)?
        where
            $inner: std::fmt::Debug,
        {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}
pub(super) use around_tokio;

/// Polls tokio's future as Dapple's own: it uses the budget, and keeps a waker with contained
/// panics.
#[inline]
pub(super) fn poll_hosted<R>(cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<R>) -> Poll<R> {
    poll_budgeted(cx, |cx| foreign::with_contained(cx, poll))
}

/// [`poll_hosted`] for a future.
pub(super) fn hosted<F: Future>(future: F) -> Hosted<F> {
    Hosted { future }
}

pin_project! {
    /// The future of [`hosted`].
    pub(super) struct Hosted<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Hosted<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        poll_hosted(cx, |cx| self.project().future.poll(cx))
    }
}
