//! A place for one value, full or empty.
//!
//! Two fair semaphores carry the waiting lines, and share one permit:
//!
//! | the permit is | the slot | `value` |
//! |---|---|---|
//! | in `vacancy` | is empty, and no future waits to fill it | `None` |
//! | with a [`Vacancy`] or a `put` | is being filled | `None` |
//! | in `occupancy` | is full, and no future waits for the value | `Some` |
//! | with a `take` or a `read` | is being emptied or read | `Some` |
//!
//! The holder of the permit is alone, so `value` never waits for its lock. The semaphores pass a
//! permit granted to a dropped future on to the next waiter. From a used grant to the end of the
//! exchange there is no `.await`, so a drop cannot interrupt it.

use std::fmt;
use std::sync::{PoisonError, TryLockError};

use dapple_sched::{block_on, foreign};

use super::permits::{Mutex, MutexGuard, Semaphore, SemaphorePermit};
use super::wrapped::hosted;

/// A place for one value that is either full or empty: `put` waits until it is empty, `take` until
/// it is full.
///
/// The `MVar` of "Combining Events and Threads" (PLDI 2007): a lock (take, then put back), a
/// channel for one value (one side puts, the other takes), or a signal (`Slot<()>`), for tasks of
/// any color, callbacks (with the `try_` methods) and plain threads (with the `_blocking` methods).
/// It holds at most one value: the faster side waits.
///
/// **Fair:** takers and readers wait in one line, putters in another; a future takes its place at
/// its first poll. `try_take` and `try_put` do not overtake waiters.
///
/// **Cancel safe:** a dropped `take` or `read` has taken nothing. A dropped `put` has put nothing,
/// and drops its value; if the value must survive, await a [`Slot::reserve`] first.
///
/// ```
/// use std::sync::Arc;
/// use dapple_sync::sync::Slot;
///
/// let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
/// runtime.block_on(async {
///     let slot = Arc::new(Slot::empty());
///     let puts = dapple_sched::spawn({
///         let slot = slot.clone();
///         async move {
///             for n in 1..=10 {
///                 slot.put(n).await; // waits until the previous value is taken
///             }
///         }
///     });
///     let mut sum = 0;
///     for _ in 1..=10 {
///         sum += slot.take().await;
///     }
///     assert_eq!(sum, 55);
///     puts.await.expect("the task does not panic");
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Slot<T> {
    vacancy: Semaphore,
    occupancy: Semaphore,
    value: Mutex<Option<T>>,
}

impl<T> Slot<T> {
    /// A full slot.
    ///
    /// ```
    /// assert_eq!(dapple_sync::sync::Slot::new(7).try_take(), Some(7));
    /// ```
    pub fn new(value: T) -> Slot<T> {
        Slot { vacancy: Semaphore::new(0), occupancy: Semaphore::new(1), value: Mutex::new(Some(value)) }
    }

    /// An empty slot. It can be a `static`.
    ///
    /// ```
    /// use dapple_sync::sync::Slot;
    ///
    /// static NEWS: Slot<&str> = Slot::empty();
    /// assert_eq!(NEWS.try_take(), None);
    /// ```
    pub const fn empty() -> Slot<T> {
        Slot { vacancy: Semaphore::const_new(1), occupancy: Semaphore::const_new(0), value: Mutex::new(None) }
    }

    /// Waits until the slot is full, and empties it.
    ///
    /// Cancel safe: if dropped, it has taken nothing, and its turn goes to the next waiter.
    ///
    /// ```
    /// use dapple_sync::sync::Slot;
    ///
    /// let slot = Slot::new(7);
    /// assert_eq!(dapple_sched::block_on(slot.take()), 7);
    /// assert!(slot.is_empty());
    /// ```
    pub async fn take(&self) -> T {
        let permit = permit(&self.occupancy).await;
        self.take_with(permit)
    }

    /// Waits until the slot is empty, and fills it.
    ///
    /// Cancel safe: if dropped, it has put nothing, its turn goes to the next waiter, and the value
    /// is dropped.
    ///
    /// ```
    /// use dapple_sync::sync::Slot;
    ///
    /// let slot = Slot::empty();
    /// dapple_sched::block_on(slot.put(7));
    /// assert_eq!(slot.try_take(), Some(7));
    /// ```
    pub async fn put(&self, value: T) {
        self.reserve().await.put(value);
    }

    /// Waits until the slot is empty, and reserves it. Give a value that must not get lost with a
    /// dropped [`Slot::put`] to the [`Vacancy`] instead, which does not wait.
    ///
    /// Cancel safe: its turn goes to the next waiter.
    ///
    /// ```
    /// use dapple_sync::sync::Slot;
    ///
    /// dapple_sched::block_on(async {
    ///     let slot = Slot::empty();
    ///     let vacancy = slot.reserve().await;
    ///     assert_eq!(slot.try_put(1), Err(1));
    ///     vacancy.put(2);
    ///     assert_eq!(slot.take().await, 2);
    /// });
    /// ```
    pub async fn reserve(&self) -> Vacancy<'_, T> {
        Vacancy { permit: permit(&self.vacancy).await, slot: self }
    }

    /// Waits until the slot is full, and returns a clone of the value, which stays.
    ///
    /// It waits in the same line as takers: an earlier one may leave the slot empty, and then it
    /// waits for the next value.
    ///
    /// Cancel safe, as [`Slot::take`].
    ///
    /// # Panics
    ///
    /// If the value's `clone` does; the value stays.
    ///
    /// ```
    /// use dapple_sync::sync::Slot;
    ///
    /// let slot = Slot::new(7);
    /// assert_eq!(dapple_sched::block_on(slot.read()), 7);
    /// assert_eq!(slot.try_take(), Some(7));
    /// ```
    pub async fn read(&self) -> T
    where
        T: Clone,
    {
        // Passed to the next waiter at the end.
        let _permit = permit(&self.occupancy).await;
        self.value().clone().expect(FULL)
    }

    /// Empties the slot if it is full and no other waits for the value.
    ///
    /// ```
    /// use dapple_sync::sync::Slot;
    ///
    /// let slot = Slot::new(7);
    /// assert_eq!(slot.try_take(), Some(7));
    /// assert_eq!(slot.try_take(), None);
    /// ```
    pub fn try_take(&self) -> Option<T> {
        let permit = self.occupancy.try_acquire().ok()?;
        Some(self.take_with(permit))
    }

    /// Fills the slot if it is empty and no other waits to fill it.
    ///
    /// # Errors
    ///
    /// The value, if the slot was not filled.
    ///
    /// ```
    /// use dapple_sync::sync::Slot;
    ///
    /// let slot = Slot::empty();
    /// assert_eq!(slot.try_put(7), Ok(()));
    /// assert_eq!(slot.try_put(8), Err(8));
    /// ```
    pub fn try_put(&self, value: T) -> Result<(), T> {
        match self.vacancy.try_acquire() {
            Ok(permit) => {
                Vacancy { permit, slot: self }.put(value);
                Ok(())
            }
            Err(_) => Err(value),
        }
    }

    /// [`Slot::take`] for a plain thread.
    ///
    /// # Panics
    ///
    /// On a worker, which must not block, and while the thread holds a color.
    ///
    /// ```
    /// use std::{sync::Arc, thread};
    /// use dapple_sync::sync::Slot;
    ///
    /// let slot = Arc::new(Slot::empty());
    /// let thread = thread::spawn({
    ///     let slot = slot.clone();
    ///     move || slot.take_blocking()
    /// });
    /// slot.put_blocking(7);
    /// assert_eq!(thread.join().expect("the task does not panic"), 7);
    /// ```
    pub fn take_blocking(&self) -> T {
        block_on(self.take())
    }

    /// [`Slot::put`] for a plain thread.
    ///
    /// # Panics
    ///
    /// As [`Slot::take_blocking`].
    ///
    /// ```
    /// let slot = dapple_sync::sync::Slot::empty();
    /// slot.put_blocking(7);
    /// assert_eq!(slot.try_take(), Some(7));
    /// ```
    pub fn put_blocking(&self, value: T) {
        block_on(self.put(value));
    }

    /// [`Slot::read`] for a plain thread.
    ///
    /// # Panics
    ///
    /// As [`Slot::take_blocking`] and [`Slot::read`].
    ///
    /// ```
    /// assert_eq!(dapple_sync::sync::Slot::new(7).read_blocking(), 7);
    /// ```
    pub fn read_blocking(&self) -> T
    where
        T: Clone,
    {
        block_on(self.read())
    }

    /// Whether there is no value now; it may have changed when the caller looks.
    ///
    /// ```
    /// assert!(dapple_sync::sync::Slot::<u8>::empty().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        match self.value.try_lock() {
            Ok(value) => value.is_none(),
            Err(TryLockError::Poisoned(value)) => value.into_inner().is_none(),
            // It is being put, taken or cloned at this moment.
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// Returns the value, if there is one.
    ///
    /// ```
    /// assert_eq!(dapple_sync::sync::Slot::new(7).into_inner(), Some(7));
    /// ```
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_with(&self, permit: SemaphorePermit<'_>) -> T {
        permit.forget();
        let value = self.value().take().expect(FULL);
        // It wakes foreign wakers: a panic there must not lose the value.
        foreign::contain(|| self.vacancy.add_permits(1));
        value
    }

    /// The only foreign code that runs meanwhile is `T::clone`, which changes nothing, so poison is
    /// ignored.
    fn value(&self) -> MutexGuard<'_, Option<T>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reserved empty slot. If it is dropped, the next waiter may fill the slot.
///
/// ```
/// use dapple_sync::sync::Slot;
///
/// dapple_sched::block_on(async {
///     let slot = Slot::empty();
///     drop(slot.reserve().await);
///     slot.reserve().await.put(7);
///     assert_eq!(slot.take().await, 7);
/// });
/// ```
#[must_use = "a vacancy keeps others from filling the slot"]
pub struct Vacancy<'slot, T> {
    permit: SemaphorePermit<'slot>,
    slot: &'slot Slot<T>,
}

impl<T> Vacancy<'_, T> {
    /// Fills the slot, without waiting.
    ///
    /// ```
    /// let slot = dapple_sync::sync::Slot::empty();
    /// dapple_sched::block_on(slot.reserve()).put(7);
    /// assert_eq!(slot.try_take(), Some(7));
    /// ```
    pub fn put(self, value: T) {
        self.permit.forget();
        *self.slot.value() = Some(value);
        foreign::contain(|| self.slot.occupancy.add_permits(1));
    }
}

async fn permit(semaphore: &Semaphore) -> SemaphorePermit<'_> {
    hosted(semaphore.acquire()).await.expect("a slot's semaphores are never closed")
}

/// Shows whether it is full, as [`Slot::is_empty`] does, but not the value.
impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("is_empty", &self.is_empty()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Vacancy<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vacancy").finish_non_exhaustive()
    }
}

/// An empty slot.
impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot::empty()
    }
}

const FULL: &str = "the holder of the permit of a full slot finds its value";
