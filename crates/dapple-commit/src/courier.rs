//! The courier, which delivers packets.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dapple_sched::foreign::{KeptWaker, contain};
use dapple_tower::flights::Flights;
use dapple_tower::switch::{Mutex, lock};
use tower_service::Service;

use super::{NodeId, Packet};

/// Outgoing packets.
#[derive(Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    packets: VecDeque<Packet>,
    peers: BTreeMap<NodeId, Arc<Mutex<Box<dyn Peer>>>>,
    waker: Option<KeptWaker>,
    is_over: bool,
    lost: u64,
}

impl Outbox {
    pub(super) fn push(&self, packet: Packet) {
        let waker = {
            let mut state = lock(&self.state);
            if state.packets.len() >= PACKETS_MAX {
                state.lost += 1;
                return;
            }
            state.packets.push_back(packet);
            state.waker.take()
        };
        waker.into_iter().for_each(KeptWaker::wake);
    }

    pub(super) fn connect(&self, node: NodeId, peer: impl Peer + 'static) {
        let old = lock(&self.state).peers.insert(node, Arc::new(Mutex::new(Box::new(peer))));
        drop(old);
    }

    pub(super) fn disconnect(&self, node: NodeId) {
        let old = lock(&self.state).peers.remove(&node);
        drop(old);
    }

    pub(super) fn lost(&self) -> u64 {
        lock(&self.state).lost
    }

    /// Ends the courier when the returned value is dropped, also by a panic.
    pub(super) fn end_when_dropped(self: Arc<Outbox>) -> impl Drop {
        struct End(Arc<Outbox>);
        impl Drop for End {
            fn drop(&mut self) {
                let waker = {
                    let mut state = lock(&self.0.state);
                    state.is_over = true;
                    state.waker.take()
                };
                waker.into_iter().for_each(KeptWaker::wake);
            }
        }
        End(self)
    }
}

type Sending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A recipient of packets.
pub(super) trait Peer: Send {
    fn send(&mut self, packet: Packet) -> Sending;
}

impl<S> Peer for S
where
    S: Service<Packet> + Clone + Send + 'static,
    S::Future: Send,
{
    fn send(&mut self, packet: Packet) -> Sending {
        let mut service = self.clone();
        let mut sending = Box::pin(async move {
            // A failed packet is lost; the protocol sends it again.
            if poll_fn(|cx| service.poll_ready(cx)).await.is_ok() {
                let _answered = service.call(packet).await;
            }
        });
        // A packet with a panic is lost, too. Packets to other nodes go on.
        Box::pin(poll_fn(move |cx| contain(|| sending.as_mut().poll(cx)).unwrap_or(Poll::Ready(()))))
    }
}

/// Delivers a node's packets to the others. **Spawn it**, on any executor: without it nothing is
/// sent.
///
/// It calls the connected services, with up to 64 packets to each at once; if one does not answer,
/// newer packets replace the oldest. It resolves when the last handle of its node is dropped.
/// Cancel safe: without it nothing is half-applied, but no other node hears of this one any more.
#[must_use = "nothing is sent unless it is spawned"]
pub struct Courier {
    outbox: Arc<Outbox>,
    flights: Flights<Sending>,
    under_way: BTreeMap<NodeId, VecDeque<u64>>,
    targets: BTreeMap<u64, NodeId>,
}

impl Courier {
    pub(super) fn new(outbox: Arc<Outbox>) -> Courier {
        Courier { outbox, flights: Flights::new(), under_way: BTreeMap::new(), targets: BTreeMap::new() }
    }

    /// Begins to send waiting packets; returns whether the node has ended.
    fn take(&mut self, cx: &mut Context<'_>) -> bool {
        let waker = KeptWaker::from(cx.waker());
        let (packets, old, is_over) = {
            let mut state = lock(&self.outbox.state);
            (std::mem::take(&mut state.packets), state.waker.replace(waker), state.is_over)
        };
        drop(old);
        for packet in packets {
            let node = packet.to;
            let peer = lock(&self.outbox.state).peers.get(&node).cloned();
            // Services are foreign code and may call back into the outbox: do not hold its lock.
            let Some(sending) = peer.and_then(|peer| contain(|| lock(&peer).send(packet))) else {
                lock(&self.outbox.state).lost += 1;
                continue;
            };
            let key = self.flights.push(sending);
            self.targets.insert(key, node);
            let keys = self.under_way.entry(node).or_default();
            keys.push_back(key);
            if keys.len() > UNDER_WAY_MAX
                && let Some(oldest) = keys.pop_front()
            {
                self.flights.remove(oldest);
                self.targets.remove(&oldest);
                lock(&self.outbox.state).lost += 1;
            }
        }
        is_over
    }
}

impl Future for Courier {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let is_over = self.take(cx);
        while let Poll::Ready(Some((key, ()))) = self.flights.poll_next(cx) {
            let node = self.targets.remove(&key);
            if let Some(keys) = node.and_then(|node| self.under_way.get_mut(&node)) {
                keys.retain(|other| *other != key);
            }
        }
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl fmt::Debug for Courier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Courier").field("under_way", &self.targets.len()).finish_non_exhaustive()
    }
}

/// The limit of packets that wait for the courier.
const PACKETS_MAX: usize = 65_536;
/// The limit of unanswered packets to one node.
const UNDER_WAY_MAX: usize = 64;
