//! The live page, and the same as JSON.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the page |
//! | `/snapshot.json?ms=500` | a snapshot of a recording of so many milliseconds, 10 to 10,000 |
//! | `/predict.json?workers=4&faster=FAMILY&times=2` | a prediction from the last recording; `split=FAMILY&parts=4`, `readable=FAMILY` |
//! | `/recording?ms=10000` | the file of a recording |
//! | `/-/healthy` | `ok` |

mod attach;
mod watch;

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use dapple_http::Request;
use dapple_io::net::TcpListener;
use dapple_io::time::sleep;
use dapple_sched::{Color, Handle, HasObserver};
use dapple_serve::bearer::Token;
use dapple_serve::http::{Client, Reply, RequestBody, Service};
use dapple_serve::metrics::listener::serve_pages;
use http::header::{ALLOW, RETRY_AFTER};
use http::{HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode_str;

pub use self::attach::{AttachError, Attached, attach, attachable};
pub use self::watch::{Watch, watch};
use crate::{Change, Insight, Recording};

/// The reason why the page cannot be served.
#[derive(Debug)]
#[non_exhaustive]
pub enum PageError {
    /// Listening failed.
    Listen(io::Error),
    /// The address is not a loopback one, and there is no token: every client could look in.
    NoToken(SocketAddr),
    /// The runtime has another observer.
    HasObserver,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PageError::Listen(error) => write!(f, "listening for the page failed ({error}); choose another address"),
            PageError::NoToken(addr) => {
                write!(f, "{addr} is not a loopback address: give a token, which clients must send")
            }
            PageError::HasObserver => {
                f.write_str("the runtime has another observer, so its callbacks cannot be recorded")
            }
        }
    }
}

impl std::error::Error for PageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PageError::Listen(error) => Some(error),
            PageError::NoToken(_) | PageError::HasObserver => None,
        }
    }
}

/// Serves the live page of the current runtime at this address, in a background task. Returns the address, because
/// the given one may have port 0.
///
/// At a loopback address any client on this machine may look; at others a token is needed, as `?token=` or in the header
/// `authorization: Bearer`. The page only reads. A page that is open records for half a second out of two.
///
/// ```
/// # use dapple_insight::serve;
/// # let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// let addr = serve("127.0.0.1:0", None).expect("the port is free");
/// println!("http://{addr}/");
/// assert!(serve("0.0.0.0:0", None).is_err(), "others could look in");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// [`PageError`]; no runtime is current is one of listening.
pub fn serve(addr: impl ToSocketAddrs, token: Option<&str>) -> Result<SocketAddr, PageError> {
    let mut problem = io::ErrorKind::NotFound.into();
    for addr in addr.to_socket_addrs().map_err(PageError::Listen)? {
        if token.is_none() && !addr.ip().is_loopback() {
            return Err(PageError::NoToken(addr));
        }
        match TcpListener::bind(addr) {
            Ok(listener) => return serve_on(listener, token),
            Err(error) => problem = error,
        }
    }
    Err(PageError::Listen(problem))
}

/// As [`serve`], on a listener.
///
/// # Errors
/// As [`serve`].
pub fn serve_on(listener: TcpListener, token: Option<&str>) -> Result<SocketAddr, PageError> {
    let addr = listener.local_addr().map_err(PageError::Listen)?;
    if token.is_none() && !addr.ip().is_loopback() {
        return Err(PageError::NoToken(addr));
    }
    let insight = shared(&Handle::current()).map_err(|_| PageError::HasObserver)?;
    let page = Page::new(insight, token.map(Token::unchecked));
    drop(Color::new().spawn_background(serve_pages(listener, Arc::new(page))));
    Ok(addr)
}

/// The recorder of a runtime, for all of its pages: a runtime has one observer. It belongs to the first page that asks, and
/// stays with the others.
fn shared(handle: &Handle) -> Result<Arc<Insight>, HasObserver> {
    // A page that waits for its runtime's end must not keep the runtime, so this keeps no handle.
    static ALL: Mutex<Vec<Weak<Insight>>> = Mutex::new(Vec::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|known| known.strong_count() > 0);
    let color = handle.default_color();
    let known = all.iter().filter_map(Weak::upgrade).find(|insight| insight.handle().default_color() == color);
    if let Some(insight) = known {
        return Ok(insight);
    }
    let insight = Arc::new(Insight::new(handle)?);
    all.push(Arc::downgrade(&insight));
    Ok(insight)
}

struct Page {
    insight: Arc<Insight>,
    /// The last recording, for predictions.
    last: Mutex<Option<Arc<Recording>>>,
    token: Option<Token>,
}

impl Service for Page {
    async fn answer(&self, request: &Request<'_>, _body: &mut RequestBody<'_>, _client: &Client) -> Reply {
        if request.method != Method::GET && request.method != Method::HEAD {
            let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed here\n".to_owned());
            reply.headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return reply;
        }
        let query = Query::of(request.query.unwrap_or_default());
        if request.path == "/-/healthy" {
            return text(StatusCode::OK, "ok\n".to_owned());
        }
        if !self.admits(request, &query) {
            return text(StatusCode::UNAUTHORIZED, "give the token of this program: /?token=TOKEN\n".to_owned());
        }
        match request.path {
            "/" => {
                Reply::about_program(StatusCode::OK, include_str!("page.html").to_owned(), "text/html; charset=utf-8")
            }
            "/snapshot.json" => self.snapshot(&query).await,
            "/predict.json" => self.predict(&query).await,
            "/recording" => self.recording(&query).await,
            _ => text(StatusCode::NOT_FOUND, "not found; try / or /snapshot.json or /recording\n".to_owned()),
        }
    }

    fn refuse(&self, status: StatusCode, reason: &str, _client: &Client) -> Reply {
        text(status, format!("{reason}\n"))
    }
}

impl Page {
    fn new(insight: Arc<Insight>, token: Option<Token>) -> Page {
        Page { insight, last: Mutex::default(), token }
    }

    fn admits(&self, request: &Request<'_>, query: &Query) -> bool {
        let Some(token) = &self.token else { return true };
        request.fields.first("authorization").is_some_and(|field| token.admits_field(field))
            || query.get("token").is_some_and(|given| token.is(given.as_bytes()))
    }

    /// Records for as long as the query says. The others read the whole text while it is analyzed in the pool.
    async fn record(&self, query: &Query, default_ms: u64) -> Result<Arc<Recording>, Reply> {
        let ms = match query.get("ms").map(str::parse) {
            None => default_ms,
            Some(Ok(ms)) if (MS_MIN..=MS_MAX).contains(&ms) => ms,
            Some(_) => {
                return Err(text(StatusCode::BAD_REQUEST, format!("`ms` is a number from {MS_MIN} to {MS_MAX}\n")));
            }
        };
        let mut session = self.insight.begin_shared().map_err(|error| {
            let mut reply = text(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"));
            reply.headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            reply
        })?;
        sleep(Duration::from_millis(ms)).await;
        session.stop();
        let recording = in_pool(move || session.end()).await.map(Arc::new).ok_or_else(ends)?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(recording.clone());
        Ok(recording)
    }

    async fn snapshot(&self, query: &Query) -> Reply {
        match self.record(query, SNAPSHOT_MS).await {
            Ok(recording) => json(in_pool(move || recording.snapshot()).await),
            Err(refused) => refused,
        }
    }

    async fn recording(&self, query: &Query) -> Reply {
        let recording = match self.record(query, RECORDING_MS).await {
            Ok(recording) => recording,
            Err(refused) => return refused,
        };
        let saved = in_pool(move || {
            let mut file = Vec::new();
            recording.save(&mut file).map(|()| file)
        });
        match saved.await {
            Some(Ok(file)) => Reply::about_program(StatusCode::OK, file, "application/gzip"),
            Some(Err(_)) | None => ends(),
        }
    }

    async fn predict(&self, query: &Query) -> Reply {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(recording) = last else {
            return text(StatusCode::CONFLICT, "nothing is recorded yet: ask for /snapshot.json first\n".to_owned());
        };
        let workers = query.get("workers").map_or(Ok(recording.workers()), str::parse);
        let (Ok(workers @ 1..=WORKERS_MAX), Some(changes)) = (workers, query.changes()) else {
            let advice = "`workers` is a number from 1 to 1024; changes are faster=FAMILY&times=2, split=FAMILY&parts=4, readable=FAMILY\n";
            return text(StatusCode::BAD_REQUEST, advice.to_owned());
        };
        json(in_pool(move || recording.predict(workers, &changes)).await)
    }
}

/// Runs an analysis, which takes up to seconds, beside the workers.
async fn in_pool<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    dapple_io::blocking::spawn_blocking(work).await.ok()
}

/// The parameters of a request, decoded.
struct Query(Vec<(String, String)>);

impl Query {
    fn of(text: &str) -> Query {
        let decoded = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        Query(pairs.map(|(name, value)| (decoded(name), decoded(value))).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| &**value)
    }

    /// `None` if a number is missing or out of range.
    fn changes(&self) -> Option<Vec<Change>> {
        let mut changes = Vec::new();
        if let Some(family) = self.get("faster") {
            let times: f64 = self.get("times")?.parse().ok()?;
            changes
                .push(Change::Faster { family: family.to_owned(), times: Some(times).filter(|times| *times > 0.0)? });
        }
        if let Some(family) = self.get("split") {
            let parts: usize = self.get("parts")?.parse().ok()?;
            changes.push(Change::Split { family: family.to_owned(), parts: Some(parts).filter(|parts| *parts > 0)? });
        }
        if let Some(family) = self.get("readable") {
            changes.push(Change::Readable { family: family.to_owned() });
        }
        Some(changes)
    }
}

fn json(value: Option<impl serde::Serialize>) -> Reply {
    match value.and_then(|value| serde_json::to_string(&value).ok()) {
        Some(value) => Reply::about_program(StatusCode::OK, value, "application/json"),
        None => ends(),
    }
}

fn ends() -> Reply {
    text(StatusCode::SERVICE_UNAVAILABLE, "the program is ending\n".to_owned())
}

fn text(status: StatusCode, text: String) -> Reply {
    Reply::about_program(status, text, "text/plain; charset=utf-8")
}

const MS_MIN: u64 = 10;
const MS_MAX: u64 = 10_000;
const SNAPSHOT_MS: u64 = 500;
const RECORDING_MS: u64 = 5_000;
const WORKERS_MAX: usize = 1024;
