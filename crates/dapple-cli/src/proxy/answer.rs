//! Turns a request into its reply.
//!
//! ```text
//!   CONNECT host:port          a tunnel
//!   GET http://host/…          the cache, and through it the origin
//!   other methods              the origin; what they change is forgotten
//!   GET /-/status              the proxy itself
//! ```

use std::sync::Arc;

use dapple_http::{Form, Request};
use http::header::VIA;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::cache::Address;
use super::failure::Failure;
use super::fields;
use super::hints::{self, Hints};
use super::lookup::{Looked, Query, Wish};
use super::proxy::Proxy;
use super::reply::{self, Note};
use super::status;
use super::tally::{Count, TallyPermit};
use super::tunnel::Tunneling;
use super::upstream::{Answer, Origin, Outgoing, authority};
use crate::http::{Awaited, Body, Client, Reply, RequestBody, Served, Service};
use dapple_client::Scheme;

impl Service for Proxy {
    async fn answer(&self, request: &Request<'_>, body: &mut RequestBody<'_>, client: &Client) -> Reply {
        if self.observing.is_idle() {
            return self.reply(request, body, client).await;
        }
        self.observing.answer(request, client, self.reply(request, body, client)).await
    }

    fn refuse(&self, status: StatusCode, reason: &str, client: &Client) -> Reply {
        self.observing.refuse(reply::page(status, reason, false), reason, client)
    }

    fn is_crowded(&self) -> bool {
        Proxy::is_crowded(self)
    }

    fn timed_out(&self, awaited: Awaited) {
        self.observing.timed_out(awaited);
    }
}

impl Proxy {
    async fn reply(&self, request: &Request<'_>, body: &mut RequestBody<'_>, client: &Client) -> Reply {
        self.tally.one(Count::Requests);
        let result = match request.form {
            Form::Authority => self.tunnel(request, body.len()).await,
            Form::Absolute => self.forward(request, body, client).await,
            Form::Origin | Form::Asterisk => Ok(self.own(request, client).await),
        };
        let mut reply = result.unwrap_or_else(|failure| {
            let is_refused = matches!(failure, Failure::Refused(..) | Failure::Port(_));
            self.tally.one(if is_refused { Count::Refused } else { Count::Failed });
            reply::of_failure(&failure, request.method == Method::HEAD)
        });
        reply.close |= self.is_crowded();
        reply
    }

    /// Opens a connection to the target, and tunnels bytes both ways.
    async fn tunnel(&self, request: &Request<'_>, body_len: Option<u64>) -> Result<Reply, Failure> {
        if body_len != Some(0) {
            // The bytes that follow belong to the tunnel (RFC 9110, section 9.3.6), but this client
            // frames them as a body.
            return Err(Failure::Bad("CONNECT has no body, so neither Content-Length nor Transfer-Encoding."));
        }
        let origin = origin(request.authority, None)?;
        if self.via.is_in(request.fields.all(VIA.as_str())) {
            return Err(Failure::Loop);
        }
        if !self.upstream.rules().may_tunnel(origin.port) {
            return Err(Failure::Port(origin.port));
        }
        let place = TallyPermit::take(&self.tally, |tally| &tally.tunnels, self.tunnels_max).ok_or(Failure::Busy)?;
        let (server, connection) = self.upstream.open(&origin).await?;
        self.tally.one(Count::Tunnels);
        let tunneling = Tunneling {
            server: Box::new(server),
            idle_max: self.upstream.waits().tunnel,
            tally: self.tally.clone(),
            handle: self.handle.clone(),
            places: (place, Box::new(connection)),
            observer: None,
        };
        Ok(Reply::new(StatusCode::OK, HeaderMap::new(), Body::Tunnel(Box::new(tunneling))))
    }

    /// Answers a request for another server.
    async fn forward(
        &self,
        request: &Request<'_>,
        body: &mut RequestBody<'_>,
        client: &Client,
    ) -> Result<Reply, Failure> {
        if request.scheme.is_none_or(|scheme| !scheme.eq_ignore_ascii_case("http")) {
            let text = "This proxy forwards addresses with http:// only; for https:// it makes tunnels, through \
                CONNECT.";
            return Err(Failure::Unsupported(text));
        }
        if self.via.is_in(request.fields.all(VIA.as_str())) {
            return Err(Failure::Loop);
        }
        let origin = Arc::new(origin(request.authority, Some(80))?);
        let mut headers = fields::outgoing(request, &authority(&origin)?);
        if let Some(reply) = last_hop(request, &mut headers)? {
            return Ok(reply);
        }
        self.via.add_to(&mut headers, request.version);
        if self.forwarded {
            fields::add_forwarded(&mut headers, client.addr.ip());
        }
        let address = address(&origin, request.path, request.query);
        let target = target(request)?;
        let outgoing = Outgoing { origin, method: request.method.clone(), target, headers, hints: None };
        let wish = match Wish::of(request, body) {
            Ok(wish) => wish,
            Err(why) => return self.pass(request, outgoing, body, &address, why).await,
        };
        let (selecting, interims) = (request.fields, body.interims());
        let query = Query { request, selecting, wish: &wish, address: &address, interims };
        let mut served = Served { upstream: None, head_us: 0, tries: 0 };
        match self.cache.look_up(query, &outgoing, &mut served).await? {
            Looked::Reply(reply) => Ok(reply),
            Looked::Pass(why) => self.pass(request, outgoing, body, &address, why).await,
        }
    }

    /// Passes the request to the origin and the response back, and keeps nothing.
    async fn pass(
        &self,
        request: &Request<'_>,
        mut outgoing: Outgoing,
        body: &mut RequestBody<'_>,
        address: &Address,
        why: &'static str,
    ) -> Result<Reply, Failure> {
        self.tally.one(Count::Passed);
        let interims = body.interims();
        outgoing.hints = Hints::wanted(interims);
        let sending = self.upstream.send(&outgoing, body);
        let answer = hints::passed_on(outgoing.hints.as_deref(), interims, &self.via, sending).await?;
        if !request.method.is_safe() && (answer.status.is_success() || answer.status.is_redirection()) {
            self.cache.changed(address, &answer.headers);
        }
        let Answer { version, status, mut headers, content_len, body, is_early } = answer;
        self.via.add_to(&mut headers, version);
        fields::hide_trailers(&mut headers, request);
        Note::Fetched { why, stored: false, collapsed: false }.add_to(&mut headers, None);
        let mut reply = reply::of_stream(status, headers, body, content_len, request.method == Method::HEAD);
        reply.close = is_early;
        Ok(reply)
    }

    /// Answers a request for the proxy itself.
    async fn own(&self, request: &Request<'_>, client: &Client) -> Reply {
        let is_head = request.method == Method::HEAD;
        let reads = is_head || request.method == Method::GET;
        if self.status && reads && request.path == status::PATH && client.addr.ip().to_canonical().is_loopback() {
            return reply::json(status::collect(self, client.color).await, is_head);
        }
        if request.form == Form::Asterisk {
            return options();
        }
        let text = "This is a proxy: send it whole addresses, as in `curl -x http://HOST:PORT http://example.com/`.";
        reply::page(StatusCode::BAD_REQUEST, text, is_head)
    }
}

/// `Max-Forwards` says which server answers `OPTIONS` and `TRACE` (RFC 9110, section 7.6.2).
/// Returns the reply if it is this one.
pub(super) fn last_hop(request: &Request<'_>, headers: &mut HeaderMap) -> Result<Option<Reply>, Failure> {
    if request.method != Method::OPTIONS && request.method != Method::TRACE {
        return Ok(None);
    }
    let Some(value) = request.fields.first("max-forwards") else { return Ok(None) };
    let left = std::str::from_utf8(value).ok().and_then(|value| value.parse::<u32>().ok());
    let left = left.ok_or(Failure::Bad("Max-Forwards is not a number."))?;
    let Some(left) = left.checked_sub(1) else {
        return Ok(Some(if request.method == Method::OPTIONS { options() } else { trace(request) }));
    };
    headers.insert(http::header::MAX_FORWARDS, HeaderValue::from(left));
    Ok(None)
}

/// The reply that lists the proxy's methods.
pub(super) fn options() -> Reply {
    let mut headers = HeaderMap::new();
    headers.insert(
        http::header::ALLOW,
        HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE, CONNECT"),
    );
    Reply::new(StatusCode::NO_CONTENT, headers, Body::Empty)
}

/// The request as it arrived, without secret fields (RFC 9110, section 9.3.8).
fn trace(request: &Request<'_>) -> Reply {
    let mut text = format!("TRACE {} HTTP/1.1\r\n", request.path);
    for field in request.fields.iter() {
        let name = field.name.to_ascii_lowercase();
        if !SECRET.contains(&name.as_str()) {
            text.push_str(&format!("{name}: {}\r\n", field.value.escape_ascii()));
        }
    }
    let mut headers = HeaderMap::new();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("message/http"));
    Reply::new(StatusCode::OK, headers, Body::Whole(text.into()))
}

/// Splits `host:port`; without a port it is `default`.
fn origin(authority: Option<&str>, default: Option<u16>) -> Result<Origin, Failure> {
    let authority = authority.ok_or(Failure::Bad("The request names no host."))?;
    if authority.contains('@') {
        return Err(Failure::Bad("An address with a user in it is not forwarded."));
    }
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if is_port(port) => (host, port),
        _ => (authority, ""),
    };
    let port = if port.is_empty() { default } else { port.parse().ok() };
    let port = port.filter(|port| *port > 0).ok_or(Failure::Bad("The request names no port, or an invalid one."))?;
    if host.is_empty() || (host.contains(':') && !host.starts_with('[')) {
        return Err(Failure::Bad("The host of the request is not well-formed."));
    }
    Ok(Origin { scheme: Scheme::Http, host: host.to_ascii_lowercase(), port })
}

/// The cache's key of a response.
fn address(origin: &Origin, path: &str, query: Option<&str>) -> Address {
    let Origin { host, port, .. } = origin;
    let base = match port {
        80 => format!("http://{host}"),
        port => format!("http://{host}:{port}"),
    };
    let target = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    Address { scope: String::new(), base, target }
}

/// The target in the form for an origin; `OPTIONS` without a path is for the whole server (RFC
/// 9112, section 3.2.4).
pub(super) fn target(request: &Request<'_>) -> Result<PathAndQuery, Failure> {
    let path = match (request.path, &request.method) {
        ("", &Method::OPTIONS) if request.query.is_none() => "*",
        ("", _) => "/",
        (path, _) => path,
    };
    let target = match request.query {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(path),
    };
    target.map_err(|_| Failure::Bad("The path of the request is not well-formed."))
}

/// Fields that a trace leaves out.
const SECRET: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "proxy-authenticate"];

#[cfg(test)]
mod tests {
    use super::{address, origin};

    #[test]
    fn authorities() {
        for (authority, default, expected) in [
            ("Example.COM", Some(80), Some(("example.com", 80))),
            ("example.com:", Some(80), Some(("example.com", 80))),
            ("example.com:8080", Some(80), Some(("example.com", 8080))),
            ("[::1]:443", None, Some(("[::1]", 443))),
            ("[::1]", Some(80), Some(("[::1]", 80))),
            ("example.com", None, None),
            ("example.com:0", Some(80), None),
            ("example.com:65536", Some(80), None),
            ("user@example.com", Some(80), None),
            (":80", Some(80), None),
            ("::1:80", Some(80), None),
        ] {
            let found = origin(Some(authority), default).ok();
            let found = found.as_ref().map(|origin| (origin.host.as_str(), origin.port));
            assert_eq!(found, expected, "{authority}");
        }
        assert!(origin(None, Some(80)).is_err());
    }

    #[test]
    fn equal_addresses_have_one_spelling() {
        let origin = origin(Some("A.b:80"), None).unwrap();
        let address = address(&origin, "/x", Some("y"));
        assert_eq!((&*address.base, &*address.target), ("http://a.b", "/x?y"));
    }
}
