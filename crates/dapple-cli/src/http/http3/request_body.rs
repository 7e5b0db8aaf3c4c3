//! The body of a request of HTTP/3.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::server::RequestStream;

use super::metered::{Credit, RecvStream};
use crate::http::Incoming;

/// See the module.
pub(super) struct Received {
    stream: RequestStream<RecvStream, Bytes>,
    credit: Credit,
    /// What is still to come, where the client said it.
    left: Option<u64>,
    is_ended: bool,
}

impl Received {
    pub(super) fn new(stream: RequestStream<RecvStream, Bytes>, credit: Credit, len: Option<u64>) -> Received {
        Received { stream, credit, left: len, is_ended: false }
    }

    /// Nothing more is read.
    pub(super) fn stop(mut self) {
        if !self.is_ended {
            self.stream.stop_sending(Code::H3_NO_ERROR);
        }
    }

    fn end(&mut self, error: Option<String>) -> Poll<Option<io::Result<Bytes>>> {
        self.is_ended = true;
        Poll::Ready(error.map(|error| Err(io::Error::new(io::ErrorKind::InvalidData, error))))
    }
}

impl Incoming for Received {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        while !self.is_ended {
            let piece = match ready!(self.stream.poll_recv_data(cx)) {
                Ok(Some(mut data)) => data.copy_to_bytes(data.remaining()),
                Ok(None) if self.left.is_some_and(|left| left > 0) => {
                    return self.end(Some("the body is shorter than its content-length".to_owned()));
                }
                // Trailers are dropped.
                Ok(None) => return self.end(None),
                Err(error) => return self.end(Some(error.to_string())),
            };
            self.credit.give_back(piece.len());
            if let Some(left) = &mut self.left {
                match left.checked_sub(piece.len() as u64) {
                    Some(rest) => *left = rest,
                    None => return self.end(Some("the body is longer than its content-length".to_owned())),
                }
            }
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(piece)));
            }
        }
        Poll::Ready(None)
    }

    fn len(&self) -> Option<u64> {
        if self.is_ended { Some(0) } else { self.left }
    }
}
