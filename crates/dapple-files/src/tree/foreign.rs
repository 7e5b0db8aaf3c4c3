//! Changes that other programs make in the tree, while clients hold leases.
//!
//! Each directory of a file that clients ask leases of is watched (fanotify, which leaves out the changes of this process). Rejected:
//! inotify, which cannot tell this service's own changes from those of others, so that each change of a client would have taken back that
//! client's own leases.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use dapple::Color;
use dapple::event::{Registration, on_readable};
use dapple::fs::{ForeignChange, ForeignChanges};
use dapple_sched::environment::HashSet;

use super::attributes::NodeId;
use crate::lease::Leases;

/// The watched directories.
pub(super) struct Watched {
    watch: Arc<Watch>,
    _registration: Registration,
}

struct Watch {
    changes: ForeignChanges,
    leases: Leases,
    directories: Mutex<HashSet<NodeId>>,
    has_failed: AtomicBool,
}

impl Watched {
    /// Begins to watch no directory yet.
    ///
    /// # Errors
    ///
    /// The kernel or a container refuses it.
    pub(super) fn new(leases: Leases) -> io::Result<Watched> {
        let watch = Arc::new(Watch {
            changes: ForeignChanges::new()?,
            leases,
            directories: Mutex::default(),
            has_failed: AtomicBool::new(false),
        });
        let reader = watch.clone();
        let callback = Color::new().wrap(move |()| reader.take());
        let registration = on_readable(&watch.changes, callback)?;
        Ok(Watched { watch, _registration: registration })
    }

    /// Watches an open directory, unless it is watched already. Blocks.
    pub(super) fn cover(&self, directory: &std::fs::File, node: NodeId) {
        let watch = &self.watch;
        let mut directories = watch.directories.lock().unwrap_or_else(PoisonError::into_inner);
        if directories.contains(&node) {
            return;
        }
        if directories.len() >= DIRECTORIES_MAX {
            // Those in use come back with the next leases of their files.
            directories.clear();
            let _ = watch.changes.clear();
            watch.leases.recall_all();
        }
        match watch.changes.add(directory, u128::from(node.device) << 64 | u128::from(node.inode)) {
            Ok(()) => {
                directories.insert(node);
            }
            Err(error) => {
                if !watch.has_failed.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "changes that other programs make here are seen when leases end");
                }
            }
        }
    }
}

impl Watch {
    /// Takes the leases back that the changes known by now concern.
    fn take(&self) {
        let changes = match self.changes.read() {
            Ok(changes) => changes,
            Err(error) => {
                tracing::warn!(%error, "changes of other programs cannot be read; all leases are taken back");
                vec![ForeignChange::Lost]
            }
        };
        for change in changes {
            match change {
                ForeignChange::Entry { tag, name, is_name } => {
                    let directory = NodeId { device: (tag >> 64) as u64, inode: tag as u64 };
                    self.leases.changed_elsewhere(directory, name.as_bytes(), is_name);
                }
                ForeignChange::Lost => self.leases.recall_all(),
            }
        }
    }
}

/// The most directories that are watched at a time; the kernel's own limit is fs.fanotify.max_user_marks.
const DIRECTORIES_MAX: usize = 50_000;
