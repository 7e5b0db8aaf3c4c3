//! Leases: how long a client may use what it read without asking again.
//!
//! A client that reads attributes, a listing or data may ask for a lease of the file. While it holds one, no other client changes the
//! file: the change waits until all holders have given their leases back ([`Leases::release`]), or until the leases have run out. Each
//! holder hears of the wait ([`Client::recalls`]). So a client that has gone costs the others at most the duration of a lease.
//!
//! | state of a file | a client asks for a lease | another client changes it |
//! |---|---|---|
//! | no lease, no change | granted | runs |
//! | leases, no change | granted | recalled; waits |
//! | leases, a change waits | refused: it must ask each time | waits too |
//! | no lease, changes run | refused | runs: the kernel orders changes |
//! | one lease, with writes | recalled; waits, and then as without a lease | recalled; waits |
//!
//! A client that writes a file, of which no other client has a lease, may keep its writes to itself for a while (a *delegation*,
//! [`Lease::writes`]). Then other clients' reads wait for them, too. A client that does not answer loses the delegation with its lease:
//! what it sends later is refused, since another client may have read or changed the file meanwhile.
//!
//! Each file with a lease or a change has its state in a color of its own. A change of several files, such as a rename, announces itself
//! in all of them in one step, holding all their colors.
//!
//! Changes of a file may run at the same moment, and the kernel orders them. A change that depends on what the file is runs *alone*: it
//! begins when no other change of the file runs, and others begin after it ([`Leases::change_alone`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, UNIX_EPOCH};

use dapple::color::when;
use dapple::sync::oneshot;
use dapple::time::{Instant, timeout_at};
use dapple::{Colored, Handle};
use dapple_sched::environment::{HashMap, system_now};
use serde::{Deserialize, Serialize};

use crate::lock::lock;
use crate::tree::NodeId;
use state::{Delegate, Delegations, Stage, State};

mod state;

/// The identity of a client, chosen by it at random, the same after it has connected again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClientId(pub u128);

/// A lease, as its holder learns of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// How long it lasts from the moment at which the client asked, in milliseconds.
    pub duration_ms: u32,
    /// The grant's number. A recall takes back all grants of the file up to its own number, also those that the client learns of later.
    pub grant: u64,
    /// Whether the client may keep its writes to itself as long as the lease lasts: it alone uses the file. It sends them before it gives
    /// the lease back.
    pub writes: bool,
}

/// A request to give the lease of a file back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recall {
    /// Of this file; grants up to this number.
    Node(NodeId, u64),
    /// Of the file of this name, and of the directory itself if the name was made, removed, or given to another file: another program
    /// on the server did that. A lease of any file that arrives later with a grant up to this number counts for nothing.
    Entry {
        /// The directory.
        directory: NodeId,
        /// The name in it; `.` is the directory.
        name: Vec<u8>,
        /// Whether the name itself changed.
        is_name: bool,
        /// The last grant before it.
        grant: u64,
    },
    /// Of all files: more recalls waited than the server keeps.
    All(u64),
}

/// The leases of a tree. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Leases(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    duration: Duration,
    grants: AtomicU64,
    /// The first grant of this service.
    first: u64,
    nodes: Mutex<HashMap<NodeId, Weak<Node>>>,
    clients: Mutex<HashMap<ClientId, Arc<Client>>>,
    recalled: AtomicU64,
    expired: AtomicU64,
    waiting: AtomicUsize,
    /// The delegations that there are: while there is none, reads need not look for one.
    delegations: Arc<Delegations>,
}

/// A file with a lease or a change.
#[derive(Debug)]
struct Node {
    id: NodeId,
    state: Colored<State>,
    /// Whether a client has a delegation of it.
    is_delegated: Arc<AtomicBool>,
}

/// A client that holds leases.
#[derive(Debug)]
pub struct Client {
    id: ClientId,
    queue: Colored<Recalls>,
    /// The files of its leases, which keep their state. An entry comes and is given back in the color of its file, in one step with the
    /// state.
    held: Mutex<HashMap<NodeId, (Arc<Node>, Instant)>>,
    last_seen: Mutex<Instant>,
}

#[derive(Debug, Default)]
struct Recalls {
    waiting: VecDeque<Recall>,
    listener: Option<oneshot::Sender<()>>,
}

/// A change that other clients' leases no longer hinder. Dropping it ends the change.
#[derive(Debug)]
pub(crate) struct Change {
    nodes: Vec<Arc<Node>>,
    stage: Stage,
}

/// Counters of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseCounts {
    /// The clients that may hold leases.
    pub clients: usize,
    /// The files with a lease or a change.
    pub nodes: usize,
    /// The leases granted.
    pub granted: u64,
    /// The leases asked back.
    pub recalled: u64,
    /// The changes that waited until a lease had run out, because its holder did not answer.
    pub expired: u64,
    /// The changes that wait now.
    pub waiting: usize,
}

impl Leases {
    /// Leases of this duration; up to an hour.
    pub fn new(duration: Duration) -> Leases {
        // Greater than all numbers of an earlier service: there are fewer than a million grants a second.
        let first = system_now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        Leases(Arc::new(Inner {
            duration: duration.min(Duration::from_secs(3600)),
            grants: AtomicU64::new(first),
            first,
            nodes: Mutex::default(),
            clients: Mutex::default(),
            recalled: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            delegations: Arc::default(),
        }))
    }

    /// The duration of a lease.
    pub fn duration(&self) -> Duration {
        self.0.duration
    }

    /// The client of this identity, made at its first use; `None` if there are [`CLIENTS_MAX`] others.
    pub fn client(&self, id: ClientId) -> Option<Arc<Client>> {
        let now = Instant::now();
        let mut clients = lock(&self.0.clients);
        if let Some(client) = clients.get(&id) {
            *lock(&client.last_seen) = now;
            return Some(client.clone());
        }
        if clients.len() >= CLIENTS_MAX {
            let keep = CLIENT_TIMES * self.0.duration;
            clients.retain(|_, client| now.saturating_duration_since(*lock(&client.last_seen)) < keep);
            if clients.len() >= CLIENTS_MAX {
                return None;
            }
        }
        let client = Arc::new(Client {
            id,
            queue: Colored::new(Recalls::default()),
            held: Mutex::default(),
            last_seen: Mutex::new(now),
        });
        clients.insert(id, client.clone());
        Some(client)
    }

    /// Whether a client has been heard of for as long as a lease lasts.
    pub(crate) fn is_there(&self, id: ClientId) -> bool {
        let clients = lock(&self.0.clients);
        clients
            .get(&id)
            .is_some_and(|client| Instant::now().saturating_duration_since(*lock(&client.last_seen)) <= self.0.duration)
    }

    /// Grants a lease of a file, or renews it; `None` while a change of it waits or runs, or if the client has [`LEASES_MAX`] already.
    /// Read what the lease is for *after* the grant.
    pub(crate) async fn grant(&self, client: &Arc<Client>, id: NodeId) -> Option<Lease> {
        self.grant_as(client, id, false).await
    }

    /// As [`grant`](Self::grant); with a delegation if no other client has a lease.
    pub(crate) async fn grant_writes(&self, client: &Arc<Client>, id: NodeId) -> Option<Lease> {
        self.grant_as(client, id, true).await
    }

    async fn grant_as(&self, client: &Arc<Client>, id: NodeId, writes: bool) -> Option<Lease> {
        let now = Instant::now();
        let until = now + self.0.duration;
        let node = self.node(id);
        {
            let mut held = lock(&client.held);
            if held.len() >= LEASES_MAX && !held.contains_key(&id) {
                held.retain(|_, (node, until)| *until > now || node.is_delegated());
                if held.len() >= LEASES_MAX {
                    return None;
                }
            }
        }
        let (by, inner) = (client.id, &self.0);
        let granted = node.state.with(|state| {
            if !state.may_grant(by) {
                return None;
            }
            let grant = inner.grants.fetch_add(1, Ordering::Relaxed);
            state.grant(by, grant, now, until);
            // A delegation goes on with each new lease of its client.
            if writes && state.delegate.is_none() && state.holders.len() == 1 {
                state.delegate = Some(Delegate::new(by, grant, &inner.delegations, &node.is_delegated));
            }
            lock(&client.held).insert(id, (node.clone(), until));
            Some((grant, state.delegate.is_some()))
        });
        let (grant, writes) = granted.await?;
        Some(Lease { duration_ms: self.0.duration.as_millis() as u32, grant, writes })
    }

    /// Whether any client has a delegation.
    pub(crate) fn has_delegations(&self) -> bool {
        self.0.delegations.now.load(Ordering::Acquire) > 0
    }

    /// How many delegations have ended. While one ends, its client has sent what it kept.
    pub(crate) fn delegations_ended(&self) -> usize {
        self.0.delegations.ended.load(Ordering::Acquire)
    }

    /// Waits until other clients have sent the writes that they keep of these files; whether one kept any: then read again what was read.
    pub(crate) async fn settle(&self, ids: &[NodeId], by: Option<ClientId>) -> bool {
        let mut was_delegated = false;
        let nodes: Vec<Arc<Node>> = {
            let nodes = lock(&self.0.nodes);
            ids.iter().filter_map(|id| nodes.get(id)?.upgrade()).collect()
        };
        for node in nodes {
            let delegate = node.state.with(|state| state.delegate.as_ref().map(|delegate| delegate.client)).await;
            if delegate.is_some_and(|delegate| Some(delegate) != by) {
                was_delegated = true;
                // As a change that changes nothing: until it has ended, its client gets no new lease. It waits for writes of that
                // client that run.
                drop(self.change_alone(by, &[node.id]).await);
            }
        }
        was_delegated
    }

    /// Whether an earlier service gave a grant, before this one started anew.
    pub(crate) fn is_of_earlier_service(&self, grant: u64) -> bool {
        grant < self.0.first
    }

    /// Whether a client still has the delegation that lasted at this grant.
    #[cfg(test)]
    pub(crate) async fn has_delegation(&self, client: ClientId, id: NodeId, grant: u64) -> bool {
        let found = lock(&self.0.nodes).get(&id).and_then(Weak::upgrade);
        let Some(node) = found else { return false };
        node.state.with(|state| state.is_delegate(Some(client), grant)).await
    }

    /// Gives leases back, each up to the grant of a number: a newer lease of the same file stays, since the message may be late.
    pub async fn release(&self, client: &Arc<Client>, ids: &[(NodeId, u64)]) {
        for (id, grant) in ids {
            let held = lock(&client.held).get(id).map(|(node, _)| node.clone());
            let Some(node) = held else { continue };
            let (by, grant) = (client.id, *grant);
            let release = |state: &mut State| {
                if state.release(by, grant) {
                    lock(&client.held).remove(id);
                }
            };
            node.state.with(release).await;
        }
    }

    /// Announces a change of files by a client, and waits until no other client holds a lease of them.
    pub(crate) async fn change(&self, by: Option<ClientId>, ids: &[NodeId]) -> Change {
        self.change_in(Stage::Runs, by, ids, None).await.unwrap_or_else(Change::none)
    }

    /// As [`change`](Self::change), and waits until no other change of these files runs; others wait until it has ended.
    pub(crate) async fn change_alone(&self, by: Option<ClientId>, ids: &[NodeId]) -> Change {
        self.change_in(Stage::Alone, by, ids, None).await.unwrap_or_else(Change::none)
    }

    /// As [`change`](Self::change), for which its client's delegation of the file must last: `None` if that has ended, also while this waited.
    pub(crate) async fn change_delegated(&self, by: ClientId, id: NodeId, grant: u64) -> Option<Change> {
        self.change_in(Stage::Runs, Some(by), &[id], Some(grant)).await
    }

    async fn change_in(
        &self,
        stage: Stage,
        by: Option<ClientId>,
        ids: &[NodeId],
        delegation: Option<u64>,
    ) -> Option<Change> {
        let nodes: Vec<Arc<Node>> = ids.iter().map(|id| self.node(*id)).collect();
        let states: Vec<&Colored<State>> = nodes.iter().map(|node| &node.state).collect();
        let now = Instant::now();
        let mut change = Change { nodes: nodes.clone(), stage: Stage::Unknown };
        // In one step, so that no client gets a lease of one file after it lost that of another for the same change. The closure has
        // the change: if this future is dropped, the change ends.
        let announced = when(&states).with(move |mut states| {
            // Before others are asked for their leases: a client with a delegation is the only holder.
            if !is_delegated(&states, by, delegation) {
                return None;
            }
            let holders: Vec<_> = states.iter_mut().map(|state| state.announce(by, now)).collect();
            change.stage = Stage::Waits;
            let is_free = holders.iter().all(Vec::is_empty);
            if is_free && states.iter().all(|state| state.is_free_for(stage, true)) {
                change.begin(&mut states, stage);
            }
            Some((change, holders))
        });
        let (mut change, holders) = announced.await?;
        for (node, holders) in nodes.iter().zip(holders) {
            if !holders.is_empty() {
                self.0.waiting.fetch_add(1, Ordering::Relaxed);
                let _waits = Waits(&self.0.waiting);
                self.recall(node.id, &holders);
                self.await_holders(node, by).await;
            }
        }
        let mut is_new = true;
        while change.stage != stage {
            let begun = when(&states).with(move |mut states| {
                if !is_delegated(&states, by, delegation) {
                    return Err(None);
                }
                let Some(in_the_way) = states.iter_mut().find(|state| !state.is_free_for(stage, is_new)) else {
                    change.begin(&mut states, stage);
                    return Ok(change);
                };
                Err(Some((change, in_the_way.await_turn(stage, is_new))))
            });
            match begun.await {
                Ok(begun) => change = begun,
                Err(None) => return None,
                Err(Some((waits, comes))) => {
                    // An error means that the state has gone, and with it the change in the way.
                    let _ = comes.await;
                    change = waits;
                    is_new = false;
                }
            }
        }
        Some(change)
    }

    /// Tells clients that another program on the server changed the file of a name, or the name itself. That has happened already, so
    /// nothing waits for the clients.
    pub fn changed_elsewhere(&self, directory: NodeId, name: &[u8], is_name: bool) {
        let grant = self.0.grants.load(Ordering::Relaxed);
        self.tell_holders(|| Recall::Entry { directory, name: name.to_vec(), is_name, grant });
    }

    /// Takes all leases back.
    pub fn recall_all(&self) {
        let grant = self.0.grants.load(Ordering::Relaxed);
        self.tell_holders(|| Recall::All(grant));
    }

    /// Tells all clients that may hold a lease.
    fn tell_holders(&self, recall: impl Fn() -> Recall) {
        let clients: Vec<Arc<Client>> = lock(&self.0.clients).values().cloned().collect();
        for client in clients.into_iter().filter(|client| !lock(&client.held).is_empty()) {
            self.0.recalled.fetch_add(1, Ordering::Relaxed);
            let recall = recall();
            client.queue.post(move |queue| queue.push(recall));
        }
    }

    /// Gives the memory of leases back that ran out unasked, and the delegations of clients that have not been seen for so long.
    pub(crate) fn sweep(&self, now: Instant, keep: Duration) {
        let clients: Vec<Arc<Client>> = lock(&self.0.clients).values().cloned().collect();
        for client in clients {
            let is_there = now.saturating_duration_since(*lock(&client.last_seen)) < keep;
            let mut held = lock(&client.held);
            held.retain(|_, (node, until)| *until > now || is_there && node.is_delegated());
            held.shrink_to_fit();
        }
        let mut nodes = lock(&self.0.nodes);
        nodes.retain(|_, node| node.strong_count() > 0);
        nodes.shrink_to_fit();
    }

    /// Counters.
    pub fn counts(&self) -> LeaseCounts {
        LeaseCounts {
            clients: lock(&self.0.clients).len(),
            nodes: lock(&self.0.nodes).len(),
            granted: self.0.grants.load(Ordering::Relaxed) - self.0.first,
            recalled: self.0.recalled.load(Ordering::Relaxed),
            expired: self.0.expired.load(Ordering::Relaxed),
            waiting: self.0.waiting.load(Ordering::Relaxed),
        }
    }

    fn recall(&self, id: NodeId, holders: &[ClientId]) {
        let grant = self.0.grants.load(Ordering::Relaxed);
        for holder in holders {
            let client = lock(&self.0.clients).get(holder).cloned();
            if let Some(client) = client {
                self.0.recalled.fetch_add(1, Ordering::Relaxed);
                client.queue.post(move |queue| queue.push(Recall::Node(id, grant)));
            }
        }
    }

    async fn await_holders(&self, node: &Node, by: Option<ClientId>) {
        loop {
            let now = Instant::now();
            let Some((gone, until)) = node.state.with(|state| state.wait(by, now)).await else { return };
            if timeout_at(until, gone).await.is_err() {
                self.0.expired.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The state of a file, made at its first use. It lasts as long as a change or a client has it.
    fn node(&self, id: NodeId) -> Arc<Node> {
        let mut nodes = lock(&self.0.nodes);
        if let Some(node) = nodes.get(&id).and_then(Weak::upgrade) {
            return node;
        }
        // Entries without a state are left behind; the table drops them before it grows.
        if nodes.len() == nodes.capacity() {
            nodes.retain(|_, node| node.strong_count() > 0);
        }
        let node = Arc::new(Node { id, state: Colored::new(State::default()), is_delegated: Arc::default() });
        nodes.insert(id, Arc::downgrade(&node));
        node
    }
}

impl Node {
    fn is_delegated(&self) -> bool {
        self.is_delegated.load(Ordering::Relaxed)
    }
}

impl Client {
    /// Notes that it is still there.
    pub(crate) fn seen(&self, now: Instant) {
        *lock(&self.last_seen) = now;
    }

    /// The identity.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Waits for recalls and returns them; an empty list after `limit`. One caller at a time: a second one ends the wait of the first.
    ///
    /// # Cancel safety
    ///
    /// Recalls that were taken are lost with the future only if it is dropped between its last step and its result, so send a
    /// [`Recall::All`] to a client that connects again.
    pub async fn recalls(&self, limit: Duration) -> Vec<Recall> {
        let deadline = Instant::now() + limit;
        loop {
            let waiting = self.queue.with(|queue| {
                if queue.waiting.is_empty() {
                    let (listener, woken) = oneshot::channel();
                    queue.listener = Some(listener);
                    return Err(woken);
                }
                Ok(queue.waiting.drain(..).collect())
            });
            match waiting.await {
                Ok(recalls) => return recalls,
                Err(woken) => {
                    // An error of the channel means that another caller listens.
                    if !matches!(timeout_at(deadline, woken).await, Ok(Ok(()))) {
                        return Vec::new();
                    }
                }
            }
        }
    }
}

impl Recalls {
    fn push(&mut self, recall: Recall) {
        let last = match recall {
            Recall::Node(_, grant) | Recall::Entry { grant, .. } | Recall::All(grant) => grant,
        };
        if self.waiting.len() >= RECALLS_MAX {
            self.waiting.clear();
            self.waiting.push_back(Recall::All(last));
        } else {
            self.waiting.push_back(recall);
        }
        if let Some(listener) = self.listener.take() {
            let _ = listener.send(());
        }
    }
}

impl Change {
    /// A change of nothing.
    fn none() -> Change {
        Change { nodes: Vec::new(), stage: Stage::Unknown }
    }

    /// Counts as one that runs.
    fn begin(&mut self, states: &mut [&mut State], stage: Stage) {
        self.stage = stage;
        for state in states {
            state.running += 1;
            state.is_alone = stage == Stage::Alone;
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        // After the end of the runtime no client waits.
        if self.stage == Stage::Unknown || Handle::try_current().is_none() {
            return;
        }
        let has_run = self.stage != Stage::Waits;
        for node in self.nodes.drain(..) {
            let kept = node.clone();
            node.state.post(move |state| {
                state.end(has_run);
                drop(kept);
            });
        }
    }
}

/// Whether the client of a change has the delegation that the change needs, if it needs one.
fn is_delegated(states: &[&mut State], by: Option<ClientId>, needed: Option<u64>) -> bool {
    needed.is_none_or(|grant| states.iter().all(|state| state.is_delegate(by, grant)))
}

struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The most clients with leases at a time; more use the tree without leases.
pub const CLIENTS_MAX: usize = 10_000;

/// The most leases of one client.
pub const LEASES_MAX: usize = 100_000;

/// The most recalls that wait for a client; beyond them, one recall of all leases replaces them.
const RECALLS_MAX: usize = 1024;

/// After this many durations of a lease without a request, another client may take a client's place.
const CLIENT_TIMES: u32 = 4;

#[cfg(test)]
mod tests;
