//! The requests of devices: answered from the table, or by the origin, and fitted.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use dapple::http;
use dapple::http::relay::{self, Kept, Passed, Relay, Relayed, Room, Verdict, now_ms};

use crate::device::Devices;
use crate::fit::Fit;
use crate::fitter::{Fitted, Fitter, Kind};
use crate::table::Cache;

/// The shared part of all requests.
pub(crate) struct Proxy {
    pub(crate) devices: Devices,
    pub(crate) relay: Relay,
    pub(crate) cache: Cache,
    pub(crate) fitter: Fitter,
    /// For all bodies in flight.
    pub(crate) room: Room,
}

/// The reason why a request is not served, as a sentence for the client.
pub(crate) struct Problem(pub(crate) StatusCode, pub(crate) String);

/// A request, as far as it decides about its answer.
struct Asked {
    method: Method,
    /// In one spelling.
    url: String,
    /// The fields from the client.
    fields: HeaderMap,
    fit: Arc<Fit>,
    /// Whether its answer may be from the table, and be kept there.
    is_common: bool,
}

type Reply = Result<Response, Problem>;

pub(crate) async fn answer(State(proxy): State<Arc<Proxy>>, request: Request) -> Reply {
    let (parts, body) = request.into_parts();
    let (uri, method, fields) = (parts.uri, parts.method, parts.headers);
    if method == Method::CONNECT || uri.scheme_str().is_some_and(|scheme| scheme != "http") {
        return Err(Problem(StatusCode::NOT_IMPLEMENTED, ENCRYPTED.to_owned()));
    }
    let Some(url) = relay::target(&uri) else { return Err(Problem(StatusCode::BAD_REQUEST, HELP.to_owned())) };
    if proxy.relay.via().is_in(fields.get_all(header::VIA).iter().map(HeaderValue::as_bytes)) {
        return Err(Problem(StatusCode::LOOP_DETECTED, "this request has been here before".to_owned()));
    }
    let fit = proxy.devices.fit(proxy.devices.path(&fields)?).await?;
    let control = relay::asked(&fields);
    let asks_origin = [header::RANGE, header::AUTHORIZATION, header::IF_MATCH, header::IF_UNMODIFIED_SINCE];
    let for_one = control.no_store || control.no_transform || asks_origin.iter().any(|name| fields.contains_key(name));
    let is_common = method == Method::GET && body.is_end_stream() && !for_one;
    let stored = if is_common { proxy.cache.find(&url, &fit.key()).await } else { None };
    let asked = Asked { method, url, fields, fit, is_common };
    match stored {
        Some((kept, made)) if matches!(kept.verdict(&asked.fields, now_ms()), Verdict::Fresh | Verdict::Stale) => {
            proxy.of_stored(&asked, &kept, made, "weakproxy; hit").await
        }
        _ if control.only_if_cached => Err(Problem(StatusCode::GATEWAY_TIMEOUT, "it is not in the table".to_owned())),
        stored => proxy.ask(asked, stored, body).await,
    }
}

impl Proxy {
    /// Asks the origin; if the table has an old answer, whether that is still good.
    async fn ask(&self, asked: Asked, stored: Option<(Kept, Fitted)>, body: Body) -> Reply {
        let body = if body.is_end_stream() { http::Body::empty() } else { http::Body::new(body) };
        let request = http::Request::builder().method(&asked.method).uri(&asked.url).body(body);
        let mut request = request.map_err(|error| Problem(StatusCode::BAD_REQUEST, error.to_string()))?;
        *request.headers_mut() = asked.fields.clone();
        // The coding is one between the client here and the origin.
        request.headers_mut().remove(header::ACCEPT_ENCODING);
        relay::take_variant_conditions(request.headers_mut());
        match (self.relay.send(request, stored.as_ref().map(|(kept, _)| kept)).await?, stored) {
            (Relayed::Confirmed(renewed), Some((kept, made))) => {
                let again = (renewed.tag() != kept.tag()).then_some(&made);
                self.cache.keep(&asked.url, &asked.fit.key(), &renewed, again).await;
                self.of_stored(&asked, &renewed, made, "weakproxy; hit; fwd=stale; fwd-status=304").await
            }
            (Relayed::Failed, Some((kept, made))) => {
                self.of_stored(&asked, &kept, made, "weakproxy; hit; detail=stale-if-error").await
            }
            (Relayed::New(passed), _) => {
                if !asked.method.is_safe() && !passed.status.is_server_error() {
                    self.cache.forget(&asked.url).await;
                }
                self.fitted(&asked, *passed).await
            }
            _ => Err(Problem(StatusCode::BAD_GATEWAY, "the origin has no answer".to_owned())),
        }
    }

    /// The answer of the origin, for the device.
    async fn fitted(&self, asked: &Asked, passed: Passed) -> Reply {
        let Some(kind) = Kind::of(&passed.fields) else { return self.unchanged(passed, "") };
        if let Some(why) = relay::obstacle(&asked.method, &asked.fields, passed.status, &passed.fields) {
            return self.unchanged(passed, why);
        }
        let len_max = if kind == Kind::Picture { 8 << 20 } else { 2 << 20 };
        let body = match passed.response.bytes_within(len_max, BODY_TIME_MAX, &self.room).await? {
            Ok(body) => body,
            Err(response) => return self.unchanged(Passed { response, ..passed }, "it is too long or too slow"),
        };
        let Passed { status, fields, reception, .. } = passed;
        let made = match self.fitter.fit(kind, body.clone(), asked.fit.clone()).await {
            Ok(made) => made,
            Err(why) => return Ok((status, self.noted(fields, &unchanged(&why)), body).into_response()),
        };
        drop(body);
        let kept = Kept::of(&asked.fields, &fields, reception, &[header::ACCEPT_ENCODING]);
        let etag = fields.get(header::ETAG).and_then(|tag| tag.to_str().ok().map(str::to_owned));
        match kept.filter(|_| asked.is_common && status == StatusCode::OK) {
            Some(kept) if self.cache.keep(&asked.url, &asked.fit.key(), &kept, Some(&made)).await => {
                self.made(asked, status, fields, Some(kept.tag()), made, "weakproxy; fwd=miss; stored").await
            }
            _ => self.made(asked, status, fields, etag, made, "weakproxy; fwd=miss").await,
        }
    }

    async fn of_stored(&self, asked: &Asked, kept: &Kept, made: Fitted, how: &'static str) -> Reply {
        let mut fields = kept.headers();
        fields.insert(header::AGE, kept.age_s(now_ms()).into());
        self.made(asked, StatusCode::OK, fields, Some(kept.tag()), made, how).await
    }

    /// The body for the device, or `304` if it has that.
    async fn made(
        &self,
        asked: &Asked,
        status: StatusCode,
        mut fields: HeaderMap,
        tag: Option<String>,
        made: Fitted,
        how: &'static str,
    ) -> Reply {
        relay::unmark(&mut fields);
        let mut fields = self.noted(fields, &made.note);
        fields.insert("cache-status", HeaderValue::from_static(how));
        let kind = made.kind.and_then(|kind| HeaderValue::try_from(kind).ok());
        kind.and_then(|kind| fields.insert(header::CONTENT_TYPE, kind));
        if let Some(tag) = tag {
            let (etag, has_it) = relay::variant_etag(&tag, &asked.fit.key(), &asked.fields);
            fields.insert(header::ETAG, etag);
            if has_it && asked.is_common && status == StatusCode::OK {
                return Ok((StatusCode::NOT_MODIFIED, fields).into_response());
            }
        }
        match self.room.place(made.body.len(), PLACE_TIME_MAX).await {
            Some(place) => Ok((status, fields, place.hold(made.body)).into_response()),
            None => Err(Problem(StatusCode::SERVICE_UNAVAILABLE, "too many bodies are in transit".to_owned())),
        }
    }

    /// The answer as it comes.
    fn unchanged(&self, passed: Passed, why: &str) -> Reply {
        let note = if why.is_empty() { String::new() } else { unchanged(why) };
        let body = Body::new(passed.response.into_http().into_body());
        Ok((passed.status, self.noted(passed.fields, &note), body).into_response())
    }

    fn noted(&self, mut fields: HeaderMap, note: &str) -> HeaderMap {
        self.relay.via().add_to(&mut fields, Version::HTTP_11);
        let note: String = note.chars().map(|letter| if matches!(letter, ' '..='~') { letter } else { '?' }).collect();
        let value = HeaderValue::try_from(note).ok().filter(|note| !note.is_empty());
        fields.extend(value.map(|value| (HeaderName::from_static("fit"), value)));
        fields
    }
}

fn unchanged(why: &str) -> String {
    format!("unchanged; why=\"{}\"", why.replace('"', "'"))
}

impl From<http::Error> for Problem {
    fn from(error: http::Error) -> Problem {
        Problem(relay::status_of(&error), error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let login = [(header::PROXY_AUTHENTICATE, "Basic realm=\"the login is DEVICE or USER/DEVICE\"")];
        let login = (self.0 == StatusCode::PROXY_AUTHENTICATION_REQUIRED).then_some(login);
        (self.0, login, format!("{}\n", self.1)).into_response()
    }
}

/// For the body of one answer, after which it is passed on as it comes.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);
const PLACE_TIME_MAX: Duration = Duration::from_secs(5);
const ENCRYPTED: &str = "this proxy is for http:// only, as it can fit nothing that is encrypted";
const HELP: &str = "this is a proxy for weak devices: curl -x http://DEVICE@HOST:PORT http://example.com/";
