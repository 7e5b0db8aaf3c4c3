//! The state of a stream, in its lock: received data, data to send, and the session between them.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use dapple_io::Connection;
use dapple_sched::environment;

use super::pieces::Pieces;
use super::session::{RECORD, Session, Step, Wish};
use super::wakers::{Over, Side, WriteWakers};
use crate::buffers::{Buffer, Kind, PLAINTEXT};
use crate::{Error, certificates};

/// See the [module](self).
pub(crate) struct Core {
    pub(super) session: Session,
    /// As received from the connection.
    incoming: Buffer,
    /// Data for the connection. Nothing is encrypted before it is empty, so it is bounded.
    outgoing: Buffer,
    /// Decrypted and unread data.
    plaintext: Vec<u8>,
    plaintext_start: usize,
    /// The name that the client asked for, once known.
    pub(super) server_name: Option<Box<str>>,
    /// Ends reading and writing.
    failure: Option<rustls::Error>,
    reading: Reading,
    is_closing: bool,
    wakers: WriteWakers,
    /// The polling task must be woken, so that it continues after others.
    has_yielded: bool,
    /// Bytes sent since the connection was last idle.
    burst: usize,
    written_at: Option<Instant>,
    /// Bytes processed since the task last yielded.
    streak: usize,
}

/// The state of the other side's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Open,
    /// The other side has ended its data.
    Ended,
    /// The connection ended without that.
    Truncated,
}

/// The destination of decrypted bytes.
pub(crate) trait Sink {
    /// The number of bytes that it takes.
    fn room(&self) -> usize;
    /// Takes bytes, at most `room`.
    fn put(&mut self, bytes: &[u8]);
}

impl Core {
    /// For a new session, with its received bytes.
    pub(crate) fn new(session: Session, incoming: Buffer) -> Self {
        Core {
            session,
            incoming,
            outgoing: Buffer::new(Kind::Outgoing),
            plaintext: Vec::new(),
            plaintext_start: 0,
            server_name: None,
            failure: None,
            reading: Reading::Open,
            is_closing: false,
            wakers: WriteWakers::default(),
            has_yielded: false,
            burst: 0,
            written_at: None,
            streak: 0,
        }
    }

    /// Resolves when application data may be written and read.
    pub(crate) fn poll_handshake(
        &mut self,
        connection: &impl Connection,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        loop {
            let worked = self.work(Wish::Nothing);
            if self.server_name.is_none() {
                self.server_name = certificates::take_seen();
            }
            if let Err(error) = worked {
                // The other side learns why, if that can be sent at once.
                let _ = self.poll_flush(connection, cx, Side::Writer);
                return Poll::Ready(Err(error.into()));
            }
            let is_over = !self.session.is_handshaking();
            if is_over && matches!(self.session, Session::Server(_)) && self.is_tls13() {
                // Only tickets are left, which go with the first answer, or when reading has to
                // wait.
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_flush(connection, cx, Side::Writer))?;
            if is_over {
                self.rest();
                return Poll::Ready(Ok(()));
            }
            match ready!(self.poll_fill(connection, cx)) {
                Ok(0) => return Poll::Ready(Err(Error::Ended)),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Reads decrypted data, or decrypts received data; 0 when the other side has properly ended
    /// the stream.
    pub(crate) fn poll_read(
        &mut self,
        connection: &impl Connection,
        cx: &mut Context<'_>,
        sink: &mut dyn Sink,
    ) -> Poll<io::Result<usize>> {
        if sink.room() == 0 {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_turn());
        loop {
            let count = self.hand_over(sink);
            if count > 0 {
                self.streak += count;
                return Poll::Ready(Ok(count));
            }
            if let Some(failure) = &self.failure {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, failure.clone())));
            }
            match self.reading {
                Reading::Open => {}
                Reading::Ended => return Poll::Ready(Ok(0)),
                Reading::Truncated => return Poll::Ready(Err(truncated())),
            }
            match self.poll_fill(connection, cx) {
                Poll::Ready(Ok(0)) => self.reading = Reading::Truncated,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.flush_beside(connection, cx);
                    self.rest();
                    return Poll::Pending;
                }
            }
            let decrypted = self.decrypt(sink);
            if !self.outgoing.is_empty() {
                self.flush_beside(connection, cx);
            }
            if decrypted > 0 {
                self.streak += decrypted;
                return Poll::Ready(Ok(decrypted));
            }
        }
    }

    /// Encrypts a part of the buffers and passes it to the connection, or keeps the bytes that the
    /// connection does not take at once.
    pub(crate) fn poll_write(
        &mut self,
        connection: &impl Connection,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(connection, cx, Side::Writer))?;
        if self.is_closing {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        ready!(self.poll_turn());
        let count = self.encrypt(bufs)?;
        self.streak += count;
        match self.poll_flush(connection, cx, Side::Writer) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(count)),
        }
    }

    /// Resolves when the connection has taken all written data.
    pub(crate) fn poll_flush(
        &mut self,
        connection: &impl Connection,
        cx: &mut Context<'_>,
        side: Side,
    ) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let polled = self.wakers.poll(side, cx, |cx| connection.poll_write(cx, self.outgoing.filled()));
            match polled {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => self.outgoing.consume(count),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.outgoing.rest();
                    return Poll::Pending;
                }
            }
        }
        self.outgoing.rest();
        ready!(self.wakers.poll(side, cx, |cx| connection.poll_flush(cx)))?;
        self.wakers.drained(side);
        Poll::Ready(Ok(()))
    }

    /// Ends the stream's data, and the connection's direction.
    pub(crate) fn poll_shutdown(&mut self, connection: &impl Connection, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_closing {
            ready!(self.poll_flush(connection, cx, Side::Writer))?;
            self.work(Wish::Close).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.is_closing = true;
        }
        ready!(self.poll_flush(connection, cx, Side::Writer))?;
        connection.poll_end(cx)
    }

    /// Yields to other colors from time to time: encryption is work, and a connection that never
    /// blocks would never yield otherwise.
    fn poll_turn(&mut self) -> Poll<()> {
        if self.streak < STREAK_MAX {
            return Poll::Ready(());
        }
        self.streak = 0;
        self.has_yielded = true;
        Poll::Pending
    }

    /// Takes the work to do without the lock, and whether to wake the polling task.
    pub(crate) fn take_over(&mut self) -> (Over, bool) {
        (self.wakers.take_over(), std::mem::take(&mut self.has_yielded))
    }

    fn is_tls13(&self) -> bool {
        self.session.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3)
    }

    /// Processes all received data, and fulfills the wish. Plaintext is kept: at most as much as
    /// `incoming` holds.
    fn work(&mut self, wish: Wish<'_>) -> Result<(), rustls::Error> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        loop {
            let Core { session, incoming, outgoing, plaintext, .. } = self;
            match session.step(incoming, outgoing, wish, &mut |bytes| plaintext.extend_from_slice(bytes)) {
                Ok(Step::More | Step::Data) => {}
                Ok(Step::PeerEnded) => self.reading = Reading::Ended,
                Ok(Step::Open | Step::Blocked | Step::Closed) => return Ok(()),
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    /// Decrypts records into the sink while it has room.
    fn decrypt(&mut self, sink: &mut dyn Sink) -> usize {
        let mut count = 0;
        while sink.room() > 0 {
            let Core { session, incoming, outgoing, plaintext, .. } = self;
            let stepped = session.step(incoming, outgoing, Wish::Nothing, &mut |bytes| {
                let (now, later) = bytes.split_at(bytes.len().min(sink.room()));
                sink.put(now);
                plaintext.extend_from_slice(later);
                count += now.len();
            });
            match stepped {
                Ok(Step::More | Step::Data) => {}
                Ok(Step::PeerEnded) => self.reading = Reading::Ended,
                Ok(Step::Open | Step::Blocked | Step::Closed) => break,
                Err(error) => {
                    self.fail(error);
                    break;
                }
            }
        }
        count
    }

    /// Delivers data that is already decrypted or received.
    fn hand_over(&mut self, sink: &mut dyn Sink) -> usize {
        let kept = &self.plaintext[self.plaintext_start..];
        if kept.is_empty() {
            let is_worth_a_look = !self.incoming.is_empty() && self.failure.is_none() && self.reading == Reading::Open;
            return if is_worth_a_look { self.decrypt(sink) } else { 0 };
        }
        let count = kept.len().min(sink.room());
        sink.put(&kept[..count]);
        self.plaintext_start += count;
        if self.plaintext_start == self.plaintext.len() {
            (self.plaintext, self.plaintext_start) = (Vec::new(), 0);
        }
        count
    }

    /// Keeps the error, and the alert for the other side.
    fn fail(&mut self, error: rustls::Error) -> rustls::Error {
        let Core { session, incoming, outgoing, .. } = self;
        // Only while there is data to send: rustls panics if it sees the received data again, and
        // asks for the data to send before that.
        while session.wants_write() {
            if session.step(incoming, outgoing, Wish::Nothing, &mut |_| {}).is_err() {
                break;
            }
        }
        self.incoming = Buffer::new(Kind::Incoming);
        self.failure = Some(error.clone());
        error
    }

    /// Reads from the connection as much as there is room for.
    fn poll_fill(&mut self, connection: &impl Connection, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.incoming.filled().len() > INCOMING_MAX {
            let error = self.fail(rustls::InvalidMessage::HandshakePayloadTooLarge.into());
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        poll_fill(&mut self.incoming, connection, cx)
    }

    /// Sends the session's own answers, while reading.
    fn flush_beside(&mut self, connection: &impl Connection, cx: &mut Context<'_>) {
        if let Poll::Ready(Err(_)) = self.poll_flush(connection, cx, Side::Reader) {
            // The connection can no longer write, which the next write reports; earlier data can
            // still be read.
            self.outgoing.consume(self.outgoing.filled().len());
        }
    }

    /// Before a wait: an idle connection holds only the session.
    fn rest(&mut self) {
        self.incoming.rest();
        self.outgoing.rest();
    }

    fn encrypt(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut pieces = Pieces::new(bufs);
        let is_long = pieces.len() > FIRST_FLIGHT;
        let now = environment::now();
        if self.written_at.is_none_or(|at| now.duration_since(at) > IDLE) {
            self.burst = 0;
        }
        self.written_at = Some(now);
        let mut count = 0;
        while count < PLAINTEXT {
            let limit = if is_long && self.burst < FIRST_FLIGHT { FIRST_RECORD } else { PLAINTEXT - count };
            let Some(piece) = pieces.next(limit) else { break };
            let len = piece.len();
            self.work(Wish::Encrypt(piece)).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.burst = self.burst.saturating_add(len);
            count += len;
        }
        Ok(count)
    }
}

/// Reads from the connection into the buffer, 0 at the end.
pub(crate) fn poll_fill(
    incoming: &mut Buffer,
    connection: &impl Connection,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let count = match connection.poll_read(cx, incoming.spare(RECORD_ENCRYPTED_MAX)) {
        Poll::Ready(count) => count?,
        Poll::Pending => {
            incoming.rest();
            return Poll::Pending;
        }
    };
    incoming.add(count);
    Poll::Ready(Ok(count))
}

fn truncated() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the connection ended without the close_notify of TLS: the data may be cut short",
    )
}

/// A record with its header and the overhead of encryption.
const RECORD_ENCRYPTED_MAX: usize = RECORD + 5 + 2048;
/// The limit of incomplete data: a handshake message in several records is the longest.
const INCOMING_MAX: usize = 64 * 1024;
/// A connection sends this much before the first acknowledgment (ten packets). If the records are
/// small, the browser can use the first ones before the last has arrived.
const FIRST_FLIGHT: usize = 12 * 1024;
const FIRST_RECORD: usize = 4 * 1024;
/// After this idle time a connection starts again, because its congestion window has shrunk.
const IDLE: Duration = Duration::from_secs(1);
/// Half a millisecond of work.
const STREAK_MAX: usize = 1024 * 1024;
