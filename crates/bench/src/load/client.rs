//! One client: a task that sends requests over one connection after the other.

use super::mix::Mix;
use super::pace::Pace;
use super::problem::Problem;
use super::response::Progress;
use super::tally::Tally;
use super::wire::Route;
use crate::rng::Rng;
use dapple::time::{sleep, sleep_until, timeout};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The common state of all clients.
pub(super) struct Load {
    pub(super) mix: Mix,
    pub(super) pace: Pace,
    pub(super) tally: Tally,
    /// One for each server.
    pub(super) routes: Vec<Route>,
    /// The requests of the mix, for each server.
    pub(super) requests: Vec<Vec<Box<[u8]>>>,
    /// Requests over one connection; 0 for any number.
    pub(super) requests_max: u64,
    /// Requests of all clients together; any number of them where there is none.
    pub(super) total: Option<u64>,
    /// Requests that clients have begun with; may go past `total`.
    pub(super) asked: AtomicU64,
    pub(super) limit: Duration,
    /// Connections made so far.
    pub(super) connections: AtomicU64,
    /// Clients that have got a connection, or failed to.
    pub(super) begun: AtomicUsize,
}

/// Runs the client of that number until the end of the load.
pub(super) async fn run(load: Arc<Load>, number: usize) {
    let (rng, server) = (Rng::new(number as u64), number % load.routes.len());
    let mut client = Client { load, number, server, rng, buf: Vec::new(), has_begun: false };
    while client.may_ask() {
        let outcome = client.connection().await;
        client.begun();
        if let Err(problem) = outcome {
            client.load.tally.failed(number, &problem);
            sleep(PAUSE).await;
        }
    }
}

struct Client {
    load: Arc<Load>,
    number: usize,
    server: usize,
    rng: Rng,
    /// For TLS; empty without.
    buf: Vec<u8>,
    has_begun: bool,
}

impl Client {
    /// Counts this client as started.
    fn begun(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.load.begun.fetch_add(1, Relaxed);
        }
    }

    /// Whether there is another request to make, which is then this client's.
    fn may_ask(&self) -> bool {
        let is_left = |total| self.load.asked.fetch_add(1, Relaxed) < total;
        !self.load.tally.over.load(Relaxed) && self.load.total.is_none_or(is_left)
    }

    /// One connection and its requests. The latency of the first includes connecting, as for a
    /// user.
    async fn connection(&mut self) -> Result<(), Problem> {
        let load = self.load.clone();
        let mut due = self.due(Instant::now()).await;
        let begin = Instant::now();
        let number = load.connections.fetch_add(1, Relaxed);
        let mut wire = load.routes[self.server].open(number, load.limit).await?;
        load.tally.connected(self.number, begin.elapsed());
        self.begun();
        let mut asked = 0;
        loop {
            let item = load.mix.draw(&mut self.rng);
            let body = load.mix.items[item].body.as_ref();
            let exchange = wire
                .exchange(&load.requests[self.server][item], body, &mut self.buf, |bytes| load.tally.received(bytes));
            let progress = timeout(load.limit, exchange).await.map_err(|_| Problem::TimedOut)??;
            let now = Instant::now();
            let Progress::Whole { close } = progress else { return Err(Problem::Ended) };
            load.tally.answered(self.number, now.saturating_duration_since(due), wire.rest(), body.is_some());
            asked += 1;
            if close || asked == load.requests_max || !self.may_ask() {
                return Ok(());
            }
            due = self.due(now).await;
        }
    }

    /// Waits until the next request is due; returns that time.
    async fn due(&self, now: Instant) -> Instant {
        let due = match self.load.pace.next() {
            None => now,
            Some(due) => {
                if due > now {
                    sleep_until(dapple::time::Instant::from_std(due)).await;
                    self.load.tally.sent_late(self.number, due.elapsed());
                }
                due
            }
        };
        self.load.tally.waits(self.number, due);
        due
    }
}

/// The pause of a client after an error, so that a dead server does not get a million requests a
/// second.
const PAUSE: Duration = Duration::from_millis(20);
