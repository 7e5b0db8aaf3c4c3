//! A tower service as the handler of one connection's requests.

mod arrival;
mod full;
mod host;
mod parts;
mod reply;
mod upgrade;

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dapple_http::{Head, Request};
use dapple_io::Connection;
use dapple_io::net::Peer;
use http::{Method, Response, StatusCode};

pub(crate) use self::arrival::Arrival;
pub(crate) use self::full::OnFull;
use self::full::turn_away;
pub(crate) use self::host::TowerHost;
use crate::host::AdmittedConnection;
use crate::http::{self as engine, Handler, Limits, RequestBody, hyper as messages};
use crate::link::Link;
use crate::request::{self, Held, Source};
use crate::server::Shared;
use crate::service::HttpService;

/// The facts of a connection that its requests know.
pub(crate) struct Context {
    pub(crate) peer: Peer,
    #[cfg(feature = "tls")]
    pub(crate) certificates: Option<dapple_tls::PeerCertificates>,
    pub(crate) arrival: Arrival,
    pub(crate) link: Arc<Link>,
    pub(crate) shared: Arc<Shared>,
}

/// The handler. Clones share the service, and each request gets a clone of the service.
pub(crate) struct Tower<V>(Arc<Inner<V>>);

struct Inner<V> {
    context: Context,
    /// In a mutex, because a service need not be `Sync`.
    service: Mutex<Held<V>>,
    /// The connection's place, until another protocol takes it over.
    place: Mutex<Option<AdmittedConnection>>,
}

impl<V> Clone for Tower<V> {
    fn clone(&self) -> Tower<V> {
        Tower(self.0.clone())
    }
}

impl<V: HttpService> Tower<V> {
    pub(crate) fn new(service: Held<V>, place: AdmittedConnection, context: Context) -> Tower<V> {
        Tower(Arc::new(Inner { context, service: Mutex::new(service), place: Mutex::new(Some(place)) }))
    }

    /// Serves a whole connection.
    pub(crate) async fn serve<S: Connection>(self, stream: S) {
        let link = self.0.context.link.clone();
        let terms = engine::connection::Terms {
            limits: self.0.context.shared.limits.clone(),
            handle: None,
            link: link.clone(),
        };
        let handler = self.clone();
        let serving = engine::connection::serve(stream, engine::connection::Protocol::FirstBytes, handler, terms, None);
        let ended = link.unless_cut(std::pin::pin!(serving)).await;
        if let (Some(()), Some(place)) = (ended, self.take_place()) {
            place.finish();
        }
    }

    fn another(&self) -> Held<V> {
        self.0.service.lock().unwrap_or_else(PoisonError::into_inner).another()
    }

    fn take_place(&self) -> Option<AdmittedConnection> {
        self.0.place.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Replies to a request that hyper has read.
    async fn answer_hyper(
        self,
        request: http::Request<hyper::body::Incoming>,
    ) -> Response<request::Reply<V::ReplyBody>> {
        let (parts, body) = request.into_parts();
        let source = (!hyper::body::Body::is_end_stream(&body)).then_some(Source::Hyper(body));
        let fields = messages::fields(&parts.headers);
        let malformed = messages::malformed(&parts, &messages::request(&parts, &fields));
        drop(fields);
        match malformed {
            Some(reason) => request::malformed(reason),
            None => request::answer(self.another(), parts, source, &self.0.context).await.response,
        }
    }
}

impl<V: HttpService> Handler for Tower<V> {
    type StreamBody = request::Reply<V::ReplyBody>;

    const ENDS_WITH_CLIENT: bool = true;

    async fn answer(&self, request: &Request<'_>, body: &mut RequestBody<'_>) -> engine::Reply {
        let Some(parts) = parts::of(request) else {
            return self.refuse(StatusCode::BAD_REQUEST, "the target is not a URI");
        };
        let source = (body.len() != Some(0)).then(|| body.detach()).flatten().map(Source::Engine);
        // Boxed, so that an idle connection stays small.
        let answered = Box::pin(request::answer(self.another(), parts, source, &self.0.context)).await;
        reply::of(answered, request.method == Method::HEAD).await
    }

    fn answer_stream(
        self,
        request: http::Request<hyper::body::Incoming>,
        _limits: Arc<Limits>,
    ) -> impl Future<Output = Response<Self::StreamBody>> + Send + 'static {
        self.answer_hyper(request)
    }

    fn refuse(&self, status: StatusCode, reason: &str) -> engine::Reply {
        reply::text(status, format!("{reason}\n"))
    }

    /// hyper serves requests for another protocol, because only hyper can make what
    /// `hyper::upgrade::on` returns.
    fn wants_connection(&self, head: &Head<'_>) -> bool {
        let request = &head.request;
        let mut protocols = request.fields.all("upgrade").flat_map(|value| value.split(|byte| *byte == b','));
        request.method == Method::CONNECT || protocols.any(|protocol| !is_ignored(protocol.trim_ascii()))
    }

    fn take_over<S: Connection>(self, stream: S, first: Bytes) -> impl Future<Output = ()> + Send {
        upgrade::serve(self, stream, first)
    }

    fn before_read<S: Connection>(&self, stream: &S) {
        self.0.context.arrival.before_read(stream, &self.0.context.shared.gate);
    }

    fn after_read<S: Connection>(&self, stream: &S) {
        self.0.context.arrival.after_read(stream);
    }
}

/// Whether an offer to upgrade to this protocol is always ignored: HTTP/2 without TLS begins with
/// its preface (RFC 9113).
fn is_ignored(protocol: &[u8]) -> bool {
    protocol.is_empty() || protocol.eq_ignore_ascii_case(b"h2c") || protocol.eq_ignore_ascii_case(b"HTTP/2.0")
}
