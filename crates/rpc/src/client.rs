//! A client over TCP or UDP.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

use dapple::event::{self, Registration};
use dapple::net::{TcpStream, UdpSocket};
use dapple::sync::{mpsc, oneshot};
use dapple::time::Duration;
use dapple::{AbortHandle, Callback, Color, Colored};

use crate::message::{MARK, call, from_datagram, read_reply};
use crate::{CALLS_MAX, CallError, MESSAGE_MAX, record};

/// Makes calls to one server. Up to [`CALLS_MAX`](crate::CALLS_MAX) calls may wait for their
/// replies at once.
///
/// Over UDP, a call without a reply is sent again after half a second, then after twice as long, up
/// to five times; a server of this crate still runs it once. Over TCP a reply may take a minute.
/// Dropping the client fails the waiting calls.
pub struct Client {
    calls: Colored<Calls>,
    tasks: Vec<AbortHandle>,
}

impl Client {
    /// Connects to a server over TCP.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    pub async fn tcp(server: SocketAddr) -> io::Result<Client> {
        let stream = Arc::new(TcpStream::connect(server.to_string()).await?);
        let (sender, mut to_send) = mpsc::channel::<Vec<u8>>(CALLS_MAX);
        let calls = Colored::new(Calls::new(Way::Tcp(sender)));
        let (reading, writing, ended) = (calls.clone(), stream.clone(), calls.clone());
        let reader = dapple::spawn(async move {
            let kind = match read_stream(&stream, &reading).await {
                Ok(()) => ErrorKind::UnexpectedEof,
                Err(error) => error.kind(),
            };
            reading.with(|calls| calls.end(kind)).await;
        });
        let writer = dapple::spawn(async move {
            while let Some(message) = to_send.recv().await {
                if let Err(error) = writing.write_all(&message).await {
                    return ended.with(|calls| calls.end(error.kind())).await;
                }
            }
        });
        Ok(Client { calls, tasks: vec![reader.abort_handle(), writer.abort_handle()] })
    }

    /// A client of a server over UDP, which need not be there yet.
    ///
    /// # Errors
    ///
    /// Those of making a socket.
    pub async fn udp(server: SocketAddr) -> io::Result<Client> {
        let own = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = Arc::new(UdpSocket::bind(own)?);
        socket.connect(server.to_string()).await?;
        let calls = Colored::new(Calls::new(Way::Udp(socket.clone(), server)));
        let reading = calls.clone();
        let reader = dapple::spawn(async move {
            let mut datagram = vec![0; MESSAGE_MAX];
            loop {
                match socket.recv(&mut datagram).await {
                    Ok(len) => {
                        if let Some((xid, result)) = read_reply(&from_datagram(&datagram[..len])) {
                            reading.with(|calls| calls.answer(xid, result)).await;
                        }
                    }
                    // No server is there now; one may start before the last try.
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                    Err(error) => return reading.with(|calls| calls.end(error.kind())).await,
                }
            }
        });
        Ok(Client { calls, tasks: vec![reader.abort_handle()] })
    }

    /// Calls a procedure with arguments in XDR, and waits for its results.
    ///
    /// Cancel safe: if dropped, the call continues, and its reply is dropped.
    ///
    /// # Errors
    ///
    /// The server's error, or why there is no reply.
    pub async fn call(
        &self,
        program: u32,
        version: u32,
        procedure: u32,
        arguments: Vec<u8>,
    ) -> Result<Vec<u8>, CallError> {
        let (tell, told) = oneshot::channel();
        let mut tell = Some(tell);
        let callback = Color::new().wrap(move |result| {
            let _ = tell.take().map(|tell| tell.send(result));
        });
        self.call_then(program, version, procedure, arguments, callback);
        // It is dropped without a result only when the runtime ends.
        told.await.unwrap_or(Err(CallError::Disconnected(ErrorKind::Interrupted)))
    }

    /// Calls a procedure, and later the callback with the results or the error, in the callback's
    /// color. Never calls it inline.
    pub fn call_then(
        &self,
        program: u32,
        version: u32,
        procedure: u32,
        arguments: Vec<u8>,
        callback: Callback<Result<Vec<u8>, CallError>>,
    ) {
        let calls = self.calls.clone();
        self.calls.post(move |own| own.begin([program, version, procedure], &arguments, callback, &calls));
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.calls.post(|calls| calls.end(ErrorKind::ConnectionAborted));
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

async fn read_stream(stream: &TcpStream, calls: &Colored<Calls>) -> io::Result<()> {
    while let Some(message) = record::read(stream).await? {
        let (xid, result) = read_reply(&message).ok_or(ErrorKind::InvalidData)?;
        calls.with(|calls| calls.answer(xid, result)).await;
    }
    Ok(())
}

/// The calls that wait for a reply.
struct Calls {
    way: Way,
    waiting: HashMap<u32, Waiting>,
    last_xid: u32,
    ended: Option<ErrorKind>,
}

enum Way {
    Tcp(mpsc::Sender<Vec<u8>>),
    Udp(Arc<UdpSocket>, SocketAddr),
}

struct Waiting {
    callback: Callback<Result<Vec<u8>, CallError>>,
    /// The message to send again over UDP.
    message: Vec<u8>,
    sent: u32,
    /// Dropping it cancels the timer.
    timer: Option<Registration>,
}

impl Calls {
    fn new(way: Way) -> Calls {
        // A client that restarts should not reuse the numbers of its earlier run.
        let last_xid = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), ()) as u32;
        Calls { way, waiting: HashMap::new(), last_xid, ended: None }
    }

    fn begin(
        &mut self,
        what: [u32; 3],
        arguments: &[u8],
        callback: Callback<Result<Vec<u8>, CallError>>,
        own: &Colored<Calls>,
    ) {
        let problem = match self.ended {
            Some(kind) => Some(CallError::Disconnected(kind)),
            None if self.waiting.len() >= CALLS_MAX => Some(CallError::TooManyCalls),
            None if arguments.len() > MESSAGE_MAX - CALL_HEAD => Some(CallError::TooLong),
            None => None,
        };
        if let Some(problem) = problem {
            return callback.call(Err(problem));
        }
        let xid = loop {
            self.last_xid = self.last_xid.wrapping_add(1);
            if !self.waiting.contains_key(&self.last_xid) {
                break self.last_xid;
            }
        };
        let message = call(xid, what, arguments);
        self.waiting.insert(xid, Waiting { callback, message, sent: 0, timer: None });
        self.send(xid, own);
    }

    /// Sends a call, for the first time or again, and sets its timer.
    fn send(&mut self, xid: u32, own: &Colored<Calls>) {
        let Some(waiting) = self.waiting.get_mut(&xid) else { return };
        let delay = match &self.way {
            Way::Udp(socket, server) => {
                // A message that cannot be sent now counts as lost.
                let _ = socket.try_send_to(&waiting.message[MARK..], *server);
                FIRST_WAIT * (1 << waiting.sent)
            }
            Way::Tcp(sender) => {
                if sender.try_send(std::mem::take(&mut waiting.message)).is_err() {
                    return self.answer(xid, Err(CallError::TooManyCalls));
                }
                REPLY_MAX
            }
        };
        waiting.sent += 1;
        let calls = own.clone();
        let late = own.color().wrap(move |()| {
            // Not busy: the callback has this very color.
            let _ = calls.try_with(|own| own.late(xid, &calls));
        });
        match event::after(delay, late) {
            Ok(timer) => waiting.timer = Some(timer),
            Err(error) => self.answer(xid, Err(CallError::Disconnected(error.kind()))),
        }
    }

    fn late(&mut self, xid: u32, own: &Colored<Calls>) {
        let Some(waiting) = self.waiting.get(&xid) else { return };
        match self.way {
            Way::Udp(..) if waiting.sent < TRIES => self.send(xid, own),
            _ => self.answer(xid, Err(CallError::TimedOut)),
        }
    }

    /// A second reply to a call, such as one that was sent again, finds no waiting call.
    fn answer(&mut self, xid: u32, result: Result<Vec<u8>, CallError>) {
        if let Some(waiting) = self.waiting.remove(&xid) {
            waiting.callback.call(result);
        }
    }

    fn end(&mut self, kind: ErrorKind) {
        self.ended.get_or_insert(kind);
        for (_, waiting) in self.waiting.drain() {
            waiting.callback.call(Err(CallError::Disconnected(kind)));
        }
    }
}

/// The wait before the first repetition.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The number of attempts over UDP: the last wait ends after 15.5 s.
const TRIES: u32 = 5;
/// How long a reply may take over TCP.
const REPLY_MAX: Duration = Duration::from_secs(60);
/// The bytes before the arguments in a call.
const CALL_HEAD: usize = 40 + MARK;
