//! A connection, whichever version of HTTP it speaks.

use std::sync::Arc;

use bytes::Bytes;
use dapple_sched::{Color, Handle};

use super::http1::{self, End};
use super::{Handler, Limits, http2};
use crate::host::Link;

/// What is known before the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, or HTTP/2 if the client begins with its preface ("prior knowledge").
    FirstBytes,
    /// HTTP/2, as was agreed on (ALPN).
    Http2,
}

/// On what terms a connection is served, beside those of its two sides.
#[derive(Clone)]
pub struct Terms<'a> {
    pub limits: Arc<Limits>,
    /// Says when the server closes; `None` where only orders do.
    pub handle: Option<&'a Handle>,
    /// Says when others need the connection's place.
    pub link: Arc<Link>,
}

/// Serves one connection until either side is done with it, it takes too long, or the server is closing.
///
/// Of HTTP/2, every stream has a color of its own, or all have `color`.
///
/// Not cancel safe: dropped before it resolves, the connection is closed as it is.
pub async fn serve<S: dapple_io::Connection, H: Handler>(
    stream: S,
    protocol: Protocol,
    handler: H,
    terms: Terms<'_>,
    color: Option<Color>,
) {
    let begun = match protocol {
        Protocol::Http2 => (stream, Bytes::new()),
        Protocol::FirstBytes => match http1::serve(stream, handler.clone(), terms.clone()).await {
            End::Closed => return,
            End::Http2 { stream, first } => (stream, first),
            End::TakenOver { stream, first } => return Box::pin(handler.take_over(stream, first)).await,
        },
    };
    // Boxed, so that those who wait in HTTP/1.1, most of all, have no room for this.
    Box::pin(http2::serve(begun, handler, terms, color)).await;
}
