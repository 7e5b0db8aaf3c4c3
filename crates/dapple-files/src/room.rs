//! The room that one user may take, over all its clients, so that others keep theirs.

use std::sync::{Arc, Mutex};

use dapple::sync::Limit;
use dapple_sched::environment::HashMap;

use crate::lease::ClientId;
use crate::lock::lock;
use crate::shares::Shares;

/// The rooms of all users that have any client, or have left anything in use.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Mutex<HashMap<Arc<str>, Arc<Room>>>);

/// The room of one user.
#[derive(Debug)]
pub(crate) struct Room {
    /// Changes that go on to their end if their client leaves.
    pub(crate) changes: Limit,
    /// Writes that mounts kept, for which those changes may wait.
    pub(crate) kept_writes: Limit,
    /// Copies, moves and deletions of trees.
    pub(crate) trees: Limit,
    /// Files that mounts have open.
    pub(crate) open_files: Limit,
    /// Large reads, which its mounts divide among themselves.
    pub(crate) reads: Shares<ClientId>,
}

impl Rooms {
    /// The room of a user, which lasts as long as a request has it, or a part of it is taken: open files outlast all requests.
    pub(crate) fn of(&self, user: &Arc<str>) -> Arc<Room> {
        let mut rooms = lock(&self.0);
        if let Some(room) = rooms.get(user) {
            return room.clone();
        }
        // The others make room before the table grows.
        if rooms.len() == rooms.capacity() {
            rooms.retain(|_, room| Arc::strong_count(room) > 1 || room.is_used());
        }
        rooms.entry(user.clone()).or_default().clone()
    }
}

impl Room {
    fn is_used(&self) -> bool {
        let Room { changes, kept_writes, trees, open_files, reads } = self;
        reads.is_used() || [changes, kept_writes, trees, open_files].iter().any(|limit| limit.used() > 0)
    }
}

impl Default for Room {
    fn default() -> Room {
        Room {
            changes: Limit::new(CHANGES_MAX).waiting_max(CHANGES_MAX),
            kept_writes: Limit::new(CHANGES_MAX).waiting_max(CHANGES_MAX),
            trees: Limit::new(TREES_MAX).waiting_max(TREES_WAITING_MAX),
            open_files: Limit::new(OPEN_FILES_MAX),
            reads: Shares::new(READS_MAX, READS_WAITING_MAX),
        }
    }
}

const CHANGES_MAX: usize = 1024;
const TREES_MAX: usize = 16;
const TREES_WAITING_MAX: usize = 1024;
const OPEN_FILES_MAX: usize = 8192;

/// Half of what all users have.
const READS_MAX: usize = 32;

/// Of one mount.
const READS_WAITING_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Rooms, lock};

    #[test]
    fn what_a_user_has_counts_also_while_it_sends_nothing() {
        let (rooms, ann) = (Rooms::default(), Arc::from("ann"));
        let open_file = rooms.of(&ann).open_files.try_acquire();
        for number in 0..1000 {
            rooms.of(&format!("u{number}").into());
        }
        assert!(lock(&rooms.0).len() < 100, "rooms without a use make room");
        assert_eq!(rooms.of(&ann).open_files.used(), 1);
        drop(open_file);
        assert_eq!(rooms.of(&ann).open_files.used(), 0);
    }
}
