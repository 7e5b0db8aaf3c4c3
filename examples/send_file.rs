//! Sends files over sockets: `send_file` of the PLDI 2007 paper (Figure 13), with its nested
//! exception handlers, as a task.
//!
//! ```text
//! cargo run --example send_file [PORT] [FOLDER]
//! ```
//!
//! A client sends the name of a file in a line, and gets `ok LENGTH` and the bytes, or `error: …`
//! with the reason. `?` as a name returns how many files are open, were sent, and failed.
//!
//! | the paper | here |
//! |---|---|
//! | `sys_throw e` | `return Err(e)`; `?` rethrows |
//! | `sys_catch f handler` | `match f.await { Err(e) => … }`, or `map_err` |
//! | a handler that cleans up and throws again | a destructor: it also runs for a panic, and when the task is canceled |
//!
//! The handlers, from the innermost outward, each for what only it can do: [`send_file`] closes the
//! file, [`answer`] tells the client, [`session`] decides whether to go on, [`supervise`] handles
//! everything unforeseen.

use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use dapple::fs::{self, File};
use dapple::net::{TcpListener, TcpStream};
use dapple::time::timeout;
use lines::next_line;

#[path = "shared/lines.rs"]
mod lines;

#[dapple::main]
async fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().unwrap_or_else(|| "7006".to_owned());
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned()));
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    let addr = listener.local_addr()?;
    println!("send_file listens on {addr}; try: nc {} {}, then type Cargo.toml", addr.ip(), addr.port());
    let server = Arc::new(Server { folder, open: Count::default(), sent: Count::default(), failed: Count::default() });
    loop {
        let (stream, _peer) = listener.accept().await?;
        drop(dapple::spawn(supervise(stream, server.clone())));
    }
}

struct Server {
    folder: PathBuf,
    open: Count,
    sent: Count,
    failed: Count,
}

/// Numbers to show.
#[derive(Default)]
struct Count(AtomicI64);

impl Count {
    fn add(&self, n: i64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
}

/// The errors: the exceptions of this program.
enum Problem {
    /// The request is refused. The client gets an error, and may ask again.
    Refused(&'static str),
    /// The disk failed, or the file changed, before any part of it was sent. The client gets an
    /// error.
    File(io::Error),
    /// The same, too late for an error, because the client expects bytes: only the end of the
    /// connection can signal it.
    Broken { at: u64, cause: io::Error },
    /// The client has left, or does not read.
    Client(io::Error),
}

/// Copies until the end of the file, which has `len` bytes (`copy_data` of the paper). It handles
/// no errors.
async fn copy_data(file: &File, stream: &TcpStream, len: u64) -> Result<(), Problem> {
    let mut at = 0;
    while at < len {
        let chunk = file.read_at(at, CHUNK).await.map_err(|cause| Problem::Broken { at, cause })?;
        if chunk.is_empty() {
            // The same handlers catch this.
            return Err(Problem::Broken { at, cause: io::ErrorKind::UnexpectedEof.into() });
        }
        let rest = usize::try_from(len - at).unwrap_or(usize::MAX);
        let chunk = &chunk[..chunk.len().min(rest)];
        send(stream, chunk).await?;
        at += chunk.len() as u64;
    }
    Ok(())
}

/// The innermost handler: for any error of `copy_data`, it closes the file and passes the error on.
async fn send_file(server: &Server, stream: &TcpStream, name: &str) -> Result<u64, Problem> {
    let path = server.path_of(name)?;
    // Opening a pipe would wait for a writer.
    if !fs::metadata(&path).await.map_err(not_found)?.is_file() {
        return Err(Problem::Refused("not a file"));
    }
    let opened = Opened::new(server, File::open(&path).await.map_err(not_found)?);
    let len = opened.file.metadata().await.map_err(Problem::File)?.len();
    send(stream, format!("ok {len}\n").as_bytes()).await?;
    copy_data(&opened.file, stream, len).await?;
    Ok(len)
    // Here, and at each earlier `?`, `opened` is dropped: the paper writes `file_close fd` twice.
}

/// The middle handler: tells the client, if it still expects text, and rethrows what it cannot
/// handle.
async fn answer(server: &Server, stream: &TcpStream, name: &str) -> Result<(), Problem> {
    let why = match send_file(server, stream, name).await {
        Ok(_len) => {
            server.sent.add(1);
            return Ok(());
        }
        Err(Problem::Refused(why)) => why.to_owned(),
        Err(Problem::File(cause)) => cause.to_string(),
        Err(other) => {
            server.failed.add(1);
            return Err(other);
        }
    };
    server.failed.add(1);
    // The handler may throw, too.
    send(stream, format!("error: {why}\n").as_bytes()).await
}

/// The outer handler: one request after the other, until the client leaves or an error breaks the
/// connection.
async fn session(server: &Server, stream: &TcpStream) -> Result<(), Problem> {
    let mut received = Vec::new();
    while let Some(name) = next_line(stream, &mut received).await {
        match name.as_str() {
            "?" => send(stream, format!("{server}\n").as_bytes()).await?,
            name => answer(server, stream, name).await?,
        }
    }
    Ok(())
}

/// The outermost handler, for everything unforeseen: a panic ends only the session's task, with all
/// its destructors, and is the result of its join.
async fn supervise(stream: TcpStream, server: Arc<Server>) {
    let task = dapple::spawn(async move { session(&server, &stream).await });
    match task.await {
        Ok(Ok(())) => {}
        Ok(Err(problem)) => eprintln!("send_file: {problem}"),
        Err(panic) => eprintln!("send_file: a bug: {panic}"),
    }
}

/// An open file, counted as such. Dropping it closes it, on every path.
struct Opened<'a> {
    file: File,
    server: &'a Server,
}

impl<'a> Opened<'a> {
    fn new(server: &'a Server, file: File) -> Self {
        server.open.add(1);
        Opened { file, server }
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.server.open.add(-1);
    }
}

impl Server {
    /// Files of the folder itself only: no path leads out of it.
    fn path_of(&self, name: &str) -> Result<PathBuf, Problem> {
        let mut parts = Path::new(name).components();
        match (parts.next(), parts.next()) {
            (Some(Component::Normal(name)), None) => Ok(self.folder.join(name)),
            _ => Err(Problem::Refused("a plain name, please")),
        }
    }
}

async fn send(stream: &TcpStream, bytes: &[u8]) -> Result<(), Problem> {
    match timeout(SEND_MAX, stream.write_all(bytes)).await {
        Ok(sent) => sent.map_err(Problem::Client),
        Err(elapsed) => Err(Problem::Client(elapsed.into())),
    }
}

fn not_found(cause: io::Error) -> Problem {
    match cause.kind() {
        io::ErrorKind::NotFound => Problem::Refused("no such file"),
        io::ErrorKind::PermissionDenied => Problem::Refused("not for you"),
        _ => Problem::File(cause),
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [open, sent, failed] = [&self.open, &self.sent, &self.failed].map(|count| count.0.load(Ordering::Relaxed));
        write!(f, "open {open}, sent {sent}, failed {failed}")
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Refused(why) => f.write_str(why),
            Problem::File(cause) => write!(f, "reading failed: {cause}"),
            Problem::Broken { at, cause } => write!(f, "a file broke off after {at} bytes: {cause}"),
            Problem::Client(cause) => write!(f, "a client is gone: {cause}"),
        }
    }
}

/// Bytes read and sent at once.
const CHUNK: usize = 64 * 1024;

/// How long a client may stop reading.
const SEND_MAX: Duration = Duration::from_secs(30);
