//! A reply, before a version of HTTP gives it its form on the wire.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use super::body::Body;
use super::observer::Observer;

/// A reply. Whoever sends it adds the date and what frames the body (`content-length`, `transfer-encoding`, `connection`).
pub struct Reply {
    pub status: StatusCode,
    /// Fields that many replies have alike, such as those of a cached page; sent first.
    pub shared: Option<Arc<SharedHead>>,
    /// Fields of this reply alone.
    pub headers: HeaderMap,
    pub body: Body,
    /// What `content-length` says where the body is not sent (an answer to `HEAD`, `304`). Otherwise the body says it.
    pub content_len: Option<u64>,
    /// Whether the connection has to end behind this reply.
    pub close: bool,
    /// Learns what becomes of it; whoever sends it tells.
    pub observer: Option<Box<dyn Observer>>,
    /// Who made it, where that was another server: for the log.
    pub served: Option<Box<Served>>,
}

/// Another server's part in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Which one; `None` where none was found.
    pub upstream: Option<Arc<str>>,
    /// How long its head took, from the first try on.
    pub head_us: u64,
    /// How often it was tried, at this server or others.
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
    /// A reply with these parts and no shared fields.
    pub fn new(status: StatusCode, headers: HeaderMap, body: Body) -> Reply {
        Reply { status, shared: None, headers, body, content_len: None, close: false, observer: None, served: None }
    }
}

impl SharedHead {
    /// Writes the lines of `headers`, once for all replies to come.
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
