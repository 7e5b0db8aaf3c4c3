//! Changes that other programs make in the tree, while clients hold leases.
//!
//! Each directory of a file that clients ask leases of is watched (fanotify, which leaves out the changes of this process). Rejected:
//! inotify, which cannot tell this service's own changes from those of others, so that each change of a client would have taken back that
//! client's own leases.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use dapple::Color;
use dapple::event::on_readable;
use dapple::fs::{ForeignChange, ForeignChanges};
use dapple::sync::oneshot;
use dapple::time::{sleep, timeout};
use dapple_sched::environment::HashSet;

use super::attributes::NodeId;
use crate::lease::Leases;
use crate::lock::lock;

/// The watched directories.
pub(super) struct Watched(Arc<Watch>);

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
        drop(Color::new().spawn_background(follow(Arc::downgrade(&watch))));
        Ok(Watched(watch))
    }

    /// Watches an open directory, unless it is watched already; `false` if that cannot be. Blocks.
    pub(super) fn cover(&self, directory: &std::fs::File, node: NodeId) -> bool {
        let watch = &self.0;
        let mut directories = lock(&watch.directories);
        if directories.contains(&node) {
            return true;
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
                true
            }
            Err(error) => {
                if !watch.has_failed.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "changes that other programs make here are seen when leases end");
                }
                false
            }
        }
    }
}

/// Takes leases back for as long as the tree lives. It reads many changes at a time: the kernel also tells of each change by this
/// service, which costs more than the change if the reader wakes for it.
async fn follow(watch: Weak<Watch>) {
    loop {
        let (news, told) = oneshot::channel();
        let registration = {
            let Some(watch) = watch.upgrade() else { return };
            let mut news = Some(news);
            let tell = Color::current().wrap(move |()| {
                if let Some(news) = news.take() {
                    let _ = news.send(());
                }
            });
            on_readable(&watch.changes, tell)
        };
        let Ok(registration) = registration.inspect_err(|error| {
            tracing::warn!(%error, "changes that other programs make here are seen when leases end");
        }) else {
            return;
        };
        // Looks now and then whether the tree is still there.
        let news = timeout(LOOK_EVERY, told).await;
        drop(registration);
        if news.is_ok() {
            sleep(GATHER).await;
            let Some(watch) = watch.upgrade() else { return };
            watch.take();
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

/// How long changes are gathered.
const GATHER: Duration = Duration::from_millis(10);

const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The most directories that are watched at a time; the kernel's own limit is fs.fanotify.max_user_marks.
const DIRECTORIES_MAX: usize = 50_000;
