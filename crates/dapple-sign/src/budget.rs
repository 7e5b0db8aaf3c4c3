//! The memory that tasks may take, over all connections.
//!
//! A frame is not read on before there is room for all of it, so what is counted is what is kept: a part of a frame that comes slowly,
//! tasks in the stages, and answers that nobody takes. Who has to wait is not read from, in the order of arrival; nothing is refused.
//! Nobody waits here with a share of his own that others wait for, so that it goes on as soon as a task is signed, or a client that
//! does not go on is cut off.

use std::sync::Arc;

use bytes::Bytes;
use dapple::sync::{OwnedSemaphorePermit, Semaphore};

/// All of it. Clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    /// In units of [`UNIT_LEN`].
    units: Arc<Semaphore>,
    /// How often a task is in memory while it is served.
    copies: usize,
}

/// What one task has of it, until this is dropped.
#[derive(Debug, Default)]
pub(super) struct Share(Option<OwnedSemaphorePermit>);

impl Budget {
    /// So many MiB, for tasks that are in memory `copies` times.
    pub(super) fn new(mib: u64, copies: usize) -> Budget {
        let units = usize::try_from(mib << 20).unwrap_or(usize::MAX) / UNIT_LEN;
        Budget { units: Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))), copies }
    }

    /// Waits until there is room for a frame of this length. Cancel safe: dropped, it takes nothing.
    pub(super) async fn take(&self, frame_len: usize) -> Share {
        let units = u32::try_from(needed(frame_len, self.copies).div_ceil(UNIT_LEN)).unwrap_or(u32::MAX);
        // Nobody closes it.
        Share(self.units.clone().acquire_many_owned(units).await.ok())
    }
}

impl Share {
    /// Whether nothing was taken yet.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The body of a task that keeps its part of the share as long as it is in memory, and what is left for the answer.
    pub(super) fn split(mut self, body: Bytes) -> (Bytes, Share) {
        let of_body =
            self.0.as_mut().and_then(|all| all.split(all.num_permits().saturating_sub(ANSWER_LEN / UNIT_LEN)));
        (Bytes::from_owner(Kept { body, _share: Share(of_body) }), self)
    }
}

/// A body, and its share.
struct Kept {
    body: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// What a frame of this length counts.
pub(super) fn needed(frame_len: usize, copies: usize) -> usize {
    frame_len * copies + ANSWER_LEN
}

/// What a task takes beside its bytes, until its answer is written.
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
    fn who_finds_no_room_waits_for_it() {
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
