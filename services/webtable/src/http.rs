//! The requests to a front end: files with ETags and ranges, as RFC 9110 has them, and handlers.

use std::time::{Duration, UNIX_EPOCH};

use axum::Router;
use axum::body::HttpBody;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use dapple::serve::conditional::{Validators, Verdict, Wanted, evaluate, wanted};

use crate::front::{Front, Problem, Reply, TURNS_MAX, contended};
use crate::handlers;
use crate::message::{Expected, FILE_LEN_MAX, File, Stamp};

pub(crate) fn router(front: Front) -> Router {
    let handler = get(handlers::show).post(handlers::post).put(handlers::open);
    Router::new()
        // Admission control refuses no request of this path.
        .route("/health", get(async || "ok\n"))
        .route("/run/{handler}/{name}", handler.layer(DefaultBodyLimit::max(handlers::FORM_LEN_MAX)))
        // The server has a limit for all.
        .route("/{*path}", get(read).put(write).delete(remove).layer(DefaultBodyLimit::disable()))
        .route("/", get(async |front, method, headers| read(front, method, Path(String::new()), headers).await))
        .layer(from_fn_with_state(front.clone(), admit))
        .with_state(front)
}

/// Stands before all handlers, so that no body is read of a request without the token, or without room for it.
async fn admit(State(front): State<Front>, request: Request, next: Next) -> Reply {
    // A POST changes only what its handler is for.
    if ![Method::PUT, Method::DELETE].contains(request.method()) {
        return Ok(next.run(request).await);
    }
    let token = front.token.as_ref().ok_or(Problem::ReadOnly)?;
    if !token.admits(request.headers()) {
        return Err(Problem::NoToken);
    }
    let len = request.body().size_hint().upper().unwrap_or(u64::MAX);
    let _room = front.room(FILE_LEN_MAX.min(len as usize))?;
    Ok(next.run(request).await)
}

async fn read(State(front): State<Front>, method: Method, Path(mut path): Path<String>, headers: HeaderMap) -> Reply {
    if path.is_empty() || path.ends_with('/') {
        path += "index.html";
    }
    // A body that the client has, or does not want, stays in the table.
    let may_have = headers.contains_key(header::IF_NONE_MATCH) || headers.contains_key(header::IF_MODIFIED_SINCE);
    let is_head = method == Method::HEAD;
    let found = if may_have || is_head { front.about(&path, 0).await } else { front.file(&path).await };
    let (mut stamp, mut file) = found?.ok_or(Problem::Missing)?;
    match verdict(&Method::GET, &headers, Some(stamp)) {
        Verdict::Proceed if may_have && !is_head => (stamp, file) = front.file(&path).await?.ok_or(Problem::Missing)?,
        Verdict::Proceed => {}
        Verdict::NotModified => return Ok((StatusCode::NOT_MODIFIED, about(stamp)).into_response()),
        Verdict::Failed => return Err(Problem::Conflict),
    }
    let (etag, len) = (etag(stamp), stamp.len);
    let validators = Validators { etag: Some(etag.as_bytes()), modified_s: Some(stamp.modified_s) };
    let kind = HeaderValue::from_str(&file.kind).unwrap_or(HeaderValue::from_static(BYTES));
    let fixed = [(header::CONTENT_TYPE, kind), (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))];
    match wanted(&headers, &validators, len as u64) {
        // Only a GET has ranges.
        Wanted::One(part) if !is_head => {
            let range = [(header::CONTENT_RANGE, format!("bytes {}-{}/{len}", part.start, part.end - 1))];
            let part = file.body.slice(part.start as usize..part.end as usize);
            Ok((StatusCode::PARTIAL_CONTENT, fixed, about(stamp), range, part).into_response())
        }
        Wanted::Outside if !is_head => Err(Problem::Range(len)),
        // A client that asks for several parts has to take the whole, too.
        _ => Ok((fixed, about(stamp), [(header::CONTENT_LENGTH, len)], file.body).into_response()),
    }
}

async fn write(State(front): State<Front>, Path(path): Path<String>, headers: HeaderMap, body: Bytes) -> Reply {
    // `curl --continue-at` sends a part, which would replace the whole.
    let is_file = ![header::CONTENT_RANGE, header::CONTENT_ENCODING].iter().any(|name| headers.contains_key(name));
    if !is_file || path.ends_with('/') || path.chars().any(char::is_control) {
        let why =
            "a PUT sends a whole file without a coding, to a path that ends in a name, without control characters";
        return Err(Problem::Unfit(why.to_owned()));
    }
    // curl says of all that it sends with --data that it is a form.
    let sent = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).filter(|kind| *kind != FORM);
    let kind = sent.map_or_else(|| kind_of(&path), str::to_owned);
    change(&front, &path, &headers, Some(File { kind, modified_s: 0, body })).await
}

async fn remove(State(front): State<Front>, Path(path): Path<String>, headers: HeaderMap) -> Reply {
    change(&front, &path, &headers, None).await
}

/// Replaces or removes a file. If the request has conditions, it changes the file for which they hold, and no later one.
async fn change(front: &Front, path: &str, headers: &HeaderMap, file: Option<File>) -> Reply {
    let is_conditional = headers.keys().any(|name| name.as_str().starts_with("if-"));
    for _ in 0..TURNS_MAX {
        let found = front.about(path, 0).await?.map(|(stamp, _)| stamp);
        if file.is_none() && found.is_none() {
            return Err(Problem::Missing);
        }
        if verdict(&Method::PUT, headers, found) != Verdict::Proceed {
            return Err(Problem::Conflict);
        }
        let expected = found.map_or(Expected::Absent, |stamp| Expected::Version(stamp.version));
        let expected = if is_conditional { expected } else { Expected::Any };
        match front.change(path, expected, file.clone()).await {
            // The file is another one: do the conditions hold for it?
            Err(Problem::Conflict) => {}
            Err(problem) => return Err(problem),
            Ok(stamp) => {
                let status = if found.is_none() { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
                return Ok((status, file.map(|_| [(header::ETAG, etag(stamp))]), ()).into_response());
            }
        }
    }
    Err(contended())
}

fn verdict(method: &Method, headers: &HeaderMap, found: Option<Stamp>) -> Verdict {
    let etag = found.map(etag);
    let validators = etag
        .as_ref()
        .zip(found)
        .map(|(etag, stamp)| Validators { etag: Some(etag.as_bytes()), modified_s: Some(stamp.modified_s) });
    evaluate(method, headers, validators.as_ref())
}

fn etag(stamp: Stamp) -> String {
    format!("\"{:x}-{:x}\"", stamp.version, stamp.modified_s)
}

/// The fields that `200`, `206` and `304` have.
fn about(stamp: Stamp) -> [(header::HeaderName, String); 4] {
    let modified = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(stamp.modified_s));
    [
        (header::ETAG, etag(stamp)),
        (header::LAST_MODIFIED, modified),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
    ]
}

fn kind_of(path: &str) -> String {
    let kind = mime_guess::from_path(path).first_raw().unwrap_or(BYTES);
    kind.to_owned() + if kind.starts_with("text/") { "; charset=utf-8" } else { "" }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, field) = match &self {
            Problem::Missing => (StatusCode::NOT_FOUND, None),
            Problem::Conflict => (StatusCode::PRECONDITION_FAILED, None),
            Problem::NoToken => (StatusCode::UNAUTHORIZED, Some((header::WWW_AUTHENTICATE, "Bearer".to_owned()))),
            Problem::ReadOnly => (StatusCode::FORBIDDEN, None),
            Problem::Range(len) => {
                (StatusCode::RANGE_NOT_SATISFIABLE, Some((header::CONTENT_RANGE, format!("bytes */{len}"))))
            }
            Problem::Unfit(_) => (StatusCode::UNPROCESSABLE_ENTITY, None),
            Problem::Later { after, .. } => {
                let seconds = after.as_millis().div_ceil(1000).max(1).to_string();
                (StatusCode::SERVICE_UNAVAILABLE, Some((header::RETRY_AFTER, seconds)))
            }
            Problem::Unknown(_) => (StatusCode::GATEWAY_TIMEOUT, None),
            Problem::Failed(_) => (StatusCode::INTERNAL_SERVER_ERROR, None),
        };
        (status, field.map(|field| [field]), format!("{self}\n")).into_response()
    }
}

const BYTES: &str = "application/octet-stream";
const FORM: &str = "application/x-www-form-urlencoded";
