//! A small web server: the files of a folder over HTTP/1.1, with a cache, in at most 370 lines
//! (PLDI 2007, section 5.2).
//!
//! ```text
//! cargo run --example small_web_server -- FOLDER [--port N] [--workers N] [--cache-mb N] [--own-scheduler]
//! ```
//!
//! Each connection is a task with its own color, written top to bottom. Two tables are shared, and
//! each has a color: the pages, and the open folders. A lookup needs the longest prefix of a path
//! with an open folder. As in the libasync-mp thesis, the connection hashes every prefix in its own
//! color, in parallel with all others; in the color of a table it only compares numbers. Lookups
//! only read, so they also overlap each other, which the thesis could only wish for.
//!
//! No path leads out of the folder. The server opens one name after the other, each *beneath* the
//! previous folder, and the kernel enforces that against all links and renames. Names that begin
//! with a dot are not served, whether written `..` or `%2e%2e`.
//!
//! Use `dapple serve` for real sites. With `--own-scheduler`, the same connections run on the
//! scheduler of `own_scheduler.rs` instead of Dapple's.

use std::collections::{BTreeMap, VecDeque, hash_map::RandomState};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{ffi::OsString, net::Shutdown, os::unix::ffi::OsStringExt, sync::Arc};

use dapple::fs::{Dir, File, OpenOptions};
use dapple::net::{TcpListener, TcpStream};
use dapple::time::{Instant, timeout, timeout_at};
use dapple::{Color, Colored, event, sync::Notify};
use httparse::{Error, Status};
use httpdate::{HttpDate, parse_http_date};
use percent_encoding::percent_decode_str;
use scheduler::Scheduler;

#[path = "shared/scheduler.rs"]
mod scheduler;

fn main() -> Result<(), String> {
    let (mut folder, mut port, mut workers, mut cache_mb, mut own) = (None, 7009, 0, 64, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next()?.parse::<u16>().ok().filter(|number| *number > 0 || word == "--port");
        match word.as_str() {
            "--port" => port = number().ok_or("--port takes a number from 0 to 65535")?,
            "--workers" => workers = number().ok_or("--workers takes a number from 1")?,
            "--cache-mb" => cache_mb = number().ok_or("--cache-mb takes a number from 1")?,
            "--own-scheduler" => own = true,
            _ if word.starts_with("--") || folder.is_some() => return Err(format!("{word} is not an option")),
            _ => folder = Some(word),
        }
    }
    let folder =
        folder.ok_or("usage: small_web_server FOLDER [--port N] [--workers N] [--cache-mb N] [--own-scheduler]")?;
    let builder = if workers > 0 { dapple::builder().workers(workers.into()) } else { dapple::builder() };
    let runtime = builder.build().map_err(|error| format!("the runtime cannot start: {error}"))?;
    let _entered = runtime.enter();
    let listener = TcpListener::bind(("127.0.0.1", port)).map_err(|error| format!("cannot listen: {error}"))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let root = runtime.block_on(Dir::open(&folder)).map_err(|error| format!("cannot open {folder}: {error}"))?;
    let (pages, folders) =
        (Colored::new(Table::new(usize::from(cache_mb) << 20)), Colored::new(Table::new(FOLDERS_MAX)));
    let server = Arc::new(Server { root, pages, folders, hasher: RandomState::new(), counts: Counts::default() });
    let ended = Arc::new(Notify::new());
    let mut signals = Vec::new();
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let ended = ended.clone();
        let callback = Color::DEFAULT.wrap(move |()| ended.notify_one());
        signals.push(event::on_signal(signal.as_raw(), callback).map_err(|error| error.to_string())?);
    }
    drop(dapple::spawn(accept(server.clone(), listener, own.then(Scheduler::start))));
    println!("small_web_server listens on {address}; try: curl http://{address}/");
    runtime.block_on(ended.notified());
    let _ = writeln!(io::stdout(), "{:?}", server.counts);
    Ok(())
}

async fn accept(server: Arc<Server>, listener: TcpListener, own: Option<Arc<Scheduler>>) -> io::Result<()> {
    loop {
        let (stream, _peer) = listener.accept().await?;
        server.counts.connections.fetch_add(1, Relaxed);
        let mut connection = Connection { server: server.clone(), stream, received: Vec::new(), replies: Vec::new() };
        // An error is a client that left or was too slow; no other client needs to know.
        let thread = async move { drop(connection.run().await) };
        match &own {
            None => drop(dapple::spawn(thread)),
            Some(own) => own.spawn(thread),
        }
    }
}

struct Server {
    root: Dir,
    pages: Colored<Table<Arc<Page>>>,
    folders: Colored<Table<Dir>>,
    hasher: RandomState,
    counts: Counts,
}

/// The numbers that the server prints at its end.
#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    requests: AtomicU64,
    from_cache: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
}

/// A file in the state that the server last saw.
struct Page {
    len: u64,
    modified: SystemTime,
    etag: String,
    fields: String,
    body: Body,
}

enum Body {
    Memory(Vec<u8>),
    /// Too large for the cache.
    Disk(File),
}

impl Server {
    /// The page for a path: from the cache, if the server checked the file a moment ago; otherwise
    /// it checks again.
    async fn page(&self, steps: &[Step]) -> io::Result<Arc<Page>> {
        let (last, folders) = steps.split_last().ok_or(ErrorKind::NotFound)?;
        let cached = self.pages.read(|pages| pages.get(last)).await;
        if let Some((page, true)) = cached {
            self.counts.from_cache.fetch_add(1, Relaxed);
            return Ok(page);
        }
        let mut options = OpenOptions::new();
        let file = self.folder(folders).await?.open_beneath(&last.name, options.read(true).regular_only(true)).await?;
        let metadata = file.metadata().await?;
        let (len, modified) = (metadata.len(), metadata.modified()?);
        let etag = format!("\"{len:x}-{:x}\"", modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos());
        let page = match cached {
            Some((page, _)) if page.etag == etag => page,
            _ => {
                let kind = mime_guess::from_path(&last.name).first_raw().unwrap_or("application/octet-stream");
                let date = HttpDate::from(modified);
                let fields = format!("content-type: {kind}\r\netag: {etag}\r\nlast-modified: {date}\r\n");
                let body = match len <= PAGE_MAX {
                    true => Body::Memory(file.read_exact_at(0, len as usize).await?),
                    false => Body::Disk(file),
                };
                Arc::new(Page { len, modified, etag, fields, body })
            }
        };
        if let Body::Memory(body) = &page.body {
            self.pages.with(|pages| pages.put(last, page.clone(), body.len() + last.path.len() + ENTRY_BYTES)).await;
        }
        Ok(page)
    }

    /// Opens the last of these folders: from the longest open prefix down, one folder after the
    /// other.
    async fn folder(&self, folders: &[Step]) -> io::Result<Dir> {
        let is_open = |open: &Table<Dir>, at: usize| Some((open.get(&folders[at]).filter(|found| found.1)?.0, at + 1));
        let longest = |open: &Table<Dir>| (0..folders.len()).rev().find_map(|at| is_open(open, at));
        let (mut dir, opened) = self.folders.read(longest).await.unwrap_or_else(|| (self.root.clone(), 0));
        for step in &folders[opened..] {
            let mut options = OpenOptions::new();
            let file = dir.open_beneath(&step.name, options.read(true).path_only(true)).await?;
            dir = Dir::from_fd(file.as_std().try_clone()?);
            self.folders.with(|open| open.put(step, dir.clone(), 1)).await;
        }
        Ok(dir)
    }
}

/// One name of a path. The path up to it is decoded, and has a hash.
struct Step {
    name: OsString,
    path: Vec<u8>,
    hash: u64,
}

/// The steps of a target, hashed in the color of the caller; empty if it names nothing that could
/// be served.
fn steps(target: &str, random: &RandomState) -> Vec<Step> {
    let target = target.split(['?', '#']).next().unwrap_or_default();
    let index = target.ends_with('/').then_some("index.html");
    let (mut hasher, mut path, mut steps) = (random.build_hasher(), Vec::new(), Vec::new());
    for name in target.split('/').filter(|name| !name.is_empty()).chain(index) {
        let name: Vec<u8> = percent_decode_str(name).collect();
        if name.starts_with(b".") || name.contains(&b'/') || name.contains(&0) || steps.len() == PARTS_MAX {
            return Vec::new();
        }
        path.push(b'/');
        path.extend_from_slice(&name);
        hasher.write(&name);
        hasher.write_u8(b'/');
        steps.push(Step { name: OsString::from_vec(name), path: path.clone(), hash: hasher.finish() });
    }
    steps
}

/// Values by the hash of their path, up to a total weight. A value that was used since its last
/// turn for removal stays.
struct Table<V> {
    entries: BTreeMap<u64, Entry<V>>,
    /// In the order of their turns.
    order: VecDeque<u64>,
    weight: usize,
    weight_max: usize,
}

struct Entry<V> {
    path: Vec<u8>,
    value: V,
    weight: usize,
    looked: Instant,
    is_used: AtomicBool,
}

impl<V: Clone> Table<V> {
    fn new(weight_max: usize) -> Table<V> {
        Table { entries: BTreeMap::new(), order: VecDeque::new(), weight: 0, weight_max }
    }

    /// The value, and whether it is still fresh.
    fn get(&self, step: &Step) -> Option<(V, bool)> {
        let entry = self.entries.get(&step.hash).filter(|entry| entry.path == step.path)?;
        entry.is_used.store(true, Relaxed);
        Some((entry.value.clone(), entry.looked.elapsed() < FRESH))
    }

    fn put(&mut self, step: &Step, value: V, weight: usize) {
        let (path, is_used) = (step.path.clone(), AtomicBool::new(true));
        self.weight += weight;
        match self.entries.insert(step.hash, Entry { path, value, weight, looked: Instant::now(), is_used }) {
            Some(old) => self.weight -= old.weight,
            None => self.order.push_back(step.hash),
        }
        while self.weight > self.weight_max {
            let Some(next) = self.order.pop_front() else { return };
            if self.entries[&next].is_used.swap(false, Relaxed) {
                self.order.push_back(next);
            } else if let Some(removed) = self.entries.remove(&next) {
                self.weight -= removed.weight;
            }
        }
    }
}

struct Connection {
    server: Arc<Server>,
    stream: TcpStream,
    /// Read, and not yet parsed.
    received: Vec<u8>,
    /// Written when they are long enough, or when the next answer needs more input.
    replies: Vec<u8>,
}

impl Connection {
    /// One request after the other, until the client ends or must end.
    async fn run(&mut self) -> io::Result<()> {
        let mut deadline = None;
        loop {
            let request = match Request::parse(&self.received) {
                Ok(Some(request)) => request,
                Ok(None) => {
                    self.flush().await?;
                    let until = *deadline.get_or_insert_with(|| Instant::now() + IDLE_MAX);
                    if !self.receive(until).await? {
                        return Ok(());
                    }
                    continue;
                }
                Err(status) => Request { refusal: Some(status), ..Request::default() },
            };
            deadline = None;
            self.received.drain(..request.len);
            self.reply(&request).await?;
            if !request.is_kept {
                break;
            }
        }
        self.flush().await?;
        // The client closes first: closing with unread data would reset the connection, and lose
        // the last reply.
        self.stream.shutdown(Shutdown::Write)?;
        let deadline = Instant::now() + HANG_UP_MAX;
        while self.receive(deadline).await? {
            self.received.clear();
        }
        Ok(())
    }

    /// Reads until there is another line. False if the client has ended.
    async fn receive(&mut self, deadline: Instant) -> io::Result<bool> {
        loop {
            // The buffer is not in a variable that lives while the connection waits: an idle
            // connection has no buffer.
            let start = self.received.len();
            match read_now(&self.stream, &mut self.received) {
                Ok(1..) if self.received.len() < HEAD_MAX && !self.received[start..].contains(&b'\n') => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    timeout_at(deadline, self.stream.readable()).await??;
                }
                ended => return Ok(ended? > 0),
            }
        }
    }

    async fn reply(&mut self, request: &Request) -> io::Result<()> {
        let server = self.server.clone();
        server.counts.requests.fetch_add(1, Relaxed);
        if let Some(status) = request.refusal {
            return self.refuse(request, status, "");
        }
        let page = match server.page(&steps(&request.target, &server.hasher)).await {
            Ok(page) => page,
            Err(error) if error.kind() == ErrorKind::IsADirectory => {
                let path = request.target.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
                return self.refuse(request, "301 Moved Permanently", &format!("location: /{path}/\r\n"));
            }
            Err(error) => return self.refuse(request, status_of(&error), ""),
        };
        let is_known = request.knows(&page);
        self.head(if is_known { "304 Not Modified" } else { "200 OK" }, page.len, request.is_kept, &page.fields);
        if is_known || request.is_head {
            return Ok(());
        }
        for at in (0..page.len as usize).step_by(CHUNK) {
            let len = CHUNK.min(page.len as usize - at);
            match &page.body {
                Body::Memory(body) => self.replies.extend_from_slice(&body[at..at + len]),
                Body::Disk(file) => self.replies.append(&mut file.read_exact_at(at as u64, len).await?),
            }
            if self.replies.len() >= CHUNK {
                scheduler::set_rank((page.len as usize - at).div_ceil(CHUNK) as u64);
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Replies with a status instead of a page, and with its text.
    fn refuse(&mut self, request: &Request, status: &str, fields: &str) -> io::Result<()> {
        self.server.counts.errors.fetch_add(1, Relaxed);
        let fields = format!("content-type: text/plain\r\n{fields}");
        self.head(status, status.len() as u64 + 1, request.is_kept, &fields);
        if request.is_head { Ok(()) } else { writeln!(self.replies, "{status}") }
    }

    fn head(&mut self, status: &str, len: u64, is_kept: bool, fields: &str) {
        let date = HttpDate::from(SystemTime::now());
        let end = if is_kept { "\r\n" } else { "connection: close\r\n\r\n" };
        let _ = write!(self.replies, "HTTP/1.1 {status}\r\ndate: {date}\r\ncontent-length: {len}\r\n{fields}{end}");
    }

    async fn flush(&mut self) -> io::Result<()> {
        let replies = std::mem::take(&mut self.replies);
        self.server.counts.bytes.fetch_add(replies.len() as u64, Relaxed);
        timeout(IDLE_MAX, self.stream.write_all(&replies)).await?
    }
}

fn read_now(stream: &TcpStream, received: &mut Vec<u8>) -> io::Result<usize> {
    let mut chunk = [0; 8 * 1024];
    let len = stream.try_read(&mut chunk)?;
    received.extend_from_slice(&chunk[..len]);
    Ok(len)
}

fn status_of(error: &io::Error) -> &'static str {
    use ErrorKind::{CrossesDevices, InvalidInput, NotADirectory, NotFound, PermissionDenied};
    match error.kind() {
        NotFound | NotADirectory | CrossesDevices | InvalidInput => "404 Not Found",
        PermissionDenied => "403 Forbidden",
        // The file changed while it was read, the disk failed, or descriptors ran out.
        _ => "503 Service Unavailable",
    }
}

/// The parts of a request that the server understands.
#[derive(Default)]
struct Request {
    /// The number of received bytes that it takes.
    len: usize,
    target: String,
    is_head: bool,
    is_kept: bool,
    none_match: Option<String>,
    modified_since: Option<SystemTime>,
    /// The status to reply with instead of a page; `None` if the start of the next request is
    /// unknown.
    refusal: Option<&'static str>,
}

impl Request {
    /// The first request, if it is complete. The error is a status.
    fn parse(received: &[u8]) -> Result<Option<Request>, &'static str> {
        let mut fields = [httparse::EMPTY_HEADER; PARTS_MAX];
        let mut head = httparse::Request::new(&mut fields);
        let len = match head.parse(received) {
            Ok(Status::Partial) if received.len() < HEAD_MAX => return Ok(None),
            Ok(Status::Complete(len)) if len <= HEAD_MAX => len,
            Ok(_) | Err(Error::TooManyHeaders) => return Err("431 Request Header Fields Too Large"),
            Err(Error::Version) => return Err("505 HTTP Version Not Supported"),
            Err(_) => return Err("400 Bad Request"),
        };
        let (method, is_1_1) = (head.method.unwrap_or_default(), head.version == Some(1));
        if !matches!(method, "GET" | "HEAD") {
            return Err("501 Not Implemented");
        }
        let target = head.path.unwrap_or_default();
        // A full address, as for a proxy, names the host twice.
        let target = target.strip_prefix("http://").map_or(target, |rest| rest.find('/').map_or("/", |at| &rest[at..]));
        let (mut request, mut hosts) = (Request { len, target: target.to_owned(), ..Request::default() }, 0);
        (request.is_head, request.is_kept) = (method == "HEAD", is_1_1);
        for field in head.headers.iter() {
            let value = str::from_utf8(field.value).unwrap_or_default();
            match field.name.to_ascii_lowercase().as_str() {
                "host" => hosts += 1,
                "connection" => request.is_kept &= !value.to_ascii_lowercase().contains("close"),
                "content-length" if value == "0" => {}
                "content-length" | "transfer-encoding" => return Err("413 Content Too Large"),
                "if-none-match" => *request.none_match.get_or_insert_default() += &format!("{value},"),
                "if-modified-since" => request.modified_since = parse_http_date(value).ok(),
                _ => {}
            }
        }
        if hosts == 1 || !is_1_1 { Ok(Some(request)) } else { Err("400 Bad Request") }
    }

    /// Whether the client has this very page already.
    fn knows(&self, page: &Page) -> bool {
        let is_it = |tag: &str| tag == "*" || tag.trim_start_matches("W/") == page.etag;
        match (&self.none_match, self.modified_since) {
            (Some(tags), _) => tags.split(',').any(|tag| is_it(tag.trim())),
            (None, since) => since.is_some_and(|since| HttpDate::from(page.modified) <= HttpDate::from(since)),
        }
    }
}

/// How long a page or folder is assumed unchanged.
const FRESH: Duration = Duration::from_secs(1);
/// Larger files are read for each request, chunk by chunk.
const PAGE_MAX: u64 = 1 << 20;
const CHUNK: usize = 64 << 10;
/// The limit of open folders, each with a descriptor.
const FOLDERS_MAX: usize = 256;
/// The size of a cached page apart from its body and its path, in bytes.
const ENTRY_BYTES: usize = 512;
const HEAD_MAX: usize = 16 << 10;
/// The limit for a head or a path.
const PARTS_MAX: usize = 64;
/// How long a client may take to send a whole head, from the end of the last one, or to read a
/// chunk.
const IDLE_MAX: Duration = Duration::from_secs(30);
const HANG_UP_MAX: Duration = Duration::from_secs(1);
