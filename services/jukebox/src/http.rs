//! The requests: streams and files of music in ranges, lists for players, and rules.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use dapple::fs::{Dir, OpenOptions};
use dapple::serve::bearer::Token;
use dapple::serve::conditional::{Validators, Verdict, Wanted, evaluate, wanted};
use dapple::store::Read::Linearizable;
use dapple::store::{AnyEngine, Error, Expect, OrderedTable, Refusal, Versioned};
use dapple::sync::{OwnedSemaphorePermit, Semaphore};
use futures_util::stream;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::library::{Chosen, Library, Track, Tracks, modified_ns};
use crate::rules::Rules;

/// The shared part of all requests.
#[derive(Clone)]
pub(crate) struct Jukebox {
    pub(crate) library: Library,
    /// The rules of each stream, as JSON.
    pub(crate) streams: OrderedTable<String, String, AnyEngine>,
    /// Without one, no rules are changed.
    pub(crate) token: Option<Token>,
    /// The room for streams and files that are sent.
    pub(crate) sending: Arc<Semaphore>,
}

/// The reason why a request is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("there is no such stream or file")]
    Missing,
    #[error("it is another one by now")]
    Changed,
    #[error("the range is outside of the {0} bytes")]
    Range(u64),
    #[error("{0}")]
    Invalid(String),
    #[error("the token is missing or wrong; send Authorization: Bearer TOKEN")]
    NoToken,
    #[error("this jukebox changes no rules: it was started without --token-file")]
    ReadOnly,
    #[error("there are {STREAMS_MAX} streams with rules, which is the limit: remove one")]
    TooMany,
    #[error("the limit of streams at the same time is reached; try again later")]
    Full,
    #[error("the folder of music cannot be read: {0}")]
    Folder(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] Error),
}

type Reply = Result<Response, Problem>;

pub(crate) fn router(jukebox: Jukebox) -> Router {
    Router::new()
        .route("/", get(start))
        // Admission control refuses no request of this path.
        .route("/health", get(async || "ok\n"))
        .route("/files/{*path}", get(file))
        .route("/streams/{name}", get(listen).put(write).delete(remove))
        .layer(from_fn_with_state(jukebox.clone(), check_token))
        .with_state(jukebox)
}

/// Stands before all handlers, so that the body of a request without the token is not read.
async fn check_token(State(jukebox): State<Jukebox>, request: Request, next: Next) -> Reply {
    if [Method::PUT, Method::DELETE].contains(request.method()) {
        let token = jukebox.token.as_ref().ok_or(Problem::ReadOnly)?;
        if !token.admits(request.headers()) {
            return Err(Problem::NoToken);
        }
    }
    Ok(next.run(request).await)
}

async fn start(State(jukebox): State<Jukebox>) -> Reply {
    let mut list = String::new();
    let mut streams = jukebox.streams.range(..)?;
    while let Some((name, rules)) = streams.next().await? {
        let (_, chosen) = chosen(&jukebox, &rules.value).await?;
        let tracks = chosen.places.len();
        list += &format!("{name}.mp3 {name}.m3u: {tracks} tracks, {}\n", rules.value);
    }
    Ok(format!("{HELP}\nStreams, below /streams/:\n{list}").into_response())
}

async fn file(State(jukebox): State<Jukebox>, method: Method, Path(path): Path<String>, headers: HeaderMap) -> Reply {
    let tracks = jukebox.library.tracks().await?;
    let place = tracks.all.binary_search_by(|track| track.path.as_str().cmp(&path)).map_err(|_| Problem::Missing)?;
    let chosen = Arc::new(tracks.at(vec![place as u32]));
    send(&jukebox, &method, &headers, tracks, chosen).await
}

/// A stream as one long file, the list of its files, or its rules.
async fn listen(
    State(jukebox): State<Jukebox>,
    method: Method,
    uri: Uri,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> Reply {
    let (name, kind) = path.rsplit_once('.').unwrap_or((&path, ""));
    let rules = jukebox.streams.get_versioned(&name.to_owned(), Linearizable).await?.ok_or(Problem::Missing)?;
    if kind.is_empty() {
        return text(&headers, &version_etag(&rules), "application/json", rules.value + "\n");
    }
    let (tracks, chosen) = chosen(&jukebox, &rules.value).await?;
    match kind {
        "mp3" => send(&jukebox, &method, &headers, tracks, chosen).await,
        "m3u" => {
            // HTTP/2 has the host in the target.
            let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
            let host = uri.authority().map(Authority::as_str).or(host).unwrap_or("localhost");
            let line = |track: &Track| format!("http://{host}/files/{}\n", utf8_percent_encode(&track.path, ENCODED));
            let list: String = chosen.places.iter().map(|place| line(&tracks.all[*place as usize])).collect();
            text(&headers, &chosen.etag, "audio/x-mpegurl", list)
        }
        _ => Err(Problem::Missing),
    }
}

/// A text under the conditions of a request.
fn text(headers: &HeaderMap, etag: &str, kind: &str, text: String) -> Reply {
    let fields = [(header::ETAG, etag), (header::CACHE_CONTROL, "no-cache"), (header::CONTENT_TYPE, kind)];
    match evaluate(&Method::GET, headers, Some(&validators(etag))) {
        Verdict::Proceed => Ok((fields, text).into_response()),
        Verdict::NotModified => Ok((StatusCode::NOT_MODIFIED, fields).into_response()),
        Verdict::Failed => Err(Problem::Changed),
    }
}

fn validators(etag: &str) -> Validators<'_> {
    Validators { etag: Some(etag.as_bytes()), modified_s: None }
}

fn version_etag(rules: &Versioned<String>) -> String {
    format!("\"{}\"", rules.version)
}

async fn chosen(jukebox: &Jukebox, rules: &str) -> Result<(Arc<Tracks>, Arc<Chosen>), Problem> {
    let tracks = jukebox.library.tracks().await?;
    let chosen = tracks.clone().chosen(rules).await.map_err(Problem::Invalid)?;
    Ok((tracks, chosen))
}

/// Sends tracks one after the other, or the part of them that is wanted.
async fn send(
    jukebox: &Jukebox,
    method: &Method,
    headers: &HeaderMap,
    tracks: Arc<Tracks>,
    chosen: Arc<Chosen>,
) -> Reply {
    let (len, etag) = (chosen.len, chosen.etag.clone());
    let validators = validators(&etag);
    match evaluate(&Method::GET, headers, Some(&validators)) {
        Verdict::Proceed => {}
        Verdict::NotModified => return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response()),
        Verdict::Failed => return Err(Problem::Changed),
    }
    let (status, part, range) = match wanted(headers, &validators, len) {
        // Only a GET has ranges.
        _ if method == Method::HEAD => (StatusCode::OK, 0..len, None),
        Wanted::One(part) => {
            let range = format!("bytes {}-{}/{len}", part.start, part.end - 1);
            (StatusCode::PARTIAL_CONTENT, part, Some([(header::CONTENT_RANGE, range)]))
        }
        Wanted::Outside => return Err(Problem::Range(len)),
        // A client that asks for several parts has to take the whole, too.
        _ => (StatusCode::OK, 0..len, None),
    };
    let fields = [
        (header::CONTENT_TYPE, "audio/mpeg".to_owned()),
        (header::CONTENT_LENGTH, (part.end - part.start).to_string()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::ETAG, etag),
    ];
    if method == Method::HEAD {
        return Ok((status, fields).into_response());
    }
    let sending = jukebox.sending.clone().try_acquire_owned().map_err(|_| Problem::Full)?;
    let folder = Dir::open(jukebox.library.folder()).await?;
    let reader = Reader { folder, tracks, chosen, at: 0, part, _sending: sending };
    let body = Body::from_stream(stream::try_unfold(reader, Reader::next));
    Ok((status, fields, range, body).into_response())
}

/// The tracks and bytes that are still to be sent.
struct Reader {
    folder: Dir,
    tracks: Arc<Tracks>,
    chosen: Arc<Chosen>,
    /// The number of the track in which the next piece is, or one before it.
    at: usize,
    /// Bytes of the tracks from that one on.
    part: Range<u64>,
    _sending: OwnedSemaphorePermit,
}

impl Reader {
    /// The next piece. A file that has changed ends the reply, since it would not be what the head says.
    async fn next(mut self) -> io::Result<Option<(Vec<u8>, Reader)>> {
        if self.part.is_empty() {
            return Ok(None);
        }
        let track = loop {
            let track = &self.tracks.all[self.chosen.places[self.at] as usize];
            if self.part.start < track.len {
                break track;
            }
            self.part = self.part.start - track.len..self.part.end - track.len;
            self.at += 1;
        };
        let file = self.folder.open_beneath(&track.path, OpenOptions::new().read(true)).await?;
        let about = file.metadata().await?;
        if (about.len(), modified_ns(&about.modified()?)) != (track.len, track.modified_ns) {
            return Err(io::Error::other(format!("{} has changed", track.path)));
        }
        let end = self.part.end.min(track.len).min(self.part.start + PIECE_LEN);
        let piece = file.read_exact_at(self.part.start, (end - self.part.start) as usize).await?;
        self.part.start = end;
        Ok(Some((piece, self)))
    }
}

async fn write(State(jukebox): State<Jukebox>, Path(name): Path<String>, headers: HeaderMap, rules: String) -> Reply {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !(1..=NAME_LEN_MAX).contains(&name.len()) || !name.bytes().all(is_letter) {
        return Err(Problem::Invalid(format!("a name has letters, digits, - and _, and at most {NAME_LEN_MAX} bytes")));
    }
    let rules = Rules::parse(&rules).map_err(Problem::Invalid)?;
    let text = serde_json::to_string(&rules).map_err(|error| Problem::Invalid(error.to_string()))?;
    let (found, expect) = expected(&jukebox, &name, &headers).await?;
    if found.is_none() && jukebox.streams.count().await? >= STREAMS_MAX {
        return Err(Problem::TooMany);
    }
    let written = match expect {
        Some(expect) => jukebox.streams.cas(&name, expect, &text).await?,
        None => jukebox.streams.put(&name, &text).await?,
    };
    let status = if found.is_none() { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    Ok((status, [(header::ETAG, format!("\"{}\"", written.version))]).into_response())
}

async fn remove(
    State(jukebox): State<Jukebox>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let (found, expect) = expected(&jukebox, &name, &headers).await?;
    found.ok_or(Problem::Missing)?;
    let removed = match expect {
        Some(expect) => jukebox.streams.remove_if(&name, expect).await?,
        None => jukebox.streams.remove(&name).await?,
    };
    removed.map(|_| StatusCode::NO_CONTENT).ok_or(Problem::Missing)
}

/// The rules that are there, and what a change has to expect if the request has conditions, which hold for them.
async fn expected(
    jukebox: &Jukebox,
    name: &String,
    headers: &HeaderMap,
) -> Result<(Option<Versioned<String>>, Option<Expect<String>>), Problem> {
    let found = jukebox.streams.get_versioned(name, Linearizable).await?;
    let etag = found.as_ref().map(version_etag);
    if evaluate(&Method::PUT, headers, etag.as_ref().map(|etag| validators(etag)).as_ref()) != Verdict::Proceed {
        return Err(Problem::Changed);
    }
    let is_conditional = headers.contains_key(header::IF_MATCH) || headers.contains_key(header::IF_NONE_MATCH);
    let expect = found.as_ref().map_or(Expect::Absent, |found| Expect::Version(found.version));
    Ok((found, is_conditional.then_some(expect)))
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, field) = match &self {
            // No stream has such a name.
            Problem::Missing | Problem::Store(Error::NotApplied(Refusal::TooLong { .. })) => {
                (StatusCode::NOT_FOUND, None)
            }
            Problem::Changed | Problem::Store(Error::NotApplied(Refusal::Conflict { .. })) => {
                (StatusCode::PRECONDITION_FAILED, None)
            }
            Problem::Range(len) => {
                (StatusCode::RANGE_NOT_SATISFIABLE, Some((header::CONTENT_RANGE, format!("bytes */{len}"))))
            }
            Problem::Invalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, None),
            Problem::NoToken => (StatusCode::UNAUTHORIZED, Some((header::WWW_AUTHENTICATE, "Bearer".to_owned()))),
            Problem::ReadOnly => (StatusCode::FORBIDDEN, None),
            Problem::TooMany => (StatusCode::INSUFFICIENT_STORAGE, None),
            Problem::Full => (StatusCode::SERVICE_UNAVAILABLE, Some((header::RETRY_AFTER, "10".to_owned()))),
            Problem::Store(Error::Unavailable(refused)) => {
                let seconds = refused.retry_after.as_millis().div_ceil(1000).max(1).to_string();
                (StatusCode::SERVICE_UNAVAILABLE, Some((header::RETRY_AFTER, seconds)))
            }
            Problem::Store(Error::Unknown { .. }) => (StatusCode::GATEWAY_TIMEOUT, None),
            Problem::Folder(_) | Problem::Store(_) => (StatusCode::INTERNAL_SERVER_ERROR, None),
        };
        (status, field.map(|field| [field]), format!("{self}\n")).into_response()
    }
}

/// A request's memory, and what a player has to wait for when it seeks.
const PIECE_LEN: u64 = 64 << 10;
/// The streams that are kept, all of which the start page shows.
const STREAMS_MAX: u64 = 100;
const NAME_LEN_MAX: usize = 60;
/// All but what stands for itself in the path of a URL.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const HELP: &str = "A jukebox.

GET /streams/NAME.mp3    all tracks of a stream as one file, with ranges
GET /streams/NAME.m3u    a list of them for players
GET /streams/NAME        its rules
GET /files/PATH          one track
PUT /streams/NAME        rules, with the token: {\"with\": [\"jazz\"], \"without\": [\"live\"], \"order\": {\"shuffled\": 7}, \"most\": 50}
DELETE /streams/NAME     with the token
";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dapple::stage::{Reason, Refused};

    use super::*;

    #[test]
    fn a_busy_store_says_when_to_come_again() {
        for (after, seconds) in [(Duration::ZERO, "1"), (Duration::from_millis(2100), "3")] {
            let busy = Problem::Store(Error::Unavailable(Refused::new(Reason::Full { len: 1 }, after))).into_response();
            assert_eq!((busy.status().as_u16(), busy.headers()["retry-after"].as_bytes()), (503, seconds.as_bytes()));
        }
    }
}
