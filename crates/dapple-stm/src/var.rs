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
/// The value is replaced as a whole and cloned by reads, so it should be cheap to clone: what is large belongs into an
/// `Arc`, and what is changed in parts into several variables. Integers, floats, `bool`, `char` and `()` take no lock and
/// no allocation. A variable takes 64 bytes beside its value and a reference count; the memory of variables that are gone
/// is used for new ones, and not given back.
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
    /// A variable with this value. Takes its memory under a lock that all share, and allocates a count of its handles.
    ///
    /// ```
    /// let name = dapple_stm::TVar::new(String::from("Ann"));
    /// assert_eq!(name.load(), "Ann");
    /// ```
    pub fn new(value: T) -> TVar<T> {
        let core = pool::take(Value::new(value));
        TVar { core, handle: Arc::new(Handle(core)), values: PhantomData }
    }

    /// The value now, outside of any transaction. Two loads may have a commit between them; what belongs together is read
    /// in a transaction.
    ///
    /// It does not wait for code of the program, so it may be called on workers: while a transaction runs that will write the
    /// variable, the value is the one before. While one commits, which takes some instructions, it tries again.
    ///
    /// # Panics
    ///
    /// Within a transaction, which would not see what it has written itself: use [`Tx::read`](crate::Tx::read) there.
    ///
    /// ```
    /// let answer = dapple_stm::TVar::new(42);
    /// assert_eq!(answer.load(), 42);
    /// ```
    pub fn load(&self) -> T {
        running::assert_outside("TVar::load", "read it with `Tx::read`");
        self.core.read_committed(is_word::<T>()).get()
    }

    /// Whether two handles are of the same variable.
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

    /// How many transactions wait for a change of the variable, at this moment.
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
    // Not the value: a variable may be printed within a transaction, where `load` has no place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TVar").field("address", &ptr::from_ref(self.core)).finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        running::give_back(self.0);
    }
}
