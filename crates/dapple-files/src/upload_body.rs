//! The body of an upload, which its reader may leave unread.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use dapple::serve::Body;
use dapple::time::timeout;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;

use crate::lock::lock;

/// A body that can be read on after its reader has given up.
///
/// A client that still sends may not see a reply such as `507`: over HTTP/1.1 its connection is cut, and over HTTP/2 curl takes the
/// reset of its stream for a failure. So a moderate rest is read before the reply.
#[derive(Clone)]
pub(crate) struct SharedBody(Arc<Mutex<Body>>);

impl SharedBody {
    pub(crate) fn new(body: Body) -> SharedBody {
        SharedBody(Arc::new(Mutex::new(body)))
    }

    /// Reads the rest, up to a limit of bytes and time.
    pub(crate) async fn drain(mut self) {
        let rest = async {
            let mut left = DRAINED_MAX;
            while let Some(Ok(frame)) = self.frame().await {
                left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
                if left == 0 {
                    return;
                }
            }
        };
        let _ = timeout(DRAIN_TIME, rest).await;
    }
}

impl http_body::Body for SharedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut body = lock(&self.0);
        Pin::new(&mut *body).poll_frame(cx).map_err(|error| io::Error::other(error.to_string()))
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.0).is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.0).size_hint()
    }
}

/// The most bytes of a refused upload that are read, and for how long.
const DRAINED_MAX: usize = 64 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);
