//! One request at one upstream.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use dapple::stage::balance::Outcome;
use dapple::time::{Instant, timeout};
use http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, DATE, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, Version};
use hyper::body::Body as _;
use hyper::upgrade::Upgraded;

use super::connect::{Opened, open};
use super::download::{Download, Lease};
use super::pool::{Sender1, Stream};
use super::{HTTP_1, HTTP_2, Turn, UNKNOWN, Upstream};
use crate::http::{Body, RequestBody};
use crate::proxy::fields;
use crate::proxy::hints::Hints;
use crate::proxy::reverse::failure::{Failure, with_causes};
use crate::proxy::reverse::list::Pick;
use crate::proxy::reverse::target::Scheme;
use crate::proxy::upstream::check;
use crate::proxy::upstream::sending::{Halt, Prepared, Sent, Uploading, go_on, prepare, upload};
use crate::proxy::upstream::upload::Upload;

/// A request as it goes to whichever upstream.
#[derive(Clone)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) target: PathAndQuery,
    /// Without `Host`, and without what belongs to a connection.
    pub(crate) headers: HeaderMap,
    /// What the client calls the server; `None` where upstreams are asked by their own names.
    pub(crate) authority: Option<Authority>,
    /// Whether the client takes fields behind the body.
    pub(crate) takes_trailers: bool,
    /// The protocol to change to, where the client asks for one.
    pub(crate) upgrade: Option<HeaderValue>,
    /// Where interim responses go, if anywhere.
    pub(crate) hints: Option<Arc<Hints>>,
}

/// A response whose head is there.
pub(crate) struct Answer {
    pub(crate) version: Version,
    pub(crate) status: StatusCode,
    /// Without the fields of the connection, and without what frames the body.
    pub(crate) headers: HeaderMap,
    /// What `content-length` said: also of a body that is not sent.
    pub(crate) content_len: Option<u64>,
    pub(crate) body: Body,
    /// The upstream answered before it had all of the request.
    pub(crate) is_early: bool,
    /// The protocol has changed: the connection, and what is held for as long as it is open.
    pub(crate) upgraded: Option<(Upgraded, Box<dyn Send>)>,
}

/// Why there is none.
pub(crate) struct Missed {
    pub(crate) failure: Failure,
    /// Nothing of the request left this machine.
    pub(crate) is_unsent: bool,
    /// The connection had been used before: the upstream may have closed it in this very moment.
    pub(crate) is_kept: bool,
    /// There was a connection at this time.
    pub(crate) begun: Instant,
}

/// A connection for one request.
enum Line {
    One(Sender1),
    Many(Stream),
}

/// Why hyper did not bring a response.
struct Unanswered {
    error: hyper::Error,
    is_unsent: bool,
}

type Respond = Pin<Box<dyn Future<Output = Result<Response<hyper::body::Incoming>, Unanswered>> + Send>>;

/// Sends a request with what its client sends as the body, and gives the answer once its head is there. With `fresh`, on a connection
/// of HTTP/1.1 that was not used before, or on one of HTTP/2 that is younger. The pick goes along with an answer, and stays where there is none.
///
/// # Errors
///
/// Why there is no answer, and what is known of how far the request came.
pub(crate) async fn attempt(
    pick: &mut Option<Pick>,
    outgoing: &Outgoing,
    body: &mut RequestBody<'_>,
    fresh: Option<Instant>,
) -> Result<Answer, Missed> {
    let unsent = |failure| Missed { failure, is_unsent: true, is_kept: false, begun: Instant::now() };
    let Some(upstream) = pick.as_ref().map(|pick| pick.value().clone()) else {
        return Err(unsent(Failure::Busy));
    };
    let upstream = &upstream;
    upstream.counts.requests.fetch_add(1, Ordering::Relaxed);
    let turn = upstream.turn().await.map_err(unsent)?;
    let only_http1 = outgoing.upgrade.is_some() && upstream.target.scheme != Scheme::H2c;
    let (line, is_kept) = turn.line(fresh, only_http1).await.map_err(unsent)?;
    let begun = Instant::now();
    pick.as_mut().into_iter().for_each(Pick::start);
    let missed = |failure, is_unsent| Missed { failure, is_unsent, is_kept, begun };
    let (uri, headers) = outgoing.head(upstream, &line, body.len());
    let Prepared { request, pieces, gate } =
        prepare(&outgoing.method, uri, &headers, outgoing.hints.as_ref(), body.len());
    let (mut respond, mut lease) = line.send(request, turn);
    let pause_max = upstream.common.waits.response;
    let sent = upload(pause_max, respond.as_mut(), body, pieces, gate).await.map_err(|halt| match halt {
        Halt::Client(error) => missed(Failure::Client(error.to_string()), false),
        Halt::Server(unanswered) => missed(unanswered.failure(), unanswered.is_unsent),
        Halt::Idle => missed(Failure::Idle, false),
        Halt::Stuck => missed(Failure::Stuck, false),
    })?;
    let response = match sent {
        Sent::Early(response, pieces, held) => {
            lease.upload = Some(match go_on(body, response.status(), pieces, held, pause_max) {
                Ok((gone, moving)) => {
                    upstream.common.spawn(moving);
                    Uploading::On(gone)
                }
                Err(pieces) => {
                    lease.sender = None;
                    Uploading::Off(pieces)
                }
            });
            response
        }
        Sent::All => {
            let responded = timeout(pause_max, respond.as_mut()).await;
            let responded = responded.map_err(|_| missed(Failure::TimedOut, false))?;
            responded.map_err(|unanswered| missed(unanswered.failure(), unanswered.is_unsent))?
        }
    };
    drop(respond);
    let after = begun.elapsed();
    let answer = accept(response, lease, outgoing, pick).await.map_err(|failure| missed(failure, false))?;
    upstream.answered(after);
    Ok(answer)
}

impl Turn {
    /// A connection for one request: one that was kept, unless it has to be fresh, or one that is made. The second says whether it was
    /// kept.
    async fn line(&self, fresh: Option<Instant>, only_http1: bool) -> Result<(Line, bool), Failure> {
        let upstream = &self.upstream;
        let limit = upstream.common.waits.connect;
        let may_share = upstream.target.scheme != Scheme::Http && !only_http1;
        if let Some(line) = self.kept(may_share, fresh).await {
            return Ok((line, true));
        }
        let is_shared = may_share && upstream.spoken.load(Ordering::Relaxed) != HTTP_1;
        let opening = async {
            // Others may be finding out at this moment, and what they open may do for all.
            let _alone = if is_shared { Some(upstream.opening.lock().await) } else { None };
            if is_shared && let Some(line) = self.kept(true, fresh).await {
                return Ok((line, true));
            }
            let opened = open(upstream, upstream.place()?, limit, only_http1).await?;
            upstream.counts.connects.fetch_add(1, Ordering::Relaxed);
            Ok((upstream.begin(opened, only_http1), false))
        };
        timeout(2 * limit, opening).await.unwrap_or(Err(Failure::ConnectTimeout))
    }

    async fn kept(&self, may_share: bool, fresh: Option<Instant>) -> Option<Line> {
        let upstream = &self.upstream;
        while may_share && let Some(mut stream) = { upstream.pool().share(fresh) } {
            if stream.sender.ready().await.is_ok() {
                upstream.counts.reused.fetch_add(1, Ordering::Relaxed);
                return Some(Line::Many(stream));
            }
        }
        while fresh.is_none()
            && let Some(mut sender) = { upstream.pool().take() }
        {
            if sender.ready().await.is_ok() {
                upstream.counts.reused.fetch_add(1, Ordering::Relaxed);
                return Some(Line::One(sender));
            }
        }
        None
    }
}

impl Upstream {
    /// The first request on a connection that was just made.
    fn begin(self: &Arc<Upstream>, opened: Opened, only_http1: bool) -> Line {
        let spoken = match &opened {
            _ if only_http1 => UNKNOWN,
            Opened::Http1(_) => HTTP_1,
            Opened::Http2(..) => HTTP_2,
        };
        if spoken != UNKNOWN {
            self.spoken.store(spoken, Ordering::Relaxed);
        }
        match opened {
            Opened::Http1(sender) => Line::One(sender),
            Opened::Http2(sender, streams_max) => {
                let (stream, is_first) = self.pool().add(sender, streams_max);
                self.sweep_if(is_first);
                Line::Many(stream)
            }
        }
    }
}

impl Line {
    /// Hands the request to its connection. One that ends in this very moment may miss it in its queue, where it then is for as long as
    /// there is a sender; so none is kept of a connection that has ended.
    fn send(self, request: http::Request<Upload>, turn: Turn) -> (Respond, Lease) {
        match self {
            Line::One(mut sender) => {
                let responding = sender.try_send_request(request);
                let respond: Respond = Box::pin(async move { responding.await.map_err(Unanswered::of) });
                let sender = Some(sender).filter(|sender| !sender.is_closed());
                (respond, Lease { turn, sender, stream: None, upload: None, pick: None })
            }
            Line::Many(mut stream) => {
                let responding = stream.sender.try_send_request(request);
                let respond: Respond = Box::pin(async move { responding.await.map_err(Unanswered::of) });
                let stream = Some(stream).filter(|stream| !stream.sender.is_closed());
                if stream.is_none() {
                    turn.upstream.pool().drop_closed();
                }
                (respond, Lease { turn, sender: None, stream, upload: None, pick: None })
            }
        }
    }
}

impl Unanswered {
    fn of<T>(mut error: hyper::client::conn::TrySendError<T>) -> Unanswered {
        let is_unsent = error.take_message().is_some();
        Unanswered { error: error.into_error(), is_unsent }
    }

    fn failure(&self) -> Failure {
        match self.error.is_parse() {
            true => Failure::Framing("its head is malformed"),
            false => Failure::Broken(with_causes(&self.error)),
        }
    }
}

impl Outgoing {
    /// Target and fields in the form of the version that is spoken.
    fn head(&self, upstream: &Upstream, line: &Line, len: Option<u64>) -> (Uri, HeaderMap) {
        let mut headers = self.headers.clone();
        let own = || upstream.authority.clone();
        let authority = self.authority.clone().unwrap_or_else(own);
        match line {
            Line::One(_) => {
                let host = HeaderValue::from_str(authority.as_str()).unwrap_or_else(|_| HeaderValue::from_static(""));
                headers.insert(HOST, host);
                join_cookies(&mut headers);
                if let Some(protocol) = &self.upgrade {
                    headers.insert(UPGRADE, protocol.clone());
                    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
                } else if self.takes_trailers {
                    headers.insert(TE, HeaderValue::from_static("trailers"));
                    headers.insert(CONNECTION, HeaderValue::from_static("te"));
                }
                if len.is_none() {
                    // Otherwise hyper sends no body with a method that mostly has none.
                    headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
                }
                (Uri::from(self.target.clone()), headers)
            }
            Line::Many(_) => {
                headers.remove(EXPECT);
                if self.takes_trailers {
                    headers.insert(TE, HeaderValue::from_static("trailers"));
                }
                let scheme = if upstream.target.scheme == Scheme::Https { "https" } else { "http" };
                let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(self.target.clone());
                (uri.build().unwrap_or_else(|_| Uri::from(self.target.clone())), headers)
            }
        }
    }
}

/// By HTTP/2 a cookie may come in pieces (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let pieces: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if pieces.len() > 1
        && let Ok(whole) = HeaderValue::from_bytes(&pieces.join(&b"; "[..]))
    {
        headers.insert(COOKIE, whole);
    }
}

/// An answer whose framing is beyond doubt.
async fn accept(
    response: Response<hyper::body::Incoming>,
    mut lease: Lease,
    outgoing: &Outgoing,
    pick: &mut Option<Pick>,
) -> Result<Answer, Failure> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS && outgoing.upgrade.is_some() {
        return upgraded(response, lease, outgoing, pick).await;
    }
    let (parts, incoming) = response.into_parts();
    let content_len = check::framing(parts.version, parts.status, &parts.headers).map_err(Failure::Framing)?;
    let mut headers = parts.headers;
    fields::strip_but_trailer(&mut headers);
    headers.remove(CONTENT_LENGTH);
    if !headers.contains_key(DATE)
        && let Ok(now) = HeaderValue::from_str(&httpdate::fmt_http_date(SystemTime::now()))
    {
        headers.insert(DATE, now);
    }
    let is_early = matches!(lease.upload, Some(Uploading::Off(_)));
    lease.pick = answered(pick, parts.status);
    let body = if incoming.is_end_stream() {
        lease.give_back();
        Body::Empty
    } else {
        Body::Stream(Box::new(Download::new(incoming, lease)))
    };
    let (version, status) = (parts.version, parts.status);
    Ok(Answer { version, status, headers, content_len, body, is_early, upgraded: None })
}

/// The pick, which counts as in flight until the response has ended, and was told how it went. Whoever refuses for overload is quick, and
/// has enough to do.
fn answered(pick: &mut Option<Pick>, status: StatusCode) -> Option<Pick> {
    let mut pick = pick.take()?;
    pick.report(if status == StatusCode::SERVICE_UNAVAILABLE { Outcome::Refused } else { Outcome::Success });
    Some(pick)
}

/// The upstream speaks another protocol from here on.
async fn upgraded(
    mut response: Response<hyper::body::Incoming>,
    lease: Lease,
    outgoing: &Outgoing,
    pick: &mut Option<Pick>,
) -> Result<Answer, Failure> {
    let agreed = response.headers().get(UPGRADE).cloned();
    let is_asked = |agreed: &HeaderValue| {
        let asked = outgoing.upgrade.as_ref().map(HeaderValue::as_bytes).unwrap_or_default();
        asked.split(|byte| *byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(agreed.as_bytes()))
    };
    let agreed = agreed.filter(is_asked).ok_or(Failure::Framing("it changes to a protocol that nobody asked for"))?;
    let upgrade = hyper::upgrade::on(&mut response).await;
    let upgrade = upgrade.map_err(|error| Failure::Broken(with_causes(&error)))?;
    let (parts, _) = response.into_parts();
    let mut headers = parts.headers;
    fields::strip(&mut headers);
    headers.remove(CONTENT_LENGTH);
    headers.insert(UPGRADE, agreed);
    // Among the connections it is still one.
    let pick = answered(pick, parts.status);
    let held = Box::new((lease.turn.upstream.extra_place(), lease.turn, pick));
    Ok(Answer {
        version: parts.version,
        status: parts.status,
        headers,
        content_len: None,
        body: Body::Empty,
        is_early: false,
        upgraded: Some((upgrade, held)),
    })
}
