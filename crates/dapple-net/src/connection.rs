//! One connection: its socket of smoltcp, in a set of its own, and its holder.
//!
//! | phase | holder | becomes | when |
//! |---|---|---|---|
//! | half open | the list of those, oldest first | waiting | the handshake is over, and its listener has room |
//! | | | gone | another one needs its place, it takes too long, or its peer resets it |
//! | waiting | the queue of its listener | owned | the program accepts it |
//! | | | orphan | the listener is dropped, which resets it |
//! | owned | a `TcpStream` of the program | orphan | that is dropped |
//! | orphan | nothing but its stack | remembered | both sides have ended: TIME-WAIT |
//! | | | gone | it is closed, or the time to deliver the rest is over |
//! | remembered | the list of those, oldest first | gone | its time is over, its peer connects again, or another one needs its place |

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::sync::Arc;

use dapple_io::environment::{Readiness, Ready};
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};

use crate::packet::Tuple;
use crate::ports::ListenPort;
use crate::settings::Settings;

/// See the module's text.
#[derive(Debug)]
pub(crate) enum Phase {
    /// With its number in the list.
    HalfOpen(Arc<ListenPort>, u64),
    Waiting,
    Owned,
    Orphan,
    /// With its number in the list.
    Remembered(u64),
}

/// See the module's text.
pub(crate) struct Connection {
    pub(crate) socket: OneSocket,
    pub(crate) tuple: Tuple,
    pub(crate) phase: Phase,
    /// Whether it began here.
    pub(crate) is_outgoing: bool,
    /// When it is ended, whatever happens.
    pub(crate) deadline: Option<Instant>,
    /// Its place among the timers.
    pub(crate) timer: Option<Instant>,
    /// Packets have come since it was last settled.
    pub(crate) is_dirty: bool,
    pub(crate) readiness: Option<Readiness>,
    /// Whether `readiness` is told next time: the program has found nothing to do.
    waits_to_read: bool,
    waits_to_write: bool,
    is_read_shut: bool,
    last_state: State,
    failure: Option<ErrorKind>,
}

/// A socket, alone in its set: so one packet looks at one socket, however many there are.
pub(crate) struct OneSocket {
    pub(crate) set: SocketSet<'static>,
    handle: SocketHandle,
}

impl OneSocket {
    pub(crate) fn new(settings: &Settings) -> OneSocket {
        let buffer = |len| SocketBuffer::new(vec![0; len]);
        let mut socket = Socket::new(buffer(settings.receive_buffer), buffer(settings.send_buffer));
        socket.set_nagle_enabled(false);
        socket.set_keep_alive(Some(duration(settings.keep_alive)));
        socket.set_ack_delay(Some(duration(ACK_DELAY)));
        let mut set = SocketSet::new(Vec::with_capacity(1));
        let handle = set.add(socket);
        OneSocket { set, handle }
    }

    /// Prepares for another connection. The connection before is forgotten without a word to the peer.
    pub(crate) fn renew(&mut self, timeout: std::time::Duration) {
        let socket = self.get_mut();
        socket.abort();
        socket.set_timeout(Some(duration(timeout)));
        socket.set_congestion_control(CongestionControl::Cubic);
    }

    pub(crate) fn get(&self) -> &Socket<'static> {
        self.set.get(self.handle)
    }

    pub(crate) fn get_mut(&mut self) -> &mut Socket<'static> {
        self.set.get_mut(self.handle)
    }
}

impl Connection {
    pub(crate) fn new(socket: OneSocket, tuple: Tuple, phase: Phase) -> Connection {
        let last_state = socket.get().state();
        Connection {
            socket,
            tuple,
            is_outgoing: matches!(phase, Phase::Owned),
            phase,
            deadline: None,
            timer: None,
            is_dirty: false,
            readiness: None,
            waits_to_read: true,
            waits_to_write: true,
            is_read_shut: false,
            last_state,
            failure: None,
        }
    }

    pub(crate) fn state(&self) -> State {
        self.socket.get().state()
    }

    /// Whether both sides have ended, or it is broken.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state(), State::TimeWait | State::Closed)
    }

    /// Whether the program has dropped it, and the peer has not acknowledged everything.
    pub(crate) fn delivers(&self) -> bool {
        let is_pending = matches!(self.state(), State::FinWait1 | State::Closing | State::LastAck);
        matches!(self.phase, Phase::Orphan) && is_pending
    }

    /// Notes whether the connection has broken since the last call: by a packet, or because time passed.
    pub(crate) fn note_state(&mut self, by_time: bool) {
        let state = self.state();
        if state == State::Closed && self.failure.is_none() {
            self.failure = match self.last_state {
                State::SynSent if !by_time => Some(ErrorKind::ConnectionRefused),
                State::SynReceived | State::Established | State::CloseWait | State::FinWait1 | State::FinWait2
                    if !by_time =>
                {
                    Some(ErrorKind::ConnectionReset)
                }
                State::Closed | State::Listen | State::TimeWait | State::LastAck | State::Closing => None,
                _ => Some(ErrorKind::TimedOut),
            };
        }
        self.last_state = state;
    }

    fn is_connecting(&self) -> bool {
        self.failure.is_none() && matches!(self.state(), State::SynSent | State::SynReceived)
    }

    /// Whether the peer sends no more.
    fn has_ended(&self) -> bool {
        self.failure.is_some() || self.is_read_shut || (!self.socket.get().may_recv() && !self.is_connecting())
    }

    /// Operations that the program has waited for and can do by now.
    pub(crate) fn news(&mut self) -> Option<(Readiness, Ready)> {
        let socket = self.socket.get();
        let (has_ended, is_broken) = (self.has_ended(), self.failure.is_some());
        let has_room = socket.send_queue() <= socket.send_capacity() / 3 * 2;
        let readable = self.waits_to_read && (socket.can_recv() || has_ended);
        let writable = self.waits_to_write && !self.is_connecting() && (is_broken || has_room || !socket.may_send());
        if !readable && !writable {
            return None;
        }
        let readiness = self.readiness.clone()?;
        self.waits_to_read &= !readable;
        self.waits_to_write &= !writable;
        Some((readiness, Ready { readable, writable, read_ended: readable && has_ended, broken: is_broken }))
    }

    /// From now on `news` is for this one, beginning with all that can be done already.
    pub(crate) fn watch(&mut self, readiness: Readiness) {
        self.readiness = Some(readiness);
        (self.waits_to_read, self.waits_to_write) = (true, true);
    }

    pub(crate) fn is_connected(&self) -> io::Result<bool> {
        match self.failure {
            Some(why) => Err(why.into()),
            None if self.state() == State::Closed => Err(ErrorKind::NotConnected.into()),
            None => Ok(!self.is_connecting()),
        }
    }

    /// See `StreamSocket::receive`.
    pub(crate) fn receive(&mut self, take: &mut dyn FnMut(&[u8]) -> usize) -> io::Result<()> {
        if self.is_read_shut {
            return Ok(());
        }
        if !self.socket.get().can_recv() {
            return match self.failure {
                Some(why) => Err(why.into()),
                None if self.has_ended() => Ok(()),
                None => {
                    self.waits_to_read = true;
                    Err(ErrorKind::WouldBlock.into())
                }
            };
        }
        let socket = self.socket.get_mut();
        while socket.can_recv() {
            let shown = socket.recv(|bytes| {
                let taken = take(bytes).min(bytes.len());
                (taken, taken == bytes.len())
            });
            if !shown.unwrap_or(false) {
                break;
            }
        }
        // A reader that got less than it wanted looks again only when it is told.
        self.waits_to_read |= !socket.can_recv();
        Ok(())
    }

    /// See `StreamSocket::send`.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(why) = self.failure {
            return Err(why.into());
        }
        if self.is_connecting() {
            self.waits_to_write = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        let len = self.socket.get_mut().send_slice(bytes).map_err(|_| ErrorKind::BrokenPipe)?;
        self.waits_to_write |= len < bytes.len();
        if len == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(len)
    }

    /// See `StreamSocket::shutdown`.
    pub(crate) fn shutdown(&mut self, how: Shutdown) -> io::Result<()> {
        if self.failure.is_some() || self.is_connecting() || self.state() == State::Closed {
            return Err(ErrorKind::NotConnected.into());
        }
        if how != Shutdown::Write {
            self.is_read_shut = true;
            self.waits_to_read = true;
        }
        if how != Shutdown::Read {
            self.waits_to_write = true;
            self.socket.get_mut().close();
            self.last_state = self.state();
        }
        Ok(())
    }

    /// The program has dropped it: ends the stream, or resets the connection where bytes would be lost or `aborts` asks for it.
    pub(crate) fn close(&mut self, aborts: bool) {
        self.readiness = None;
        let loses = self.socket.get().can_recv() && !self.is_read_shut;
        let is_connecting = self.is_connecting();
        let socket = self.socket.get_mut();
        match aborts || loses || is_connecting {
            true => socket.abort(),
            false => socket.close(),
        }
        self.last_state = self.state();
    }
}

/// A duration on smoltcp's clock, which runs [`HASTE`] times as fast.
pub(crate) fn duration(of: std::time::Duration) -> Duration {
    let micros = u64::try_from(of.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(micros.saturating_mul(HASTE).min(u64::MAX / 4))
}

/// A duration of smoltcp's clock, in real time.
pub(crate) fn real(of: Duration) -> std::time::Duration {
    std::time::Duration::from_micros(of.total_micros().div_ceil(HASTE))
}

/// smoltcp sends a lost packet again after a second of its clock at the earliest, a constant. With this it is 200 ms, as in Linux. Other
/// constants of its own are shorter, too: the first wait for an answer to the beginning of a connection (200 ms), the wait of a closed
/// connection (2 s), and the plateau of CUBIC.
const HASTE: u64 = 5;
/// How long the acknowledgment of a packet may wait for another one.
const ACK_DELAY: std::time::Duration = std::time::Duration::from_millis(10);
