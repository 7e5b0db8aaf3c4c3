//! The resource of a participant.

use std::fmt;
use std::sync::Arc;

use super::TransactionId;

/// Receives deliveries, all or none.
///
/// The participant's thread calls its functions one after the other, so they may block (for a disk,
/// a database).
///
/// | function | duty |
/// |---|---|
/// | [`prepare`](Resource::prepare) | decide whether it can commit this, and keep the necessary state (a lock, room) until the end |
/// | [`commit`](Resource::commit) | make it durable before it returns. After a crash it is called **again** for the same transaction if it may not have returned |
/// | [`abort`](Resource::abort) | release the state kept by `prepare` |
/// | [`recovered`](Resource::recovered) | release the state that `prepare` may have kept on disk before a crash, except for open promises |
pub trait Resource: Send + 'static {
    /// Whether this can be committed. After a yes, a commit must always be possible, even after a
    /// crash.
    ///
    /// # Errors
    /// The reason for a no. All others abort then, too.
    fn prepare(&mut self, id: TransactionId, message: &Arc<[u8]>) -> Result<(), String>;

    /// Applies it for good.
    ///
    /// # Errors
    /// If it cannot be done now: it is reported, and tried again until it succeeds. The decision is
    /// final.
    fn commit(&mut self, id: TransactionId, message: &Arc<[u8]>) -> Result<(), String>;

    /// Releases the state kept by `prepare`.
    fn abort(&mut self, id: TransactionId, message: &Arc<[u8]>);

    /// Called first, with the transactions that are promised and undecided: keep (again) the state
    /// that these need. All other state of `prepare` from before a crash was never promised.
    fn recovered(&mut self, in_doubt: &[(TransactionId, Arc<[u8]>)]) {
        let _ = in_doubt;
    }
}

/// A [`Resource`] that accepts everything and passes commits to a function: delivery to all or
/// none.
///
/// If a crash interrupts the function, it gets the same message again, with the same id.
///
/// ```
/// use dapple_commit::deliver;
///
/// let (tx, rx) = std::sync::mpsc::channel();
/// let resource = deliver(move |id, message: &[u8]| tx.send((id, message.to_vec())).map_err(|error| error.to_string()));
/// # let _ = (resource, rx);
/// ```
pub fn deliver<F>(deliver: F) -> Deliver<F>
where
    F: FnMut(TransactionId, &[u8]) -> Result<(), String> + Send + 'static,
{
    Deliver(deliver)
}

/// See [`deliver`].
pub struct Deliver<F>(F);

impl<F> fmt::Debug for Deliver<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deliver")
    }
}

impl<F> Resource for Deliver<F>
where
    F: FnMut(TransactionId, &[u8]) -> Result<(), String> + Send + 'static,
{
    fn prepare(&mut self, _id: TransactionId, _message: &Arc<[u8]>) -> Result<(), String> {
        Ok(())
    }

    fn commit(&mut self, id: TransactionId, message: &Arc<[u8]>) -> Result<(), String> {
        (self.0)(id, message)
    }

    fn abort(&mut self, _id: TransactionId, _message: &Arc<[u8]>) {}
}
