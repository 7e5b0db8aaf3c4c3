//! The room that one user may take, over all its clients, so that others keep theirs.

use std::sync::{Arc, Mutex, Weak};

use dapple::sync::Limit;
use dapple_sched::environment::HashMap;

use crate::lock::lock;

/// The rooms of the users that have any client at the moment.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Mutex<HashMap<Arc<str>, Weak<Room>>>);

/// The room of one user.
#[derive(Debug)]
pub(crate) struct Room {
    /// Changes that go on to their end if their client leaves.
    pub(crate) changes: Limit,
    /// Writes that mounts kept, for which those changes may wait.
    pub(crate) kept_writes: Limit,
    /// Copies, moves and deletions of trees.
    pub(crate) trees: Limit,
    /// Large calls of mounts that are read.
    pub(crate) reading: Limit,
    /// Large calls of mounts that run, or wait for leases.
    pub(crate) large_calls: Limit,
    /// Files that mounts have open.
    pub(crate) open_files: Limit,
}

impl Rooms {
    /// The room of a user, which lasts as long as a request, a mount or an open file has it.
    pub(crate) fn of(&self, user: &Arc<str>) -> Arc<Room> {
        let mut rooms = lock(&self.0);
        if let Some(room) = rooms.get(user).and_then(Weak::upgrade) {
            return room;
        }
        rooms.retain(|_, room| room.strong_count() > 0);
        let room = Arc::new(Room::default());
        rooms.insert(user.clone(), Arc::downgrade(&room));
        room
    }
}

impl Default for Room {
    fn default() -> Room {
        Room {
            changes: Limit::new(CHANGES_MAX).waiting_max(CHANGES_MAX),
            kept_writes: Limit::new(CHANGES_MAX).waiting_max(CHANGES_MAX),
            trees: Limit::new(TREES_MAX).waiting_max(TREES_WAITING_MAX),
            reading: Limit::new(READING_MAX).waiting_max(READING_WAITING_MAX),
            large_calls: Limit::new(LARGE_CALLS_MAX),
            open_files: Limit::new(OPEN_FILES_MAX),
        }
    }
}

const CHANGES_MAX: usize = 1024;
const TREES_MAX: usize = 16;
const TREES_WAITING_MAX: usize = 1024;

/// Half of what all users have.
const READING_MAX: usize = 32;
const READING_WAITING_MAX: usize = 2048;
const LARGE_CALLS_MAX: usize = 128;
const OPEN_FILES_MAX: usize = 8192;
