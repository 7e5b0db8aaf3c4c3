//! What a participant commits to.

use std::fmt;
use std::sync::Arc;

use super::TransactionId;

/// What takes what is delivered, all or none.
///
/// Its functions are called one after the other on a thread of the participant, so they may wait (for a disk, a database).
///
/// | called | it has to |
/// |---|---|
/// | [`prepare`](Resource::prepare) | say whether it can commit this, and keep what that takes (a lock, room) until it is told how it ended |
/// | [`commit`](Resource::commit) | have it for good when it returns. After a crash it is called **again** for the same transaction if nobody knows whether it had returned |
/// | [`abort`](Resource::abort) | give up what `prepare` kept |
/// | [`recovered`](Resource::recovered) | drop what `prepare` may have kept on disk before a crash, apart from what is still promised |
pub trait Resource: Send + 'static {
    /// Whether this can be committed. After a yes, it must be possible to commit it for ever, also after a crash.
    ///
    /// # Errors
    /// The reason for a no. All others abort then, too.
    fn prepare(&mut self, id: TransactionId, message: &Arc<[u8]>) -> Result<(), String>;

    /// Applies it for good.
    ///
    /// # Errors
    /// Where it cannot be done now: it is reported, and tried again until it succeeds. It is decided, and cannot be taken back.
    fn commit(&mut self, id: TransactionId, message: &Arc<[u8]>) -> Result<(), String>;

    /// Gives up what `prepare` kept.
    fn abort(&mut self, id: TransactionId, message: &Arc<[u8]>);

    /// Called first, with what is promised and not decided: keep (again) what these take. Whatever else `prepare` kept
    /// before a crash was never promised.
    fn recovered(&mut self, in_doubt: &[(TransactionId, Arc<[u8]>)]) {
        let _ = in_doubt;
    }
}

/// A [`Resource`] that says yes to everything and hands what is committed to a function: delivery to all or none.
///
/// The function gets what a crash came between a second time, with the same id.
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
