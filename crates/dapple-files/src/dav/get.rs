//! `GET` and `HEAD`: files with preconditions and ranges, and directories as pages.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use dapple::fs::{File, read_cached_at};
use dapple_http::conditional::{Validators, Verdict, evaluate, if_range_holds};
use dapple_http::range::{Wanted, wanted};
use dapple_http::{Field, Fields};
use dapple_sched::environment::system_now;
use dav_server::fs::FsError;
use futures_util::StreamExt;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use http_body::{Body, Frame, SizeHint};

use super::files::Caller;
use super::node::failed;
use super::page;
use crate::path::TreePath;
use crate::rights::May;
use crate::tree::{Access, Kind, Tree, of_file};

/// Answers a request for a file or a directory.
pub(crate) async fn get(
    tree: &Tree,
    caller: &Caller,
    method: &Method,
    uri: &Uri,
    fields: &HeaderMap,
    path: &TreePath,
) -> Result<Response<ReplyBody>, FsError> {
    if caller.may(path) == May::Nothing {
        return Err(FsError::NotFound);
    }
    let found = tree.stat(path).await.map_err(failed)?;
    match found.kind {
        Kind::Directory if !uri.path().ends_with('/') => Ok(to_directory(uri)),
        Kind::Directory => Ok(directory(tree, caller, method, path).await?),
        Kind::File if !uri.path().ends_with('/') => file(tree, method, fields, path).await,
        // A file's path with a slash at the end, a link, or a device.
        _ => Err(FsError::NotFound),
    }
}

async fn file(
    tree: &Tree,
    method: &Method,
    fields: &HeaderMap,
    path: &TreePath,
) -> Result<Response<ReplyBody>, FsError> {
    let opened = tree.open_file(path, Access { read: true, ..Access::default() }, None).await.map_err(failed)?;
    // Those of the open file: its name may lead to another one by now.
    let found = of_file(&opened).map_err(failed)?;
    let etag = format!("\"{}\"", found.tag());
    let modified = found.modified.to_system_time();
    let listed: Vec<Field<'_>> =
        fields.iter().map(|(name, value)| Field { name: name.as_str(), value: value.as_bytes() }).collect();
    let sent = Fields::new(&listed);
    let modified_s = modified.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs());
    let validators = Validators { etag: Some(etag.as_bytes()), modified_s };
    let mut reply = Response::new(ReplyBody::empty());
    let head = reply.headers_mut();
    head.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    insert(head, header::ETAG, &etag);
    insert(head, header::LAST_MODIFIED, &httpdate::fmt_http_date(modified));
    // Rights may change, and so may the file: a copy is used after asking only.
    head.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    match evaluate(method, sent, &validators) {
        Verdict::Proceed => {}
        Verdict::NotModified => {
            *reply.status_mut() = StatusCode::NOT_MODIFIED;
            return Ok(reply);
        }
        _ => {
            *reply.status_mut() = StatusCode::PRECONDITION_FAILED;
            return Ok(reply);
        }
    }
    let part = match (method, fields.get(header::RANGE)) {
        (&Method::GET, Some(range)) if if_range_holds(sent, &validators, now_s()) => {
            wanted(range.as_bytes(), found.len)
        }
        _ => Wanted::Whole,
    };
    let range = match part {
        Wanted::One(range) => {
            *reply.status_mut() = StatusCode::PARTIAL_CONTENT;
            let text = format!("bytes {}-{}/{}", range.start, range.end - 1, found.len);
            insert(reply.headers_mut(), header::CONTENT_RANGE, &text);
            range
        }
        Wanted::Outside => {
            *reply.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            insert(reply.headers_mut(), header::CONTENT_RANGE, &format!("bytes */{}", found.len));
            return Ok(reply);
        }
        // A server may answer a request for several parts with the whole (RFC 9110, section 14.2).
        Wanted::Whole | Wanted::Several(_) => 0..found.len,
    };
    describe(reply.headers_mut(), path, &range);
    if method == Method::GET {
        *reply.body_mut() = ReplyBody::of_file(opened, range);
    }
    Ok(reply)
}

fn describe(head: &mut HeaderMap, path: &TreePath, range: &Range<u64>) {
    insert(head, header::CONTENT_LENGTH, &(range.end - range.start).to_string());
    let kind = mime_guess::from_path(path.name()).first_raw().unwrap_or("application/octet-stream");
    let kind = if kind.starts_with("text/") { format!("{kind}; charset=utf-8") } else { kind.to_owned() };
    insert(head, header::CONTENT_TYPE, &kind);
    // A file that one user uploads must not run as a script in another user's browser, with that user's login.
    head.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    head.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

async fn directory(
    tree: &Tree,
    caller: &Caller,
    method: &Method,
    path: &TreePath,
) -> Result<Response<ReplyBody>, FsError> {
    let (mut entries, mut after) = (Vec::new(), Some(Vec::new()));
    while let Some(name) = after.take_if(|_| entries.len() < LISTED_MAX) {
        let part = tree.page(path, &name).await.map_err(failed)?;
        entries.extend(part.entries.into_iter().filter(|entry| {
            matches!(entry.attributes.kind, Kind::File | Kind::Directory)
                && path.join(&entry.name).is_ok_and(|path| caller.may(&path) >= May::Read)
        }));
        after = part.next;
    }
    let may_write = caller.may(path) >= May::Write;
    let page = Bytes::from(page::page(path, &entries, after.is_some(), may_write));
    let mut reply = Response::new(ReplyBody::empty());
    let head = reply.headers_mut();
    insert(head, header::CONTENT_LENGTH, &page.len().to_string());
    head.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    head.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    head.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY));
    if method == Method::GET {
        *reply.body_mut() = ReplyBody::of(page);
    }
    Ok(reply)
}

/// Sends a client on to the path with a slash at the end, so that links in the page work.
fn to_directory(uri: &Uri) -> Response<ReplyBody> {
    let mut reply = Response::new(ReplyBody::empty());
    *reply.status_mut() = StatusCode::PERMANENT_REDIRECT;
    // Relative, and not `//…`, which a browser would take for a host.
    let last = uri.path().rsplit('/').next().unwrap_or_default();
    insert(reply.headers_mut(), header::LOCATION, &format!("./{last}/"));
    reply.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    reply
}

pub(crate) fn insert(head: &mut HeaderMap, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        head.insert(name, value);
    }
}

/// A page for browsers has some more entries than this at most.
const LISTED_MAX: usize = 10_000;

fn now_s() -> u64 {
    system_now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The body of a reply of [`Files`](crate::Files).
pub struct ReplyBody(Content);

enum Content {
    Bytes(Option<Bytes>),
    File(Reading),
    Dav(dav_server::body::Body),
}

type ReadFuture = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + Send>>;

/// A file that is read as its client takes it.
struct Reading {
    file: File,
    left: Range<u64>,
    read: Option<ReadFuture>,
}

impl ReplyBody {
    pub(crate) fn empty() -> ReplyBody {
        ReplyBody(Content::Bytes(None))
    }

    pub(crate) fn of(bytes: impl Into<Bytes>) -> ReplyBody {
        ReplyBody(Content::Bytes(Some(bytes.into())))
    }

    pub(crate) fn of_dav(body: dav_server::body::Body) -> ReplyBody {
        ReplyBody(Content::Dav(body))
    }

    fn of_file(file: File, range: Range<u64>) -> ReplyBody {
        ReplyBody(Content::File(Reading { file, left: range, read: None }))
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.0 {
            Content::Bytes(bytes) => {
                Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))))
            }
            Content::Dav(body) => body.poll_next_unpin(cx).map_ok(Frame::data),
            Content::File(reading) => reading.poll(cx).map_ok(Frame::data),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Bytes(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Content::File(reading) => reading.left.is_empty(),
            Content::Dav(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Bytes(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Content::File(reading) => SizeHint::with_exact(reading.left.end - reading.left.start),
            Content::Dav(_) => SizeHint::default(),
        }
    }
}

impl Reading {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        let offset = self.left.start;
        let len = (self.left.end - offset).min(READ_LEN) as usize;
        if self.read.is_none() {
            // Data in the kernel's cache needs no other thread.
            if let Ok(Some(read)) = read_cached_at(&self.file, offset, len)
                && !read.is_empty()
            {
                return Poll::Ready(Some(Ok(self.took(read))));
            }
            let file = self.file.clone();
            self.read = Some(Box::pin(async move { file.read_at(offset, len).await }));
        }
        let Some(read) = &mut self.read else { return Poll::Ready(None) };
        let Poll::Ready(result) = read.as_mut().poll(cx) else { return Poll::Pending };
        self.read = None;
        Poll::Ready(Some(match result {
            Ok(read) if read.is_empty() => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter")),
            Ok(read) => Ok(self.took(read)),
            Err(error) => Err(error),
        }))
    }

    fn took(&mut self, read: Vec<u8>) -> Bytes {
        self.left.start += read.len() as u64;
        read.into()
    }
}

/// The most bytes that are read at a time: as many as a client's connection may have waiting.
const READ_LEN: u64 = 256 << 10;
