//! What is known of a shortage of places, and how long a newcomer waits for one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dapple_io::time::{Instant, timeout};
use tracing::{debug, warn};

use super::{Client, Connections};
use crate::connection::{Link, Order};
use crate::listener::Peer;

/// See the module.
#[derive(Default)]
pub(crate) struct Shortage {
    is_told: bool,
    /// When newcomers without a claim are turned away rather than wait for a place.
    until: Option<Instant>,
    /// When it was last looked who might make room.
    looked: Option<Instant>,
    /// Who had most connections then.
    richest: Client,
    /// Who was asked to end, and when.
    asked: VecDeque<(Arc<Link>, Instant)>,
    /// Whether the latest place was somebody's who was cut for it.
    has_cut: bool,
}

impl Shortage {
    /// Waits for a place for a newcomer, but not for long. Cancel safe.
    pub(crate) async fn wait(&mut self, connections: &Connections, peer: Peer) {
        self.has_cut = false;
        let mut has_claim = false;
        let begin = Instant::now();
        while connections.open() >= connections.max() {
            let now = Instant::now();
            // It takes a look at all connections, and newcomers may come by the thousand.
            if self.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= LOOK_EVERY) {
                self.asked.retain(|(link, _)| !link.is_over());
                self.asked.extend(connections.make_room(peer.network(), now).map(|link| (link, now)));
                self.richest = connections.richest();
                self.looked = Some(now);
            }
            has_claim |= connections.has_claim(peer.network(), self.richest);
            self.cut(connections, peer, now);
            let until = *self.until.get_or_insert(begin + WAIT_MAX);
            if now >= if has_claim { begin + CLAIM_MAX } else { until } {
                return;
            }
            // Either way it is looked again.
            let _ = timeout(WAIT_STEP, connections.one_ended()).await;
        }
    }

    /// Cuts a connection for a newcomer who has a claim to its place, one at most, and only when it was asked for long enough.
    fn cut(&mut self, connections: &Connections, peer: Peer, now: Instant) {
        let is_due = |(link, asked): &(Arc<Link>, Instant)| {
            now.saturating_duration_since(*asked) >= WAIT_MAX
                && !link.is_closing()
                && !link.is_over()
                && connections.has_claim(peer.network(), link.peer().network())
        };
        if !self.has_cut
            && let Some(at) = self.asked.iter().position(is_due)
            && let Some((link, _)) = self.asked.remove(at)
        {
            debug!(peer = ?link.peer(), "a connection was cut, as its client has most, and another one came");
            link.order(Order::Cut);
            self.has_cut = true;
        }
    }

    /// There was no place.
    pub(crate) fn tell(&mut self, connections: &Connections) {
        if !std::mem::replace(&mut self.is_told, true) {
            let connections_max = connections.max();
            warn!(connections_max, "all connections are in use; new ones are refused until one ends");
        }
    }

    /// Somebody came in. When there is room again for long, the next shortage is news.
    pub(crate) fn is_over(&mut self, connections: &Connections) {
        if !self.has_cut {
            self.until = None;
        }
        if connections.open() < connections.max() / 2 {
            // Those that are left count as asked, so they stay known.
            self.asked.retain(|(link, _)| !link.is_over());
            if std::mem::take(&mut self.is_told) {
                debug!("there is room for connections again");
            }
        }
    }
}

/// How long newcomers wait for a place, and how often it is looked meanwhile. Those that are asked to end have as long for it.
const WAIT_MAX: Duration = Duration::from_millis(200);
const WAIT_STEP: Duration = Duration::from_millis(20);

/// How long those wait who have a claim: until others have had time to end, and then until one that is cut has.
const CLAIM_MAX: Duration = Duration::from_millis(1_000);

const LOOK_EVERY: Duration = Duration::from_millis(10);
