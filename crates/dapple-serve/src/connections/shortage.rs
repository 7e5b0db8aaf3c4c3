//! What is known of a shortage of places, and how long a newcomer waits for one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dapple_io::time::Instant;
use tracing::{debug, warn};

use super::line::{Newcomer, WAIT_STEP};
use super::{Client, Connections, Holder, Order};

/// See the module.
#[derive(Debug)]
pub(super) struct Shortage<H> {
    /// Newcomers wait for as long as it takes.
    is_patient: bool,
    is_told: bool,
    /// When newcomers without a claim are turned away rather than wait for a place.
    until: Option<Instant>,
    /// When it was last looked who might make room.
    looked: Option<Instant>,
    /// Who had most connections then.
    richest: Client,
    /// Who was asked to end, and when.
    asked: VecDeque<(Arc<H>, Instant)>,
    /// Who was cut last, and when.
    cut: Option<(Arc<H>, Instant)>,
}

impl<H: Holder> Shortage<H> {
    pub(super) fn new(is_patient: bool) -> Shortage<H> {
        let (is_told, until, looked, richest, asked, cut) = Default::default();
        Shortage { is_patient, is_told, until, looked, richest, asked, cut }
    }

    /// There is no place: has others make room for those who wait.
    pub(super) fn look<S>(&mut self, connections: &Connections<H>, waiting: &mut VecDeque<Newcomer<S>>, now: Instant) {
        // It takes a look at all connections, and newcomers may come by the thousand.
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
                    // They are about to end, however long that takes where all is slow.
                    self.until = Some(now + WAIT_MAX);
                }
            }
            // Not when it began: of very many connections it takes longer than that.
            self.looked = Some(now.max(Instant::now()));
        }
        for newcomer in waiting {
            self.cut(connections, newcomer, now);
        }
    }

    /// Cuts a connection for a newcomer who has a claim to its place, one at most, and only when it was asked for long enough.
    fn cut<S>(&mut self, connections: &Connections<H>, newcomer: &mut Newcomer<S>, now: Instant) {
        let client = newcomer.client();
        let is_due = |(link, asked): &(Arc<H>, Instant)| {
            now.saturating_duration_since(*asked) >= WAIT_MAX
                && !link.orders().is_closing()
                && !link.orders().is_over()
                && connections.has_claim(client, link.client())
        };
        // One after the other, as a claim depends on who has how many.
        let is_ending = |(link, cut): &(Arc<H>, Instant)| {
            !link.orders().is_over() && now.saturating_duration_since(*cut) < WAIT_STEP
        };
        if !newcomer.has_cut
            && !self.cut.as_ref().is_some_and(is_ending)
            && let Some(at) = self.asked.iter().position(is_due)
            && let Some((link, _)) = self.asked.remove(at)
        {
            debug!(client = ?link.client(), "a connection was cut, as its client has most, and another one came");
            link.order(Order::Cut);
            self.cut = Some((link, now));
            newcomer.has_cut = true;
        }
    }

    /// Whether a newcomer has not waited for long enough.
    pub(super) fn may_wait<S>(&mut self, newcomer: &Newcomer<S>, now: Instant) -> bool {
        let until = *self.until.get_or_insert(newcomer.since + WAIT_MAX);
        self.is_patient || now < if newcomer.has_claim { newcomer.since + CLAIM_MAX } else { until }
    }

    /// There was no place.
    pub(super) fn tell(&mut self, connections: &Connections<H>) {
        if !std::mem::replace(&mut self.is_told, true) {
            let connections_max = connections.max();
            warn!(connections_max, "all connections are in use; new ones are refused until one ends");
        }
    }

    /// Somebody comes in, for whom somebody else was cut or not. When there is room again for long, the next shortage is news.
    pub(super) fn is_over(&mut self, connections: &Connections<H>, has_cut: bool) {
        if !has_cut {
            self.until = None;
        }
        if connections.open() < connections.max() / 2 {
            // Those that are left count as asked, so they stay known.
            self.asked.retain(|(link, _)| !link.orders().is_over());
            self.cut = None;
            if std::mem::take(&mut self.is_told) {
                debug!("there is room for connections again");
            }
        }
    }
}

/// For whom room is to be made, and how much: as many as have a claim, in the name of the first of them; where nobody has one, that much
/// for the first of all. Those for whom somebody was cut have their place.
fn wanting<S>(waiting: &VecDeque<Newcomer<S>>) -> Option<(Client, usize)> {
    let all = || waiting.iter().filter(|newcomer| !newcomer.has_cut);
    let claims = all().filter(|newcomer| newcomer.has_claim).count();
    match claims {
        0 => all().next().map(|first| (first.client(), all().count())),
        count => all().find(|newcomer| newcomer.has_claim).map(|first| (first.client(), count)),
    }
}

/// How long newcomers wait for a place. Those that are asked to end have as long for it.
const WAIT_MAX: Duration = Duration::from_millis(200);

/// How long those wait who have a claim: until others have had time to end, and then until one that is cut has.
const CLAIM_MAX: Duration = Duration::from_millis(1_000);

const LOOK_EVERY: Duration = Duration::from_millis(10);
