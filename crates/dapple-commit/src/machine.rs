//! Common parts of the two machines: messages and answers go in, and actions come out. They do no
//! input or output, and get the time as an argument.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::record::Record;
use super::{NodeId, Packet, TransactionId};

/// How long the protocol waits, and how much it remembers. The defaults suit a network within one
/// building.
///
/// All times may change at each start; they decide how fast a crash is noticed, never the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// A coordinator aborts a transaction without all votes after this time. Default: 5 s.
    pub vote_timeout: Duration,
    /// The first wait before an unanswered message is sent again; it doubles each time. Default:
    /// 100 ms.
    pub resend_first: Duration,
    /// The longest wait between two tries. Default: 2 s.
    pub resend_max: Duration,
    /// How long a participant waits after a yes before it asks the others. Default: 300 ms.
    pub doubt_after: Duration,
    /// The number of transactions that a node remembers at once. Beyond it, a coordinator refuses
    /// and a participant votes no. Default: 65,536.
    pub transactions_max: usize,
    /// How many coordinators a participant remembers. It votes no to another one, until
    /// [`Participant::forget_coordinator`](super::Participant::forget_coordinator) makes room.
    /// Default: 4,096.
    pub coordinators_max: usize,
    /// The longest message, in bytes. Default: 1 MiB.
    pub payload_len_max: usize,
    /// The longest log, in bytes. A full log refuses new work, and finishes promised work. Default:
    /// 1 GiB.
    pub log_len_max: u64,
    /// A log up to this size is not compacted: for tests.
    #[doc(hidden)]
    pub log_short_len: u64,
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
            log_short_len: 1 << 20,
        }
    }
}

/// The actions of a machine, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub enum Output {
    /// Send this; it may get lost.
    Send(Packet),
    /// Append this to the log, and call [`Machine::written`]; if `sync` is set, only after it is
    /// durable.
    Write { record: Record, sync: bool },
    /// Ask the resource whether it can commit; the answer goes to `checked`.
    Check { id: TransactionId, payload: Arc<[u8]> },
    /// Let the resource commit, and call `applied`.
    Apply { id: TransactionId, payload: Arc<[u8]> },
    /// Let the resource drop its state for this.
    Undo { id: TransactionId, payload: Arc<[u8]> },
    /// Report the end to the caller.
    Decided { id: TransactionId, refusal: Option<Arc<str>> },
}

/// A node's part of the protocol.
#[doc(hidden)]
pub trait Machine {
    /// Handles a packet.
    fn receive(&mut self, now: Duration, packet: Packet);
    /// A record is in the log, or is certainly not in it and never will be.
    fn written(&mut self, now: Duration, record: &Record, outcome: Result<(), Arc<str>>);
    /// The time returned by [`due`](Machine::due) has passed.
    fn tick(&mut self, now: Duration);
    /// When to call `tick`; `None` for never.
    fn due(&self) -> Option<Duration>;
    /// The next action.
    fn next_output(&mut self) -> Option<Output>;
    /// A log of everything that must be remembered.
    fn snapshot(&self) -> Vec<Record>;
}

/// The times of repeated sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Timers(BTreeMap<TransactionId, (Duration, Duration)>);

impl Timers {
    /// Fires first at `at`, then after `wait`, twice that, and so on.
    pub(super) fn set(&mut self, id: TransactionId, at: Duration, wait: Duration) {
        self.0.insert(id, (at, wait));
    }

    pub(super) fn clear(&mut self, id: TransactionId) {
        self.0.remove(&id);
    }

    pub(super) fn due(&self) -> Option<Duration> {
        self.0.values().map(|(at, _)| *at).min()
    }

    /// The timers that fire, each set for the next time.
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

/// Pending actions.
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
