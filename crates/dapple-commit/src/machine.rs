//! What the two machines have in common: messages and answers go in, and what is to be done comes out. They do no input or
//! output, and know no clock but the time that they are told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::record::Record;
use super::{NodeId, Packet, TransactionId};

/// How long the protocol waits, and how much it remembers. The defaults suit a network within one building.
///
/// All times may be changed at each start; they decide how fast a crash is noticed, never what is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// A coordinator aborts what not all have voted for in this time. Default: 5 s.
    pub vote_timeout: Duration,
    /// After this time what was not answered is sent again, then after twice as long each time. Default: 100 ms.
    pub resend_first: Duration,
    /// The longest time between two tries. Default: 2 s.
    pub resend_max: Duration,
    /// How long a participant that voted yes waits before it asks the others. Default: 300 ms.
    pub doubt_after: Duration,
    /// How many transactions a node remembers at once. A coordinator refuses more than these, a participant votes no.
    /// Default: 65,536.
    pub transactions_max: usize,
    /// How many coordinators a participant remembers. It votes no to another one, until
    /// [`Participant::forget_coordinator`](super::Participant::forget_coordinator) makes room.
    /// Default: 4,096.
    pub coordinators_max: usize,
    /// The longest message that is delivered, in bytes. Default: 1 MiB.
    pub payload_len_max: usize,
    /// The longest log, in bytes; one that is full refuses what is new, and finishes what it has promised. Default: 1 GiB.
    pub log_len_max: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            vote_timeout: Duration::from_secs(5),
            resend_first: Duration::from_millis(100),
            resend_max: Duration::from_secs(2),
            doubt_after: Duration::from_millis(300),
            transactions_max: 65_536,
            coordinators_max: 4_096,
            payload_len_max: 1 << 20,
            log_len_max: 1 << 30,
        }
    }
}

/// What a machine wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub enum Output {
    /// To be sent; it may get lost.
    Send(Packet),
    /// To be appended to the log, and [`Machine::written`] to be told. `sync`: only once it would outlive a crash.
    Write { record: Record, sync: bool },
    /// The resource is to be asked whether it can commit; the answer goes to `checked`.
    Check { id: TransactionId, payload: Arc<[u8]> },
    /// The resource is to commit; `applied` is to be told.
    Apply { id: TransactionId, payload: Arc<[u8]> },
    /// The resource is to give up what it has for this.
    Undo { id: TransactionId, payload: Arc<[u8]> },
    /// The caller is to be told.
    Decided { id: TransactionId, refusal: Option<Arc<str>> },
}

/// A node's share of the protocol.
#[doc(hidden)]
pub trait Machine {
    /// A packet has come.
    fn receive(&mut self, now: Duration, packet: Packet);
    /// A record is in the log, or is surely not in it and never will be.
    fn written(&mut self, now: Duration, record: &Record, outcome: Result<(), Arc<str>>);
    /// The time that [`due`](Machine::due) named has come.
    fn tick(&mut self, now: Duration);
    /// When `tick` is wanted; none for never.
    fn due(&self) -> Option<Duration>;
    /// What is to be done next.
    fn next_output(&mut self) -> Option<Output>;
    /// A log that says all that has to be remembered.
    fn snapshot(&self) -> Vec<Record>;
}

/// When what was sent is sent again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Timers(BTreeMap<TransactionId, (Duration, Duration)>);

impl Timers {
    /// Fires for the first time at `at`, and then after `wait`, twice that, and so on.
    pub(super) fn set(&mut self, id: TransactionId, at: Duration, wait: Duration) {
        self.0.insert(id, (at, wait));
    }

    pub(super) fn clear(&mut self, id: TransactionId) {
        self.0.remove(&id);
    }

    pub(super) fn due(&self) -> Option<Duration> {
        self.0.values().map(|(at, _)| *at).min()
    }

    /// Those that fire, each set for the next time.
    pub(super) fn fire(&mut self, now: Duration, wait_max: Duration) -> Vec<TransactionId> {
        let due = self.0.iter_mut().filter(|(_, (at, _))| *at <= now);
        due.map(|(id, (at, wait))| {
            *at = now.saturating_add(*wait);
            *wait = wait.saturating_mul(2).min(wait_max);
            *id
        })
        .collect()
    }
}

/// What waits to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Outputs(VecDeque<Output>);

impl Outputs {
    pub(super) fn push(&mut self, output: Output) {
        self.0.push_back(output);
    }

    pub(super) fn send(&mut self, from: NodeId, to: NodeId, message: super::Message) {
        self.push(Output::Send(Packet { from, to, message }));
    }

    pub(super) fn pop(&mut self) -> Option<Output> {
        self.0.pop_front()
    }
}
