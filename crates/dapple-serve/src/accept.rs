//! Accepting connections, for every server.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple_io::Connection;
use dapple_io::net::{Listener, Peer};
use dapple_io::time::{Instant, timeout};
use dapple_sync::task::{First, race};
use tracing::warn;

use crate::connections::{LINE_MAX, Line, Turn, farewell, pause};
use crate::host::{Admission, Ending, Place, Refusal, Stage, Ticket};
use crate::link::Link;

/// Serves what is accepted.
pub trait Host: Send + Sync + 'static {
    /// What is accepted.
    type Connection: Connection;

    /// Serves one connection, in a task that this starts.
    fn serve(&self, stream: Self::Connection, peer: Peer, place: Place);

    /// Starts a task for something small, such as a refusal.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);

    /// There are more clients than descriptors: connections are to end with their next reply.
    fn set_crowded(&self, _is_crowded: bool) {}

    /// Whether clients speak plain HTTP on this listener, so that they understand a refusal.
    fn is_plain(&self) -> bool;

    /// The words of HTTP/1.1 for a client that is not served in whatever room there is; `None` where it is. Such a client takes no place
    /// from others.
    fn turns_away(&self, _peer: &Peer) -> Option<&'static [u8]> {
        None
    }

    /// Says why a client is not served, and closes. By default in these words of HTTP/1.1.
    fn farewell(&self, stream: Self::Connection, words: &'static [u8]) -> impl Future<Output = ()> + Send + 'static {
        farewell(stream, words, u64::MAX)
    }
}

/// What an accepting task needs.
pub(crate) struct Accepting<L, H> {
    pub(crate) listener: L,
    pub(crate) host: Arc<H>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) stage: Arc<Stage>,
    /// The limit of connections is that of the descriptors: at the limit, accepting pauses until one ends.
    pub(crate) is_short: bool,
    /// The service manager has the socket too, and gives it to the next process with all who wait in it.
    pub(crate) is_shared: bool,
    /// Whether no other process or listener has the socket, so that connections can be refused that are not being made yet.
    pub(crate) is_own: bool,
    /// At the end: how long no client has to come.
    pub(crate) last_pause: Duration,
}

/// Those that wait for a place here.
type Waiting<C> = Line<(C, Ticket), Link>;

impl<L: Listener, H: Host<Connection = L::Connection>> Accepting<L, H> {
    /// Accepts until the last stage, and then the clients that are connected already. Closes the listener.
    ///
    /// At the limit, connections that rest make room, and then some of a client that has many more than the newcomer's. At the limit that was
    /// asked for, those for which there is no room within a moment are turned away; at one that the descriptors set, they wait until a
    /// connection ends, most of them in the kernel's backlog, and those that are open end with their next response.
    ///
    /// Not cancel safe: dropped before it resolves, it leaves clients whose connection the kernel has made to be reset.
    ///
    /// # Errors
    ///
    /// The listener is of no more use.
    pub(crate) async fn run(self) -> io::Result<()> {
        let stage = self.stage.clone();
        let mut finishing = pin!(stage.finishing());
        let mut limits = AtLimit::default();
        let mut line = Line::new(self.is_short);
        for count in 1_u64.. {
            match race(finishing.as_mut(), self.next(line.len())).await {
                First::Right(Some(accepted)) => {
                    let (stream, peer) = accepted?;
                    self.join(&mut line, stream, peer);
                }
                First::Right(None) => {}
                First::Left(ending) => {
                    self.finish(line, ending).await;
                    break;
                }
            }
            self.let_in(&mut line);
            if self.is_short {
                limits.crowd(self.host.as_ref(), &self.admission);
            }
            if count % BATCH_LEN == 0 {
                // After a burst there may be thousands more; other work of this color and worker goes in between.
                dapple_sched::yield_now().await;
            }
        }
        Ok(())
    }

    /// The next newcomer, or `None` when it is time to look after those that wait for a place. Cancel safe.
    async fn next(&self, waiting: usize) -> Option<io::Result<(L::Connection, Peer)>> {
        let connections = self.admission.connections();
        match waiting {
            0 => Some(self.listener.accept().await),
            LINE_MAX.. => {
                pause(connections).await;
                None
            }
            _ => match race(pause(connections), self.listener.accept()).await {
                First::Left(()) => None,
                First::Right(accepted) => Some(accepted),
            },
        }
    }

    /// Has a newcomer wait for its place, or turns it away.
    fn join(&self, line: &mut Waiting<L::Connection>, stream: L::Connection, peer: Peer) {
        if let Some(words) = self.host.turns_away(&peer) {
            return self.turn_away(stream, words);
        }
        match self.admission.ticket(peer.network()) {
            Ok(ticket) => line.join((stream, ticket), peer, Instant::now()),
            Err(refusal) => self.turn_away(stream, words(refusal)),
        }
    }

    /// Serves those whose turn it is, and turns those away that have waited for long enough.
    fn let_in(&self, line: &mut Waiting<L::Connection>) {
        while let Some(turn) = line.turn(self.admission.connections(), Instant::now()) {
            match turn {
                Turn::Enters((stream, ticket), peer) => self.enter(stream, peer, ticket),
                Turn::Leaves((stream, _)) => self.turn_away(stream, words(self.admission.refuse(Refusal::Full))),
            }
        }
    }

    /// Serves a connection, if there is a place.
    fn enter(&self, stream: L::Connection, peer: Peer, ticket: Ticket) {
        match self.admission.enter(ticket) {
            Ok(place) => self.host.serve(stream, peer, place),
            Err(_) => self.turn_away(stream, words(self.admission.refuse(Refusal::Full))),
        }
    }

    /// Says so and closes, rather than let the client wait for what may not come. Beyond what can be told so in a moment, they are just
    /// closed.
    fn turn_away(&self, stream: L::Connection, words: &'static [u8]) {
        if let Some(place) = TurnedAway::enter()
            && self.host.is_plain()
        {
            let farewell = self.host.farewell(stream, words);
            self.host.spawn(async move {
                farewell.await;
                drop(place);
            });
        }
    }

    /// The end of accepting. Where no other process has the socket, clients whose connection the kernel has made already are served
    /// like all others, and those that come now are left to try again: closing the socket would reset what waits in it.
    async fn finish(&self, mut line: Waiting<L::Connection>, ending: Ending) {
        let enter_all = |line: &mut Waiting<L::Connection>| {
            while let Some(((stream, ticket), peer)) = line.leave() {
                self.enter(stream, peer, ticket);
            }
        };
        enter_all(&mut line);
        if ending == Ending::HandOver || self.is_shared {
            return;
        }
        if self.is_own {
            self.listener.refuse_new();
        }
        let begin = Instant::now();
        // Handshakes that have begun may end: as far away as clients usually are.
        while let Some(left) = LAST_MAX.checked_sub(begin.elapsed())
            && let Ok(Ok((stream, peer))) = timeout(left.min(self.last_pause), self.listener.accept()).await
        {
            self.join(&mut line, stream, peer);
            self.let_in(&mut line);
        }
        enter_all(&mut line);
    }
}

/// Whether it has been said that descriptors are the limit, so that it is said once.
#[derive(Default)]
struct AtLimit {
    is_told: bool,
}

impl AtLimit {
    /// Begins and ends being crowded, where descriptors are the limit.
    fn crowd(&mut self, host: &impl Host, admission: &Admission) {
        let (open, connections_max) = (admission.open(), admission.max());
        if open >= connections_max && !std::mem::replace(&mut self.is_told, true) {
            warn!(connections_max, "no descriptors are left for more connections; new ones wait until one ends");
            host.set_crowded(true);
        }
        if open < connections_max / 2 && std::mem::take(&mut self.is_told) {
            host.set_crowded(false);
        }
    }
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

fn words(refusal: Refusal) -> &'static [u8] {
    match refusal {
        Refusal::Full => FULL,
        Refusal::Address => ADDRESS,
        Refusal::Memory => MEMORY,
    }
}

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 48\r\n\r\nAll connections are in use. Please try again...\n";

const ADDRESS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 63\r\n\r\n\
    Your address has all the connections that it can have for now.\n";

const MEMORY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\nconnection: close\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 58\r\n\r\n\
    This server is short of memory. Please try again later...\n";

/// How many clients are turned away at the same time.
const TURNED_AWAY_MAX: usize = 256;

/// How many connections are accepted in one go.
const BATCH_LEN: u64 = 32;

/// At the end: how long to look for connections that are made already.
pub(crate) const LAST_MAX: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::{Refusal, words};

    #[test]
    fn refusals_are_as_long_as_they_say() {
        for (refusal, _) in Refusal::ALL {
            let text = std::str::from_utf8(words(refusal)).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.ends_with(&format!("content-length: {}", body.len())), "{text}");
        }
    }
}
