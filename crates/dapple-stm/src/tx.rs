//! `Tx`: a running transaction.
//!
//! An attempt reads without locks, buffers its writes, and commits at the end: it locks the
//! variables that it writes in the order of addresses, checks that its reads have not changed,
//! writes, and unlocks. No transaction waits while it holds a lock, except the one on the serial
//! path (`gate`).
//!
//! **Opacity.** After every single read, all reads of an attempt were current together at some
//! moment. A read of a version above the mark checks all earlier reads. A version up to the mark
//! needs no check: its writer had locked all its variables before the mark was read, so any other
//! variable of that commit is locked or new for this attempt.

use std::mem;
use std::sync::Arc;

use crate::core::{Core, LOCKED, WAITED, version, word_of};
use crate::gate::Pass;
use crate::log::{Entry, Log, address};
use crate::running;
use crate::shared;
use crate::signal::Signal;
use crate::stop::{Abort, Kind, StmResult, Stop};
use crate::sync::{FEW_READS, LOOKS, pause, rest};
use crate::var::TVar;
use crate::wait::Wait;
use crate::word::{Shared, Value, is_word};

/// A running transaction: the argument of the closure of [`atomically`](crate::atomically).
///
/// All its reads are consistent, even in an attempt that will fail; its writes become visible all
/// at once. Its methods fail with [`Stop`], which the closure passes on with `?`.
///
/// ```
/// use dapple_stm::{StmResult, TVar, Tx, atomically_blocking};
///
/// // Usable in any transaction.
/// fn withdraw(tx: &mut Tx, account: &TVar<u64>, amount: u64) -> StmResult<()> {
///     let balance = tx.read(account)?;
///     tx.check(balance >= amount)?; // waits until there is enough
///     tx.write(account, balance - amount)
/// }
///
/// let account = TVar::new(10);
/// atomically_blocking(|tx| withdraw(tx, &account, 3));
/// assert_eq!(account.load(), 7);
/// ```
pub struct Tx {
    /// `Some` until its drop.
    log: Option<Box<Log>>,
    /// The clock, before the first read.
    mark: u64,
    /// A read has failed: the attempt is over, whatever its closure returns.
    doomed: bool,
    /// On the serial path.
    pass: Option<Pass>,
    /// The waiters of written variables.
    woken: Vec<Arc<Signal>>,
    /// The replaced values.
    old: Vec<Shared>,
}

impl Tx {
    #[inline]
    pub(crate) fn begin(pass: Option<Pass>) -> Tx {
        let log = Some(running::begin());
        Tx { log, mark: shared::clock(), doomed: false, pass, woken: Vec::new(), old: Vec::new() }
    }

    #[inline(always)]
    fn log(&mut self) -> &mut Log {
        self.log.as_mut().expect("a transaction has its log until it is dropped")
    }

    /// Returns the value of a variable, as this transaction sees it. The n-th read compares with up
    /// to 16 earlier ones; a check of all of them is rarely needed.
    ///
    /// # Errors
    ///
    /// [`Stop`] if the value is not consistent with earlier reads. Pass it on; the closure runs
    /// again.
    ///
    /// ```
    /// use dapple_stm::{TVar, atomically_blocking};
    ///
    /// let (a, b) = (TVar::new(1), TVar::new(2));
    /// assert_eq!(atomically_blocking(|tx| Ok(tx.read(&a)? + tx.read(&b)?)), 3);
    /// ```
    #[inline]
    pub fn read<T: Clone + Send + Sync + 'static>(&mut self, var: &TVar<T>) -> StmResult<T> {
        if self.doomed {
            return Err(Stop::conflict());
        }
        let core = var.core();
        let Some(index) = self.log().find(core) else {
            return Ok(self.first_read(var, is_word::<T>())?.get());
        };
        let entry = &mut self.log().entries[index];
        if let Some(value) = &entry.pending {
            return Ok(value.get());
        }
        let value = core.value(is_word::<T>());
        let (word, owned) = (entry.word, entry.owned);
        // A value that was written and rolled back has not been read or checked before.
        let checked = mem::replace(&mut entry.read, true);
        if (owned || core.unchanged(word)) && (checked || self.in_time(index, word)) {
            return Ok(value.get());
        }
        Err(self.fail())
    }

    #[inline(always)]
    fn first_read<T: Clone + Send + Sync + 'static>(&mut self, var: &TVar<T>, in_word: bool) -> StmResult<Value> {
        let core = var.core();
        if self.pass.is_some() {
            self.own(core, true);
            return Ok(core.value(in_word));
        }
        let Some((value, word)) = core.read(in_word) else {
            return Err(self.fail());
        };
        let index = self.log().push(Entry { core, word, read: true, owned: false, pending: None });
        if self.in_time(index, word) { Ok(value) } else { Err(self.fail()) }
    }

    /// Whether a read under this word is consistent with earlier reads.
    #[inline(always)]
    fn in_time(&mut self, index: usize, word: u64) -> bool {
        version(word) <= self.mark || self.pass.is_some() || self.catch_up(index, word)
    }

    /// As `in_time`, for a variable that is newer than the mark.
    #[inline]
    fn catch_up(&mut self, index: usize, word: u64) -> bool {
        let entries = self.log().entries.len();
        if entries > FEW_READS {
            // Far ahead, so that versions met in ascending order do not each cause a check of all
            // reads.
            let mark = shared::move_clock(version(word) + entries as u64);
            let checked = self.unchanged();
            self.mark = mark;
            return checked;
        }
        self.log().entries.iter().enumerate().all(|(other, entry)| other == index || entry.core.unchanged(entry.word))
    }

    fn unchanged(&mut self) -> bool {
        self.log().entries.iter().all(|entry| entry.owned || entry.core.unchanged(entry.word))
    }

    /// Writes a variable; does not depend on its previous value.
    ///
    /// A value that this attempt wrote earlier is dropped here, inside the transaction: its
    /// destructor must not run a transaction.
    ///
    /// # Errors
    ///
    /// As [`read`](Tx::read).
    ///
    /// ```
    /// use dapple_stm::{TVar, atomically_blocking};
    ///
    /// let greeting = TVar::new(String::new());
    /// atomically_blocking(|tx| tx.write(&greeting, String::from("hello")));
    /// assert_eq!(greeting.load(), "hello");
    /// ```
    #[inline]
    pub fn write<T: Clone + Send + Sync + 'static>(&mut self, var: &TVar<T>, value: T) -> StmResult<()> {
        if self.doomed {
            return Err(Stop::conflict());
        }
        let index = match self.log().find(var.core()) {
            Some(index) => index,
            None => self.first_write(var)?,
        };
        self.log().set(index, Value::new(value));
        Ok(())
    }

    fn first_write<T: Clone + Send + Sync + 'static>(&mut self, var: &TVar<T>) -> StmResult<usize> {
        let core = var.core();
        if self.pass.is_some() {
            return Ok(self.own(core, false));
        }
        // The version counts although the value does not: the variable may have been freed, and
        // another may have its memory.
        let mut word = core.word();
        for look in 0..LOOKS {
            if word & LOCKED == 0 {
                break;
            }
            pause(look.min(16));
            word = core.word();
        }
        if word & LOCKED != 0 {
            return Err(self.fail());
        }
        Ok(self.log().push(Entry { core, word, read: false, owned: false, pending: None }))
    }

    /// On the serial path: locks a variable, waiting if necessary.
    fn own(&mut self, core: &'static Core, read: bool) -> usize {
        for turn in 0.. {
            if let Some(word) = core.try_keep() {
                return self.log().push(Entry { core, word, read, owned: true, pending: None });
            }
            rest(turn);
        }
        unreachable!("others lock a variable for a bounded time")
    }

    /// Replaces the value by the result of `change`.
    ///
    /// # Errors
    ///
    /// As [`read`](Tx::read).
    ///
    /// ```
    /// use dapple_stm::{TVar, atomically_blocking};
    ///
    /// let hits = TVar::new(1);
    /// atomically_blocking(|tx| tx.modify(&hits, |hits| hits + 1));
    /// assert_eq!(hits.load(), 2);
    /// ```
    #[inline]
    pub fn modify<T: Clone + Send + Sync + 'static>(
        &mut self,
        var: &TVar<T>,
        change: impl FnOnce(T) -> T,
    ) -> StmResult<()> {
        let value = self.read(var)?;
        self.write(var, change(value))
    }

    /// Writes a variable and returns its previous value.
    ///
    /// # Errors
    ///
    /// As [`read`](Tx::read).
    ///
    /// ```
    /// use dapple_stm::{TVar, atomically_blocking};
    ///
    /// let slot = TVar::new(Some("a letter"));
    /// let taken = atomically_blocking(|tx| tx.replace(&slot, None));
    /// assert_eq!((taken, slot.load()), (Some("a letter"), None));
    /// ```
    #[inline]
    pub fn replace<T: Clone + Send + Sync + 'static>(&mut self, var: &TVar<T>, value: T) -> StmResult<T> {
        let before = self.read(var)?;
        self.write(var, value)?;
        Ok(before)
    }

    /// Gives up this attempt and waits until a variable that it has read changes; then the closure
    /// runs again.
    ///
    /// # Errors
    ///
    /// Always; pass it on with `?`. The innermost [`or_else`](Tx::or_else) around it tries its
    /// alternative instead.
    ///
    /// ```
    /// use dapple_stm::{TVar, atomically_blocking};
    ///
    /// let door = TVar::new(false);
    /// std::thread::scope(|threads| {
    ///     threads.spawn(|| atomically_blocking(|tx| if tx.read(&door)? { Ok(()) } else { tx.retry() }));
    ///     atomically_blocking(|tx| tx.write(&door, true));
    /// });
    /// ```
    pub fn retry<T>(&mut self) -> StmResult<T> {
        Err(if self.doomed { Stop::conflict() } else { Stop(Kind::Retry) })
    }

    /// [`retry`](Tx::retry) unless `condition` holds.
    ///
    /// # Errors
    ///
    /// If `condition` is false.
    ///
    /// ```
    /// use dapple_stm::{TVar, atomically_blocking};
    ///
    /// let free = TVar::new(3);
    /// atomically_blocking(|tx| {
    ///     let now = tx.read(&free)?;
    ///     tx.check(now > 0)?;
    ///     tx.write(&free, now - 1)
    /// });
    /// assert_eq!(free.load(), 2);
    /// ```
    pub fn check(&mut self, condition: bool) -> StmResult<()> {
        if condition { Ok(()) } else { self.retry() }
    }

    /// Tries `first`; if it retries, undoes its writes and tries `second`. If both retry, the
    /// transaction waits for the reads of both.
    ///
    /// # Errors
    ///
    /// If both fail, or if one fails for another reason than [`retry`](Tx::retry).
    ///
    /// ```
    /// use dapple_stm::{TVar, atomically_blocking};
    ///
    /// let (empty, full) = (TVar::new(0), TVar::new(1));
    /// let taken = atomically_blocking(|tx| {
    ///     let take = |from: TVar<i32>| move |tx: &mut dapple_stm::Tx| {
    ///         let there = tx.replace(&from, 0)?;
    ///         tx.check(there > 0)?;
    ///         Ok(there)
    ///     };
    ///     tx.or_else(take(empty.clone()), take(full.clone()))
    /// });
    /// assert_eq!(taken, 1);
    /// ```
    pub fn or_else<T>(
        &mut self,
        first: impl FnOnce(&mut Tx) -> StmResult<T>,
        second: impl FnOnce(&mut Tx) -> StmResult<T>,
    ) -> StmResult<T> {
        match self.undone_on_error(first) {
            Err(Stop(Kind::Retry)) => self.undone_on_error(second),
            result => result,
        }
    }

    /// Runs an inner transaction that can fail alone: if it fails with its own error
    /// ([`Abort::Error`]), its writes are undone, and the outer one continues with the error.
    ///
    /// # Errors
    ///
    /// [`Stop`] for the transaction as a whole; the inner error is in the result.
    ///
    /// ```
    /// use dapple_stm::{Abort, TVar, atomically_blocking};
    ///
    /// let balance = TVar::new(5);
    /// let outcome = atomically_blocking(|tx| {
    ///     tx.nested(|tx| {
    ///         tx.modify(&balance, |balance| balance - 9)?;
    ///         if tx.read(&balance)? < 0 { Err(Abort::Error("too little")) } else { Ok(()) }
    ///     })
    /// });
    /// assert_eq!((outcome, balance.load()), (Err("too little"), 5));
    /// ```
    pub fn nested<T, E>(&mut self, inner: impl FnOnce(&mut Tx) -> Result<T, Abort<E>>) -> StmResult<Result<T, E>> {
        match self.undone_on_error(inner) {
            Ok(value) => Ok(Ok(value)),
            Err(Abort::Error(error)) => Ok(Err(error)),
            Err(Abort::Stop(stop)) => Err(stop),
        }
    }

    /// Undoes the writes on an error, even if that is not passed on.
    fn undone_on_error<T, E>(&mut self, inner: impl FnOnce(&mut Tx) -> Result<T, E>) -> Result<T, E> {
        let savepoint = self.log().save();
        let result = inner(self);
        self.log().end(savepoint, result.is_err());
        result
    }

    #[cold]
    fn fail(&mut self) -> Stop {
        self.doomed = true;
        Stop::conflict()
    }

    pub(crate) fn is_doomed(&self) -> bool {
        self.doomed
    }

    /// The attempt has failed: releases its locks, and pauses at random, longer after more
    /// failures.
    #[cold]
    pub(crate) fn fell_behind(&mut self, failures: u32) {
        self.unlock();
        let rounds = self.log().random_below(8 << failures.min(7));
        pause(rounds);
    }

    /// Makes all writes visible at once; false if a value that was read has changed.
    #[inline]
    pub(crate) fn commit(&mut self) -> bool {
        if self.doomed {
            return false;
        }
        // Only reads: they were current together at the last of them.
        if self.log().writes.is_empty() {
            return true;
        }
        if self.pass.is_none() && !self.lock_writes() {
            return false;
        }
        let clock = shared::clock();
        let log = self.log.as_mut().expect("a transaction has its log until it is dropped");
        let owned_all = log.writes.len() == log.entries.len() || self.pass.is_some();
        if !owned_all && !log.entries.iter().all(|entry| entry.owned || entry.core.unchanged(entry.word)) {
            return false;
        }
        let newest = log.writes.iter().map(|&index| version(log.entries[index as usize].word)).max();
        let new = word_of(newest.unwrap_or(0).max(clock) + 1);
        if self.pass.is_some() {
            // All of them before the first write: a load that has seen one new value finds no old
            // one.
            log.writes
                .iter()
                .map(|&index| &log.entries[index as usize])
                .for_each(|entry| entry.core.begin_change(entry.word));
        }
        // All are locked, so they may be unlocked one by one: a reader of one new value finds the
        // others locked or new.
        for &index in &log.writes {
            let entry = &mut log.entries[index as usize];
            if let Some(value) = entry.pending.take() {
                self.old.extend(entry.core.write(value));
            }
            entry.owned = false;
            entry.core.unlock(new);
            if entry.word & WAITED != 0 {
                self.woken.extend(entry.core.take_waiters());
            }
        }
        true
    }

    /// Locks the variables to write, unless they have changed.
    #[inline(always)]
    fn lock_writes(&mut self) -> bool {
        let Log { entries, writes, .. } =
            &mut **self.log.as_mut().expect("a transaction has its log until it is dropped");
        if writes.len() > 1 {
            // Of two commits with the same variables, one gets the first lock and so all.
            writes.sort_unstable_by_key(|&index| address(entries[index as usize].core));
        }
        for &index in &*writes {
            let entry = &mut entries[index as usize];
            let Some(word) = entry.core.try_lock(Some(entry.word)) else {
                return false;
            };
            // With the mark of the waiters.
            entry.word = word;
            entry.owned = true;
        }
        true
    }

    /// Releases the locks of unwritten variables.
    #[inline]
    fn unlock(&mut self) {
        for entry in self.log().entries.iter_mut().filter(|entry| entry.owned) {
            entry.owned = false;
            entry.core.unlock(entry.word);
        }
    }

    /// Waits for the variables read; `None` if one has changed already.
    pub(crate) fn wait(&mut self) -> Option<Wait> {
        self.unlock();
        let reads = || self.log.iter().flat_map(|log| &log.entries).filter(|entry| entry.read);
        assert!(reads().next().is_some(), "a transaction retried before it had read a variable: nothing could wake it");
        Wait::begin(reads().map(|entry| (entry.core, entry.word)))
    }
}

impl Drop for Tx {
    /// Also when the closure panics.
    #[inline]
    fn drop(&mut self) {
        self.unlock();
        self.pass = None;
        running::end();
        // From here on user code runs: wakers, and destructors of values.
        self.woken.drain(..).for_each(|signal| signal.set());
        if let Some(mut log) = self.log.take() {
            log.clear();
            running::keep(log);
        }
    }
}
