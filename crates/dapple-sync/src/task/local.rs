//! Values that belong to a task, or to a part of it.
//!
//! A value lives in the future that carries it. While that is polled or dropped, the value is in a
//! thread-local; afterwards the previous value is back there. So tasks store nothing, and code
//! without such values pays nothing.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::switch::ThreadKey;

/// Declares a [`LocalKey`]: a value that each task, or part of one, has for itself.
///
/// ```
/// dapple_sync::task_local! {
///     /// The name of the user who asked.
///     pub static USER: String;
///     static DEPTH: u32;
/// }
///
/// let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// let greeting = runtime.spawn(USER.scope("Ann".to_owned(), async {
///     dapple_sched::yield_now().await;
///     USER.with(|user| format!("hello {user}"))
/// }));
/// assert_eq!(runtime.block_on(greeting).unwrap(), "hello Ann");
/// assert!(DEPTH.try_get().is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
#[macro_export]
macro_rules! task_local {
    () => {};
    ($(#[$attribute:meta])* $visible:vis static $name:ident: $type:ty; $($rest:tt)*) => {
        $crate::task_local!($(#[$attribute])* $visible static $name: $type);
        $crate::task_local!($($rest)*);
    };
    ($(#[$attribute:meta])* $visible:vis static $name:ident: $type:ty) => {
        $(#[$attribute])*
        $visible static $name: $crate::task::LocalKey<$type> = {
            $crate::__place_of_a_value!($type);
            $crate::task::LocalKey::new(&VALUE)
        };
    };
}

/// The key of a value of the running task; [`task_local!`](crate::task_local) declares it and has
/// an example.
///
/// A value exists only inside [`LocalKey::scope`]: spawned tasks and posted callbacks do not
/// inherit it, as they do not inherit the color.
pub struct LocalKey<T: 'static> {
    value: &'static ThreadKey<RefCell<Option<T>>>,
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(value: &'static ThreadKey<RefCell<Option<T>>>) -> LocalKey<T> {
        LocalKey { value }
    }

    /// Runs a future with this value: in each of its polls, and when it is dropped. Scopes of the
    /// same key can be nested; the innermost counts.
    ///
    /// As cancel safe as the future; the value is dropped after it.
    ///
    /// # Panics
    ///
    /// When it is polled inside a [`LocalKey::with`] of the same key.
    ///
    /// ```
    /// dapple_sync::task_local! {
    ///     static DEPTH: u32;
    /// }
    ///
    /// dapple_sched::block_on(DEPTH.scope(1, async {
    ///     assert_eq!(DEPTH.get(), 1);
    ///     DEPTH.scope(2, async { assert_eq!(DEPTH.get(), 2) }).await;
    ///     assert_eq!(DEPTH.get(), 1);
    /// }));
    /// ```
    pub fn scope<F: Future>(&'static self, value: T, future: F) -> WithLocal<T, F> {
        WithLocal { key: self, value: Some(value), future: Some(future) }
    }

    /// Calls a function with this value.
    ///
    /// # Panics
    ///
    /// Inside a [`LocalKey::with`] of the same key.
    ///
    /// ```
    /// dapple_sync::task_local! {
    ///     static DEPTH: u32;
    /// }
    ///
    /// assert_eq!(DEPTH.sync_scope(3, || DEPTH.get()), 3);
    /// ```
    pub fn sync_scope<R>(&'static self, value: T, function: impl FnOnce() -> R) -> R {
        let mut value = Some(value);
        let _swapped = Swapped::new(self, &mut value).expect(LOOKED_AT);
        function()
    }

    /// Calls `look` with the value.
    ///
    /// # Panics
    ///
    /// Outside of every scope of this key; see [`LocalKey::try_with`].
    ///
    /// ```
    /// dapple_sync::task_local! {
    ///     static NAME: String;
    /// }
    ///
    /// assert_eq!(NAME.sync_scope("Ann".to_owned(), || NAME.with(|name| name.len())), 3);
    /// ```
    pub fn with<R>(&'static self, look: impl FnOnce(&T) -> R) -> R {
        self.try_with(look).expect("a task-local value is used outside of its scope; use try_with if that is expected")
    }

    /// Calls `look` with the value.
    ///
    /// # Errors
    ///
    /// Outside of every scope of this key.
    ///
    /// ```
    /// dapple_sync::task_local! {
    ///     static DEPTH: u32;
    /// }
    ///
    /// assert!(DEPTH.try_with(|depth| *depth).is_err());
    /// assert_eq!(DEPTH.sync_scope(3, || DEPTH.try_with(|depth| *depth)), Ok(3));
    /// ```
    pub fn try_with<R>(&'static self, look: impl FnOnce(&T) -> R) -> Result<R, NoValue> {
        self.value.try_with(|value| value.borrow().as_ref().map(look)).ok().flatten().ok_or(NoValue(()))
    }

    /// A clone of the value.
    ///
    /// # Panics
    ///
    /// As [`LocalKey::with`].
    ///
    /// ```
    /// dapple_sync::task_local! {
    ///     static DEPTH: u32;
    /// }
    ///
    /// assert_eq!(DEPTH.sync_scope(3, || DEPTH.get()), 3);
    /// ```
    pub fn get(&'static self) -> T
    where
        T: Clone,
    {
        self.with(T::clone)
    }

    /// A clone of the value.
    ///
    /// # Errors
    ///
    /// As [`LocalKey::try_with`].
    ///
    /// ```
    /// dapple_sync::task_local! {
    ///     static DEPTH: u32;
    /// }
    ///
    /// assert!(DEPTH.try_get().is_err());
    /// assert_eq!(DEPTH.sync_scope(3, || DEPTH.try_get()), Ok(3));
    /// ```
    pub fn try_get(&'static self) -> Result<T, NoValue>
    where
        T: Clone,
    {
        self.try_with(T::clone)
    }
}

impl<T> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKey").finish_non_exhaustive()
    }
}

/// There is no value, because no scope of the key is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoValue(());

impl fmt::Display for NoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no scope of this task-local value is open")
    }
}

impl Error for NoValue {}

pin_project! {
    /// A future with its own value; see [`LocalKey::scope`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct WithLocal<T: 'static, F> {
        key: &'static LocalKey<T>,
        // `None` while it is in the thread-local.
        value: Option<T>,
        // `None` after its drop.
        #[pin]
        future: Option<F>,
    }

    impl<T: 'static, F> PinnedDrop for WithLocal<T, F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if this.future.is_some() {
                let _swapped = Swapped::new(this.key, this.value);
                this.future.set(None);
            }
        }
    }
}

impl<T: 'static, F: Future> Future for WithLocal<T, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let _swapped = Swapped::new(this.key, this.value).expect(LOOKED_AT);
        let future = this.future.as_mut().as_pin_mut().expect("a future is not polled after it was ready");
        let output = future.poll(cx);
        if output.is_ready() {
            // Its destructors see the value, too.
            this.future.set(None);
        }
        output
    }
}

impl<T, F> fmt::Debug for WithLocal<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithLocal").finish_non_exhaustive()
    }
}

/// Swaps a value with the thread's, and swaps them back on drop.
struct Swapped<'value, T: 'static> {
    key: &'static LocalKey<T>,
    value: &'value mut Option<T>,
}

impl<'value, T> Swapped<'value, T> {
    /// `None` on a thread that is ending, and inside a `with` of the same key, which borrows the
    /// thread's value.
    fn new(key: &'static LocalKey<T>, value: &'value mut Option<T>) -> Option<Swapped<'value, T>> {
        swap(key, value).then_some(())?;
        Some(Swapped { key, value })
    }
}

impl<T> Drop for Swapped<'_, T> {
    fn drop(&mut self) {
        swap(self.key, self.value);
    }
}

fn swap<T>(key: &'static LocalKey<T>, value: &mut Option<T>) -> bool {
    let swapped = key.value.try_with(|place| match place.try_borrow_mut() {
        Ok(mut place) => {
            std::mem::swap(&mut *place, value);
            true
        }
        Err(_) => false,
    });
    swapped.unwrap_or(false)
}

const LOOKED_AT: &str = "a scope is entered inside a `with` of the same task-local value, or while its thread ends";
