//! A reply, before an HTTP version gives it its form on the wire.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::body::Body;
use super::observer::Observer;

/// A reply. The sender adds the date and what frames the body (`content-length`,
/// `transfer-encoding`, `connection`).
pub struct Reply {
    pub status: StatusCode,
    /// Fields that many replies share, such as those of a cached page; sent first.
    pub shared: Option<Arc<SharedHead>>,
    /// Fields of this reply only.
    pub headers: HeaderMap,
    pub body: Body,
    /// The value of `content-length` if the body is not sent (an answer to `HEAD`, `304`).
    /// Otherwise the body determines it.
    pub content_len: Option<u64>,
    /// Whether the connection has to end after this reply.
    pub close: bool,
    /// Learns the outcome from the sender.
    pub observer: Option<Box<dyn Observer>>,
    /// The server that made the reply, if that was another one: for the log.
    pub served: Option<Box<Served>>,
}

/// Another server's part in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The server; `None` if none was found.
    pub upstream: Option<Arc<str>>,
    /// How long its head took, from the first try.
    pub head_us: u64,
    /// The number of tries, at this server or others.
    pub tries: u32,
}

/// Header fields made once and sent with many replies.
#[derive(Debug)]
pub struct SharedHead {
    /// For HTTP/2 and HTTP/3, which compress them.
    pub headers: HeaderMap,
    /// For HTTP/1.1: lines of `name: value`, each ended by CR LF.
    pub lines: Box<[u8]>,
}

impl Reply {
    /// Creates a reply from these parts, without shared fields.
    pub fn new(status: StatusCode, headers: HeaderMap, body: Body) -> Reply {
        Reply { status, shared: None, headers, body, content_len: None, close: false, observer: None, served: None }
    }
}

impl Reply {
    /// A reply of a program about itself, such as its page, or the figures for it: never stored, loading nothing from elsewhere, and shown
    /// in no other page.
    pub fn about_program(status: StatusCode, body: impl Into<Vec<u8>>, content_type: &'static str) -> Reply {
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'";
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
        Reply::new(status, headers, Body::Whole(body.into().into()))
    }
}

impl SharedHead {
    /// Writes the lines of `headers`, once for all later replies.
    pub fn new(headers: HeaderMap) -> SharedHead {
        let mut lines = Vec::with_capacity(32 * headers.len());
        for (name, value) in &headers {
            lines.extend_from_slice(name.as_str().as_bytes());
            lines.extend_from_slice(b": ");
            lines.extend_from_slice(value.as_bytes());
            lines.extend_from_slice(b"\r\n");
        }
        SharedHead { headers, lines: lines.into() }
    }
}
