//! Accepting connections, on the default color.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::connections::{LINE_MAX, Line, Turn, farewell, pause};
use dapple_io::net::Peer;
use dapple_io::net::{TcpListener, TcpStream};
use dapple_io::time::{Instant, sleep};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use socket2::{SockFilter, SockRef};
use tracing::warn;

use super::admission::{Admission, Place, Refusal, Ticket};
use super::stage::{Ending, Stage};
use crate::link::Link;

/// Whoever serves what is accepted.
pub trait Host: Send + Sync + 'static {
    /// Serves one connection, in a task that this starts.
    fn serve(&self, stream: TcpStream, client: SocketAddr, place: Place);

    /// Starts a task for something small, such as a refusal.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);

    /// There are more clients than descriptors: connections are to end with their next reply.
    fn set_crowded(&self, is_crowded: bool);

    /// Whether clients speak plain HTTP on this listener, so that they understand a refusal.
    fn is_plain(&self) -> bool;

    /// What to tell a client that may not come in whatever room there is; `None` where it may. Such a client takes no place from others.
    fn turns_away(&self, _client: IpAddr) -> Option<&'static [u8]> {
        None
    }
}

/// What an accepting task needs.
pub(super) struct Accepting<H> {
    pub listener: TcpListener,
    pub host: Arc<H>,
    pub admission: Arc<Admission>,
    pub stage: Arc<Stage>,
    /// The limit of connections is that of the descriptors: at the limit, accepting pauses until one ends.
    pub is_short: bool,
    /// The service manager has the socket too, and gives it to the next process with all who wait in it.
    pub is_shared: bool,
}

/// Those who wait for a place here.
type Waiting = Line<(TcpStream, SocketAddr, Ticket), Link>;

/// Accepts until the last stage.
///
/// At the limit, connections that rest make room, and then some of a client that has many more than the newcomer's. At the limit that was
/// asked for, those for whom there is no room within a moment are turned away; at one that the descriptors set, they wait until a
/// connection ends, most of them in the kernel's backlog, and those that are open end with their next response.
pub(super) async fn accept<H: Host>(accepting: Accepting<H>) {
    let Accepting { listener, host, admission, stage, is_short, .. } = &accepting;
    let mut finishing = pin!(stage.finishing());
    let mut limits = AtLimit::default();
    let mut line = Line::new(*is_short);
    for count in 1_u64.. {
        match unless(finishing.as_mut(), next(listener, admission, line.len())).await {
            Ok(Some(Ok((stream, client)))) => join(&accepting, &mut line, stream, client),
            Ok(Some(Err(error))) => {
                warn!(%error, "a connection could not be accepted");
                sleep(PAUSE).await;
            }
            Ok(None) => {}
            Err(ending) => return finish(&accepting, line, ending).await,
        }
        let_in(&accepting, &mut line);
        if *is_short {
            limits.crowd(host.as_ref(), admission);
        }
        if count % BATCH_LEN == 0 {
            // After a burst there may be thousands more; other work of this color and worker goes in between.
            dapple_sched::yield_now().await;
        }
    }
}

/// The next newcomer, or `None` when it is time to look after those that wait for a place. Cancel safe.
async fn next(
    listener: &TcpListener,
    admission: &Admission,
    waiting: usize,
) -> Option<io::Result<(TcpStream, SocketAddr)>> {
    match waiting {
        0 => Some(listener.accept().await),
        LINE_MAX.. => {
            pause(admission.connections()).await;
            None
        }
        _ => unless(pin!(pause(admission.connections())), listener.accept()).await.ok(),
    }
}

/// Has a newcomer wait for its place, or turns it away.
fn join<H: Host>(accepting: &Accepting<H>, line: &mut Waiting, stream: TcpStream, client: SocketAddr) {
    if let Some(words) = accepting.host.turns_away(client.ip()) {
        return turn_away(accepting, stream, words);
    }
    match accepting.admission.ticket(client.ip()) {
        Ok(ticket) => line.join((stream, client, ticket), Peer::Tcp(client), Instant::now()),
        Err(refusal) => turn_away(accepting, stream, words(refusal)),
    }
}

/// Serves those whose turn it is, and turns those away who have waited for long enough.
fn let_in<H: Host>(accepting: &Accepting<H>, line: &mut Waiting) {
    let admission = &accepting.admission;
    while let Some(turn) = line.turn(admission.connections(), Instant::now()) {
        match turn {
            Turn::Enters((stream, client, ticket), _) => enter(accepting, stream, client, ticket),
            Turn::Leaves((stream, ..)) => turn_away(accepting, stream, words(admission.refuse(Refusal::Full))),
        }
    }
}

/// Serves a connection, if there is a place.
fn enter<H: Host>(accepting: &Accepting<H>, stream: TcpStream, client: SocketAddr, ticket: Ticket) {
    let Accepting { host, admission, .. } = accepting;
    match admission.enter(ticket) {
        Ok(place) => host.serve(stream, client, place),
        Err(_) => turn_away(accepting, stream, words(admission.refuse(Refusal::Full))),
    }
}

/// Says so and closes, rather than let the client wait for what may not come. Beyond what can be told so in a moment, they are just
/// closed.
fn turn_away<H: Host>(accepting: &Accepting<H>, stream: TcpStream, words: &'static [u8]) {
    if let Some(place) = TurnedAway::enter()
        && accepting.host.is_plain()
    {
        accepting.host.spawn(async move {
            farewell(stream, words, u64::MAX).await;
            drop(place);
        });
    }
}

/// Whether it has been said that descriptors are the limit, so that it is said once.
#[derive(Default)]
struct AtLimit {
    is_told: bool,
}

impl AtLimit {
    /// Begins and ends being crowded, where descriptors are the limit.
    fn crowd<H: Host>(&mut self, host: &H, admission: &Admission) {
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

/// The end of accepting. Where nobody else has the socket, clients whose connection the kernel has made already are served
/// like all others, and those that come now are left to try again: closing the socket would reset what waits in it.
async fn finish<H: Host>(accepting: &Accepting<H>, mut line: Waiting, ending: Ending) {
    while let Some(((stream, client, ticket), _)) = line.leave() {
        enter(accepting, stream, client, ticket);
    }
    if ending == Ending::HandOver || accepting.is_shared {
        return;
    }
    let socket = accepting.listener.as_fd();
    if let Err(error) = ignore_new(SockRef::from(&socket)) {
        warn!(%error, "clients that connect right now may be reset");
    }
    let begin = Instant::now();
    loop {
        let is_last = begin.elapsed() >= FINISH;
        while let Ok((stream, client)) = accept_now(&accepting.listener) {
            join(accepting, &mut line, stream, client);
            let_in(accepting, &mut line);
        }
        if is_last {
            while let Some(((stream, client, ticket), _)) = line.leave() {
                enter(accepting, stream, client, ticket);
            }
            return;
        }
        // Handshakes that have begun may end: as far away as clients usually are.
        sleep(FINISH / 8).await;
    }
}

/// Lets the kernel drop the packets by which connections begin. Clients repeat them after a second, and meet then whoever
/// listens.
fn ignore_new(socket: SockRef<'_>) -> io::Result<()> {
    // The filter sees the segment from its TCP header on; SYN is a bit in the byte of the flags.
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_IF_ANY_BIT: u16 = 0x45;
    const RETURN: u16 = 0x06;
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    socket.attach_filter(&[
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS),
        SockFilter::new(JUMP_IF_ANY_BIT, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ])
}

/// The next connection that the kernel has, if it has one.
fn accept_now(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    loop {
        let stream = match rustix::net::accept_with(listener.as_fd(), flags) {
            Ok(fd) => std::net::TcpStream::from(fd),
            Err(Errno::CONNABORTED | Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        // One that has gone already has no address.
        if let Ok(client) = stream.peer_addr() {
            return Ok((TcpStream::from_std(stream)?, client));
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

/// The result of `future`, or that of `stop` where that is ready.
pub(super) async fn unless<F: Future, S>(
    mut stop: Pin<&mut impl Future<Output = S>>,
    future: F,
) -> Result<F::Output, S> {
    let mut future = pin!(future);
    let race = poll_fn(|cx| match stop.as_mut().poll(cx) {
        Poll::Ready(stopped) => Poll::Ready(Err(stopped)),
        Poll::Pending => future.as_mut().poll(cx).map(Ok),
    });
    race.await
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

/// How long accepting rests after an error that may last.
const PAUSE: Duration = Duration::from_millis(100);

/// How many connections are accepted in one go.
const BATCH_LEN: u64 = 32;

/// How long handshakes that have begun may take to end before the socket closes.
const FINISH: Duration = Duration::from_millis(200);

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
