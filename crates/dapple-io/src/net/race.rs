//! Happy Eyeballs (RFC 8305): tries several addresses, each in parallel with those that have not
//! answered for a while.

use std::collections::VecDeque;
use std::fmt::Write;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::connect::Connector;
use super::lookup::Lookup;
use super::tcp::TcpStream;
use crate::time::{Instant, Sleep, sleep};

/// Resolves to the first connection. Dropping it ends all attempts.
pub(super) struct Race {
    /// The target, for the error.
    what: String,
    /// The source of more addresses, and their port.
    names: Option<(Lookup, u16)>,
    /// Addresses not tried yet: those of IPv6, and those of IPv4.
    waiting: [VecDeque<SocketAddr>; 2],
    /// The family of the next address.
    turn: usize,
    attempts: Vec<Attempt>,
    failures: Vec<(SocketAddr, io::Error)>,
    attempt_delay: Duration,
    /// When the next attempt begins in parallel with the others.
    next: Option<Sleep>,
    /// How long the first attempt waits for addresses of IPv6.
    hold: Sleep,
    is_held: bool,
    has_begun: bool,
    resolution_delay: Duration,
}

struct Attempt {
    addr: SocketAddr,
    began: Instant,
    connecting: Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>,
}

impl Race {
    /// A race between known addresses.
    pub(super) fn new(connector: &Connector, addrs: Vec<SocketAddr>) -> Self {
        let what = addrs.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ");
        let mut race = Race {
            what,
            names: None,
            waiting: Default::default(),
            turn: addrs.first().map_or(0, |addr| usize::from(addr.is_ipv4())),
            attempts: Vec::new(),
            failures: Vec::new(),
            attempt_delay: connector.attempt_delay,
            next: None,
            hold: sleep(connector.resolution_delay),
            is_held: false,
            has_begun: false,
            resolution_delay: connector.resolution_delay,
        };
        race.add(addrs);
        race
    }

    /// A race between the addresses of a name, as the look-up returns them.
    pub(super) fn with_names(connector: &Connector, host: &str, port: u16, lookup: Lookup) -> Self {
        let mut race = Race::new(connector, Vec::new());
        race.what = format!("{host}:{port}");
        race.names = Some((lookup, port));
        race
    }

    fn add(&mut self, addrs: impl IntoIterator<Item = SocketAddr>) {
        for addr in addrs {
            let known = self.waiting.iter().flatten().chain(self.attempts.iter().map(|attempt| &attempt.addr));
            let mut known = known.chain(self.failures.iter().map(|(addr, _)| addr));
            if !known.any(|known| *known == addr) {
                self.waiting[usize::from(addr.is_ipv4())].push_back(addr);
            }
        }
    }

    /// Takes in the addresses that the look-up has found.
    fn poll_names(&mut self, cx: &mut Context<'_>) {
        while let Some((lookup, port)) = &mut self.names {
            let port = *port;
            match lookup.poll_more(cx) {
                Poll::Pending => return,
                Poll::Ready(Some(ips)) => self.add(ips.into_iter().map(|ip| (ip, port).into())),
                Poll::Ready(None) => {
                    if self.is_empty() {
                        // There was no address at all: the look-up returns the reason.
                        return;
                    }
                    self.names = None;
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty) && self.attempts.is_empty() && self.failures.is_empty()
    }

    /// Polls all attempts; notes if one has failed.
    fn poll_attempts(&mut self, cx: &mut Context<'_>) -> Poll<TcpStream> {
        let mut at = 0;
        while let Some(attempt) = self.attempts.get_mut(at) {
            match attempt.connecting.as_mut().poll(cx) {
                Poll::Pending => at += 1,
                Poll::Ready(Ok(stream)) => return Poll::Ready(stream),
                Poll::Ready(Err(error)) => {
                    let failed = self.attempts.remove(at);
                    self.failures.push((failed.addr, error));
                    // The next one need not wait any longer.
                    self.next = None;
                }
            }
        }
        Poll::Pending
    }

    /// Whether the next attempt may begin.
    fn may_begin(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.has_begun {
            let only_ipv4 = self.waiting[0].is_empty();
            let may_get_ipv6 = self.names.as_ref().is_some_and(|(lookup, _)| lookup.awaits_ipv6());
            if only_ipv4 && may_get_ipv6 {
                if !self.is_held {
                    self.is_held = true;
                    self.hold = sleep(self.resolution_delay);
                }
                return Pin::new(&mut self.hold).poll(cx).is_ready();
            }
            return true;
        }
        match &mut self.next {
            Some(next) => Pin::new(next).poll(cx).is_ready(),
            None => true,
        }
    }

    /// Begins the next attempt. The two families take turns.
    fn begin(&mut self) {
        let family = if self.waiting[self.turn].is_empty() { 1 - self.turn } else { self.turn };
        let Some(addr) = self.waiting[family].pop_front() else { return };
        self.turn = 1 - family;
        self.has_begun = true;
        if self.attempts.len() == ATTEMPTS_MAX {
            let slowest = self.attempts.remove(0);
            let text = format!("no answer in {:.1} s", slowest.began.elapsed().as_secs_f64());
            self.failures.push((slowest.addr, io::Error::new(io::ErrorKind::TimedOut, text)));
        }
        let connecting = Box::pin(TcpStream::connect_to(addr));
        self.attempts.push(Attempt { addr, began: Instant::now(), connecting });
        self.next = Some(sleep(self.attempt_delay));
    }

    /// The error of the race.
    fn error(&mut self) -> io::Error {
        if self.failures.is_empty() {
            let lookup = self.names.as_mut().map(|(lookup, _)| lookup.error());
            return lookup.unwrap_or_else(super::address::no_address);
        }
        // An answer of a host about the service says more than an error on the way to that host.
        let rank = |error: &io::Error| match error.kind() {
            io::ErrorKind::ConnectionRefused => 0,
            io::ErrorKind::ConnectionReset | io::ErrorKind::PermissionDenied => 1,
            io::ErrorKind::TimedOut => 2,
            _ => 3,
        };
        let kind = self.failures.iter().map(|(_, error)| error).min_by_key(|error| rank(error)).map(io::Error::kind);
        let mut text = format!("cannot connect to {}: ", self.what);
        for (index, (addr, error)) in self.failures.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            let _ = write!(text, "{separator}{addr}: {error}");
        }
        io::Error::new(kind.unwrap_or(io::ErrorKind::Other), text)
    }
}

impl Future for Race {
    type Output = io::Result<TcpStream>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            this.poll_names(cx);
            if let Poll::Ready(stream) = this.poll_attempts(cx) {
                return Poll::Ready(Ok(stream));
            }
            if this.waiting.iter().all(VecDeque::is_empty) {
                let is_over =
                    this.attempts.is_empty() && this.names.as_ref().is_none_or(|(lookup, _)| lookup.is_over());
                return if is_over { Poll::Ready(Err(this.error())) } else { Poll::Pending };
            }
            if !this.may_begin(cx) {
                return Poll::Pending;
            }
            this.begin();
        }
    }
}

/// The most concurrent attempts, each with a descriptor. With more addresses the oldest attempt is
/// dropped, after some seconds.
const ATTEMPTS_MAX: usize = 16;
