//! A stream whose traffic is noted on the way to hyper.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use dapple_http::frames::{Scanner, Traffic};
use dapple_io::time::Instant;
use hyper::rt::{Read, ReadBufCursor, Write};

use super::{Link, Place};
use crate::connections::Order;
use crate::server::Shared;
use dapple_io::Connection;

/// Where a stream is, so that it can be closed whoever has it: once it was upgraded that is a task of the user's, which may never look
/// at it again. A lock that nobody else wants, but for that.
pub(crate) type Home<S> = Arc<Mutex<Option<(S, Place)>>>;

/// See the module.
pub(crate) struct Watched<S> {
    link: Arc<Link>,
    shared: Arc<Shared>,
    home: Home<S>,
    /// How many of the first bytes were those of HTTP/2's preface; more than there are once others came.
    preface: usize,
    /// Whether it was of interest at the last read when what was read had come.
    is_busy: bool,
    /// Looks at the frames of HTTP/2.
    frames: Option<(Scanner, Traffic)>,
    /// Read already, and noted; goes to hyper first.
    kept: Bytes,
    /// The writing direction was ended along with the last bytes.
    is_finished: bool,
}

impl<S: Connection> Watched<S> {
    /// A stream, and where it is.
    pub(crate) fn new(stream: S, place: Place, link: Arc<Link>, shared: Arc<Shared>) -> (Watched<S>, Home<S>) {
        let home = Arc::new(Mutex::new(Some((stream, place))));
        let frames = Some((Scanner::new(), Traffic::default()));
        (
            Watched {
                link,
                shared,
                home: home.clone(),
                preface: 0,
                is_busy: false,
                frames,
                kept: Bytes::new(),
                is_finished: false,
            },
            home,
        )
    }

    /// Reads something that hyper will get, for others to look at before.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.kept = ready!(self.poll_some(cx, PASSING_LEN, Bytes::copy_from_slice))?;
        Poll::Ready(Ok(()))
    }

    /// What was read and hyper has not got.
    pub(crate) fn kept(&self) -> &Bytes {
        &self.kept
    }

    /// The first `len` bytes of what is kept were somebody else's to answer.
    pub(crate) fn forget(&mut self, len: usize) {
        self.kept.advance(len);
    }

    /// Writes a part of these bytes. Where they are the last of the connection, its end may go along with them.
    pub(crate) fn poll_say(&mut self, cx: &mut Context<'_>, bytes: &[u8], are_last: bool) -> Poll<io::Result<usize>> {
        if are_last {
            let len = self.on_stream(|stream| stream.try_finish(bytes)).unwrap_or_else(|| Err(ended()))?;
            if len > 0 {
                self.is_finished = len == bytes.len();
                return self.note_written(Poll::Ready(Ok(len)));
            }
        }
        Pin::new(self).poll_write(cx, bytes)
    }

    /// Ends the writing direction, if that has not been done.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_finished {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_stream(|stream| stream.poll_flush(cx)))?;
        self.poll_stream(|stream| stream.poll_end(cx))
    }

    /// Reads what there is, `len_max` bytes at most, and has `take` look at it.
    fn poll_some<R>(
        &mut self,
        cx: &mut Context<'_>,
        len_max: usize,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Poll<io::Result<R>> {
        PASSING.with_borrow_mut(|passing| {
            let len = passing.len().min(len_max);
            // When it came costs the kernel some time, which is worth it only where requests are dear.
            let is_busy = self.shared.gate.is_busy();
            if is_busy != std::mem::replace(&mut self.is_busy, is_busy) {
                self.on_stream(|stream| stream.note_arrivals(is_busy));
            }
            let count = ready!(self.poll_stream(|stream| stream.poll_read(cx, &mut passing[..len])))?;
            let read = &passing[..count];
            self.note_read(read)?;
            Poll::Ready(Ok(take(read)))
        })
    }

    /// What `run` makes of the stream, if that was not closed.
    fn on_stream<R>(&self, run: impl FnOnce(&S) -> R) -> Option<R> {
        let home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        home.as_ref().map(|(stream, _place)| run(stream))
    }

    /// The same of what polls it.
    fn poll_stream<T>(&self, poll: impl FnOnce(&S) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.on_stream(poll).unwrap_or_else(|| Poll::Ready(Err(ended())))
    }

    /// What was read.
    ///
    /// # Errors
    ///
    /// The peer sends much that means nothing, and the connection is to end.
    fn note_read(&mut self, bytes: &[u8]) -> io::Result<()> {
        let now = Instant::now();
        let mut state = self.link.state();
        if self.preface < PREFACE.len() {
            let rest = &PREFACE[self.preface..];
            let len = rest.len().min(bytes.len());
            let is_preface = len > 0 && bytes[..len] == rest[..len];
            self.preface = if is_preface { self.preface + len } else { usize::MAX };
            if self.preface == PREFACE.len() {
                state.set_http2();
            }
            if !is_preface {
                self.frames = None;
            }
        }
        state.read(bytes.len(), now);
        drop(state);
        // While every worker was in a handler, it may have waited for long.
        let ago = if self.is_busy && !bytes.is_empty() { self.on_stream(Connection::read_waited) } else { None };
        self.link.set_arrived(ago.unwrap_or_default());
        let is_good = self.frames.as_mut().is_none_or(|(scanner, traffic)| scanner.read(bytes, traffic));
        if is_good {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidData, "too many frames that carry nothing"))
        }
    }

    /// What ends a connection that speaks another protocol by now. Any other is ended by its own task.
    fn check(&self, order: Order) -> io::Result<()> {
        if order == Order::Cut && self.link.is_upgraded() {
            return Err(ended());
        }
        Ok(())
    }

    /// The same for whoever waits to write, who may be no reader and would not be woken.
    fn check_waiting<T>(&self, cx: &Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_pending() {
            self.check(self.link.watch_writing(cx.waker()))?;
        }
        result
    }

    fn note_written(&mut self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &result {
            Poll::Ready(Ok(len)) => {
                self.link.state().wrote(*len, Instant::now());
                if let Some((_, traffic)) = &self.frames {
                    traffic.wrote(*len);
                }
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.link.state().is_blocked(Instant::now()),
        }
        result
    }
}

thread_local! {
    /// Where bytes are looked at, on the way to hyper's own buffer, of which the filled part cannot be seen from here.
    static PASSING: RefCell<[u8; PASSING_LEN]> = const { RefCell::new([0; PASSING_LEN]) };
}

impl<S: Connection> Read for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        // Here, too, as nobody else is woken once this was upgraded.
        self.check(self.link.watch(cx.waker()))?;
        if self.kept.is_empty() {
            // At first hyper asks for no more than the preface, which would make two calls to the kernel of one.
            let is_begun = self.preface >= PREFACE.len();
            let len_max = if is_begun { buf.remaining() } else { PASSING_LEN };
            let room = buf.remaining();
            let give = |bytes: &[u8]| {
                let (now, later) = bytes.split_at(bytes.len().min(room));
                buf.put_slice(now);
                Bytes::copy_from_slice(later)
            };
            self.kept = ready!(self.poll_some(cx, len_max, give))?;
            return Poll::Ready(Ok(()));
        }
        let len = self.kept.len().min(buf.remaining());
        buf.put_slice(&self.kept.split_to(len));
        Poll::Ready(Ok(()))
    }
}

impl<S: Connection> Write for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check(self.link.ordered())?;
        let result = self.poll_stream(|stream| stream.poll_write(cx, buf));
        let result = self.check_waiting(cx, result);
        self.note_written(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(self.link.ordered())?;
        let result = self.poll_stream(|stream| stream.poll_write_vectored(cx, bufs));
        let result = self.check_waiting(cx, result);
        self.note_written(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = self.poll_stream(|stream| stream.poll_flush(cx));
        self.check_waiting(cx, result)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = self.poll_stream(|stream| stream.poll_end(cx));
        self.check_waiting(cx, result)
    }
}

/// What whoever reads or writes is told.
fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the server ends this connection")
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What is read in one go.
const PASSING_LEN: usize = 16 << 10;
