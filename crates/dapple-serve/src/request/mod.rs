//! The way of a request through the server: its limits, the service, and what becomes of its failures.

mod body;
mod caught;
mod exchange;
mod held;
mod refusal;
mod reply;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use dapple_sched::described;
use dapple_tower::Refused;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::{Body as _, Incoming};
use tracing::{debug, error};

pub use self::body::Body;
pub(crate) use self::caught::caught;
use self::caught::{Caught, Panicked};
use self::exchange::{Exchange, Fault};
pub(crate) use self::held::Held;
pub(crate) use self::refusal::OnRefusal;
pub(crate) use self::refusal::Words;
pub(crate) use self::reply::Open;
use self::reply::{Reply, text};
use crate::BoxError;
use crate::connection::Link;
use crate::connections::Order;
use crate::server::Shared;
use crate::service::HttpService;

/// The reply to one request. The request counts as begun from this call on.
pub(crate) fn answer<V: HttpService>(
    service: Held<V>,
    request: Request<Incoming>,
    link: Arc<Link>,
    shared: Arc<Shared>,
) -> impl Future<Output = Response<Reply<V::ReplyBody>>> + Send + 'static {
    let exchange = (!request.body().is_end_stream()).then(Arc::<Exchange>::default);
    let open = Open::new(link.clone(), exchange.clone());
    shared.counts.request();
    async move {
        let is_http1 = request.version() < Version::HTTP_2;
        let mut response = serve(service, request, &link, &shared, exchange.as_deref(), exchange.clone()).await;
        let is_read = exchange.as_ref().is_none_or(|exchange| exchange.is_read() || response.status().is_success());
        if is_http1 && (link.ordered() >= Order::LastReply || !is_read) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(exchange) = &exchange {
            exchange.reply();
        }
        response.map(|reply| reply.with(open))
    }
}

async fn serve<V: HttpService>(
    service: Held<V>,
    request: Request<Incoming>,
    link: &Link,
    shared: &Shared,
    exchange: Option<&Exchange>,
    shared_exchange: Option<Arc<Exchange>>,
) -> Response<Reply<V::ReplyBody>> {
    let options = &shared.options;
    if let (Some(len), Some(len_max)) = (announced(&request), options.body_bytes_max)
        && len > len_max
    {
        return fault(Fault::TooLarge);
    }
    let (mut parts, incoming) = request.into_parts();
    let peer = link.peer();
    let words = Words::new(shared.on_refusal.clone(), &parts);
    let admitted = match shared.gate.admission() {
        Some(admission) => {
            let decision = match link.take_decision() {
                Some(decision) => decision,
                None => {
                    // Users' own functions are asked.
                    let offer = caught(|| shared.gate.offer(&parts, &peer, link.arrived()));
                    match offer {
                        Ok(offer) => admission.offer(offer),
                        Err(panic) => return panicked(&panic),
                    }
                }
            };
            match decision {
                Ok(admitted) => Some(admitted),
                Err(refused) => {
                    shared.gate.pace().await;
                    return words.say(&refused);
                }
            }
        }
        None => None,
    };
    parts.extensions.insert(peer);
    let request = Request::from_parts(parts, Body::new(incoming, options, shared_exchange));
    let route = Route { method: request.method().clone(), uri: request.uri().clone() };
    let make = || described(route, Caught::new(|| Some(service.into_inner()?.answer(request))));
    let outcome = match admitted {
        Some(admitted) => admitted.run(make).await,
        None => Ok(make().await),
    };
    let response = match outcome {
        Err(refused) => words.say(&refused),
        Ok(Ok(Ok(response))) => response.map(Reply::of),
        Ok(Ok(Err(problem))) => caught(|| failed(problem, &words)).unwrap_or_else(|panic| panicked(&panic)),
        Ok(Err(panic)) => panicked(&panic),
    };
    match exchange.and_then(Exchange::fault) {
        Some(met) if response.status().as_u16() >= 400 => fault(met),
        _ => response,
    }
}

/// What a client gets whose service failed. The problem is users' code: its sources, its words, its destructor.
fn failed<B>(problem: BoxError, words: &Words) -> Response<Reply<B>> {
    if let Some(refused) = Refused::find(problem.as_ref()) {
        return words.say(refused);
    }
    error!(%problem, "a service failed");
    text(StatusCode::INTERNAL_SERVER_ERROR, "The service failed.\n")
}

/// What a slow handler is reported as. Without the query, which may hold what is not for logs.
struct Route {
    method: Method,
    uri: Uri,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.uri.path())
    }
}

/// What a client gets whose handler panicked, or who came upon another function of the user's that did.
fn panicked<B>(panic: &Panicked) -> Response<Reply<B>> {
    match panic.advice {
        Some(advice) => error!("a handler panicked; its request gets a 500; {advice}"),
        None => error!("a handler panicked; its request gets a 500"),
    }
    text(StatusCode::INTERNAL_SERVER_ERROR, "The handler failed.\n")
}

/// What a client gets whose body met a limit, whatever the service made of that.
fn fault<B>(fault: Fault) -> Response<Reply<B>> {
    debug!(?fault, "a request met a limit");
    match fault {
        Fault::TooLarge => text(StatusCode::PAYLOAD_TOO_LARGE, "The request's body is larger than is taken here.\n"),
        Fault::TooSlow => text(StatusCode::REQUEST_TIMEOUT, "The request's body did not come in time.\n"),
    }
}

fn announced(request: &Request<Incoming>) -> Option<u64> {
    request.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
