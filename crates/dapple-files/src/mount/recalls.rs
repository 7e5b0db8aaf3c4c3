//! Recalls of leases: removes from the kernel what is no longer true, and gives the leases back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use dapple::blocking::spawn_blocking;
use dapple::time::timeout;
use fuser::{INodeNo, Notifier};

use super::Shared;
use super::inodes::Stale;
use crate::lease::Recall;
use crate::lock::lock;
use crate::tree::NodeId;
use crate::wire::{Action, Answer};

/// Takes recalls for as long as the runtime lives.
pub(super) async fn run(shared: Arc<Shared>, notifier: Notifier, mut start: u64, mut lease: Duration) {
    let notifier = Arc::new(notifier);
    let mut released = Vec::new();
    loop {
        let recalls = Action::Recalls { seconds: poll_s(lease), start };
        let asked = match shared.remote.ask(recalls, released.clone(), &[], SHORT).await {
            Ok(answer) => answer,
            // The server was away.
            Err(_) => match shared.remote.ask(Action::Hello, Vec::new(), &[], FOREVER).await {
                Ok(answer) => answer,
                Err(_) => continue,
            },
        };
        match asked.0 {
            Answer::Recalls(recalls) => {
                // They have arrived.
                released.clear();
                for recall in recalls {
                    released.extend(take(&shared, &notifier, recall).await);
                }
            }
            // It started anew: then it knows no lease.
            Answer::Hello { start: now, boot, lease_ms } if now != start => {
                start = now;
                lease = Duration::from_millis(u64::from(lease_ms));
                shared.remote.set_boot(boot);
                released.clear();
                let stale = lock(&shared.inodes).recall_all(None);
                lock(&shared.open).values_mut().for_each(super::Open::forget_first);
                drop_from_kernel(&notifier, stale).await;
                // Writes that the old delegations let it keep may be lost if they wait any longer.
                shared.keep_nothing_more().await;
                // On its own: it may wait for other mounts, which wait for recalls.
                let locking = shared.clone();
                drop(shared.handle.spawn(async move { locking.lock_all_again().await }));
            }
            _ => {}
        }
    }
}

/// Drops what a recall concerns; returns the leases to give back.
async fn take(shared: &Arc<Shared>, notifier: &Arc<Notifier>, recall: Recall) -> Vec<(NodeId, u64)> {
    // Grants that are on their way count for nothing from here on; then what was kept by a delegation is sent.
    let grant = match &recall {
        Recall::Node(_, grant) | Recall::Entry { grant, .. } | Recall::All(grant) => *grant,
    };
    let (stale, nodes) = match recall {
        Recall::Node(node, grant) => {
            let (stale, number) = {
                let mut inodes = lock(&shared.inodes);
                (inodes.recall(node, grant), inodes.number(node))
            };
            if let Some(number) = number {
                shared.keep_no_more(number).await;
            }
            (stale.into_iter().collect(), vec![node])
        }
        Recall::Entry { directory, name, is_name, grant } => {
            let recalled = lock(&shared.inodes).recall_entry(directory, name, is_name, grant);
            shared.keep_nothing_more().await;
            recalled
        }
        Recall::All(grant) => {
            let recalled = {
                let mut inodes = lock(&shared.inodes);
                (inodes.recall_all(Some(grant)), inodes.nodes())
            };
            shared.keep_nothing_more().await;
            recalled
        }
    };
    lock(&shared.open).values_mut().for_each(super::Open::forget_first);
    drop_from_kernel(notifier, stale).await;
    nodes.into_iter().map(|node| (node, grant)).collect()
}

/// Tells the kernel. A call of the kernel that is in progress in the same directory keeps its lock, and may wait for another mount that
/// waits for this one; so the lease is given back after a short time in any case, and the kernel drops the name when its call ends.
async fn drop_from_kernel(notifier: &Arc<Notifier>, stale: Vec<Stale>) {
    let notifier = notifier.clone();
    let told = spawn_blocking(move || {
        for one in &stale {
            // Data and attributes first: that needs no lock. Errors mean that the kernel has forgotten it already.
            let _ = notifier.inval_inode(INodeNo(one.number), 0, 0);
        }
        for (directory, name) in stale.iter().flat_map(|one| &one.names) {
            let _ = notifier.inval_entry(INodeNo(*directory), OsStr::from_bytes(name));
        }
    });
    let _ = timeout(LOCKED_MAX, told).await;
}

/// How long the server may hold an answer back: it must hear of this mount while a lease lasts, or others take its locks.
fn poll_s(lease: Duration) -> u32 {
    (lease.as_secs() / 3).clamp(1, 20) as u32
}

/// How long the call for recalls is sent again before this client finds out whether the server started anew.
const SHORT: Duration = Duration::from_millis(1);
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

const LOCKED_MAX: Duration = Duration::from_millis(100);
