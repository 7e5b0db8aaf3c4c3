//! Attaching to a running program by its process id.
//!
//! | step | tool | program |
//! |---|---|---|
//! | 1 | connects to the abstract Unix socket `dapple-insight-PID` | has listened there since [`attachable`] |
//! | 2 | checks that the listener is this process, of the same user | checks that the client is of the same user, or root |
//! | 3 | reads a line: address and token | serves the page at a free port of 127.0.0.1, with a token made for this tool |
//! | 4 | asks the page, as with an address | |
//! | 5 | closes the connection, or ends | stops accepting at that port |
//!
//! So the tool writes nothing into the program: the connection is the flag. At most [`ATTACHED_MAX`] tools at a time.
//!
//! Chosen: an abstract socket leaves no file behind when the program is killed, needs no directory that both can find, and
//! the kernel says which process and user are at the other end. Rejected: a signal, because it ends a program that does not
//! handle it; a socket in the runtime directory, because services have none, and a file outlives its program; `ptrace` and
//! `process_vm_readv`, because layouts change with each build. A tool in another network namespace cannot attach: it takes
//! `--insight ADDRESS`.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net as std_unix;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dapple_io::net::{TcpListener, UnixListener, UnixStream};
use dapple_sched::{Color, Handle};
use dapple_serve::bearer::Token;
use dapple_serve::metrics::listener::serve_pages;
use rustix::net::sockopt::socket_peercred;

use super::{Page, PageError, shared};
use crate::Insight;

/// Lets tools of the same user look into the current runtime: `dapple record PID` and `dapple top PID`. Costs a socket,
/// and a recorder only when a tool comes.
///
/// A process has one such runtime: the first one.
///
/// ```
/// # use dapple_insight::{attach, attachable};
/// # let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// attachable().expect("no other runtime of the process has it");
/// let attached = attach(std::process::id()).expect("it is this process");
/// println!("http://{}/?token={}", attached.addr(), attached.token());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// [`PageError::Listen`]: another runtime of this process has it, or no runtime is current.
pub fn attachable() -> Result<(), PageError> {
    let handle = Handle::try_current().ok_or_else(|| PageError::Listen(io::ErrorKind::NotFound.into()))?;
    let listener = name(std::process::id()).and_then(|name| std_unix::UnixListener::bind_addr(&name));
    let listener = listener.and_then(UnixListener::from_std).map_err(PageError::Listen)?;
    drop(Color::new().spawn_background(async move {
        let attached = Arc::new(AtomicUsize::new(0));
        // Kept while the runtime runs: a recorder is its observer for ever.
        let kept = Arc::new(OnceLock::new());
        // An error here is the end of the runtime.
        while let Ok(stream) = listener.accept().await {
            let (attached, handle, kept) = (attached.clone(), handle.clone(), kept.clone());
            if !is_own(&stream) || attached.fetch_add(1, Ordering::Relaxed) >= ATTACHED_MAX {
                attached.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            drop(Color::new().spawn_background(async move {
                // A tool that leaves early is no problem of this program.
                let _ = serve_one(stream, &handle, &kept).await;
                attached.fetch_sub(1, Ordering::Relaxed);
            }));
        }
    }));
    Ok(())
}

/// Serves a page until the tool closes its connection.
async fn serve_one(stream: UnixStream, handle: &Handle, kept: &OnceLock<Arc<Insight>>) -> io::Result<()> {
    let Ok(insight) = shared(handle) else {
        return stream.write_all(b"the runtime has another observer, so its callbacks cannot be recorded\n").await;
    };
    let insight = kept.get_or_init(|| insight).clone();
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let addr = listener.local_addr()?;
    let token = token()?;
    let page = Arc::new(Page::new(insight, Some(Token::unchecked(&token))));
    let serving = Color::new().spawn_background(serve_pages(listener, page));
    let told = stream.write_all(format!("{GREETING} {addr} {token}\n").as_bytes()).await;
    if told.is_ok() {
        // The tool sends nothing: this waits for its end.
        let mut byte = [0];
        let _ = stream.read(&mut byte).await;
    }
    serving.abort();
    told
}

/// A token that no one guesses.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    // REAL: it keeps other users out.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether the other end may look in.
fn is_own(stream: &impl AsFd) -> bool {
    let own = rustix::process::geteuid();
    socket_peercred(stream).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

/// The page of another process, for as long as this lives.
#[derive(Debug)]
pub struct Attached {
    addr: SocketAddr,
    token: String,
    _stream: std_unix::UnixStream,
}

impl Attached {
    /// The address of the page, on the loopback interface.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The token that a client of the page has to send.
    pub fn token(&self) -> &str {
        &self.token
    }
}

/// The reason why a program cannot be attached to.
#[derive(Debug)]
#[non_exhaustive]
pub enum AttachError {
    /// No such process lets tools attach.
    Absent(u32, io::Error),
    /// The socket belongs to another process, or the program to another user.
    Foreign(u32),
    /// It did not answer within five seconds.
    Silent(u32, io::Error),
    /// It answered something else.
    Said(u32, String),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::Absent(pid, error) => write!(
                f,
                "process {pid} lets no tool attach ({error}): it has ended, is in another network namespace, or is no program \
                 with `dapple::insight::attachable()`"
            ),
            AttachError::Foreign(pid) => {
                write!(f, "process {pid} belongs to another user: attach as that user, or use `--insight ADDRESS`")
            }
            AttachError::Silent(pid, error) => {
                write!(f, "process {pid} did not answer ({error}): are all of its workers stuck?")
            }
            AttachError::Said(pid, said) => write!(f, "process {pid} refuses: {said:?}"),
        }
    }
}

impl std::error::Error for AttachError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AttachError::Absent(_, error) | AttachError::Silent(_, error) => Some(error),
            AttachError::Foreign(_) | AttachError::Said(..) => None,
        }
    }
}

/// Attaches to the program with this process id. Blocks for up to five seconds, so it is for tools, not for a worker.
///
/// # Errors
/// [`AttachError`].
pub fn attach(pid: u32) -> Result<Attached, AttachError> {
    let absent = |error| AttachError::Absent(pid, error);
    let name = name(pid).map_err(absent)?;
    let stream = std_unix::UnixStream::connect_addr(&name).map_err(absent)?;
    // Any process may have bound the name: the kernel knows which one.
    let owner = socket_peercred(&stream).map_err(|error| absent(error.into()))?;
    let is_it = owner.pid.as_raw_nonzero().get().unsigned_abs() == pid;
    let own = rustix::process::geteuid();
    if !is_it || !(owner.uid == own || own.is_root()) {
        return Err(AttachError::Foreign(pid));
    }
    let silent = |error| AttachError::Silent(pid, error);
    stream.set_read_timeout(Some(ANSWER_MAX)).map_err(silent)?;
    let mut line = String::new();
    BufReader::new((&stream).take(LINE_MAX)).read_line(&mut line).map_err(silent)?;
    let said = || AttachError::Said(pid, line.trim_end().to_owned());
    if line.is_empty() {
        return Err(AttachError::Said(pid, format!("{ATTACHED_MAX} tools are attached already")));
    }
    let mut words = line.split_whitespace();
    let (greeting, addr, token) = (words.next(), words.next().and_then(|addr| addr.parse().ok()), words.next());
    let (Some(GREETING), Some(addr), Some(token)) = (greeting, addr, token) else { return Err(said()) };
    Ok(Attached { addr, token: token.to_owned(), _stream: stream })
}

fn name(pid: u32) -> io::Result<std_unix::SocketAddr> {
    std_unix::SocketAddr::from_abstract_name(format!("dapple-insight-{pid}"))
}

/// The first word of the program's line, with the version of what follows.
const GREETING: &str = "dapple-insight-1";

const ATTACHED_MAX: usize = 4;
const ANSWER_MAX: Duration = Duration::from_secs(5);
const LINE_MAX: u64 = 400;
