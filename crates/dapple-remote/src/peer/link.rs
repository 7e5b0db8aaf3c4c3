//! Whether there is a connection.
//!
//! | state | becomes | when |
//! |---|---|---|
//! | idle | connecting | a request needs it |
//! | connecting | up | the host has said that it takes requests |
//! | | down | the attempt failed, or took too long |
//! | up | idle | the connection has ended, or the host is about to end |
//! | down | connecting | a request needs it, and the wait is over |
//!
//! A request that arrives while it is connecting waits for the outcome. There is one attempt at a time. `dapple_client::upstream` makes the connection;
//! the link decides when, and which requests it carries.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dapple_client::upstream::{Config, Dial, Host, Limits, Message, Session, Spawn};
use dapple_client::{Origin, Scheme};
use dapple_io::time::Instant;
use dapple_stage::RemoteError;
use dapple_sync::sync::{Semaphore, watch};
use dapple_tower::time::CENTURY;
use http::uri::Authority;

use super::Options;
use super::connect::connect;
use crate::backoff::Failures;

/// See the module's text.
pub(crate) struct Link {
    address: String,
    pub(super) host: Arc<Host<Message>>,
    pub(super) authority: Authority,
    pub(crate) options: Options,
    pub(crate) permits: Arc<Semaphore>,
    pub(super) state: watch::Sender<State>,
    failures: Mutex<Failures>,
    connections: AtomicU64,
}

pub(super) enum State {
    Idle,
    Connecting,
    Up(Up),
    Down(Down),
}

/// A connection that can carry requests.
pub(super) struct Up {
    pub(super) session: Session<Message>,
    /// A serial number of the link's connections, so that the end of one is not taken for that of
    /// the next.
    pub(super) number: u64,
}

/// The reason why there is no connection, and the time of the next attempt.
#[derive(Clone, Debug)]
pub(crate) struct Down {
    why: Arc<str>,
    until: Instant,
}

/// The result of a look at the state.
enum Look {
    Up(Session<Message>, u64),
    Down(Down),
    /// It is connecting; true if the caller has to start the attempt.
    Connecting(bool),
}

impl Link {
    pub(super) fn new(address: String, authority: Authority, options: Options) -> Link {
        Link {
            address,
            host: options.host(&authority),
            authority,
            permits: options.permits(),
            failures: Mutex::new(Failures::new(BACKOFF_FIRST.min(options.retry_wait_max), options.retry_wait_max)),
            options,
            state: watch::Sender::new(State::Idle),
            connections: AtomicU64::new(0),
        }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The scheme of requests.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.host.origin().scheme == Scheme::Https { "https" } else { "http" }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(up) if !up.session.is_closed())
    }

    /// Returns the connection and its number, and connects if there is none. Cancel safe: the
    /// attempt continues for the next caller.
    ///
    /// # Errors
    ///
    /// The reason why there is no connection.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<(Session<Message>, u64), Down> {
        let mut changes = self.state.subscribe();
        // A request that waited for an attempt gets its outcome, however old that is by now.
        let mut has_waited = false;
        loop {
            changes.borrow_and_update();
            match self.look(has_waited) {
                Look::Up(session, number) => return Ok((session, number)),
                Look::Down(down) => return Err(down),
                Look::Connecting(begins) => {
                    if begins {
                        let _detached = dapple_sched::spawn(connect(self.clone()));
                    }
                    // The channel cannot close, because this value has the sending side.
                    let _ = changes.changed().await;
                    has_waited = true;
                }
            }
        }
    }

    /// Sends nothing more on this connection.
    pub(crate) fn retire(&self, number: u64) {
        self.state.send_if_modified(|state| {
            let is_this = matches!(state, State::Up(up) if up.number == number);
            if is_this {
                *state = State::Idle;
            }
            is_this
        });
    }

    fn look(&self, has_waited: bool) -> Look {
        let now = Instant::now();
        let mut look = Look::Connecting(false);
        self.state.send_if_modified(|state| {
            match state {
                State::Connecting => return false,
                State::Up(up) if !up.session.is_closed() => {
                    look = Look::Up(up.session.clone(), up.number);
                    return false;
                }
                State::Down(down) if has_waited || now < down.until => {
                    look = Look::Down(down.clone());
                    return false;
                }
                State::Idle | State::Up(_) | State::Down(_) => {}
            }
            look = Look::Connecting(true);
            *state = State::Connecting;
            true
        });
        look
    }

    pub(super) fn next_number(&self) -> u64 {
        // Relaxed: only that numbers differ matters.
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn is_connected(&self, up: Up) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).reset();
        self.state.send_replace(State::Up(up));
    }

    pub(super) fn has_failed(&self, why: String) {
        let wait = self.failures.lock().unwrap_or_else(PoisonError::into_inner).failed();
        self.state.send_replace(State::Down(Down { why: why.into(), until: Instant::now() + wait.min(CENTURY) }));
    }
}

impl Options {
    /// The server at this address. Its connection is not in a pool, so the limits of a pool do not
    /// apply.
    fn host(&self, authority: &Authority) -> Arc<Host<Message>> {
        let limits = Limits {
            connections_max: 1,
            total_max: usize::MAX,
            idle_max: 0,
            idle_total_max: 0,
            idle_age_max: Duration::ZERO,
            waiting_max: 0,
            wait_max: None,
        };
        let (scheme, dial) = (Scheme::H2c, Dial::plain(self.connect_timeout));
        #[cfg(feature = "tls")]
        let (scheme, dial) = match &self.tls {
            Some(tls) => (Scheme::Https, Dial::new(tls.clone(), self.connect_timeout)),
            None => (scheme, dial),
        };
        let port = authority.port_u16().unwrap_or(scheme.port());
        let origin = Origin { scheme, host: authority.host().to_ascii_lowercase(), port };
        Host::new(origin, Config::new(dial, limits, Spawn::Current))
    }
}

impl Down {
    pub(crate) fn error(&self, address: &str) -> RemoteError {
        let (peer, why) = (address.to_owned(), self.why.to_string());
        RemoteError::Unreachable { peer, why, retry_after: self.retry_after() }
    }

    fn retry_after(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

const BACKOFF_FIRST: Duration = Duration::from_millis(50);
