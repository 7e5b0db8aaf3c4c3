//! The web chat: pages, messages as JSON, and the messages to come as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use dapple::serve::bearer::Guard;
use dapple::store::{AnyEngine, Error, Refusal, Tail};
use dapple::sync::Semaphore;
use dapple::task::{First, race};
use dapple::time::timeout;
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::archive::Question;
use crate::gateway::{Conversation, Gateway};
use crate::said::{self, Legs, Said, TEXT_LEN_MAX};

/// The shared part of all requests.
#[derive(Clone)]
struct Web {
    gateway: Arc<Gateway>,
    guard: Guard,
    /// Places of clients that listen.
    listeners: Arc<Semaphore>,
}

/// A refusal, with a sentence for the client.
type Problem = (StatusCode, String);
type Answer<T> = Result<T, Problem>;

/// The routes.
pub(crate) fn router(gateway: Arc<Gateway>, guard: Guard) -> Router {
    let web = Web { gateway, guard, listeners: Arc::new(Semaphore::new(LISTENERS_MAX)) };
    let script = [(header::CONTENT_TYPE, "text/javascript; charset=utf-8")];
    Router::new()
        .route("/", get(start))
        .route("/chat.js", get(async move || (script, include_str!("chat.js"))))
        .route("/status", get(status))
        .route("/talks/{name}", get(page).put(change))
        .route("/talks/{name}/messages", get(find).post(say))
        .route("/talks/{name}/events", get(listen))
        .route("/talks/{name}/claims", post(claim))
        .layer(from_fn_with_state(web.clone(), check))
        .with_state(web)
}

async fn check(State(web): State<Web>, request: Request, next: Next) -> Response {
    if web.guard.admits(&request) {
        return next.run(request).await;
    }
    let text = "the password of this gateway is the token in its --token-file; without one, ask for http://127.0.0.1\n";
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Basic realm=\"sanctio\"")], text).into_response()
}

async fn start(State(web): State<Web>) -> Response {
    // Names have no letters that HTML could take for its own.
    let item = |name: &String| format!("<li><a href=\"/talks/{name}\">{name}</a></li>");
    let items: String = web.gateway.all().keys().map(item).collect();
    html(format!(
        "<!doctype html><meta charset=\"utf-8\"><title>Sanctio</title><h1>Conversations</h1><ul>{items}</ul>\n"
    ))
}

async fn page(State(web): State<Web>, Path(name): Path<String>) -> Answer<Response> {
    web.find(&name).map(|_| html(include_str!("chat.html").to_owned()))
}

fn html(body: String) -> Response {
    let policy = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'";
    let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, policy)];
    (headers, body).into_response()
}

/// Gives a conversation these legs; `null` ends it.
async fn change(
    State(web): State<Web>,
    Path(name): Path<String>,
    Json(legs): Json<Option<Legs>>,
) -> Answer<StatusCode> {
    let refuse = |text: String| (StatusCode::UNPROCESSABLE_ENTITY, text + "\n");
    let (count, legs_len) = (web.gateway.all().len(), legs.as_ref().map_or(0, Legs::len));
    if !said::is_name(&name) || legs_len > LEGS_MAX || (count >= CONVERSATIONS_MAX && web.find(&name).is_err()) {
        let text = "a name has 1 to 40 letters of a-z, 0-9 and -; a conversation has at most";
        return Err(refuse(format!("{text} {LEGS_MAX} legs, and a gateway {CONVERSATIONS_MAX} conversations")));
    }
    let checked = |legs: Legs| legs.into_iter().map(|(leg, language)| Ok((said::leg(&leg)?, language))).collect();
    let legs = legs.map(checked).transpose().map_err(refuse)?;
    let is_new = web.gateway.change(&name, legs).await.map_err(failed)?;
    Ok(if is_new { StatusCode::CREATED } else { StatusCode::NO_CONTENT })
}

/// A message of a client, or of a program that heard it in a network.
#[derive(Debug, Deserialize)]
struct Saying {
    name: String,
    text: String,
    /// The leg that it came by; `web` if none is named.
    leg: Option<String>,
    language: Option<String>,
    /// The same one if it is said again because there was no reply.
    id: Option<String>,
}

async fn say(State(web): State<Web>, Path(name): Path<String>, Json(saying): Json<Saying>) -> Answer<Json<Value>> {
    let Conversation { archive, legs } = web.find(&name)?;
    let Saying { name: speaker, text, leg, mut language, id } = saying;
    if let Some(leg) = &leg {
        language = legs.get(leg).ok_or_else(no_leg)?.clone();
    }
    let leg = leg.as_deref().unwrap_or("web");
    let id = id.map(|id| format!("{leg} {id}"));
    if text.len() > TEXT_LEN_MAX || id.as_ref().is_some_and(|id| id.len() > ID_LEN_MAX) {
        let why = format!("a text has at most {TEXT_LEN_MAX} bytes, an id {ID_LEN_MAX}\n");
        return Err((StatusCode::PAYLOAD_TOO_LARGE, why));
    }
    let empty = || (StatusCode::UNPROCESSABLE_ENTITY, "the text is empty\n".to_owned());
    let said = Said::new(leg, &speaker, &text, id).ok_or_else(empty)?;
    let position = archive.keep(Said { language, ..said }).await.map_err(failed)?;
    Ok(Json(json!({ "position": position })))
}

/// A message that a program is about to send to its network.
#[derive(Debug, Deserialize)]
struct Claimed {
    leg: String,
    position: u64,
}

/// Gives a message to a leg: the program may send it now, and never again. `409` says that it was given before.
async fn claim(State(web): State<Web>, Path(name): Path<String>, Json(claimed): Json<Claimed>) -> Answer<StatusCode> {
    let Claimed { leg, position } = claimed;
    web.find(&name)?.legs.get(&leg).ok_or_else(no_leg)?;
    let is_given = web.gateway.claim(&name, &leg, position).await.map_err(failed)?;
    Ok(if is_given { StatusCode::NO_CONTENT } else { StatusCode::CONFLICT })
}

fn no_leg() -> Problem {
    (StatusCode::NOT_FOUND, "the conversation has no such leg\n".to_owned())
}

async fn status(State(web): State<Web>) -> Answer<Json<Value>> {
    web.gateway.status().await.map(Json).map_err(failed)
}

async fn find(
    State(web): State<Web>,
    Path(name): Path<String>,
    Query(question): Query<Question>,
) -> Answer<Json<Value>> {
    let (found, next) = web.find(&name)?.archive.find(&question).await.map_err(failed)?;
    let messages: Vec<Value> = found.into_iter().map(|(position, said)| shown(position, &said)).collect();
    Ok(Json(json!({ "messages": messages, "next": next })))
}

/// A client that listens.
#[derive(Clone, Debug, Deserialize)]
struct Listener {
    /// A program with this leg gets the messages that were not claimed for it and did not come by it.
    leg: Option<String>,
    language: Option<String>,
}

async fn listen(
    State(web): State<Web>,
    Path(name): Path<String>,
    Query(mut listener): Query<Listener>,
    headers: HeaderMap,
) -> Answer<Response> {
    let Conversation { archive, legs } = web.find(&name)?;
    let busy = |_| (StatusCode::SERVICE_UNAVAILABLE, format!("{LISTENERS_MAX} clients listen; try again later\n"));
    let place = web.listeners.clone().try_acquire_owned().map_err(busy)?;
    // A browser that comes back says what it had last.
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse::<u64>().ok());
    let begin = match (&listener.leg, last) {
        (Some(leg), _) => {
            listener.language = legs.get(leg).ok_or_else(no_leg)?.clone();
            web.gateway.cursor(&name, leg, &archive).await.map_err(failed)?
        }
        (None, Some(last)) => last.saturating_add(1),
        (None, None) => archive.end().await.map_err(failed)?.saturating_sub(SHOWN_AT_FIRST),
    };
    let listening = (archive.tail(begin), web.gateway, listener, place);
    let events = stream::unfold(listening, |mut listening| async move {
        let event = next_event(&mut listening.0, &listening.1, &listening.2).await?;
        Some((Ok::<_, Infallible>(event), listening))
    });
    Ok(Sse::new(events).into_response())
}

/// Waits for the next event; `None` at the end.
async fn next_event(tail: &mut Tail<Said, AnyEngine>, gateway: &Gateway, listener: &Listener) -> Option<Event> {
    loop {
        return match race(gateway.ending.cancelled(), timeout(SILENCE_MAX, tail.next())).await {
            First::Right(Ok(Ok((_, said)))) if listener.leg.as_ref() == Some(&said.leg) => continue,
            First::Right(Ok(Ok((position, said)))) => {
                let mut value = shown(position, &said);
                if let Some(text) = gateway.translated(&said, listener.language.as_ref()).await {
                    value["original"] = std::mem::replace(&mut value["text"], text.into());
                }
                Some(Event::default().id(position.to_string()).data(value.to_string()))
            }
            // A client that is gone shows when something is sent to it.
            First::Right(Err(_)) => Some(Event::default().comment("")),
            First::Right(Ok(Err(Error::NotApplied(Refusal::Trimmed { .. })))) => continue,
            First::Left(()) | First::Right(Ok(Err(_))) => None,
        };
    }
}

fn shown(position: u64, said: &Said) -> Value {
    json!({ "position": position, "at_ms": said.at_ms, "name": said.name(), "text": said.text })
}

impl Web {
    fn find(&self, name: &str) -> Answer<Conversation> {
        let missing = || (StatusCode::NOT_FOUND, "there is no such conversation\n".to_owned());
        self.gateway.conversation(name).ok_or_else(missing)
    }
}

fn failed(error: Error) -> Problem {
    // A client may say it again either way: its id is known then.
    let is_unknown = matches!(error, Error::Unknown { .. });
    (if is_unknown { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::SERVICE_UNAVAILABLE }, format!("{error}\n"))
}

const CONVERSATIONS_MAX: usize = 100;
const LEGS_MAX: usize = 100;
const LISTENERS_MAX: usize = 256;
/// The messages that a new client gets first.
const SHOWN_AT_FIRST: u64 = 50;
const SILENCE_MAX: Duration = Duration::from_secs(15);
const ID_LEN_MAX: usize = 500;
