//! `TVar`: a variable of transactions.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use crate::core::Core;
use crate::pool;
use crate::running;
use crate::word::{Value, is_word};

/// A variable that transactions read and write. Clones are handles of the same variable.
///
/// A write replaces the whole value and a read clones it, so cloning should be cheap: put large
/// data into an `Arc`, and split data that changes in parts into several variables. Integers,
/// floats, `bool`, `char` and `()` need no lock and no allocation. A variable takes 64 bytes plus
/// its value and a reference count; memory of dropped variables is reused, not freed.
///
/// ```
/// use dapple_stm::{TVar, atomically_blocking};
///
/// let (from, to) = (TVar::new(100), TVar::new(0));
/// atomically_blocking(|tx| {
///     tx.modify(&from, |balance| balance - 30)?;
///     tx.modify(&to, |balance| balance + 30)
/// });
/// assert_eq!((from.load(), to.load()), (70, 30));
/// ```
pub struct TVar<T> {
    core: &'static Core,
    handle: Arc<Handle>,
    values: PhantomData<fn(T) -> T>,
}

/// Counts the handles of a variable.
struct Handle(&'static Core);

impl<T: Clone + Send + Sync + 'static> TVar<T> {
    /// Makes a variable with this value. Takes its memory under a global lock, and allocates a
    /// count of its handles.
    ///
    /// ```
    /// let name = dapple_stm::TVar::new(String::from("Ann"));
    /// assert_eq!(name.load(), "Ann");
    /// ```
    pub fn new(value: T) -> TVar<T> {
        let core = pool::take(Value::new(value));
        TVar { core, handle: Arc::new(Handle(core)), values: PhantomData }
    }

    /// The current value, outside of any transaction. A commit may come between two loads; use a
    /// transaction to read several variables consistently.
    ///
    /// It does not wait for code of the program, so workers may call it: while a transaction that
    /// will write the variable runs, it returns the value before that. During a commit, which takes
    /// some instructions, it tries again.
    ///
    /// # Panics
    ///
    /// Inside a transaction, because it would not see that transaction's writes: use
    /// [`Tx::read`](crate::Tx::read) there.
    ///
    /// ```
    /// let answer = dapple_stm::TVar::new(42);
    /// assert_eq!(answer.load(), 42);
    /// ```
    pub fn load(&self) -> T {
        running::assert_outside("TVar::load", "read it with `Tx::read`");
        self.core.read_committed(is_word::<T>()).get()
    }

    /// Whether both are handles of the same variable.
    ///
    /// ```
    /// use dapple_stm::TVar;
    ///
    /// let (one, other) = (TVar::new(1), TVar::new(1));
    /// assert!(one.is_same(&one.clone()));
    /// assert!(!one.is_same(&other));
    /// ```
    pub fn is_same(&self, other: &TVar<T>) -> bool {
        ptr::eq(self.core, other.core)
    }

    /// The number of transactions that wait for a change of the variable now.
    ///
    /// ```
    /// assert_eq!(dapple_stm::TVar::new(1).waiters(), 0);
    /// ```
    pub fn waiters(&self) -> usize {
        self.core.waiter_count()
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &'static Core {
        self.core
    }
}

impl<T> Clone for TVar<T> {
    fn clone(&self) -> TVar<T> {
        TVar { core: self.core, handle: self.handle.clone(), values: PhantomData }
    }
}

impl<T: Clone + Send + Sync + Default + 'static> Default for TVar<T> {
    fn default() -> TVar<T> {
        TVar::new(T::default())
    }
}

impl<T> fmt::Debug for TVar<T> {
    // Not the value: a transaction may print a variable, and must not call `load`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TVar").field("address", &ptr::from_ref(self.core)).finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        running::give_back(self.0);
    }
}
