//! The memory budget for the tasks of all connections.
//!
//! The server reads a frame on only when there is room for all of it, so the budget counts
//! everything that is kept: parts of slow frames, tasks in the stages, and answers that clients
//! have not taken. Connections that wait for room are not read from; they get room in the order of
//! arrival, and no task is refused. No connection holds a share while it waits for another, so
//! reading continues as soon as a task is signed or a stalled client is cut off.

use std::sync::Arc;

use bytes::Bytes;
use dapple::sync::{OwnedSemaphorePermit, Semaphore};

/// The whole budget. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    /// In units of [`UNIT_LEN`].
    units: Arc<Semaphore>,
    /// The number of copies of a task in memory while it is served.
    copies: usize,
}

/// The share of one task, until this is dropped.
#[derive(Debug, Default)]
pub(super) struct Share(Option<OwnedSemaphorePermit>);

impl Budget {
    /// Creates a budget of `mib` MiB, for tasks that are in memory `copies` times.
    pub(super) fn new(mib: u64, copies: usize) -> Budget {
        let units = usize::try_from(mib << 20).unwrap_or(usize::MAX) / UNIT_LEN;
        Budget { units: Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))), copies }
    }

    /// Waits until there is room for a frame of this length. Cancel safe: if dropped, it takes
    /// nothing.
    pub(super) async fn take(&self, frame_len: usize) -> Share {
        let units = u32::try_from(needed(frame_len, self.copies).div_ceil(UNIT_LEN)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        Share(self.units.clone().acquire_many_owned(units).await.ok())
    }
}

impl Share {
    /// Whether nothing was taken yet.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Splits the share: the returned body keeps its part while it is in memory, the rest is for
    /// the answer.
    pub(super) fn split(mut self, body: Bytes) -> (Bytes, Share) {
        let of_body =
            self.0.as_mut().and_then(|all| all.split(all.num_permits().saturating_sub(ANSWER_LEN / UNIT_LEN)));
        (Bytes::from_owner(Kept { body, _share: Share(of_body) }), self)
    }
}

/// A body and its share.
struct Kept {
    body: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// The units that a frame of this length needs.
pub(super) fn needed(frame_len: usize, copies: usize) -> usize {
    frame_len * copies + ANSWER_LEN
}

/// The memory of a task apart from its bytes, until its answer is written.
const ANSWER_LEN: usize = 2 * UNIT_LEN;

const UNIT_LEN: usize = 1024;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use dapple::time::timeout;

    use super::{ANSWER_LEN, Budget, UNIT_LEN};

    #[test]
    fn a_body_frees_its_share_with_its_last_clone_and_the_answer_the_rest() {
        dapple::wait(async {
            let budget = Budget::new(1, 1);
            let all = (1 << 20) / UNIT_LEN;
            let (body, answer) = budget.take(5_000).await.split(Bytes::from(vec![7; 4_991]));
            assert_eq!(budget.units.available_permits(), all - 7);
            let clone = body.clone();
            drop(body);
            assert_eq!((budget.units.available_permits(), clone.len()), (all - 7, 4_991));
            drop(clone);
            assert_eq!(budget.units.available_permits(), all - ANSWER_LEN / UNIT_LEN);
            drop(answer);
            assert_eq!(budget.units.available_permits(), all);
        });
    }

    #[test]
    fn a_task_without_room_waits_for_it() {
        let runtime = dapple::builder().workers(1).build().unwrap();
        runtime.block_on(async {
            let budget = Budget::new(1, 2);
            let first = budget.take(300_000).await;
            assert!(timeout(Duration::from_millis(20), budget.take(300_000)).await.is_err());
            let waiting = dapple::spawn({
                let budget = budget.clone();
                async move { budget.take(300_000).await.is_empty() }
            });
            drop(first);
            assert!(!waiting.await.unwrap());
        });
    }
}
