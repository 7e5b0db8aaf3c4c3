//! What the types here are made of: tokio's, with a budget.

/// A type around one of tokio's: what does not wait is reached through it, and one can be made of the other.
macro_rules! around_tokio {
    ($(#[$doc:meta])* $name:ident [$($param:ident $(: ?$bound:ident)?)?] of $inner:ty) => {
        $(#[$doc])*
        // The same in memory as what is inside; `owned` relies on that.
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
