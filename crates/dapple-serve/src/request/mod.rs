//! The path of a request through the server: its limits, the service, and its failures.

mod body;
mod caught;
mod counted;
mod exchange;
mod held;
mod pace;
mod refusal;
mod reply;
mod source;

use std::fmt;
use std::sync::Arc;

use dapple_sched::described;
use dapple_sync::task::{TraceContext, traced};
use dapple_tower::Refused;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri};
use tracing::{debug, error};

pub use self::body::Body;
pub(crate) use self::caught::caught;
use self::caught::{Caught, Panicked};
use self::counted::Counted;
use self::exchange::{Exchange, Fault};
pub(crate) use self::held::Held;
pub(crate) use self::refusal::OnRefusal;
use self::refusal::Words;
pub(crate) use self::reply::Reply;
use self::reply::text;
pub(crate) use self::source::Source;
use crate::BoxError;
use crate::service::HttpService;
use crate::tower::Context;

/// The reply to a request.
pub(crate) struct Answered<B> {
    pub(crate) response: Response<Reply<B>>,
    /// Whether the rest of a refused request's body may still arrive.
    pub(crate) is_left: bool,
}

/// Answers one request; its body comes from `source`, if there is one.
pub(crate) async fn answer<V: HttpService>(
    service: Held<V>,
    parts: Parts,
    source: Option<Source>,
    context: &Context,
) -> Answered<V::ReplyBody> {
    context.shared.counts.request();
    let mut counted = Counted::begin(&context.shared.numbers, &parts.method);
    let exchange = source.is_some().then(Arc::<Exchange>::default);
    let response = serve(service, parts, source, context, exchange.clone()).await;
    let is_read = exchange.as_ref().is_none_or(|exchange| exchange.is_read() || response.status().is_success());
    if let Some(exchange) = &exchange {
        exchange.reply();
    }
    counted.answered(response.status());
    Answered { response: response.map(|reply| reply.counted(counted)), is_left: !is_read }
}

async fn serve<V: HttpService>(
    service: Held<V>,
    mut parts: Parts,
    source: Option<Source>,
    context: &Context,
    exchange: Option<Arc<Exchange>>,
) -> Response<Reply<V::ReplyBody>> {
    let Context { peer, arrival, shared, .. } = context;
    let options = &shared.options;
    if let (Some(len), Some(len_max)) = (announced(&parts), options.body_max_bytes)
        && len > len_max
    {
        return fault(Fault::TooLarge);
    }
    let words = Words::new(shared.on_refusal.clone(), &parts);
    let admitted = match shared.gate.admission() {
        Some(admission) => {
            // These are user functions.
            let offer = match caught(|| shared.gate.offer(&parts, peer, arrival.at())) {
                Ok(offer) => offer,
                Err(panic) => return panicked(&panic),
            };
            match admission.offer(offer) {
                Ok(admitted) => Some(admitted),
                Err(refused) => {
                    shared.gate.note(&refused);
                    shared.gate.pace().await;
                    return words.say(&refused);
                }
            }
        }
        None => None,
    };
    parts.extensions.insert(*peer);
    #[cfg(feature = "tls")]
    if let Some(certificates) = &context.certificates {
        parts.extensions.insert(certificates.clone());
    }
    let body = match (source, exchange.clone()) {
        (Some(source), Some(exchange)) => Body::new(source, options, exchange),
        _ => Body::empty(),
    };
    let request = Request::from_parts(parts, body);
    let route = Route { method: request.method().clone(), uri: request.uri().clone() };
    let sender = request.headers().get(TraceContext::HEADER).and_then(|value| TraceContext::parse(value.as_bytes()));
    let make = || traced(sender, described(route, Caught::new(|| Some(service.into_inner()?.answer(request)))));
    let outcome = match admitted {
        Some(admitted) => admitted.run(make).await,
        None => Ok(make().await),
    };
    let response = match outcome {
        Err(refused) => {
            shared.gate.note(&refused);
            words.say(&refused)
        }
        Ok(Ok(Ok(response))) => response.map(Reply::of),
        Ok(Ok(Err(problem))) => caught(|| failed(problem, &words)).unwrap_or_else(|panic| panicked(&panic)),
        Ok(Err(panic)) => panicked(&panic),
    };
    match exchange.as_deref().and_then(Exchange::fault) {
        Some(met) if response.status().as_u16() >= 400 => fault(met),
        _ => response,
    }
}

/// The reply to a request that breaks the rules of its HTTP version.
pub(crate) fn malformed<B>(reason: &str) -> Response<Reply<B>> {
    text(StatusCode::BAD_REQUEST, format!("{reason}\n"))
}

/// The reply to a request if its service failed. The problem is user code: its sources, its text,
/// its destructor.
fn failed<B>(problem: BoxError, words: &Words) -> Response<Reply<B>> {
    if let Some(refused) = Refused::find(problem.as_ref()) {
        return words.say(refused);
    }
    error!(%problem, "a service failed");
    text(StatusCode::INTERNAL_SERVER_ERROR, "The service failed.\n")
}

/// The name of a slow handler in reports. Leaves out the query, which may be confidential.
struct Route {
    method: Method,
    uri: Uri,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.uri.path())
    }
}

/// The reply to a request if its handler, or another user function, panicked.
fn panicked<B>(panic: &Panicked) -> Response<Reply<B>> {
    match panic.advice {
        Some(advice) => error!("a handler panicked; its request gets a 500; {advice}"),
        None => error!("a handler panicked; its request gets a 500"),
    }
    text(StatusCode::INTERNAL_SERVER_ERROR, "The handler failed.\n")
}

/// The reply to a body that exceeded a limit, whatever the service made of that.
fn fault<B>(fault: Fault) -> Response<Reply<B>> {
    debug!(?fault, "a request met a limit");
    match fault {
        Fault::TooLarge => text(
            StatusCode::PAYLOAD_TOO_LARGE,
            "The request's body is larger than this server \
            accepts.\n",
        ),
        Fault::TooSlow => text(StatusCode::REQUEST_TIMEOUT, "The request's body did not arrive in time.\n"),
    }
}

fn announced(parts: &Parts) -> Option<u64> {
    parts.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
