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
use crate::host::{Admission, AdmittedConnection, EndStage, Ending, Refusal, Ticket};
use crate::link::Link;

/// Serves accepted connections.
pub trait Host: Send + Sync + 'static {
    /// The type of an accepted connection.
    type Connection: Connection;

    /// Serves one connection, in a task that this method starts.
    fn serve(&self, stream: Self::Connection, peer: Peer, place: AdmittedConnection);

    /// Starts a task for a small job, such as a refusal.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);

    /// Reports that there are more clients than descriptors: connections should end with their next
    /// reply.
    fn set_crowded(&self, _is_crowded: bool) {}

    /// Whether clients speak plain HTTP on this listener, so that they understand a refusal.
    fn is_plain(&self) -> bool;

    /// The HTTP/1.1 reply for a client that is refused even if there is room; `None` for a client
    /// that may be served. A refused client takes no place from others.
    fn turns_away(&self, _peer: &Peer) -> Option<&'static [u8]> {
        None
    }

    /// Tells a client why it is not served, and closes the connection. Sends `words` as they are by
    /// default.
    fn farewell(&self, stream: Self::Connection, words: &'static [u8]) -> impl Future<Output = ()> + Send + 'static {
        farewell(stream, words, u64::MAX)
    }
}

/// The state of an accepting task.
pub(crate) struct Accepting<L, H> {
    pub(crate) listener: L,
    pub(crate) host: Arc<H>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) stage: Arc<EndStage>,
    /// Whether descriptors set the connection limit: at the limit, accepting pauses until a
    /// connection ends.
    pub(crate) is_short: bool,
    /// Whether the service manager has the socket too, and passes it and its waiting clients to the
    /// next process.
    pub(crate) is_shared: bool,
    /// Whether no other process or listener has the socket, so that connections can be refused
    /// before the kernel makes them.
    pub(crate) is_own: bool,
    /// At the end: the task stops accepting when no client has arrived for this long.
    pub(crate) last_pause: Duration,
}

/// The newcomers that wait for a place here.
type Waiting<C> = Line<(C, Ticket), Link>;

impl<L: Listener, H: Host<Connection = L::Connection>> Accepting<L, H> {
    /// Accepts until the last stage, then serves clients that are connected already. Closes the
    /// listener.
    ///
    /// At the limit, idle connections make room, and then some of a client that has many more than
    /// the newcomer's. Under a configured limit, newcomers without room are turned away after a
    /// moment. Under a limit set by descriptors, newcomers wait until a connection ends, most of
    /// them in the kernel's backlog, and open connections end with their next response.
    ///
    /// Not cancel safe: if dropped before it resolves, the kernel resets the connections that it
    /// has made and this task has not accepted.
    ///
    /// # Errors
    ///
    /// The listener no longer works.
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
                // A burst may have left thousands of connections; let other work of this color and
                // worker run.
                dapple_sched::yield_now().await;
            }
        }
        Ok(())
    }

    /// Returns the next newcomer, or `None` when it is time to check the waiting line. Cancel safe.
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

    /// Puts a newcomer into the waiting line, or turns it away.
    fn join(&self, line: &mut Waiting<L::Connection>, stream: L::Connection, peer: Peer) {
        if let Some(words) = self.host.turns_away(&peer) {
            return self.turn_away(stream, words);
        }
        match self.admission.ticket(peer.network()) {
            Ok(ticket) => line.join((stream, ticket), peer, Instant::now()),
            Err(refusal) => self.turn_away(stream, words(refusal)),
        }
    }

    /// Serves the newcomers that get a slot, and turns away those that have waited too long.
    fn let_in(&self, line: &mut Waiting<L::Connection>) {
        while let Some(turn) = line.turn(self.admission.connections(), Instant::now()) {
            match turn {
                Turn::Enters((stream, ticket), peer) => self.enter(stream, peer, ticket),
                Turn::Leaves((stream, _)) => self.turn_away(stream, words(self.admission.refuse(Refusal::Full))),
            }
        }
    }

    /// Serves a connection if a place is free.
    fn enter(&self, stream: L::Connection, peer: Peer, ticket: Ticket) {
        match self.admission.enter(ticket) {
            Ok(place) => self.host.serve(stream, peer, place),
            Err(_) => self.turn_away(stream, words(self.admission.refuse(Refusal::Full))),
        }
    }

    /// Tells the client that there is no room, and closes, so that it does not wait for nothing.
    /// Connections beyond the number that can get this reply at one time are closed without one.
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

    /// Ends accepting. If no other process has the socket, serves clients with a connection that
    /// the kernel has already made, and leaves later clients to retry: closing the socket would
    /// reset the connections that wait in it.
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
        // Let handshakes that have begun finish; the limit covers the usual distance of clients.
        while let Some(left) = LAST_MAX.checked_sub(begin.elapsed())
            && let Ok(Ok((stream, peer))) = timeout(left.min(self.last_pause), self.listener.accept()).await
        {
            self.join(&mut line, stream, peer);
            self.let_in(&mut line);
        }
        enter_all(&mut line);
    }
}

/// Whether the log already says that descriptors are the limit, so that it says so once.
#[derive(Default)]
struct AtLimit {
    is_told: bool,
}

impl AtLimit {
    /// Starts and stops crowded mode where descriptors are the limit.
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

/// A slot for a client that is being turned away.
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

/// The most clients that are turned away at one time.
const TURNED_AWAY_MAX: usize = 256;

/// The most connections accepted in one turn.
const BATCH_LEN: u64 = 32;

/// At the end: the time limit for accepting connections that the kernel has already made.
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
