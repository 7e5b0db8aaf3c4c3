//! Replies with a representation of a file: the whole, the requested parts, or a short reply that
//! the client's copy is current or its condition is false.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::Bytes;
use dapple_http::Request;
use dapple_http::conditional::{self, Verdict};
use dapple_http::range::{self, Wanted};
use http::header::{CONTENT_RANGE, CONTENT_TYPE, ETAG};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::body::FileStream;
use super::counters::Counters;
use super::meta::Meta;
use super::reply;
use super::variants::{Representation, Source};
use crate::http::{Body, BodyStream, Reply};

/// The reply to a `GET` or `HEAD` with this representation.
pub(crate) fn reply(request: &Request<'_>, representation: &Representation, counters: &Arc<Counters>) -> Reply {
    let (meta, source) = (representation.meta(), &representation.source);
    let head = request.method == Method::HEAD;
    match conditional::evaluate(&request.method, request.fields, &meta.validators()) {
        Verdict::Proceed => {}
        Verdict::NotModified => {
            let shared = Some(meta.unchanged().clone());
            return Reply { shared, ..Reply::new(StatusCode::NOT_MODIFIED, HeaderMap::new(), Body::Empty) };
        }
        Verdict::Failed => {
            let mut reply = reply::problem(StatusCode::PRECONDITION_FAILED, head);
            reply.headers.insert(ETAG, meta.etag.clone());
            return reply;
        }
    }
    let len = source.len();
    let shared = Some(meta.head.clone());
    if head {
        // Ranges are defined for GET only (RFC 9110, 14.2).
        return Reply { shared, content_len: Some(len), ..Reply::new(StatusCode::OK, HeaderMap::new(), Body::Empty) };
    }
    match wanted(request, meta, len) {
        Wanted::Whole => {
            let body = source.body(0..len, counters);
            Reply { shared, ..Reply::new(StatusCode::OK, HeaderMap::new(), body) }
        }
        Wanted::One(part) => {
            let mut headers = HeaderMap::with_capacity(4);
            headers.insert(CONTENT_RANGE, content_range(&part, len));
            Reply { shared, ..Reply::new(StatusCode::PARTIAL_CONTENT, headers, source.body(part, counters)) }
        }
        Wanted::Several(parts) => several(meta, source, &parts, counters),
        Wanted::Outside => {
            let mut reply = reply::problem(StatusCode::RANGE_NOT_SATISFIABLE, head);
            let range = HeaderValue::try_from(format!("bytes */{len}"));
            reply.headers.insert(CONTENT_RANGE, range.expect("digits and a few signs are header characters"));
            reply
        }
    }
}

fn wanted(request: &Request<'_>, meta: &Meta, len: u64) -> Wanted {
    let mut ranges = request.fields.all("range");
    let Some(range) = ranges.next() else {
        return Wanted::Whole;
    };
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    // `Range` is not a list: several fields have no meaning.
    match ranges.next().is_none() && conditional::if_range_holds(request.fields, &meta.validators(), now()) {
        true => range::wanted(range, len),
        false => Wanted::Whole,
    }
}

/// Several parts in one body (RFC 9110, 15.3.7.2).
fn several(meta: &Meta, source: &Source, parts: &[Range<u64>], counters: &Arc<Counters>) -> Reply {
    let boundary = boundary();
    let len = source.len();
    let mut pieces = VecDeque::with_capacity(2 * parts.len() + 1);
    let mut line_break = "";
    for part in parts {
        let kind = String::from_utf8_lossy(meta.content_type.as_bytes());
        let (first, last) = (part.start, part.end - 1);
        let head = format!(
            "{line_break}--{boundary}\r\ncontent-type: {kind}\r\ncontent-range: bytes {first}-{last}/{len}\r\n\r\n"
        );
        pieces.push_back(Body::Whole(head.into()));
        pieces.push_back(source.body(part.clone(), counters));
        line_break = "\r\n";
    }
    pieces.push_back(Body::Whole(format!("\r\n--{boundary}--\r\n").into()));
    let len = pieces.iter().map(|piece| piece.len().unwrap_or(0)).sum();
    let mut headers = meta.head.headers.clone();
    let kind = HeaderValue::try_from(format!("multipart/byteranges; boundary={boundary}"));
    headers.insert(CONTENT_TYPE, kind.expect("a boundary is made of hexadecimal digits"));
    let body = Body::Stream(Box::new(Pieces { pieces, len, counters: counters.clone() }));
    Reply::new(StatusCode::PARTIAL_CONTENT, headers, body)
}

/// The text between parts. It is random, so that a file cannot contain it on purpose.
fn boundary() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

fn content_range(part: &Range<u64>, len: u64) -> HeaderValue {
    let range = format!("bytes {}-{}/{len}", part.start, part.end - 1);
    HeaderValue::try_from(range).expect("digits and a few signs are header characters")
}

impl Source {
    fn body(&self, bytes: Range<u64>, counters: &Arc<Counters>) -> Body {
        match self {
            Source::Page(page) => Body::Whole(page.body.slice(bytes.start as usize..bytes.end as usize)),
            Source::File(file) => Body::Stream(Box::new(FileStream::new(file.clone(), bytes, counters.clone()))),
        }
    }
}

/// Bodies one after another.
struct Pieces {
    pieces: VecDeque<Body>,
    /// The length of all bodies still to come.
    len: u64,
    counters: Arc<Counters>,
}

impl BodyStream for Pieces {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        while let Some(piece) = self.pieces.front_mut() {
            // Files count their own bytes.
            let counts = !matches!(piece, Body::Stream(_));
            match piece.poll_next(cx) {
                Poll::Ready(None) => drop(self.pieces.pop_front()),
                Poll::Ready(Some(Ok(bytes))) => {
                    self.len -= bytes.len() as u64;
                    if counts {
                        self.counters.add_bytes(bytes.len() as u64);
                    }
                    return Poll::Ready(Some(Ok(bytes)));
                }
                other => return other,
            }
        }
        Poll::Ready(None)
    }

    fn len(&self) -> Option<u64> {
        Some(self.len)
    }
}
