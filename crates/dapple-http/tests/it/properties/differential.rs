//! Each accepted request means the same to hyper, a parser with another history: no recipient
//! before or after this one can be made to see a different request.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use dapple_http::{ChunkDecoder, Form, Framing, HeadLimits, HeadScan, parse};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;

/// A parser's view of the first request.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    method: String,
    version: String,
    path: String,
    query: Option<String>,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

/// The first request with its body, if it is complete and accepted, means the same to hyper, unless
/// hyper refuses it.
pub(crate) fn differential(data: &[u8]) {
    let Some(ours) = ours(data) else { return };
    if let Some(theirs) = theirs(data) {
        assert_eq!(ours, theirs);
    }
}

fn ours(data: &[u8]) -> Option<Seen> {
    let limits = HeadLimits::default();
    let found = HeadScan::new().find(data, &limits).ok()??;
    let mut storage = super::head::storage(found.fields);
    let head = parse(&data[found.start..found.end], &mut storage, &limits).ok()?;
    let rest = &data[found.end..];
    let body = match head.framing {
        Framing::None => Vec::new(),
        Framing::Len(len) => rest.get(..usize::try_from(len).ok()?)?.to_vec(),
        Framing::Chunked => dechunked(rest)?,
    };
    let request = &head.request;
    // hyper has no asterisk in absolute form, and misreads the target of `CONNECT`.
    if request.method == Method::CONNECT || (request.form == Form::Absolute && request.path == "*") {
        return None;
    }
    let fields = request.fields.iter().map(|field| (field.name.to_ascii_lowercase(), field.value.to_vec()));
    Some(Seen {
        method: request.method.to_string(),
        version: format!("{:?}", request.version),
        path: request.path.to_owned(),
        query: request.query.map(str::to_owned),
        fields: sorted(fields.collect()),
        body,
    })
}

fn dechunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let (mut decoder, mut body) = (ChunkDecoder::new(), Vec::new());
    loop {
        let step = decoder.step(rest).ok()?;
        body.extend_from_slice(&rest[step.data]);
        if step.is_end {
            return Some(body);
        }
        rest = &rest[step.consumed..];
        if rest.is_empty() {
            return None;
        }
    }
}

/// Values of one name keep their order; hyper does not keep the order of different names.
fn sorted(mut fields: Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    fields.sort_by(|(one, _), (other, _)| one.cmp(other));
    fields
}

fn theirs(data: &[u8]) -> Option<Seen> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let service = service_fn(|request: Request<Incoming>| {
        let seen = seen.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await;
            let fields =
                parts.headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
            let request = body.ok().map(|body| Seen {
                method: parts.method.to_string(),
                version: format!("{:?}", parts.version),
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().map(str::to_owned),
                fields: sorted(fields.collect()),
                body: body.to_bytes().to_vec(),
            });
            seen.lock().expect("nobody panics").push(request);
            ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))).await
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    // The connection ends after the request, which must still be answered.
    builder.half_close(true).header_read_timeout(None);
    let connection = builder.serve_connection(Wire(data.to_vec(), 0), service);
    let mut connection = pin!(connection);
    let mut cx = Context::from_waker(Waker::noop());
    // No part waits for another; a pending one asks for another poll.
    for _ in 0..1_000 {
        if connection.as_mut().poll(&mut cx).is_ready() {
            break;
        }
    }
    let mut seen = seen.lock().expect("nobody panics");
    if seen.is_empty() { None } else { seen.remove(0) }
}

/// A connection that delivers bytes and then the end; it drops all output.
struct Wire(Vec<u8>, usize);

impl Read for Wire {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let len = buf.remaining().min(self.0.len() - self.1);
        buf.put_slice(&self.0[self.1..self.1 + len]);
        self.1 += len;
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::{ours, theirs};

    #[test]
    fn requests_are_compared_at_all() {
        for data in [
            &b"GET http://a/b?c HTTP/1.1\r\nHost: a\r\nX: y\r\nX: z\r\n\r\n"[..],
            b"POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
        ] {
            let ours = ours(data);
            assert!(ours.is_some());
            assert_eq!(ours, theirs(data));
        }
        // Nothing is claimed about requests that only hyper accepts.
        let lenient = b"GET / HTTP/1.1\nHost: a\n\n";
        assert!(ours(lenient).is_none() && theirs(lenient).is_some());
    }
}
