//! The state of a shortage of places, and how long a newcomer waits for one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dapple_io::time::Instant;
use tracing::{debug, warn};

use super::line::{Newcomer, WAIT_STEP};
use super::{Client, Connections, Holder, Order};

/// The state of one waiting line's shortage.
#[derive(Debug)]
pub(super) struct Shortage<H> {
    /// Whether newcomers wait without limit.
    is_patient: bool,
    is_told: bool,
    /// When newcomers without a claim are turned away.
    until: Option<Instant>,
    /// When connections were last searched for some to end.
    looked: Option<Instant>,
    /// The client that had the most connections then.
    richest: Client,
    /// The connections that were told to end, and when.
    asked: VecDeque<(Arc<H>, Instant)>,
    /// The connection that was cut last, and when.
    cut: Option<(Arc<H>, Instant)>,
}

impl<H: Holder> Shortage<H> {
    pub(super) fn new(is_patient: bool) -> Shortage<H> {
        let (is_told, until, looked, richest, asked, cut) = Default::default();
        Shortage { is_patient, is_told, until, looked, richest, asked, cut }
    }

    /// Makes others give up slots for the waiting newcomers.
    pub(super) fn look<S>(&mut self, connections: &Connections<H>, waiting: &mut VecDeque<Newcomer<S>>, now: Instant) {
        // This visits all connections, and newcomers may arrive by the thousand.
        let is_due = self.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= LOOK_EVERY);
        if is_due {
            self.asked.retain(|(link, _)| !link.orders().is_over());
            self.richest = connections.richest();
        }
        for newcomer in waiting.iter_mut() {
            newcomer.has_claim |= connections.has_claim(newcomer.client(), self.richest);
        }
        if is_due {
            if let Some((client, count)) = wanting(waiting) {
                let (some_rest, asked) = connections.make_room(client, count, now);
                self.asked.extend(asked.map(|link| (link, now)));
                if some_rest {
                    // These connections are about to end, however long that takes on a slow
                    // machine.
                    self.until = Some(now + WAIT_MAX);
                }
            }
            // Taken now, not at the start: a search of very many connections takes longer than the
            // interval.
            self.looked = Some(now.max(Instant::now()));
        }
        for newcomer in waiting {
            self.cut(connections, newcomer, now);
        }
    }

    /// Cuts at most one connection, for a newcomer with a claim to its place, after the connection
    /// has had time to end by itself.
    fn cut<S>(&mut self, connections: &Connections<H>, newcomer: &mut Newcomer<S>, now: Instant) {
        let client = newcomer.client();
        let is_due = |(link, asked): &(Arc<H>, Instant)| {
            now.saturating_duration_since(*asked) >= WAIT_MAX
                && !link.orders().is_closing()
                && !link.orders().is_over()
                && connections.has_claim(client, link.client())
        };
        // One at a time, because claims depend on how many connections each client has.
        let is_ending = |(link, cut): &(Arc<H>, Instant)| {
            !link.orders().is_over() && now.saturating_duration_since(*cut) < WAIT_STEP
        };
        if !newcomer.has_cut
            && !self.cut.as_ref().is_some_and(is_ending)
            && let Some(at) = self.asked.iter().position(is_due)
            && let Some((link, _)) = self.asked.remove(at)
        {
            debug!(client = ?link.client(), "cut a connection of the client with the most connections, to make room \
                for another client");
            link.order(Order::Cut);
            self.cut = Some((link, now));
            newcomer.has_cut = true;
        }
    }

    /// Whether a newcomer may wait longer.
    pub(super) fn may_wait<S>(&mut self, newcomer: &Newcomer<S>, now: Instant) -> bool {
        let until = *self.until.get_or_insert(newcomer.since + WAIT_MAX);
        self.is_patient || now < if newcomer.has_claim { newcomer.since + CLAIM_MAX } else { until }
    }

    /// Reports that there was no place.
    pub(super) fn tell(&mut self, connections: &Connections<H>) {
        if !std::mem::replace(&mut self.is_told, true) {
            let connections_max = connections.max();
            warn!(connections_max, "all connections are in use; new ones are refused until one ends");
        }
    }

    /// Notes that a newcomer enters, with or without a cut for it. Once more than half of the
    /// places are free, the next shortage is reported again.
    pub(super) fn is_over(&mut self, connections: &Connections<H>, has_cut: bool) {
        if !has_cut {
            self.until = None;
        }
        if connections.open() < connections.max() / 2 {
            // The remaining connections count as asked, so they stay in the list.
            self.asked.retain(|(link, _)| !link.orders().is_over());
            self.cut = None;
            if std::mem::take(&mut self.is_told) {
                debug!("there is room for connections again");
            }
        }
    }
}

/// The client to make room for, and the number of places: one for each newcomer with a claim, on
/// behalf of the first of them; if none has a claim, one for each newcomer. Newcomers for which a
/// connection was cut already have their place.
fn wanting<S>(waiting: &VecDeque<Newcomer<S>>) -> Option<(Client, usize)> {
    let all = || waiting.iter().filter(|newcomer| !newcomer.has_cut);
    let claims = all().filter(|newcomer| newcomer.has_claim).count();
    match claims {
        0 => all().next().map(|first| (first.client(), all().count())),
        count => all().find(|newcomer| newcomer.has_claim).map(|first| (first.client(), count)),
    }
}

/// How long newcomers wait for a place. Connections that were told to end have the same time for
/// it.
const WAIT_MAX: Duration = Duration::from_millis(200);

/// How long newcomers with a claim wait: until other connections have had time to end, and then
/// until a connection that was cut has.
const CLAIM_MAX: Duration = Duration::from_millis(1_000);

const LOOK_EVERY: Duration = Duration::from_millis(10);
