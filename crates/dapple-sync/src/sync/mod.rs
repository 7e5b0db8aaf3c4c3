//! Locks, channels and slots: for tasks of any color, and for plain threads.
//!
//! All types except [`Slot`] and [`Limit`] are those of `tokio::sync`, with a
//! [budget](dapple_sched::poll_budget). They need no tokio runtime, have the same methods, and
//! convert from and to tokio's through `From` and `Into`, for libraries that ask for those. A wait
//! suspends the task; its worker and its color continue with other work.
//!
//! # What to use when
//!
//! | purpose | type | alternative |
//! |---|---|---|
//! | change state from many tasks | [`Colored`](dapple_sched::Colored) | [`Mutex`] only if it must stay locked across an `.await` |
//! | read state much more often than change it | [`Colored::read`](dapple_sched::Colored::read) | [`RwLock`] only if it must stay locked across an `.await` |
//! | change several states together | [`when`](dapple_sched::when) with their colors, which cannot deadlock | two `Mutex`es, which can |
//! | run things one at a time and in order | one [`Color`](dapple_sched::Color) for all of them | |
//! | wait until a condition may hold | [`Notify`] | [`watch`] if there is a value to observe |
//! | admit at most N at a time | [`Semaphore`] | [`Limit`], with a bounded queue, if the number of callers is not the program's choice |
//! | start N tasks at the same moment | [`Barrier`] | |
//! | make a value once, on first use | [`OnceCell`] | [`SetOnce`] where other code makes it |
//! | pass values from many to one, with a bound | [`mpsc::channel`] | [`Color::post`](dapple_sched::Color::post) if the receiver would only loop |
//! | answer once | [`oneshot`] | awaiting the [`JoinHandle`](dapple_sched::JoinHandle) of the task that makes the answer |
//! | send every value to every receiver | [`broadcast`] | |
//! | send the latest value to every receiver | [`watch`] | |
//! | hand over one value at a time, either side waiting | [`Slot`], the papers' `MVar` | |
//!
//! **When a color is better.** A lock is state that several tasks wait for. A color is that, too,
//! but code cannot forget to take it or hold it across an `.await` by mistake, several are held
//! without deadlock, and [`Handle::dump`](dapple_sched::Handle::dump) shows its holder and its
//! waiters. Use a `Mutex` if a task must exclude others while *it* waits, for example for a reply
//! on the connection that the lock guards. Use a channel where values must be kept until a receiver
//! wants them. Where the receiver would handle each value at once in a loop, posting to its color
//! does the same with less.
//!
//! # From plain threads
//!
//! Some types have methods for threads that are not workers, such as
//! [`Mutex::blocking_lock`](tokio::sync::Mutex::blocking_lock) and
//! [`mpsc::Receiver::blocking_recv`](tokio::sync::mpsc::Receiver::blocking_recv). For all others,
//! [`block_on`](dapple_sched::block_on) (in the crate `dapple`: `dapple::wait`) waits for the
//! future on the thread. **On a worker, use `.await` instead**: `block_on` and the `_blocking`
//! methods of [`Slot`] refuse to run there; tokio's `blocking_` methods do not notice, and block
//! the worker.
//!
//! # What differs from tokio
//!
//! A task that always finds a channel or a lock ready yields after 128 times, as inside tokio. That
//! budget belongs to the task, and also counts closures of a state, reads of a socket and joins.
//!
//! [`Barrier`], [`OnceCell`] and [`SetOnce`] are tokio's own, without a budget, as there: a caller
//! that finds one of them ready has no reason to poll it again.
//!
//! # Examples
//!
//! A mutex, a semaphore and a barrier:
//!
//! ```
//! use std::sync::Arc;
//! use dapple_sync::sync::{Barrier, Mutex, Semaphore};
//!
//! let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
//! runtime.block_on(async {
//!     let shared = Arc::new((Mutex::new(0), Semaphore::new(2), Barrier::new(3)));
//!     let tasks = [1, 2, 3].map(|n| {
//!         let shared = shared.clone();
//!         dapple_sched::spawn(async move {
//!             let (sum, gate, all_here) = &*shared;
//!             all_here.wait().await;
//!             let _one_of_two = gate.acquire().await.expect("the semaphore stays open");
//!             *sum.lock().await += n;
//!         })
//!     });
//!     for task in tasks {
//!         task.await.expect("no task panics");
//!     }
//!     assert_eq!(*shared.0.lock().await, 6);
//! });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Channels, with a plain thread at one end:
//!
//! ```
//! use dapple_sync::sync::{broadcast, mpsc, oneshot, watch};
//!
//! let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
//! runtime.block_on(async {
//!     let (tx, mut rx) = mpsc::channel(4);
//!     let thread = std::thread::spawn(move || (1..=100).for_each(|n| tx.blocking_send(n).expect("a receiver is left")));
//!     let mut sum = 0;
//!     while let Some(n) = rx.recv().await {
//!         sum += n;
//!     }
//!     assert_eq!(sum, 5_050);
//!     thread.join().expect("the thread does not panic");
//!
//!     let (tx, rx) = oneshot::channel();
//!     dapple_sched::spawn(async move { tx.send("answer") });
//!     assert_eq!(rx.await, Ok("answer"));
//!
//!     let (tx, mut one) = broadcast::channel(16);
//!     let mut other = tx.subscribe();
//!     tx.send('a').expect("two receive");
//!     assert_eq!((one.recv().await, other.recv().await), (Ok('a'), Ok('a')));
//!
//!     let (tx, mut rx) = watch::channel(0);
//!     tx.send(1).expect("one watches");
//!     tx.send(2).expect("one watches");
//!     rx.changed().await.expect("the sender exists");
//!     assert_eq!(*rx.borrow(), 2); // only the latest
//! });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A value made once, a value with many readers, and a wait for a condition:
//!
//! ```
//! use std::sync::Arc;
//! use dapple_sync::sync::{Notify, OnceCell, RwLock};
//!
//! let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
//! runtime.block_on(async {
//!     let cell = OnceCell::new();
//!     assert_eq!(cell.get_or_init(async || 7).await, &7);
//!     assert_eq!(cell.get_or_init(async || unreachable!()).await, &7);
//!
//!     let ready = Arc::new((RwLock::new(false), Notify::new()));
//!     let waits = dapple_sched::spawn({
//!         let ready = ready.clone();
//!         async move {
//!             loop {
//!                 let notified = ready.1.notified(); // before the look, so that no change is missed
//!                 if *ready.0.read().await {
//!                     break;
//!                 }
//!                 notified.await;
//!             }
//!         }
//!     });
//!     *ready.0.write().await = true;
//!     ready.1.notify_waiters();
//!     waits.await.expect("the task does not panic");
//! });
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod broadcast;
pub mod limit;
mod lock;
pub mod mpsc;
pub mod oneshot;
mod owned;
mod permits;
mod slot;
pub mod watch;
mod wrapped;

pub use limit::Limit;
pub use lock::{Mutex, Notified, Notify, OwnedSemaphorePermit, RwLock, Semaphore};
pub use owned::OwnedNotified;
pub use slot::{Slot, Vacancy};
#[doc(no_inline)]
pub use tokio::sync::{
    AcquireError, Barrier, BarrierWaitResult, MappedMutexGuard, MutexGuard, OnceCell, RwLockMappedWriteGuard,
    RwLockReadGuard, RwLockWriteGuard, SemaphorePermit, SetError, SetOnce, SetOnceError, TryAcquireError, TryLockError,
};
