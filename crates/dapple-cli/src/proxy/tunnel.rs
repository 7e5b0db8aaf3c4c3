//! The tunnel that `CONNECT` makes of a connection: bytes both ways.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use dapple::Handle;
use dapple::time::{Instant, Sleep, sleep};
use hyper::rt::{ReadBuf, Write};

use super::tally::{Count, Tally, TallyPermit};
use crate::http::tunnel::Duplex;
use crate::http::{Observer, Tunnel};

/// A tunnel with a connected far end. It runs in the color of its client's connection, which it
/// then owns.
pub(crate) struct Tunneling {
    pub(crate) server: Box<dyn Duplex>,
    pub(crate) idle_max: Duration,
    pub(crate) tally: Arc<Tally>,
    pub(crate) handle: Handle,
    /// In the count of tunnels, together with permits that are held while the tunnel is open.
    pub(crate) places: (TallyPermit, Box<dyn Send>),
    /// Learns how many bytes the client got, and whether both sides ended the tunnel themselves.
    pub(crate) observer: Option<Box<dyn Observer>>,
}

impl Tunnel for Tunneling {
    fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    fn run(self: Box<Self>, client: Box<dyn Duplex>, first: Bytes) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.relay(client, first))
    }
}

impl Tunneling {
    /// Runs until both directions have ended, one has failed, or the tunnel was idle too long. When
    /// the proxy closes, the idle limit is short. Tunnels in use continue until the runtime ends
    /// them with the last responses.
    async fn relay(mut self: Box<Self>, mut client: Box<dyn Duplex>, first: Bytes) {
        let _places = self.places;
        let mut server = self.server;
        let (mut up, mut down) = (Way::new(first), Way::new(Bytes::new()));
        let (mut told, mut last, mut idle_max) = ([0, 0], Instant::now(), self.idle_max);
        let mut patience: Pin<Box<Sleep>> = Box::pin(sleep(idle_max));
        let mut closing = Box::pin(self.handle.closing());
        let mut is_closing = false;
        poll_fn(|cx| {
            let ends = [up.poll(cx, &mut *client, &mut *server), down.poll(cx, &mut *server, &mut *client)];
            let moved = [up.moved, down.moved];
            let is_moved = moved != told;
            if is_moved {
                last = Instant::now();
                self.tally.add(Count::TunnelBytes, (moved[0] - told[0]) + (moved[1] - told[1]));
                if let Some(observer) = &mut self.observer {
                    observer.sent(moved[1] - told[1]);
                }
                told = moved;
            }
            if ends.iter().all(|end| matches!(end, Poll::Ready(Ok(())))) {
                if let Some(mut observer) = self.observer.take() {
                    observer.complete();
                }
                return Poll::Ready(());
            }
            if ends.iter().any(|end| matches!(end, Poll::Ready(Err(_)))) {
                return Poll::Ready(());
            }
            let begins_to_close = !is_closing && closing.as_mut().poll(cx).is_ready();
            if begins_to_close {
                (is_closing, idle_max) = (true, idle_max.min(CLOSING_IDLE_MAX));
            }
            if is_moved || begins_to_close {
                patience.as_mut().reset(last + idle_max);
            }
            patience.as_mut().poll(cx)
        })
        .await;
    }
}

/// One direction. It reads only when everything read before is written, so a slow reader slows the
/// other side down; it passes the end of the stream on.
struct Way {
    pending: Bytes,
    buf: Option<Box<[u8]>>,
    moved: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// All is read, and the end must be passed on.
    Ending,
    Ended,
}

impl Way {
    fn new(pending: Bytes) -> Way {
        Way { pending, buf: None, moved: 0, state: State::Open }
    }

    /// Ready when the end has been passed on.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (dyn Duplex + '_),
        to: &mut (dyn Duplex + '_),
    ) -> Poll<io::Result<()>> {
        let (mut from, mut to) = (Pin::new(from), Pin::new(to));
        for _ in 0..PIECES_MAX {
            while !self.pending.is_empty() {
                match ready!(to.as_mut().poll_write(cx, &self.pending))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    count => self.pending.advance(count),
                }
            }
            match self.state {
                State::Open => {}
                State::Ending => {
                    ready!(Write::poll_shutdown(to.as_mut(), cx))?;
                    self.state = State::Ended;
                    return Poll::Ready(Ok(()));
                }
                State::Ended => return Poll::Ready(Ok(())),
            }
            let buf = self.buf.get_or_insert_with(|| vec![0; PIECE_LEN].into());
            let mut read = ReadBuf::new(buf);
            let result = from.as_mut().poll_read(cx, read.unfilled());
            if result.is_pending() {
                // An idle tunnel has no buffer.
                self.buf = None;
                return Poll::Pending;
            }
            ready!(result)?;
            match read.filled() {
                [] => self.state = State::Ending,
                bytes => {
                    self.moved += bytes.len() as u64;
                    self.pending = Bytes::copy_from_slice(bytes);
                }
            }
        }
        // Let other work of the worker run.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// How long a tunnel may be idle when the proxy closes.
const CLOSING_IDLE_MAX: Duration = Duration::from_secs(2);

/// How much is read at a time, and how many times before others have their turn.
const PIECE_LEN: usize = 16 * 1024;
const PIECES_MAX: usize = 16;
