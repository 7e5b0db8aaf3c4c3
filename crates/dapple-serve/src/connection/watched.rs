//! A stream whose traffic is noted on the way to hyper.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use dapple_http::frames::{Scanner, Traffic};
use dapple_io::time::Instant;
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};

use super::link::{Link, Order};
use crate::connections::Place;
use crate::listener::Stream;
use crate::server::Shared;

/// Where a stream goes when hyper drops it.
pub(crate) type Home<S> = Arc<Mutex<Option<(S, Place)>>>;

/// See the module.
pub(crate) struct Watched<S> {
    /// Here until this is dropped.
    stream: Option<(S, Place)>,
    link: Arc<Link>,
    shared: Arc<Shared>,
    home: Home<S>,
    /// How many of the first bytes were those of HTTP/2's preface; more than there are once others came.
    preface: usize,
    /// Whether it was of interest at the last read when what was read had come.
    is_busy: bool,
    /// Looks at the frames of HTTP/2.
    frames: Option<(Scanner, Traffic)>,
}

impl<S: Stream> Watched<S> {
    /// A stream, and where it will be once hyper has dropped it.
    pub(crate) fn new(stream: S, place: Place, link: Arc<Link>, shared: Arc<Shared>) -> (Watched<S>, Home<S>) {
        let home = Home::default();
        let frames = Some((Scanner::new(), Traffic::default()));
        (
            Watched {
                stream: Some((stream, place)),
                link,
                shared,
                home: home.clone(),
                preface: 0,
                is_busy: false,
                frames,
            },
            home,
        )
    }

    fn stream(&mut self) -> Pin<&mut S> {
        let (stream, _place) = self.stream.as_mut().expect("it goes home in drop only");
        Pin::new(stream)
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
        let ago = if self.is_busy && !bytes.is_empty() { self.stream().read_waited() } else { Duration::ZERO };
        self.link.set_arrived(ago);
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
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server ends this connection"));
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

impl<S: Stream> Read for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        // Here, too, as nobody else is woken once this was upgraded.
        self.check(self.link.watch(cx.waker()))?;
        PASSING.with_borrow_mut(|passing| {
            let len = passing.len().min(buf.remaining());
            let mut read = ReadBuf::new(&mut passing[..len]);
            // When it came costs the kernel some time, which is worth it only where requests are dear.
            let is_busy = self.shared.gate.is_busy();
            if is_busy != std::mem::replace(&mut self.is_busy, is_busy) {
                self.stream().note_arrivals(is_busy);
            }
            ready!(self.stream().poll_read(cx, read.unfilled()))?;
            self.note_read(read.filled())?;
            buf.put_slice(read.filled());
            Poll::Ready(Ok(()))
        })
    }
}

impl<S: Stream> Write for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check(self.link.ordered())?;
        let result = self.stream().poll_write(cx, buf);
        let result = self.check_waiting(cx, result);
        self.note_written(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(self.link.ordered())?;
        let result = self.stream().poll_write_vectored(cx, bufs);
        let result = self.check_waiting(cx, result);
        self.note_written(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(|(stream, _)| stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = self.stream().poll_flush(cx);
        self.check_waiting(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = self.stream().poll_shutdown(cx);
        self.check_waiting(cx, result)
    }
}

impl<S> Drop for Watched<S> {
    fn drop(&mut self) {
        let stream = self.stream.take();
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = stream;
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What is read in one go.
const PASSING_LEN: usize = 16 << 10;
