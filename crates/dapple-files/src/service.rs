//! The service: logins, rights and faces of one tree.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use dapple::net::Peer;
use dapple::serve::Body;
use dapple::sync::Limit;
use dapple::sync::limit::Permit;
use dapple::tls::{ClientAuthorities, PeerCertificates};
use dav_server::DavHandler;
use dav_server::fs::FsError;
use futures_util::StreamExt;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::Body as _;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use percent_encoding::percent_decode_str;
use tracing::info;
use xml::reader::{EventReader, XmlEvent};

use crate::audit::{Audit, Audited, By, Outcome};
use crate::dav::{self, Caller, DavTree, Locks, ReplyBody};
use crate::lease::LeaseCounts;
use crate::lock::lock;
use crate::login::{LoginError, Logins, Users};
use crate::mounts::Mounts;
use crate::path::{PathError, TreePath};
use crate::rights::Rules;
use crate::room::Rooms;
use crate::shares::{Share, Shares};
use crate::tree::Tree;
use crate::upload_body::SharedBody;
use crate::wire::{self, Call};

/// A tree of files as a tower service, for `dapple::serve`. Cheap to clone.
///
/// Serve it over TLS only, or on loopback: clients send passwords.
#[derive(Clone)]
pub struct Files(Arc<Shared>);

struct Shared {
    tree: Tree,
    logins: Logins,
    rules: Arc<Mutex<Arc<Rules>>>,
    locks: Locks,
    dav: DavHandler<Caller>,
    mounts: Mounts,
    rooms: Rooms,
    /// Large calls of mounts that are read.
    large_calls: Shares<Arc<str>>,
    /// Those that are read while memory is short.
    large_while_short: Limit,
    counts: Counts,
    audit: Audit,
    status_page: OnceLock<StatusPage>,
    /// Whether only small calls of mounts are answered, and large writes that they kept.
    refuses: AtomicBool,
}

type StatusPage = Box<dyn Fn(FilesCounts) -> String + Send + Sync>;

#[derive(Default)]
struct Counts {
    refused_logins: AtomicU64,
    uploads: AtomicU64,
}

/// Counters of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilesCounts {
    /// The requests refused for want of a valid login, but for those that had none.
    pub refused_logins: u64,
    /// The uploads that ended well.
    pub uploads: u64,
    /// The locks of WebDAV's clients.
    pub locks: usize,
    /// The mounts that sent a call lately.
    pub mounts: usize,
    /// The files that mounts have open.
    pub open_files: usize,
    /// The leases.
    pub leases: LeaseCounts,
}

impl Files {
    /// Serves a tree to those that log in, as far as the rules let them.
    pub fn new(tree: Tree, logins: Logins, rules: Rules) -> Files {
        let locks = Locks::new();
        let dav = DavHandler::builder()
            .filesystem(Box::new(DavTree(tree.clone())))
            .locksystem(Box::new(locks.clone()))
            .build_handler();
        let rules = Arc::new(Mutex::new(Arc::new(rules)));
        Files(Arc::new(Shared {
            tree,
            logins,
            rules,
            locks,
            dav,
            mounts: Mounts::new(),
            rooms: Rooms::default(),
            large_calls: Shares::new(LARGE_CALLS_MAX, LARGE_CALLS_WAITING_MAX),
            large_while_short: Limit::new(LARGE_WHILE_SHORT_MAX),
            counts: Counts::default(),
            audit: Audit::default(),
            status_page: OnceLock::new(),
            refuses: AtomicBool::new(false),
        }))
    }

    /// Lets mounts change the owners of files, and set the bits setuid and setgid, as far as this process may: for clients that are
    /// trusted like this process's user.
    pub fn trust_owners(&self) {
        self.0.mounts.trust_owners();
    }

    /// Keeps a log of the changes of mounts in a directory of its own, outside of the tree, so that a change that a mount sends again to a
    /// service that started anew does not happen twice. Call it before the service begins, and each time with the same directory.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if another service has the log; other errors of the kernel.
    pub async fn remember_changes(&self, dir: impl Into<PathBuf>) -> io::Result<()> {
        self.0.mounts.remember_changes(&self.0.tree, dir.into()).await
    }

    /// Gives a record of each change that a client makes, or tries to make, to `sink`, which must not block; the first one given stays. Of
    /// the writes of a mount to an open file, the first that succeeds counts for all that do.
    pub fn audit(&self, sink: impl Fn(&Audited) + Send + Sync + 'static) {
        self.0.audit.set(Box::new(sink));
    }

    /// Serves this page, in JSON, as `/-/status` to all that log in; the first one given stays.
    pub fn status_page(&self, page: impl Fn(FilesCounts) -> String + Send + Sync + 'static) {
        let _ = self.0.status_page.set(Box::new(page));
    }

    /// Refuses all requests with `503`, except small calls of mounts and writes that these kept, until it is called with `false`: while
    /// memory is short.
    pub fn refuse_all(&self, refuses: bool) {
        self.0.refuses.store(refuses, Ordering::Relaxed);
    }

    /// The tree.
    pub fn tree(&self) -> &Tree {
        &self.0.tree
    }

    /// Replaces users and rules, for requests from now on, those with files that mounts have open among them. Mounts drop what they
    /// keep. An upload that has begun ends only if its user may still write there; a download that has begun ends.
    pub fn reload(&self, users: Users, rules: Rules) {
        self.0.logins.set_users(users);
        *lock(&self.0.rules) = Arc::new(rules);
        self.0.tree.leases().recall_all();
    }

    /// Lets in clients by the certificates of these authorities, or by none; see [`Logins::set_authorities`].
    pub fn set_authorities(&self, authorities: Option<ClientAuthorities>) {
        self.0.logins.set_authorities(authorities);
    }

    /// Counters.
    pub async fn counts(&self) -> FilesCounts {
        let (mounts, open_files) = self.0.mounts.counts();
        FilesCounts {
            mounts,
            open_files,
            refused_logins: self.0.counts.refused_logins.load(Ordering::Relaxed),
            uploads: self.0.counts.uploads.load(Ordering::Relaxed),
            locks: self.0.locks.len().await,
            leases: self.0.tree.leases().counts(),
        }
    }

    async fn answer(self, request: Request<Body>) -> Response<ReplyBody> {
        let method = request.method().clone();
        let uri = request.uri().clone();
        let address = request.extensions().get::<Peer>().and_then(|peer| peer.addr()).map(|addr| addr.ip());
        let path = match path_of(&uri) {
            Ok(path) => path,
            Err(error) => {
                info!(%method, path = uri.path(), %error, "refused");
                return text(StatusCode::BAD_REQUEST, &error.to_string());
            }
        };
        let certificates = request.extensions().get::<PeerCertificates>();
        let user = match self.0.logins.user(request.headers(), certificates, address).await {
            Ok(user) => user,
            Err(error) => {
                let reply = self.refuse_login(error, &method, &path, address);
                if is_upload(&method) {
                    SharedBody::new(request.into_body()).drain().await;
                }
                return reply;
            }
        };
        let rules = lock(&self.0.rules).clone();
        let asked = Arc::new(dav::Asked::new(&method, &path, request.headers(), self.0.rules.clone()));
        let room = self.0.rooms.of(&user);
        let caller = Caller { user, rules, asked, room };
        let user = caller.user.clone();
        let is_small = match method {
            Method::POST => uri.path() == wire::PATH,
            Method::GET | Method::HEAD => uri.path() == "/-/status",
            _ => false,
        };
        let change = self.0.audit.begin(|| {
            let call = audited(&method)?;
            let to = dav::guard::destination(&uri, request.headers()).ok().filter(|_| matches!(call, "COPY" | "MOVE"));
            Some(Audited { user: user.clone(), address, call, path: path.clone(), to, result: Outcome::Left })
        });
        let reply = match method {
            _ if dav::guard::is_cross_site(&method, request.headers()) => {
                text(StatusCode::FORBIDDEN, "a page of another site sent this")
            }
            _ if self.0.refuses.load(Ordering::Relaxed) && !is_small => short_of_memory(),
            Method::POST if uri.path() == wire::PATH => return self.mount(caller, address, request).await,
            Method::GET | Method::HEAD => self.get(caller, &method, &uri, request.headers(), &path).await,
            _ => match dav::guard::check(&caller, &method, &uri, &path, request.headers()) {
                Ok(()) => self.dav(caller, request).await,
                Err((status, words)) => {
                    if is_upload(&method) {
                        SharedBody::new(request.into_body()).drain().await;
                    }
                    text(status, words)
                }
            },
        };
        match reply.status() {
            // A lock makes a file, or changes none.
            status if method.as_str() == "LOCK" && status != StatusCode::CREATED => change.forget(),
            status => change.end(reply.extensions().get().copied().unwrap_or(Outcome::of(status))),
        }
        info!(%user, %method, %path, status = reply.status().as_u16(), client = ?address, "request");
        reply
    }

    async fn get(
        &self,
        caller: Caller,
        method: &Method,
        uri: &Uri,
        fields: &HeaderMap,
        path: &TreePath,
    ) -> Response<ReplyBody> {
        match uri.path() {
            "/-/files.js" => return asset(dav::SCRIPT, "text/javascript; charset=utf-8"),
            "/-/files.css" => return asset(dav::STYLE, "text/css; charset=utf-8"),
            "/-/status" => {
                if let Some(page) = self.0.status_page.get() {
                    return reply(StatusCode::OK, "application/json", page(self.counts().await));
                }
            }
            _ => {}
        }
        match dav::get(&self.0.tree, &caller, method, uri, fields, path).await {
            Ok(reply) => reply,
            Err(error) => failure(error),
        }
    }

    /// Answers a call of a mount.
    async fn mount(&self, caller: Caller, address: Option<IpAddr>, request: Request<Body>) -> Response<ReplyBody> {
        // A type that pages of other sites cannot send without asking first.
        if request.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind != wire::CONTENT_TYPE)
            || request.headers().contains_key(header::ORIGIN)
        {
            return text(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "only mounts call this; `dapple mount` of the same version does",
            );
        }
        let len: Option<usize> =
            request.headers().get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok());
        // Few large bodies are read at a time, so that the mounts cannot fill the memory; small ones do not wait for them. A call that
        // has been read does not keep others from being read: it may wait long for the lease of a client that does not answer.
        let is_short = self.0.refuses.load(Ordering::Relaxed);
        let permit = match len {
            Some(len) if len <= wire::SMALL_CALL => None,
            // It may be a write that was kept, for which others wait.
            _ if is_short => match self.room_while_short(&caller.user) {
                Some(permit) => Some(permit),
                None => return short_of_memory(),
            },
            _ => match self.0.large_calls.acquire(&caller.user).await {
                Ok(permit) => Some((permit, None)),
                Err(_) => return too_many("too many large calls of mounts wait; try again"),
            },
        };
        let body = match Limited::new(request.into_body(), wire::DATA_MAX + (1 << 20)).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return text(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        let Some((call, data)) = wire::decode::<Call>(body) else {
            return text(
                StatusCode::BAD_REQUEST,
                "this is no call of a mount; `dapple mount` of the same version sends them",
            );
        };
        let is_large = permit.is_some();
        if is_large && is_short && !call.action.is_kept_write(&self.0.tree) {
            return short_of_memory();
        }
        drop(permit);
        let by = By { audit: &self.0.audit, address };
        let Some((answer, data)) = self.0.mounts.answer(&self.0.tree, &caller, by, call, data, is_large).await else {
            return too_many("too many calls of this mount, or of its user, run or wait");
        };
        match wire::encode(&answer, &data.bytes) {
            Ok(body) => Response::new(ReplyBody::of(data.sent_as(body))),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }

    /// Lets a large call be read while memory is short.
    fn room_while_short(&self, user: &Arc<str>) -> Option<(Share<Arc<str>>, Option<Permit>)> {
        let own = self.0.large_calls.try_acquire(user)?;
        Some((own, Some(self.0.large_while_short.try_acquire()?)))
    }

    /// Answers a method of WebDAV.
    async fn dav(&self, caller: Caller, request: Request<Body>) -> Response<ReplyBody> {
        let method = request.method().clone();
        let user = caller.user.to_string();
        if method.as_str() == "PROPFIND" && !is_shallow(request.headers()) {
            return xml(StatusCode::FORBIDDEN, FINITE_DEPTH);
        }
        if matches!(method.as_str(), "LOCK" | "UNLOCK") {
            let named = ["lock-token", "if"].map(|name| request.headers().get(name).cloned());
            for field in named.into_iter().flatten() {
                if self.0.locks.is_of_other(&caller.user, field.as_bytes()).await {
                    return text(StatusCode::FORBIDDEN, "this lock is another user's");
                }
            }
        }
        let asked = caller.asked.clone();
        let (parts, body) = request.into_parts();
        let is_upload = is_upload(&method);
        let reply = if is_upload {
            let body = SharedBody::new(body);
            let reply = self.0.dav.handle_guarded(Request::from_parts(parts, body.clone()), user, caller).await;
            if !reply.status().is_success() {
                body.drain().await;
            }
            reply
        } else {
            let body = match Limited::new(body, XML_LEN_MAX).collect().await {
                Ok(body) => body.to_bytes(),
                Err(error) if error.is::<LengthLimitError>() => {
                    return text(StatusCode::PAYLOAD_TOO_LARGE, "the body of this request may have 64 KiB");
                }
                Err(error) => return text(StatusCode::BAD_REQUEST, &error.to_string()),
            };
            if !is_simple(&body) {
                return text(
                    StatusCode::BAD_REQUEST,
                    "the XML of the request is more than 64 elements deep, or has a DOCTYPE",
                );
            }
            let request = Request::from_parts(parts, Full::<Bytes>::new(body));
            if matches!(method.as_str(), "COPY" | "MOVE" | "DELETE") {
                return self.change_tree(caller, user, request).await;
            }
            let reply = self.0.dav.handle_guarded(request, user, caller).await;
            if method.as_str() == "PROPPATCH" && reply.status() == StatusCode::MULTI_STATUS && self.0.audit.is_on() {
                return with_outcome(reply).await;
            }
            reply
        };
        if is_upload && reply.status().is_success() {
            self.0.counts.uploads.fetch_add(1, Ordering::Relaxed);
        }
        finished(reply.map(ReplyBody::of_dav), &asked, &method)
    }

    /// Copies, moves or removes a whole tree, also if the client leaves before the end.
    async fn change_tree(&self, caller: Caller, user: String, request: Request<Full<Bytes>>) -> Response<ReplyBody> {
        let (dav, method) = (self.0.dav.clone(), request.method().clone());
        let Ok(permit) = caller.room.trees.acquire().await else {
            return too_many("too many copies, moves and deletions of this user wait; try again");
        };
        let change = dapple::spawn(async move {
            let _permit = permit;
            let asked = caller.asked.clone();
            let (mut head, parts) = dav.handle_guarded(request, user, caller).await.into_parts();
            let body = gathered(parts).await.unwrap_or_else(|| {
                head.status = StatusCode::INTERNAL_SERVER_ERROR;
                Bytes::new()
            });
            let is_done = matches!(head.status, StatusCode::CREATED | StatusCode::NO_CONTENT);
            if let Err(error) = asked.end(is_done).await {
                tracing::warn!(%error, "a copy did not take its place");
                return text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the copy could not take its place; the old files stay",
                );
            }
            if head.status == StatusCode::INTERNAL_SERVER_ERROR {
                return text(head.status, "too many parts failed to be listed");
            }
            finished(Response::from_parts(head, ReplyBody::of(body)), &asked, &method)
        });
        change.await.unwrap_or_else(|_| text(StatusCode::INTERNAL_SERVER_ERROR, BROKEN))
    }

    fn refuse_login(
        &self,
        error: LoginError,
        method: &Method,
        path: &TreePath,
        address: Option<IpAddr>,
    ) -> Response<ReplyBody> {
        if error != LoginError::Missing {
            self.0.counts.refused_logins.fetch_add(1, Ordering::Relaxed);
            info!(%method, %path, client = ?address, %error, "refused");
        }
        let (status, wait_s) = match error {
            LoginError::TooMany(left) => (StatusCode::TOO_MANY_REQUESTS, left.as_secs() + 1),
            LoginError::Busy => (StatusCode::SERVICE_UNAVAILABLE, 1),
            LoginError::Missing | LoginError::Wrong | LoginError::Certificate => (StatusCode::UNAUTHORIZED, 0),
        };
        let mut reply = text(status, &error.to_string());
        let head = reply.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            head.append(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"files\", charset=\"UTF-8\""));
            head.append(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"files\""));
        } else {
            head.insert(header::RETRY_AFTER, HeaderValue::from(wait_s));
        }
        reply
    }
}

impl tower_service::Service<Request<Body>> for Files {
    type Response = Response<ReplyBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ReplyBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let files = self.clone();
        Box::pin(async move { Ok(files.answer(request).await) })
    }
}

/// The name of a method that changes files.
fn audited(method: &Method) -> Option<&'static str> {
    const ALL: [&str; 8] = ["PUT", "PATCH", "DELETE", "MKCOL", "COPY", "MOVE", "PROPPATCH", "LOCK"];
    ALL.into_iter().find(|name| method.as_str() == *name)
}

/// The file that a request names. A path that a lenient server would repair, such as `a/../b`, is refused.
pub(crate) fn path_of(uri: &Uri) -> Result<TreePath, PathError> {
    let decoded: Vec<u8> = percent_decode_str(uri.path()).collect();
    match decoded.as_slice() {
        // `OPTIONS *`.
        b"*" => Ok(TreePath::root()),
        path => TreePath::parse(path),
    }
}

fn is_upload(method: &Method) -> bool {
    matches!(*method, Method::PUT | Method::PATCH)
}

fn is_shallow(fields: &HeaderMap) -> bool {
    fields.get("depth").is_some_and(|depth| matches!(depth.as_bytes(), b"0" | b"1"))
}

/// Whether XML is so flat that dav-server's reader, which recurses, cannot run out of stack, and declares no entities. Text
/// that is no XML is left to dav-server, which refuses it where it reads it.
pub(crate) fn is_simple(xml: &[u8]) -> bool {
    if xml.windows(9).any(|part| part.eq_ignore_ascii_case(b"<!doctype")) {
        return false;
    }
    let mut depth = 0;
    for event in EventReader::new(xml) {
        match event {
            Ok(XmlEvent::StartElement { .. }) => depth += 1,
            Ok(XmlEvent::EndElement { .. }) => depth -= 1,
            Ok(_) => {}
            Err(_) => return true,
        }
        if depth > XML_DEPTH_MAX {
            return false;
        }
    }
    true
}

fn failure(error: FsError) -> Response<ReplyBody> {
    match error {
        FsError::NotFound => text(StatusCode::NOT_FOUND, "there is no such file"),
        FsError::Forbidden => text(StatusCode::FORBIDDEN, "this file cannot be read"),
        FsError::TooLarge => text(StatusCode::PAYLOAD_TOO_LARGE, "the directory has too many entries for a page"),
        FsError::PathTooLong => text(StatusCode::URI_TOO_LONG, "the path is too long"),
        _ => text(StatusCode::INTERNAL_SERVER_ERROR, "the file cannot be read now; the server's log says why"),
    }
}

fn short_of_memory() -> Response<ReplyBody> {
    too_many("the server is short of memory; try again")
}

fn too_many(words: &str) -> Response<ReplyBody> {
    let mut reply = text(StatusCode::SERVICE_UNAVAILABLE, words);
    reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(1));
    reply
}

/// A reply of dav-server, which gives no reason for a refusal.
fn finished(reply: Response<ReplyBody>, asked: &dav::Asked, method: &Method) -> Response<ReplyBody> {
    let (status, words) = match asked.refusal() {
        Some(refusal) if !reply.status().is_success() || reply.status() == StatusCode::MULTI_STATUS => refusal,
        _ if reply.status().as_u16() >= 400 && (reply.body().is_end_stream() || has_no_body(&reply)) => {
            (reply.status(), words(reply.status(), method))
        }
        _ => return reply,
    };
    let mut with_reason = match status {
        StatusCode::SERVICE_UNAVAILABLE => too_many(words),
        status => text(status, words),
    };
    if let Some(connection) = reply.headers().get(header::CONNECTION) {
        with_reason.headers_mut().insert(header::CONNECTION, connection.clone());
    }
    with_reason
}

/// A reply to `PROPPATCH`, with what became of the properties.
async fn with_outcome(reply: Response<dav_server::body::Body>) -> Response<ReplyBody> {
    let (mut head, parts) = reply.into_parts();
    let Some(body) = gathered(parts).await else {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "the properties are too many to be listed");
    };
    head.extensions.insert(Outcome::of_properties(&body));
    Response::from_parts(head, ReplyBody::of(body))
}

/// All parts of a reply of dav-server; `None` if they are too long to be kept.
async fn gathered(mut parts: dav_server::body::Body) -> Option<Bytes> {
    let (mut body, mut fits) = (BytesMut::new(), true);
    while let Some(Ok(part)) = parts.next().await {
        fits &= body.len() + part.len() <= PROBLEMS_LEN_MAX;
        if fits {
            body.extend_from_slice(&part);
        }
    }
    fits.then(|| body.freeze())
}

fn has_no_body(reply: &Response<ReplyBody>) -> bool {
    reply.headers().get(header::CONTENT_LENGTH).is_some_and(|len| len == "0")
}

/// The reason for a refusal of dav-server.
fn words(status: StatusCode, method: &Method) -> &'static str {
    match status.as_u16() {
        400 => "a header field of the request, or the XML of its body, cannot be read",
        403 => "this user may not do that here",
        404 => "there is no such file",
        405 => "this method does not fit here: something has that name already",
        409 => "the directory of that name does not exist",
        411 => "say how long the body is (Content-Length)",
        412 => "the file is not in the state that the conditions of the request need",
        413 => "the file would be longer than files can be",
        414 => "the path is too long",
        415 if *method == Method::PATCH => "a part of a file has the type application/x-sabredav-partialupdate",
        415 => "this method takes no body",
        416 => "the range fits neither the file nor the body",
        423 => "the file is locked; send the token of the lock in the field If",
        502 => "the Destination is on another server or another file system",
        507 => "there is no room left on the disk",
        _ => BROKEN,
    }
}

fn text(status: StatusCode, words: &str) -> Response<ReplyBody> {
    reply(status, "text/plain; charset=utf-8", format!("{words}\n"))
}

fn xml(status: StatusCode, body: &'static str) -> Response<ReplyBody> {
    reply(status, "application/xml; charset=utf-8", body.to_owned())
}

fn asset(content: &'static str, kind: &'static str) -> Response<ReplyBody> {
    let mut reply = reply(StatusCode::OK, kind, content.to_owned());
    reply.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("private, max-age=300"));
    reply
}

fn reply(status: StatusCode, kind: &'static str, body: String) -> Response<ReplyBody> {
    let len = HeaderValue::from(body.len());
    let mut reply = Response::new(ReplyBody::of(body));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    reply.headers_mut().insert(header::CONTENT_LENGTH, len);
    reply
}

/// The precondition of RFC 4918 (section 9.1) for a request for a whole tree.
const FINITE_DEPTH: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
    <D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>\n";

/// The large calls of mounts that are read at a time, with two MB at most each.
const LARGE_CALLS_MAX: usize = 64;
const LARGE_CALLS_WAITING_MAX: usize = 2048;
const LARGE_WHILE_SHORT_MAX: usize = 4;

const XML_LEN_MAX: usize = 64 << 10;

/// The most bytes of the list of what failed in a change of a tree.
const PROBLEMS_LEN_MAX: usize = 16 << 20;

const BROKEN: &str = "this failed; the server's log says why";

/// The deepest element of a request; those of real clients have a depth of five.
pub(crate) const XML_DEPTH_MAX: usize = 64;

#[cfg(test)]
mod tests;
