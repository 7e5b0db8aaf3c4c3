//! Converts between the message types of hyper, which others use too, and ours: for all versions of
//! HTTP but 1.1.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dapple_http::{Field, Fields, Form, Request};
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response};
use hyper::body::{Frame, SizeHint};

use super::body::Body;
use super::observer::ObservedBody;
use super::reply::Reply;
use super::request_body::Incoming;

/// The fields of a request as a list, for [`request`].
pub fn fields(headers: &HeaderMap) -> Vec<Field<'_>> {
    headers.iter().map(|(name, value)| Field { name: name.as_str(), value: value.as_bytes() }).collect()
}

/// A hyper request in the form that programs see.
pub fn request<'a>(parts: &'a Parts, fields: &'a [Field<'a>]) -> Request<'a> {
    let fields = Fields::new(fields);
    let host = fields.first("host").and_then(|host| std::str::from_utf8(host).ok());
    let authority = parts.uri.authority().map(|authority| authority.as_str()).or(host);
    let form = match (&parts.method, parts.uri.scheme(), parts.uri.path()) {
        (&Method::CONNECT, ..) => Form::Authority,
        (_, Some(_), _) => Form::Absolute,
        (_, None, "*") => Form::Asterisk,
        _ => Form::Origin,
    };
    Request {
        method: parts.method.clone(),
        version: parts.version,
        form,
        scheme: parts.uri.scheme_str(),
        authority,
        path: parts.uri.path(),
        query: parts.uri.query(),
        fields,
    }
}

/// Finds errors that libraries do not check: the host has to be present, and given once (RFC 9113,
/// section 8.3.1; RFC 9114, section 4.3.1).
pub fn malformed(parts: &Parts, request: &Request<'_>) -> Option<&'static str> {
    let mut hosts = request.fields.all("host");
    let host = hosts.next();
    if hosts.next().is_some() {
        return Some("several hosts");
    }
    match (parts.uri.authority(), host) {
        (None, None) => Some("no host"),
        (Some(authority), _) if authority.as_str().contains('@') => Some("a user in the host"),
        (Some(authority), Some(host)) if !authority.as_str().as_bytes().eq_ignore_ascii_case(host) => {
            Some("two different hosts")
        }
        _ => None,
    }
}

/// A reply in the form that hyper sends.
pub fn response(reply: Reply) -> Response<ObservedBody> {
    let mut response = Response::new(ObservedBody::new(reply.body, reply.observer));
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    if let Some(shared) = &reply.shared {
        headers.clone_from(&shared.headers);
    }
    headers.extend(reply.headers);
    if let Some(len) = reply.content_len {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    }
    response
}

/// The body of a hyper request.
pub struct Received {
    body: hyper::body::Incoming,
    trailers: Option<HeaderMap>,
}

impl Received {
    pub fn new(body: hyper::body::Incoming) -> Received {
        Received { body, trailers: None }
    }

    /// Whether it was read to its end.
    pub fn is_end(&self) -> bool {
        use hyper::body::Body as _;
        self.body.is_end_stream()
    }
}

impl Incoming for Received {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        use hyper::body::Body as _;
        loop {
            return Poll::Ready(match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => None,
                Some(Err(error)) => Some(Err(io::Error::new(io::ErrorKind::InvalidData, error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => Some(Ok(data)),
                    Ok(_) => continue,
                    Err(frame) => {
                        self.trailers = frame.into_trailers().ok();
                        continue;
                    }
                },
            });
        }
    }

    fn len(&self) -> Option<u64> {
        use hyper::body::Body as _;
        self.body.size_hint().exact()
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let piece = ready!(self.poll_next(cx));
        Poll::Ready(match piece {
            Some(piece) => Some(piece.map(Frame::data)),
            // HTTP/2 senders take trailers whenever there are any.
            None => self.trailers().map(|trailers| Ok(Frame::trailers(trailers))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.len() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.len().map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
