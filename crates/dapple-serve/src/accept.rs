//! Accepting connections.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use dapple_io::time::{Instant, timeout};
#[cfg(feature = "tls")]
use tracing::debug;

use crate::connections::{Holder as _, LINE_MAX, Line, Order, Turn, pause};
use crate::link::Link;
use crate::request::Held;
use crate::server::Shared;
use crate::service::HttpService;
use crate::tower::{Arrival, Connections, Context, Place, Tower, turn_away};
use dapple_io::net::{Listener, Peer};

/// What an accepting task needs.
pub(crate) struct Accepting<L, V> {
    pub(crate) listener: L,
    pub(crate) service: Held<V>,
    pub(crate) shared: Arc<Shared>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<dapple_tls::TlsAcceptor>,
}

impl<L: Listener, V: HttpService> Accepting<L, V> {
    /// Accepts until `stop` is ready, and then whoever is connected already. Closes the listener.
    ///
    /// Not cancel safe: dropped before it resolves, it leaves clients whose connection the kernel has made to be reset.
    ///
    /// # Errors
    ///
    /// The listener is of no more use.
    pub(crate) async fn run(self, mut stop: Pin<&mut impl Future<Output = ()>>) -> io::Result<()> {
        let mut line = Line::new(false);
        for count in 1_u64.. {
            let next = next(&self.listener, &self.shared.connections, line.len());
            let Some(newcomer) = unless(stop.as_mut(), next).await else { break };
            if let Some(accepted) = newcomer {
                let (stream, peer) = accepted?;
                line.join(stream, peer, Instant::now());
            }
            self.let_in(&mut line);
            if count % BATCH_LEN == 0 {
                // After a burst there may be thousands more; other work goes in between.
                dapple_sched::yield_now().await;
            }
        }
        // Where clients leave by themselves, these may, too.
        let order = if self.shared.options.leave_timeout.is_zero() { Order::LastReply } else { Order::GoOn };
        while let Some((stream, peer)) = line.leave() {
            self.take(stream, peer, order);
        }
        let begin = Instant::now();
        while begin.elapsed() < LAST_MAX
            && let Ok(Ok((stream, peer))) = timeout(LAST_PAUSE, self.listener.accept()).await
        {
            self.take(stream, peer, order);
        }
        Ok(())
    }

    /// Serves those whose turn it is, and turns those away who have waited for long enough.
    fn let_in(&self, line: &mut Line<L::Connection, Link>) {
        while let Some(turn) = line.turn(&self.shared.connections, Instant::now()) {
            match turn {
                Turn::Enters(stream, peer) => self.take(stream, peer, Order::GoOn),
                Turn::Leaves(stream) => self.turn_away(stream),
            }
        }
    }

    /// Serves a connection, or turns it away.
    fn take(&self, stream: L::Connection, peer: Peer, order: Order) {
        let shared = &self.shared;
        let link = Arc::new(Link::new(peer.network()));
        link.order(order);
        match shared.connections.enter(&link) {
            Some(place) => {
                let context = Context { peer, arrival: Arrival::new(), link, shared: shared.clone() };
                self.serve(stream, place, context);
            }
            None => self.turn_away(stream),
        }
    }

    fn serve(&self, stream: L::Connection, place: Place, context: Context) {
        #[cfg(feature = "tls")]
        let link = context.link.clone();
        let tower = Tower::new(self.service.another(), place, context);
        #[cfg(feature = "tls")]
        if let Some(acceptor) = self.tls.clone() {
            let limit = self.shared.options.header_timeout;
            drop(dapple_sched::spawn_balanced(async move {
                let handshake = unless(pin!(link.unwanted()), acceptor.accept(stream, limit)).await;
                match handshake {
                    Some(Ok(stream)) => tower.serve(stream).await,
                    Some(Err(error)) => debug!(%error, "a handshake of TLS failed"),
                    None => debug!("a handshake of TLS was ended, as there was no room"),
                }
            }));
            return;
        }
        // A task has a color of its own, so that connections are served on all cores.
        drop(dapple_sched::spawn_balanced(tower.serve(stream)));
    }

    /// Says so and closes, rather than let the client wait for what may not come. Beyond what can be told so in a moment, and where TLS
    /// is spoken, they are just closed.
    fn turn_away(&self, stream: L::Connection) {
        self.shared.counts.turn_away();
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return;
        }
        if let Some(place) = TurnedAway::enter() {
            let own = self.shared.on_full.clone();
            drop(dapple_sched::spawn(async move {
                turn_away(stream, own).await;
                drop(place);
            }));
        }
    }
}

/// The next newcomer, or `None` when it is time to look after those that wait for a place. Cancel safe.
async fn next<L: Listener>(
    listener: &L,
    connections: &Connections,
    waiting: usize,
) -> Option<io::Result<(L::Connection, Peer)>> {
    if waiting == 0 {
        return Some(listener.accept().await);
    }
    if waiting >= LINE_MAX {
        pause(connections).await;
        return None;
    }
    unless(pin!(pause(connections)), listener.accept()).await
}

/// One of the places for clients that are being turned away.
struct TurnedAway;

static TURNED_AWAY: AtomicUsize = AtomicUsize::new(0);

impl TurnedAway {
    fn enter() -> Option<TurnedAway> {
        if TURNED_AWAY.fetch_add(1, Ordering::Relaxed) < TURNED_AWAY_MAX {
            return Some(TurnedAway);
        }
        TURNED_AWAY.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for TurnedAway {
    fn drop(&mut self) {
        TURNED_AWAY.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The result of `future`, or `None` where `stop` is ready before.
pub(crate) async fn unless<F: Future>(mut stop: Pin<&mut impl Future>, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match stop.as_mut().poll(cx) {
        Poll::Ready(_) => Poll::Ready(None),
        Poll::Pending => future.as_mut().poll(cx).map(Some),
    })
    .await
}

/// How many clients are turned away at the same time.
const TURNED_AWAY_MAX: usize = 256;

/// How many connections are accepted in one go.
const BATCH_LEN: u64 = 32;

/// At the end: how long to look for connections that are made already, and how long none has to come.
const LAST_MAX: Duration = Duration::from_millis(200);
const LAST_PAUSE: Duration = Duration::from_millis(10);
