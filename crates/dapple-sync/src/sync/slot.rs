//! A place for one value, full or empty.
//!
//! Two fair semaphores carry the lines of those who wait, and one permit between them goes around:
//!
//! | the permit is | the slot | `value` |
//! |---|---|---|
//! | in `vacancy` | is empty, and nobody waits to fill it | `None` |
//! | with a [`Vacancy`] or a `put` | is being filled | `None` |
//! | in `occupancy` | is full, and nobody waits for the value | `Some` |
//! | with a `take` or a `read` | is being emptied or read | `Some` |
//!
//! Whoever has the permit is alone, so `value` never waits for its lock. What is granted to a future that is dropped goes
//! to the next in line, as semaphores do it; from a grant that is used to the end of the exchange there is no `.await`,
//! so nothing can be dropped half way.

use std::fmt;
use std::sync::{PoisonError, TryLockError};

use dapple_sched::{block_on, foreign};

use super::permits::{Mutex, MutexGuard, Semaphore, SemaphorePermit};
use super::wrapped::hosted;

/// A place for one value that is either full or empty: `put` waits until it is empty, `take` until it is full.
///
/// The `MVar` of "Combining Events and Threads" (PLDI 2007): a lock (take, then put back), a channel for one
/// value (one side puts, the other takes), or a signal (`Slot<()>`), for tasks of any color, callbacks (with the `try_`
/// forms) and plain threads (with the `_blocking` forms). It holds one value at most: who is faster waits.
///
/// **Fair:** those who take or read stand in one line, those who put in another; the place in line is that of a future's
/// first poll. `try_take` and `try_put` do not go before those who wait.
///
/// **Cancel safe:** a `take` or `read` that is dropped has taken nothing. A `put` that is dropped has put nothing, and its
/// value is dropped with it; where the value must survive, await a [`Slot::reserve`] first.
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
///                 slot.put(n).await; // waits until the one before is taken
///             }
///         }
///     });
///     let mut sum = 0;
///     for _ in 1..=10 {
///         sum += slot.take().await;
///     }
///     assert_eq!(sum, 55);
///     puts.await.expect("it does not panic");
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

    /// An empty slot. It can stand in a `static`.
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
    /// Cancel safe: if it is dropped, it has taken nothing, and its turn goes to the next in line.
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
    /// Cancel safe: if it is dropped, it has put nothing, its turn goes to the next in line, and the value is dropped.
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

    /// Waits until the slot is empty, and keeps it for the caller: what must not get lost with a dropped [`Slot::put`] is
    /// given to the [`Vacancy`] instead, which does not wait.
    ///
    /// Cancel safe: its turn goes to the next in line.
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

    /// Waits until the slot is full, and yields a clone of the value, which stays.
    ///
    /// It stands in the same line as those who take: one who came before it may leave the slot empty, and it waits for the
    /// next value.
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
        // Given back at the end, to the next in line.
        let _permit = permit(&self.occupancy).await;
        self.value().clone().expect(FULL)
    }

    /// Empties the slot if it is full and nobody waits for the value.
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

    /// Fills the slot if it is empty and nobody waits to fill it.
    ///
    /// # Errors
    ///
    /// The value, if not.
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
    /// On a worker, which must not wait, and while the thread holds a color.
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
    /// assert_eq!(thread.join().expect("it does not panic"), 7);
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

    /// Yields the value, if there is one.
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
        // It wakes foreign wakers: a panic there must not take the value along.
        foreign::contain(|| self.vacancy.add_permits(1));
        value
    }

    /// The only code of others that runs meanwhile is `T::clone`, which changes nothing: poison means nothing here.
    fn value(&self) -> MutexGuard<'_, Option<T>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An empty slot that is kept for whoever has this. If it is dropped, the next in line may fill the slot.
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
#[must_use = "it keeps others from filling the slot"]
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
    hosted(semaphore.acquire()).await.expect("nobody closes a slot's semaphores")
}

/// Says whether it is full, as [`Slot::is_empty`] does, and not what with.
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

/// An empty one.
impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot::empty()
    }
}

const FULL: &str = "whoever has the permit of a full slot finds its value";
