//! What a connection is doing, and how long it may. Pure: whoever calls says what time it is.
//!
//! ```text
//!             bytes                 a head is whole                the last open request is over
//!   fresh ─────────────► (the same) ──────────────► serving ──────────────────────────────┐
//!     │ head                                          ▲  │ no limit of its own             ▼
//!     │ limit                         a head is whole │  └───────────────────────────── resting ── idle limit
//!     ▼                                               │            bytes, HTTP/1.1          │
//!   expired ◄──────────────── head limit ─────── reading a head ◄───────────────────────────┘
//! ```
//!
//! In all of them, a peer that takes nothing of what is to be written meets the limit for that.

use std::time::Duration;

use dapple_io::time::Instant;

use super::pace::{Pace, after};
use crate::options::Options;

/// See the module.
#[derive(Debug)]
pub(crate) struct State {
    phase: Phase,
    /// Since when the phase lasts.
    since: Instant,
    /// Requests whose head came, and whose reply has not ended.
    open: u32,
    is_http2: bool,
    /// Whether anything was read.
    has_read: bool,
    /// Whether the peer has ended its direction.
    has_ended: bool,
    /// Whether anything was written.
    has_written: bool,
    /// Whether a request's body was left unread: closing at once would reset the connection, and what was said last would be lost.
    has_unread: bool,
    sending: Pace,
    slow_streams: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Fresh,
    Head,
    Serving,
    Resting,
}

/// Which limit a connection met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expired {
    /// No whole head came.
    Head,
    /// No other request came.
    Idle,
    /// The peer takes nothing.
    Sending,
}

impl State {
    /// A connection that was made just now.
    pub(crate) fn new(options: &Options, now: Instant) -> State {
        State {
            phase: Phase::Fresh,
            since: now,
            open: 0,
            is_http2: false,
            has_read: false,
            has_ended: false,
            has_written: false,
            has_unread: false,
            sending: Pace::new(options.send_timeout, options.rate_min),
            slow_streams: 0,
        }
    }

    /// The peer is one of HTTP/2, whose frames say nothing about heads.
    pub(crate) fn set_http2(&mut self) {
        self.is_http2 = true;
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Bytes came; none is the end.
    pub(crate) fn read(&mut self, len: usize, now: Instant) {
        self.has_read |= len > 0;
        self.has_ended |= len == 0;
        if self.phase == Phase::Resting && !self.is_http2 && len > 0 {
            self.enter(Phase::Head, now);
        }
    }

    /// Bytes were taken by the kernel.
    pub(crate) fn wrote(&mut self, len: usize, now: Instant) {
        self.has_written = true;
        self.sending.moved(len, now);
    }

    /// The kernel takes no more for now, as the peer does not.
    pub(crate) fn is_blocked(&mut self, now: Instant) {
        self.sending.wait(now);
    }

    /// A request's head is whole.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.open += 1;
        self.enter(Phase::Serving, now);
    }

    /// A request's reply has ended.
    pub(crate) fn end(&mut self, has_unread: bool, now: Instant) {
        self.has_unread |= has_unread;
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            self.enter(Phase::Resting, now);
        }
    }

    /// A stream was reset, as the peer took too little of it. Returns how many there were.
    pub(crate) fn slow_stream(&mut self) -> u32 {
        self.slow_streams += 1;
        self.slow_streams
    }

    fn enter(&mut self, phase: Phase, now: Instant) {
        if self.phase != phase {
            self.phase = phase;
            self.since = now;
        }
    }

    /// Since when nothing is wanted of this side, or since when something is. One whose request may be on its way rests only after a while.
    pub(crate) fn rests_since(&self, now: Instant) -> Result<Instant, Instant> {
        let is_resting = match self.phase {
            // Its last reply may still be on its way to a peer that is slow to take it.
            Phase::Resting => self.sending.deadline().is_none(),
            Phase::Fresh | Phase::Head => now.saturating_duration_since(self.since) >= REQUEST_AWAITED,
            Phase::Serving => false,
        };
        if is_resting { Ok(self.since) } else { Err(self.since) }
    }

    /// Whether a client is at it that speaks HTTP/1.1, has sent a part of a head and got no reply to it.
    pub(crate) fn is_reading_head(&self) -> bool {
        !self.is_http2
            && (self.phase == Phase::Head || self.phase == Phase::Fresh && self.has_read && !self.has_written)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(crate) fn has_unread(&self) -> bool {
        self.has_unread
    }

    /// How long this may last, and what it would be then.
    pub(crate) fn deadline(&self, options: &Options) -> Option<(Instant, Expired)> {
        let phase = match self.phase {
            Phase::Fresh | Phase::Head => Some((after(self.since, options.header_timeout), Expired::Head)),
            Phase::Resting => Some((after(self.since, options.idle_timeout), Expired::Idle)),
            Phase::Serving => None,
        };
        let sending = self.sending.deadline().map(|deadline| (deadline, Expired::Sending));
        phase.into_iter().chain(sending).min_by_key(|(deadline, _)| *deadline)
    }
}

/// How long a request may take to come before others go first.
const REQUEST_AWAITED: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dapple_io::time::Instant;

    use super::{Expired, State};
    use crate::options::Options;

    const SECOND: Duration = Duration::from_secs(1);

    fn fresh() -> (State, Options, Instant) {
        let now = Instant::from_std(std::time::Instant::now());
        let options = Options { header_timeout: 10 * SECOND, idle_timeout: 75 * SECOND, ..Options::default() };
        (State::new(&options, now), options, now)
    }

    #[test]
    fn a_head_has_its_time_however_it_trickles() {
        let (mut state, options, begin) = fresh();
        assert!(!state.is_reading_head(), "who says nothing is told nothing");
        state.read(1, begin + 3 * SECOND);
        state.read(1, begin + 9 * SECOND);
        assert_eq!(state.deadline(&options), Some((begin + 10 * SECOND, Expired::Head)));
        assert!(state.is_reading_head());
        assert_eq!(state.rests_since(begin + SECOND / 2), Err(begin), "its request may be on its way");
        assert_eq!(state.rests_since(begin + SECOND), Ok(begin));
        state.begin(begin + 9 * SECOND);
        assert_eq!(state.deadline(&options), None, "a handler may take as long as it likes");
        assert_eq!(state.rests_since(begin + 99 * SECOND), Err(begin + 9 * SECOND));
    }

    #[test]
    fn between_requests_there_is_more_time_until_a_byte_comes() {
        let (mut state, options, begin) = fresh();
        state.begin(begin);
        state.end(false, begin + SECOND);
        assert_eq!(state.deadline(&options), Some((begin + 76 * SECOND, Expired::Idle)));
        state.read(1, begin + 50 * SECOND);
        state.read(1, begin + 51 * SECOND);
        assert_eq!(state.deadline(&options), Some((begin + 60 * SECOND, Expired::Head)));
        state.begin(begin + 52 * SECOND);
        state.end(false, begin + 53 * SECOND);
        assert_eq!(state.deadline(&options), Some((begin + 128 * SECOND, Expired::Idle)));
    }

    #[test]
    fn a_reply_that_the_peer_has_not_taken_is_no_rest() {
        let (mut state, _, begin) = fresh();
        state.begin(begin);
        state.is_blocked(begin + SECOND);
        state.end(false, begin + 2 * SECOND);
        assert_eq!(state.rests_since(begin + 3 * SECOND), Err(begin + 2 * SECOND));
        state.wrote(1, begin + 4 * SECOND);
        assert_eq!(state.rests_since(begin + 5 * SECOND), Ok(begin + 2 * SECOND));
    }

    #[test]
    fn frames_keep_no_connection_of_http2_that_rests() {
        let (mut state, options, begin) = fresh();
        state.set_http2();
        state.begin(begin);
        state.begin(begin);
        state.end(false, begin + SECOND);
        assert_eq!(state.deadline(&options), None, "one stream is open");
        state.end(false, begin + 2 * SECOND);
        state.read(17, begin + 60 * SECOND);
        assert_eq!(state.deadline(&options), Some((begin + 77 * SECOND, Expired::Idle)));
        assert!(!state.is_reading_head());
    }

    #[test]
    fn who_takes_nothing_meets_a_limit_while_a_reply_is_open() {
        let (mut state, options, begin) = fresh();
        state.begin(begin);
        state.is_blocked(begin + SECOND);
        state.is_blocked(begin + 2 * SECOND);
        assert_eq!(state.deadline(&options), Some((begin + 31 * SECOND, Expired::Sending)));
        state.wrote(1 << 20, begin + 3 * SECOND);
        assert_eq!(state.deadline(&options), None);
    }
}
