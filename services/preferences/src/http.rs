//! The requests: documents with ETags, as RFC 9110 has them.

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use dapple::serve::bearer::Token;
use dapple::serve::conditional::{Validators, Verdict, evaluate};
use dapple::store::{Error, Refusal, Version};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::document::{self, Kind};
use crate::registry::{Document, NAMES_MAX, Problem, Registry};

/// The routes; with a token, requests need it.
pub(crate) fn router(registry: Registry, token: Option<Token>) -> Router {
    Router::new()
        .route("/", get(HELP))
        .route("/{kind}", get(list))
        .route("/{kind}/{name}", get(read).put(write).patch(patch).delete(remove))
        .route("/users/{user}/for/{device}", get(effective))
        .fallback(async || Problem::Missing.into_response())
        .with_state(registry)
        .layer(from_fn_with_state(token, check_token))
}

async fn check_token(State(token): State<Option<Token>>, request: Request, next: Next) -> Response {
    match token.is_none_or(|token| token.admits(request.headers())) {
        true => next.run(request).await,
        false => Problem::NoToken.into_response(),
    }
}

#[derive(Debug, Deserialize)]
struct After {
    #[serde(default)]
    after: String,
}

async fn list(
    State(registry): State<Registry>,
    Path(kind): Path<Kind>,
    Query(After { after }): Query<After>,
) -> Result<Response, Problem> {
    let names = registry.names(kind, &after).await?;
    let next = names.last().filter(|_| names.len() == NAMES_MAX);
    Ok(answer(StatusCode::OK, &json!({ "names": names, "next": next })))
}

async fn read(
    State(registry): State<Registry>,
    Path((kind, name)): Path<(Kind, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Document { value, version } = registry.read(kind, &name).await?.ok_or(Problem::Missing)?;
    Ok(tagged(&headers, &etag(version), &value))
}

async fn effective(
    State(registry): State<Registry>,
    Path((user, device)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let profile = registry.read(Kind::Devices, &device).await?.ok_or(Problem::Missing)?;
    let user = registry.read(Kind::Users, &user).await?;
    let of_user = user.as_ref().map_or(0, |user| user.version.0);
    let etag = format!("\"{}-{of_user}\"", profile.version);
    let value = document::effective(&device, profile.value, user.map(|user| user.value));
    Ok(tagged(&headers, &etag, &value))
}

async fn write(
    State(registry): State<Registry>,
    Path((kind, name)): Path<(Kind, String)>,
    headers: HeaderMap,
    body: String,
) -> Result<Response, Problem> {
    check_name(&name)?;
    let value = document::parse(kind, &body).map_err(Problem::Invalid)?;
    let replace = |found: Option<&Document>| check_condition(&headers, found, true).map(|()| Some(value.clone()));
    Ok(written(registry.change(kind, &name, replace).await?))
}

async fn patch(
    State(registry): State<Registry>,
    Path((kind, name)): Path<(Kind, String)>,
    headers: HeaderMap,
    body: String,
) -> Result<Response, Problem> {
    check_name(&name)?;
    let invalid = |error: serde_json::Error| Problem::Invalid(format!("the body is not JSON: {error}"));
    let patch: Value = serde_json::from_str(&body).map_err(invalid)?;
    let merge = |found: Option<&Document>| {
        // A patch says all that it changes, so it needs no condition.
        check_condition(&headers, found, false)?;
        let value =
            document::patched(kind, found.map(|found| found.value.clone()), &patch).map_err(Problem::Invalid)?;
        match value.to_string().len() {
            len if len > LEN_MAX => {
                Err(Problem::Invalid(format!("the document would have {len} bytes, {LEN_MAX} at most")))
            }
            _ => Ok(Some(value)),
        }
    };
    Ok(written(registry.change(kind, &name, merge).await?))
}

async fn remove(
    State(registry): State<Registry>,
    Path((kind, name)): Path<(Kind, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let remove = |found: Option<&Document>| {
        let found = found.ok_or(Problem::Missing)?;
        check_condition(&headers, Some(found), true).map(|()| None)
    };
    Ok(written(registry.change(kind, &name, remove).await?))
}

/// Checks `If-Match` and `If-None-Match` against the document that is there.
fn check_condition(headers: &HeaderMap, found: Option<&Document>, is_required: bool) -> Result<(), Problem> {
    let is_there = headers.contains_key(header::IF_MATCH) || headers.contains_key(header::IF_NONE_MATCH);
    if is_required && !is_there {
        return Err(Problem::NoCondition);
    }
    let current = found.map(|found| found.version);
    let etag = current.map(etag);
    let validators = etag.as_ref().map(|etag| validators(etag));
    match evaluate(&Method::PUT, headers, validators.as_ref()) {
        Verdict::Proceed => Ok(()),
        Verdict::NotModified | Verdict::Failed => Err(Problem::Changed { current }),
    }
}

fn validators(etag: &str) -> Validators<'_> {
    Validators { etag: Some(etag.as_bytes()), modified_s: None }
}

fn etag(version: Version) -> String {
    format!("\"{version}\"")
}

/// A document with its tag; without its text if the client has it.
fn tagged(headers: &HeaderMap, etag: &str, value: &Value) -> Response {
    let fields = [(header::ETAG, etag.to_owned()), (header::CACHE_CONTROL, "private, no-cache".to_owned())];
    match evaluate(&Method::GET, headers, Some(&validators(etag))) {
        Verdict::Proceed => (fields, answer(StatusCode::OK, value)).into_response(),
        Verdict::NotModified => (StatusCode::NOT_MODIFIED, fields).into_response(),
        Verdict::Failed => (fields, Problem::Changed { current: None }).into_response(),
    }
}

fn written(version: Option<Version>) -> Response {
    let fields = version.map(|version| [(header::ETAG, etag(version))]);
    match fields {
        Some(fields) => (StatusCode::NO_CONTENT, fields).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

fn check_name(name: &str) -> Result<(), Problem> {
    let is_letter = |letter: char| letter.is_alphanumeric() || "-._@+".contains(letter);
    if name.chars().all(is_letter) && name.len() <= NAME_LEN_MAX {
        return Ok(());
    }
    Err(Problem::Invalid(format!("a name has letters, digits and -._@+, and at most {NAME_LEN_MAX} bytes")))
}

fn answer(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{value}\n")).into_response()
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = match &self {
            // No document has such a name.
            Problem::Missing | Problem::Store(Error::NotApplied(Refusal::TooLong { .. })) => StatusCode::NOT_FOUND,
            Problem::Changed { .. } => StatusCode::PRECONDITION_FAILED,
            Problem::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Problem::NoCondition => StatusCode::PRECONDITION_REQUIRED,
            Problem::NoToken => StatusCode::UNAUTHORIZED,
            Problem::Store(Error::Unavailable(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Problem::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let body = answer(status, &json!({ "error": self.to_string() }));
        match self {
            Problem::Changed { current: Some(current) } => ([(header::ETAG, etag(current))], body).into_response(),
            Problem::NoToken => ([(header::WWW_AUTHENTICATE, "Bearer")], body).into_response(),
            _ => body,
        }
    }
}

/// The longest document, in bytes.
pub(crate) const LEN_MAX: usize = 64 << 10;
const NAME_LEN_MAX: usize = 200;
const HELP: &str = "A registry of preferences.

GET /users, /devices                names, 1000 at a time (?after=NAME)
GET /users/NAME, /devices/NAME      a document, with its ETag
PUT /users/NAME, /devices/NAME      needs If-Match: ETAG, or If-None-Match: *
PATCH /users/NAME, /devices/NAME    a JSON merge patch
DELETE /users/NAME, /devices/NAME   needs If-Match: ETAG, or If-Match: *
GET /users/NAME/for/DEVICE          the preferences of a user at a device
";
