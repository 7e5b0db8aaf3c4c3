//! Locks of byte ranges, and of whole files (`flock`), that programs take.
//!
//! The server has them, so that they hold among all mounts; this side knows which they are, to give them back when a program closes a
//! file, and to take them again from a server that started anew.

use std::sync::Arc;
use std::time::Duration;

use dapple::blocking::spawn_blocking;
use dapple::task::{First, race};
use dapple::time::sleep;
use dapple_sched::environment::{HashMap, HashSet};
use rustix::io::Errno;

use super::Shared;
use super::calls::Outcome;
use crate::lock::lock;
use crate::ranges::{LAST, Range, Ranges};
use crate::wire::{Action, Answer};

/// The locks of this mount.
#[derive(Default)]
pub(super) struct Locks {
    /// By the kernel's numbers of the file and of the owner.
    held: HashMap<u64, Ranges<u64>>,
    /// Files that are being closed, the locks of which go with that.
    closing: HashMap<u64, usize>,
    /// Files with a lock that another mount took while the server started anew.
    lost: HashSet<u64>,
}

/// A file that is being closed.
pub(super) struct Closing {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Closing {
    fn drop(&mut self) {
        let mut locks = lock(&self.shared.locks);
        if let Some(count) = locks.closing.get_mut(&self.number) {
            *count -= 1;
            if *count == 0 {
                locks.closing.remove(&self.number);
            }
        }
    }
}

impl Shared {
    /// Locks a range; with `waits`, the thread of a program waits for it until a signal comes.
    pub(super) async fn lock_range(
        &self,
        (number, handle, owner): (u64, u64, u64),
        range: Range,
        waits: Option<u32>,
    ) -> Outcome<()> {
        loop {
            // Otherwise its end might be heard of before the answer.
            let is_closing = lock(&self.locks).closing.contains_key(&number);
            match self.with_handle(handle, Action::Lock { handle, owner, range }, &[]).await? {
                (Answer::Done, _) => {
                    lock(&self.locks).held.entry(number).or_default().set(owner, range);
                    return Ok(());
                }
                (Answer::Locked(_), _) if is_closing => sleep(CLOSING_LOOK).await,
                (Answer::Locked(_), _) => match waits {
                    None => return Err(Errno::AGAIN.raw_os_error()),
                    Some(thread) => {
                        let wait = Action::AwaitLock { handle, owner, range, seconds: WAIT_S };
                        let is_free = async { self.with_handle(handle, wait, &[]).await.map(drop) };
                        let signaled = async {
                            await_signal(thread).await;
                            Err(Errno::INTR.raw_os_error())
                        };
                        match race(is_free, signaled).await {
                            First::Left(outcome) | First::Right(outcome) => outcome?,
                        }
                    }
                },
                _ => return Err(Errno::PROTO.raw_os_error()),
            }
        }
    }

    pub(super) async fn unlock_range(
        &self,
        (number, handle, owner): (u64, u64, u64),
        start: u64,
        end: u64,
    ) -> Outcome<()> {
        {
            let mut locks = lock(&self.locks);
            if let Some(held) = locks.held.get_mut(&number) {
                held.clear(owner, start, end);
                if held.is_empty() {
                    locks.held.remove(&number);
                    locks.lost.remove(&number);
                }
            }
        }
        match self.remote.call(Action::Unlock { handle, owner, start, end }, &[]).await? {
            // A server that started anew has no locks.
            (Answer::Done | Answer::UnknownHandle, _) => Ok(()),
            _ => Err(Errno::PROTO.raw_os_error()),
        }
    }

    /// The lock that is in the way of one.
    pub(super) async fn test_range(&self, handle: u64, owner: u64, range: Range) -> Outcome<Option<Range>> {
        match self.with_handle(handle, Action::TestLock { handle, owner, range }, &[]).await? {
            (Answer::Locked(held), _) => Ok(held),
            _ => Err(Errno::PROTO.raw_os_error()),
        }
    }

    /// Whether an owner has locks of a file.
    pub(super) fn has_locks(&self, number: u64, owner: u64) -> bool {
        let locks = lock(&self.locks);
        locks.held.get(&number).is_some_and(|held| held.iter().any(|(other, _)| *other == owner))
    }

    /// Gives all locks of an owner back, as when a program closes the file.
    pub(super) async fn unlock_all(&self, number: u64, handle: u64, owner: u64) -> Outcome<()> {
        match self.has_locks(number, owner) {
            true => self.unlock_range((number, handle, owner), 0, LAST).await,
            false => Ok(()),
        }
    }

    /// Notes that a file with locks is about to be closed; calls that find it locked ask again.
    pub(super) fn closing(self: &Arc<Self>, number: u64) -> Option<Closing> {
        let mut locks = lock(&self.locks);
        if !locks.held.contains_key(&number) {
            return None;
        }
        *locks.closing.entry(number).or_default() += 1;
        Some(Closing { shared: self.clone(), number })
    }

    /// The last open file of this number is closed, and the server has dropped what locks were left.
    pub(super) fn forget_locks(&self, number: u64) {
        let mut locks = lock(&self.locks);
        locks.held.remove(&number);
        locks.lost.remove(&number);
    }

    /// Takes the locks of a file again, at a server that does not know them.
    pub(super) async fn lock_again(&self, number: u64, handle: u64) {
        let held: Vec<(u64, Range)> =
            lock(&self.locks).held.get(&number).map_or(Vec::new(), |held| held.iter().copied().collect());
        for (owner, range) in held {
            let locked = self.remote.call(Action::Lock { handle, owner, range }, &[]).await;
            if !matches!(locked, Ok((Answer::Done, _))) {
                tracing::warn!(?range, "another mount took a lock while the server started anew");
                lock(&self.locks).lost.insert(number);
            }
        }
    }

    /// Takes all locks again.
    pub(super) async fn lock_all_again(&self) {
        let all: Vec<u64> = lock(&self.locks).held.keys().copied().collect();
        for number in all {
            if let Some(handle) = self.handle_of(number) {
                // It is not known, so the file is opened again, and locked.
                let ask = Action::SetOpen(handle, crate::tree::AttributeChange::default());
                let _ = self.with_handle(handle, ask, &[]).await;
            }
        }
    }

    /// Whether a program has lost a lock of a file, and does not know.
    pub(super) fn has_lost_lock(&self, number: u64) -> bool {
        lock(&self.locks).lost.contains(&number)
    }
}

/// Waits until a thread has a signal that it does not block or ignore. The kernel tells of one only by an interrupt, which `fuser` drops.
async fn await_signal(thread: u32) {
    loop {
        sleep(SIGNAL_LOOK).await;
        let status = spawn_blocking(move || std::fs::read_to_string(format!("/proc/{thread}/status"))).await;
        // A thread that cannot be seen is in another namespace.
        let Ok(Ok(status)) = status else { continue };
        let mask = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
        };
        if (mask("SigPnd:") | mask("ShdPnd:")) & !mask("SigBlk:") & !mask("SigIgn:") != 0 {
            return;
        }
    }
}

/// How long the server may wait for the end of a lock.
const WAIT_S: u32 = 10;

const SIGNAL_LOOK: Duration = Duration::from_millis(200);
const CLOSING_LOOK: Duration = Duration::from_millis(1);
