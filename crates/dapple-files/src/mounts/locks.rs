//! Locks of byte ranges that mounts take for their programs.
//!
//! They are advice for programs, and hinder no read and no write. A mount that has not been heard of for as long as a lease lasts keeps its
//! locks until another one wants them. Then it has lost them: its writes to that file fail until it has unlocked or closed it, since the
//! program still believes that it is alone.

use std::sync::Mutex;
use std::time::Duration;

use dapple::sync::oneshot;
use dapple::time::{Instant, timeout};
use dapple_sched::environment::{HashMap, HashSet};

use crate::lease::ClientId;
use crate::lock::lock;
use crate::ranges::{LAST, Range, Ranges};
use crate::tree::NodeId;

/// The locks of all files.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    files: HashMap<NodeId, Locked>,
    /// The locks of each mount.
    counts: HashMap<ClientId, usize>,
    count: usize,
    /// The files of which a mount lost its locks.
    lost: HashSet<(ClientId, NodeId)>,
}

/// A file with locks, or with calls that wait for one.
#[derive(Debug, Default)]
struct Locked {
    ranges: Ranges<Owner>,
    waiting: Vec<oneshot::Sender<()>>,
}

/// An owner of locks: a mount, and the number that its kernel gave to a process or an open file.
pub(super) type Owner = (ClientId, u64);

/// The reason why a file was not locked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Another owner's lock is in the way.
    Held(Owner, Range),
    /// The mount, the file, or the service has too many.
    TooMany,
}

impl Locks {
    /// Locks a range. `is_there` says whether a mount has been heard of lately.
    pub(super) fn lock(
        &self,
        node: NodeId,
        owner: Owner,
        range: Range,
        is_there: impl Fn(ClientId) -> bool,
    ) -> Result<(), Refusal> {
        if range.start > range.end || range.end > LAST {
            return Err(Refusal::TooMany);
        }
        let mut inner = lock(&self.0);
        while let Some((holder, held)) = inner.in_the_way(node, owner, &range) {
            if holder.0 == owner.0 || is_there(holder.0) {
                return Err(Refusal::Held(holder, held));
            }
            tracing::warn!(?node, "a mount that cannot be reached has lost its locks of a file");
            inner.change(node, holder.0, |ranges| ranges.drop_all(|other| other.0 == holder.0));
            inner.lost.insert((holder.0, node));
        }
        let of_file = inner.files.get(&node).map_or(0, |locked| locked.ranges.len());
        let of_mount = inner.counts.get(&owner.0).copied().unwrap_or(0);
        // One lock may become three.
        if inner.count + 2 > LOCKS_MAX || of_file + 2 > LOCKS_OF_FILE_MAX || of_mount + 2 > LOCKS_OF_MOUNT_MAX {
            return Err(Refusal::TooMany);
        }
        inner.change(node, owner.0, |ranges| ranges.set(owner, range));
        Ok(())
    }

    /// Unlocks the bytes from one to another.
    pub(super) fn unlock(&self, node: NodeId, owner: Owner, start: u64, end: u64) {
        let mut inner = lock(&self.0);
        inner.lost.remove(&(owner.0, node));
        inner.change(node, owner.0, |ranges| ranges.clear(owner, start, end));
    }

    /// Unlocks a file that a mount has not open any more.
    pub(super) fn close(&self, node: NodeId, client: ClientId) {
        let mut inner = lock(&self.0);
        inner.lost.remove(&(client, node));
        if inner.counts.contains_key(&client) {
            inner.change(node, client, |ranges| ranges.drop_all(|owner| owner.0 == client));
        }
    }

    /// Unlocks all files of mounts that are not known any more.
    pub(super) fn forget(&self, is_known: impl Fn(ClientId) -> bool) {
        let mut inner = lock(&self.0);
        inner.lost.retain(|(client, _)| is_known(*client));
        let gone: Vec<ClientId> = inner.counts.keys().copied().filter(|client| !is_known(*client)).collect();
        let nodes: Vec<NodeId> = if gone.is_empty() { Vec::new() } else { inner.files.keys().copied().collect() };
        for node in nodes {
            for client in &gone {
                inner.change(node, *client, |ranges| ranges.drop_all(|owner| owner.0 == *client));
            }
        }
    }

    /// The lock that is in the way of one.
    pub(super) fn in_the_way(&self, node: NodeId, owner: Owner, range: &Range) -> Option<(Owner, Range)> {
        lock(&self.0).in_the_way(node, owner, range)
    }

    /// Whether a mount has lost its locks of a file.
    pub(super) fn is_lost(&self, node: NodeId, client: ClientId) -> bool {
        let inner = lock(&self.0);
        !inner.lost.is_empty() && inner.lost.contains(&(client, node))
    }

    /// Waits until no lock of a mount that is there is in the way of one, for some time at most. It takes no lock: others may be faster.
    pub(super) async fn wait(
        &self,
        node: NodeId,
        owner: Owner,
        range: &Range,
        limit: Duration,
        is_there: impl Fn(ClientId) -> bool,
    ) {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let changes = {
                let mut inner = lock(&self.0);
                match inner.in_the_way(node, owner, range) {
                    Some((holder, _)) if is_there(holder.0) => {}
                    _ => return,
                }
                let waiting = &mut inner.files.entry(node).or_default().waiting;
                if waiting.len() == waiting.capacity() {
                    waiting.retain(|waiter| !waiter.is_closed());
                }
                let (waiter, changes) = oneshot::channel();
                waiting.push(waiter);
                changes
            };
            // A mount goes without a word.
            let _ = timeout(left.min(LOOK_EVERY), changes).await;
        }
    }
}

impl Inner {
    fn in_the_way(&self, node: NodeId, owner: Owner, range: &Range) -> Option<(Owner, Range)> {
        self.files.get(&node)?.ranges.in_the_way(owner, range)
    }

    /// Changes the locks that a mount has of a file, and wakes those that wait for one.
    fn change(&mut self, node: NodeId, client: ClientId, change: impl FnOnce(&mut Ranges<Owner>)) {
        let locked = self.files.entry(node).or_default();
        let before = locked.ranges.len();
        change(&mut locked.ranges);
        let after = locked.ranges.len();
        locked.waiting.drain(..).for_each(|waiter| {
            let _ = waiter.send(());
        });
        if locked.ranges.is_empty() {
            self.files.remove(&node);
        }
        self.count = self.count + after - before;
        let own = self.counts.entry(client).or_default();
        *own = *own + after - before;
        if *own == 0 {
            self.counts.remove(&client);
        }
    }
}

/// The most locks of all mounts, of one file, and of one mount.
const LOCKS_MAX: usize = 131_072;
const LOCKS_OF_FILE_MAX: usize = 4096;
const LOCKS_OF_MOUNT_MAX: usize = 8192;

/// How often a call that waits finds out whether the holder is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::join;

    use super::{LOCKS_OF_FILE_MAX, Locks, Refusal, lock};
    use crate::lease::ClientId;
    use crate::ranges::{LAST, Range};
    use crate::tree::NodeId;

    const NODE: NodeId = NodeId { device: 1, inode: 2 };
    const ALL: Range = Range { start: 0, end: LAST, is_exclusive: true, process: 1 };
    const ANN: (ClientId, u64) = (ClientId(1), 1);
    const BOB: (ClientId, u64) = (ClientId(2), 1);

    #[test]
    fn a_mount_that_is_gone_loses_its_locks_to_one_that_wants_them() {
        let locks = Locks::default();
        locks.lock(NODE, ANN, ALL, |_| true).expect("locked");
        assert_eq!(locks.lock(NODE, BOB, ALL, |_| true), Err(Refusal::Held(ANN, ALL)));
        assert!(!locks.is_lost(NODE, ANN.0), "no one wanted it");
        locks.lock(NODE, BOB, ALL, |client| client != ANN.0).expect("locked");
        assert!(locks.is_lost(NODE, ANN.0) && !locks.is_lost(NODE, BOB.0));
        assert_eq!(locks.lock(NODE, ANN, ALL, |_| true), Err(Refusal::Held(BOB, ALL)));
        locks.unlock(NODE, ANN, 0, LAST);
        assert!(!locks.is_lost(NODE, ANN.0), "its program knows");
        locks.close(NODE, BOB.0);
        let inner = lock(&locks.0);
        assert!(inner.files.is_empty() && inner.counts.is_empty() && inner.count == 0);
    }

    #[test]
    fn locks_are_counted_and_those_of_unknown_mounts_go() {
        let locks = Locks::default();
        let at = |start| Range { start, end: start, ..ALL };
        let taken = (0..).take_while(|number| locks.lock(NODE, ANN, at(2 * number), |_| true).is_ok()).count();
        assert_eq!(taken, LOCKS_OF_FILE_MAX - 1);
        assert_eq!(locks.lock(NODE, BOB, at(1), |_| true), Err(Refusal::TooMany));
        assert!(locks.lock(NODE, BOB, Range { start: 3, end: 1, ..ALL }, |_| true).is_err());
        locks.forget(|client| client != ANN.0);
        assert!(lock(&locks.0).files.is_empty());
        locks.lock(NODE, BOB, at(1), |_| true).expect("locked");
    }

    #[test]
    fn a_call_that_waits_hears_of_the_end_of_a_lock() {
        dapple::builder().workers(1).build().expect("a runtime").block_on(async {
            let locks = Locks::default();
            locks.lock(NODE, ANN, ALL, |_| true).expect("locked");
            let hour = Duration::from_secs(3600);
            let wait = locks.wait(NODE, BOB, &ALL, hour, |_| true);
            join(wait, async { locks.unlock(NODE, ANN, 0, LAST) }).await;
            locks.lock(NODE, ANN, ALL, |_| true).expect("locked");
            locks.wait(NODE, BOB, &ALL, hour, |_| false).await;
        });
    }
}
