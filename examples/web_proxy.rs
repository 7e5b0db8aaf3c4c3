//! A web proxy in the callback style of the papers: Figure 2-1 of the libasync-mp thesis,
//! completed, with the change of its Figure 3-2.
//!
//! ```text
//! cargo run --example web_proxy [PORT]
//! ```
//!
//! # One core, and all of them
//!
//! The callbacks of a connection have one color, chosen in one line, in `accept_cb`:
//!
//! | | |
//! |---|---|
//! | one core | `let color = Color::DEFAULT;` |
//! | every core | `let color = Color::new();` |
//!
//! With the default color the whole program runs as if single-threaded. With a new color for each
//! connection (the papers used the descriptor's number, which is `Color::named`), different
//! connections are read, parsed and relayed in parallel, and each by itself is still served by one
//! callback at a time. No other line differs: the callbacks carry their color to the event sources,
//! as the papers' `cwrap` does, and share only the state in their own `Connection`.
//!
//! One request per connection; addresses with `http://` only. The same as tasks:
//! `web_proxy_async.rs`.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dapple::event::{self, Registration};
use dapple::net::{TcpListener, TcpStream};
use dapple::{Callback, Color, Colored};
use request::{HEAD_MAX, head_len, parse_request};

#[path = "shared/request.rs"]
mod request;

fn main() -> io::Result<()> {
    let runtime = dapple::builder().build()?;
    let _entered = runtime.enter();
    let port = std::env::args().nth(1).unwrap_or_else(|| "7004".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    let addr = listener.local_addr()?;
    println!("web_proxy listens on {addr}; try: curl -x http://{addr} http://example.com/");
    let _accepting = event::on_accept(listener, Color::DEFAULT.wrap(accept_cb))?;
    runtime.block_on(dapple::signal::ctrl_c())
}

/// Called in the default color, with every new connection.
fn accept_cb((client, _peer): (TcpStream, SocketAddr)) {
    let color = Color::new(); // on one core: Color::DEFAULT
    let connection = Shared::with_color(None, &color);
    connection.clone().post(move |slot| *slot = Connection::start(client, &connection).ok());
}

/// One connection of a client, and its event sources. `None` after its end, which closes and
/// cancels all of it.
type Shared = Colored<Option<Connection>>;

struct Connection {
    client: Arc<TcpStream>,
    /// The client's bytes so far.
    received: Vec<u8>,
    /// From client to server and back.
    pipes: Option<[Pipe; 2]>,
    /// Some bytes have moved since the last check.
    is_active: bool,
    /// The event sources of the current step; the next step replaces them.
    waits: Vec<Registration>,
}

/// A callback of the connection's color that gets the connection while it exists. An error ends it.
fn wrap<A: Send + 'static>(connection: &Shared, f: fn(&mut Connection, &Shared, A) -> io::Result<()>) -> Callback<A> {
    let shared = connection.clone();
    connection.color().wrap(move |arg| {
        // Not busy: the callback holds this very color.
        let _ = shared.try_with(|slot| {
            if slot.as_mut().is_some_and(|connection| f(connection, &shared, arg).is_err()) {
                *slot = None;
            }
        });
    })
}

impl Connection {
    fn start(client: TcpStream, this: &Shared) -> io::Result<Connection> {
        let late = event::after(HEAD_TIME_MAX, wrap(this, late_cb))?;
        let request = client.on_readable(wrap(this, req_cb));
        let client = Arc::new(client);
        Ok(Connection { client, received: Vec::new(), pipes: None, is_active: false, waits: vec![request, late] })
    }

    /// Answers with an error, and waits for the client to hang up: closing with unread data would
    /// reset the connection, and the answer could be lost.
    fn refuse(&mut self, this: &Shared, status: &str, why: &str) -> io::Result<()> {
        let len = why.len() + 1;
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len}\r\n");
        self.client.try_write(format!("{head}Connection: close\r\n\r\n{why}\n").as_bytes())?;
        self.client.shutdown(Shutdown::Write)?;
        let late = event::after(HANG_UP_TIME_MAX, wrap(this, late_cb))?;
        self.waits = vec![self.client.on_readable(wrap(this, drain_cb)), late];
        Ok(())
    }
}

/// Called when the client has sent a part of its request.
fn req_cb(connection: &mut Connection, this: &Shared, (): ()) -> io::Result<()> {
    let checked = connection.received.len();
    let mut chunk = [0; 4096];
    match connection.client.try_read(&mut chunk) {
        Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
        Ok(count) => connection.received.extend_from_slice(&chunk[..count]),
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
        Err(error) => return Err(error),
    }
    match head_len(&connection.received, checked) {
        Some(len) => parse_request_cb(connection, this, len),
        None if connection.received.len() < HEAD_MAX => Ok(()), // wait for more calls
        None => connection.refuse(this, "400 Bad Request", "the head of the request is too long"),
    }
}

/// The request is complete. Figure 3-2 posts this part to its own color; here `req_cb` has that
/// color already.
fn parse_request_cb(connection: &mut Connection, this: &Shared, len: usize) -> io::Result<()> {
    let mut request = match parse_request(&connection.received[..len]) {
        Ok(request) => request,
        Err(why) => return connection.refuse(this, "400 Bad Request", why),
    };
    // Bytes after the head belong to the body.
    request.head.extend_from_slice(&connection.received[len..]);
    connection.received = request.head;
    // Resolves the name and connects, both without blocking.
    let connecting = event::on_connect(&request.host, request.port, wrap(this, connect_cb))?;
    connection.waits = vec![connecting, event::after(CONNECT_TIME_MAX, wrap(this, connect_late_cb))?];
    Ok(())
}

/// Called when the server has been reached, or not.
fn connect_cb(connection: &mut Connection, this: &Shared, server: io::Result<TcpStream>) -> io::Result<()> {
    let server = match server {
        Ok(server) => Arc::new(server),
        Err(error) => return connection.refuse(this, "502 Bad Gateway", &format!("no connection: {error}")),
    };
    let (client, request) = (&connection.client, std::mem::take(&mut connection.received));
    connection.pipes = Some([Pipe::new(client, &server, request), Pipe::new(&server, client, Vec::new())]);
    connection.waits = vec![event::every(IDLE_TIME_MAX, wrap(this, idle_cb))?];
    up_cb(connection, this, ())?;
    down_cb(connection, this, ())
}

/// Called when the client has sent more, or the server has room for more.
fn up_cb(connection: &mut Connection, this: &Shared, (): ()) -> io::Result<()> {
    let Some([up, down]) = &mut connection.pipes else { return Ok(()) };
    match up.relay(|| wrap(this, up_cb)) {
        Ok(moved) => connection.is_active |= moved,
        // A server that does not want the whole request may still have an answer.
        Err(_) => up.end(),
    }
    if up.is_over && down.is_over { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

/// Called when the server has sent more, or the client has room for more.
fn down_cb(connection: &mut Connection, this: &Shared, (): ()) -> io::Result<()> {
    let Some([up, down]) = &mut connection.pipes else { return Ok(()) };
    connection.is_active |= down.relay(|| wrap(this, down_cb))?;
    if up.is_over && down.is_over {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    if down.is_over {
        // The answer has been sent. Closing waits for the client to hang up, or the end could be
        // lost.
        connection.waits = vec![event::after(HANG_UP_TIME_MAX, wrap(this, late_cb))?];
    }
    Ok(())
}

/// Called periodically: ends the connection if no bytes have moved since the last time.
fn idle_cb(connection: &mut Connection, _this: &Shared, (): ()) -> io::Result<()> {
    if std::mem::take(&mut connection.is_active) { Ok(()) } else { Err(ErrorKind::TimedOut.into()) }
}

fn connect_late_cb(connection: &mut Connection, this: &Shared, (): ()) -> io::Result<()> {
    connection.refuse(this, "502 Bad Gateway", "no connection in time")
}

fn late_cb(_connection: &mut Connection, _this: &Shared, (): ()) -> io::Result<()> {
    Err(ErrorKind::TimedOut.into())
}

/// Reads and discards the rest.
fn drain_cb(connection: &mut Connection, _this: &Shared, (): ()) -> io::Result<()> {
    match connection.client.try_read(&mut [0; 4096]) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

/// One direction of the relay. It reads only when all its earlier data is written, so a slow reader
/// slows the other side down, and no data piles up here.
struct Pipe {
    from: Arc<TcpStream>,
    to: Arc<TcpStream>,
    /// Read and not yet written.
    pending: Vec<u8>,
    is_over: bool,
    /// Whether it waits to write; otherwise it waits to read.
    waits: Option<(bool, Registration)>,
}

impl Pipe {
    fn new(from: &Arc<TcpStream>, to: &Arc<TcpStream>, pending: Vec<u8>) -> Pipe {
        Pipe { from: from.clone(), to: to.clone(), pending, is_over: false, waits: None }
    }

    /// Moves all bytes that can move now, and registers `again` for more. True if some bytes have
    /// moved.
    fn relay(&mut self, again: impl FnOnce() -> Callback<()>) -> io::Result<bool> {
        let mut moved = false;
        let mut chunk = [0; 16 * 1024];
        for _ in 0..ROUNDS_MAX {
            if self.is_over {
                return Ok(moved);
            }
            let outcome = if self.pending.is_empty() {
                self.from.try_read(&mut chunk).map(|count| match count {
                    0 => self.end(),
                    count => self.pending.extend_from_slice(&chunk[..count]),
                })
            } else {
                self.to.try_write(&self.pending).map(|count| drop(self.pending.drain(..count)))
            };
            match outcome {
                Ok(()) => moved = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.wait(!self.pending.is_empty(), again);
        Ok(moved)
    }

    fn wait(&mut self, to_write: bool, again: impl FnOnce() -> Callback<()>) {
        if self.waits.as_ref().is_none_or(|(waits_to_write, _)| *waits_to_write != to_write) {
            let waits = if to_write { self.to.on_writable(again()) } else { self.from.on_readable(again()) };
            self.waits = Some((to_write, waits));
        }
    }

    /// Passes the end of the stream on; the other direction continues.
    fn end(&mut self) {
        // A closed connection needs no end.
        let _ = self.to.shutdown(Shutdown::Write);
        self.is_over = true;
        self.waits = None;
    }
}

/// How long a client may take to send the head of its request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// How long it may take to find and reach the server.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// How long no bytes may move; twice that at worst.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);

/// How long a client that has its answer may take to hang up.
const HANG_UP_TIME_MAX: Duration = Duration::from_secs(1);

/// A busy connection yields to others after this many steps.
const ROUNDS_MAX: usize = 16;
