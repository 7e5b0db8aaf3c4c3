//! A QUIC connection that limits how much h3 keeps in memory.
//!
//! h3 collects a frame that is not data in memory, however long it is, and quinn opens its windows
//! as h3 reads. So each stream that a client opens has a credit: bytes that h3 reads use it up, and
//! bytes that are passed on as the body of a request return it. A stream without credit is not
//! read; if none of its bytes are passed on either, it ends in an error.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, OpenStreams, StreamErrorIncoming, StreamId, WriteBuf};
use h3_quinn::SendStream;

/// A QUIC connection with a credit for each stream.
pub(super) struct Connection {
    quic: h3_quinn::Connection,
    latest: Latest,
    credit: u64,
}

/// The credit of the latest request.
#[derive(Clone, Default)]
pub(super) struct Latest(Arc<Mutex<Option<Credit>>>);

/// How many more bytes of a stream h3 may keep.
#[derive(Clone)]
pub(super) struct Credit(Arc<AtomicU64>);

impl Connection {
    /// Limits a request to `head_len_max` bytes of head, plus the bytes that came with its end.
    pub(super) fn new(quic: quinn::Connection, head_len_max: u64) -> Connection {
        let credit = head_len_max + BEHIND_HEAD_MAX;
        Connection { quic: h3_quinn::Connection::new(quic), latest: Latest::default(), credit }
    }

    pub(super) fn latest(&self) -> Latest {
        self.latest.clone()
    }
}

impl Latest {
    /// Takes the credit, for the reader of the request to return.
    pub(super) fn take(&self) -> Credit {
        self.lock().take().unwrap_or_else(|| Credit::new(0))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Credit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Credit {
    fn new(len: u64) -> Credit {
        Credit(Arc::new(AtomicU64::new(len)))
    }

    /// Returns the credit for `len` bytes that were passed on, and for their frame head. `Relaxed`:
    /// one task reads a stream.
    pub(super) fn give_back(&self, len: usize) {
        self.0.fetch_add(len as u64 + FRAME_HEAD_LEN_MAX, Ordering::Relaxed);
    }

    fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn spend(&self, len: usize) {
        self.0.store(self.left().saturating_sub(len as u64), Ordering::Relaxed);
    }
}

/// The receiving side of a client's stream.
pub(super) struct RecvStream {
    stream: h3_quinn::RecvStream,
    credit: Credit,
    /// Whether a read was refused because the credit was used up.
    was_refused: bool,
    /// Whether h3-quinn holds the stream in a future that waits for data, and so cannot stop it (it
    /// would panic).
    is_awaited: bool,
}

impl RecvStream {
    fn new(stream: h3_quinn::RecvStream, credit: Credit) -> RecvStream {
        RecvStream { stream, credit, was_refused: false, is_awaited: false }
    }
}

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        if self.credit.left() == 0 {
            if std::mem::replace(&mut self.was_refused, true) {
                return Poll::Ready(Err(StreamErrorIncoming::Unknown(
                    "a frame is longer than this server accepts".into(),
                )));
            }
            // h3 may have enough data to continue. If not, it asks once more.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.was_refused = false;
        let polled = self.stream.poll_data(cx);
        self.is_awaited = polled.is_pending();
        let data = ready!(polled);
        if let Ok(Some(data)) = &data {
            self.credit.spend(data.len());
        }
        Poll::Ready(data)
    }

    /// A stream that h3-quinn waits for is stopped when it is dropped, with code 0. That is no
    /// HTTP/3 code, and the peer must take it for `H3_NO_ERROR` (RFC 9114, section 8).
    fn stop_sending(&mut self, error_code: u64) {
        if !self.is_awaited {
            self.stream.stop_sending(error_code);
        }
    }

    fn recv_id(&self) -> StreamId {
        self.stream.recv_id()
    }
}

/// The stream of a request.
pub(super) struct BidiStream {
    send: SendStream<Bytes>,
    recv: RecvStream,
}

impl BidiStream {
    fn new(stream: h3_quinn::BidiStream<Bytes>, credit: Credit) -> BidiStream {
        let (send, recv) = quic::BidiStream::split(stream);
        BidiStream { send, recv: RecvStream::new(recv, credit) }
    }
}

impl quic::BidiStream<Bytes> for BidiStream {
    type SendStream = SendStream<Bytes>;
    type RecvStream = RecvStream;

    fn split(self) -> (SendStream<Bytes>, RecvStream) {
        (self.send, self.recv)
    }
}

impl quic::RecvStream for BidiStream {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.recv.poll_data(cx)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.recv.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.recv.recv_id()
    }
}

impl quic::SendStream<Bytes> for BidiStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.send.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

impl quic::Connection<Bytes> for Connection {
    type RecvStream = RecvStream;
    type OpenStreams = Opener<h3_quinn::OpenStreams>;

    fn poll_accept_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<RecvStream, ConnectionErrorIncoming>> {
        let stream = ready!(quic::Connection::<Bytes>::poll_accept_recv(&mut self.quic, cx))?;
        Poll::Ready(Ok(RecvStream::new(stream, Credit::new(CONTROL_LEN_MAX))))
    }

    fn poll_accept_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<BidiStream, ConnectionErrorIncoming>> {
        let stream = ready!(quic::Connection::<Bytes>::poll_accept_bidi(&mut self.quic, cx))?;
        let credit = Credit::new(self.credit);
        *self.latest.lock() = Some(credit.clone());
        Poll::Ready(Ok(BidiStream::new(stream, credit)))
    }

    fn opener(&self) -> Self::OpenStreams {
        Opener(quic::Connection::<Bytes>::opener(&self.quic))
    }
}

impl OpenStreams<Bytes> for Connection {
    type BidiStream = BidiStream;
    type SendStream = SendStream<Bytes>;

    fn poll_open_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<BidiStream, StreamErrorIncoming>> {
        open_bidi(&mut self.quic, cx)
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<SendStream<Bytes>, StreamErrorIncoming>> {
        self.quic.poll_open_send(cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        OpenStreams::<Bytes>::close(&mut self.quic, code, reason);
    }
}

/// Opens streams; a server opens only control streams.
pub(super) struct Opener<O>(O);

impl<O> OpenStreams<Bytes> for Opener<O>
where
    O: OpenStreams<Bytes, BidiStream = h3_quinn::BidiStream<Bytes>, SendStream = SendStream<Bytes>>,
{
    type BidiStream = BidiStream;
    type SendStream = SendStream<Bytes>;

    fn poll_open_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<BidiStream, StreamErrorIncoming>> {
        open_bidi(&mut self.0, cx)
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<SendStream<Bytes>, StreamErrorIncoming>> {
        self.0.poll_open_send(cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.0.close(code, reason);
    }
}

fn open_bidi(
    opener: &mut impl OpenStreams<Bytes, BidiStream = h3_quinn::BidiStream<Bytes>>,
    cx: &mut Context<'_>,
) -> Poll<Result<BidiStream, StreamErrorIncoming>> {
    opener.poll_open_bidi(cx).map_ok(|stream| BidiStream::new(stream, Credit::new(CONTROL_LEN_MAX)))
}

/// How much of a body may be read together with the end of the head: one window.
const BEHIND_HEAD_MAX: u64 = 64 << 10;

/// The most bytes that a client may ever send on a control stream; a request takes at most some
/// twenty of them.
const CONTROL_LEN_MAX: u64 = 4 << 20;

/// Room for two numbers.
const FRAME_HEAD_LEN_MAX: u64 = 16;
