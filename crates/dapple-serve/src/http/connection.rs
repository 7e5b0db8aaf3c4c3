//! A connection, whichever version of HTTP it speaks.

use std::sync::Arc;

use bytes::Bytes;
use dapple_sched::{Color, Handle};

use super::http1::{self, End};
use super::{Handler, Limits, http2};
use crate::host::Link;

/// The protocol, as known before the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, or HTTP/2 if the client begins with its preface ("prior knowledge").
    FirstBytes,
    /// HTTP/2, agreed on by ALPN.
    Http2,
}

/// The terms on which a connection is served, apart from its stream and its handler.
#[derive(Clone)]
pub struct Terms<'a> {
    pub limits: Arc<Limits>,
    /// Says when the server closes; `None` if only orders say so.
    pub handle: Option<&'a Handle>,
    /// Says when others need the connection's place.
    pub link: Arc<Link>,
}

/// Serves one connection until either side ends it, it takes too long, or the server closes.
///
/// Every HTTP/2 stream has a color of its own, or all have `color`.
///
/// Not cancel safe: if dropped before it resolves, the connection closes in its current state.
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
    // Boxed, so that connections that wait in HTTP/1.1, which are most, reserve no room for this.
    Box::pin(http2::serve(begun, handler, terms, color)).await;
}
