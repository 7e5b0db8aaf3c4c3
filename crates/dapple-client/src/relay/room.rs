//! Room for bodies in transit.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dapple_io::time::timeout;
use dapple_sync::sync::{OwnedSemaphorePermit, Semaphore};

/// Room for so many bytes of bodies in transit, together. Clones are the same room.
///
/// ```
/// use std::time::Duration;
/// use dapple_client::relay::Room;
///
/// # let runtime = dapple_io::runtime_builder().workers(1).build().unwrap();
/// # runtime.block_on(async {
/// let room = Room::new(64 << 10);
/// let place = room.place(60 << 10, Duration::ZERO).await.expect("there is room");
/// let body = place.hold("a body".into());
/// assert!(room.place(60 << 10, Duration::ZERO).await.is_none());
/// drop(body);
/// assert!(room.place(60 << 10, Duration::ZERO).await.is_some());
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Room(Arc<Semaphore>);

/// A part of a [`Room`], which is free again when it is dropped.
#[derive(Debug)]
pub struct Place(#[expect(dead_code, reason = "dropping it gives the room back")] OwnedSemaphorePermit);

impl Room {
    /// Creates room for so many bytes; it counts in KB.
    #[must_use]
    pub fn new(bytes: usize) -> Room {
        Room(Arc::new(Semaphore::new(bytes.div_ceil(1024))))
    }

    /// Waits for a place for a body of `len` bytes, in order; `None` if there is none within `limit`.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, it loses its position in the line.
    pub async fn place(&self, len: usize, limit: Duration) -> Option<Place> {
        let kilobytes = u32::try_from(len.div_ceil(1024)).ok()?;
        timeout(limit, self.0.clone().acquire_many_owned(kilobytes)).await.ok()?.ok().map(Place)
    }
}

impl Place {
    /// Bytes that have this place until their last reader drops them.
    #[must_use]
    pub fn hold(self, bytes: Bytes) -> Bytes {
        struct Held(Bytes, #[expect(dead_code, reason = "it ends with the bytes")] Place);
        impl AsRef<[u8]> for Held {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        Bytes::from_owner(Held(bytes, self))
    }
}
