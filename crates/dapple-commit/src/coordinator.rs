//! The coordinator's part of the protocol, as a state machine.
//!
//! ```text
//!             yes of all            on disk                    Done of all
//!   Voting ──────────────► Deciding ──────────► Committed ──────────────────► (forgotten)
//!     │ a no, or too late     │ surely not        tells all, again and again
//!     ▼                       ▼ on disk
//!   (forgotten)           (forgotten)      whoever asks for what is forgotten is told that it is aborted
//! ```
//!
//! This is *presumed abort*: aborts need no log and no replies. It is correct because a commit is
//! forgotten only when no participant can ask for it any more.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::machine::{Machine, Output, Outputs, Timers};
use super::record::Record;
use super::{Message, NodeId, Outcome, Packet, Position, Settings, TransactionId};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// `missing`: the participants without a vote so far.
    Voting { missing: BTreeSet<NodeId>, payload: Arc<[u8]> },
    /// All have voted yes; the decision is being written. `missing`: the participants that must
    /// acknowledge it.
    Deciding { missing: BTreeSet<NodeId> },
    /// It is committed. `missing`: the participants without an acknowledgment so far.
    Committed { missing: BTreeSet<NodeId> },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Transaction {
    participants: Arc<[NodeId]>,
    state: State,
}

/// See the [module](self). Exported for simulations; [`Coordinator`](super::Coordinator) runs it.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct CoordinatorMachine {
    me: NodeId,
    settings: Settings,
    next: Position,
    transactions: BTreeMap<Position, Transaction>,
    deadlines: BTreeMap<Position, Duration>,
    timers: Timers,
    outputs: Outputs,
}

impl CoordinatorMachine {
    /// Starts from the log: with a new epoch, which must be [written](Machine::written) before any
    /// transaction begins. Sends every commit that is not fully acknowledged again.
    pub fn recover(me: NodeId, settings: Settings, log: &[Record]) -> CoordinatorMachine {
        let mut epoch = 0;
        let mut transactions = BTreeMap::new();
        for record in log {
            match record {
                Record::Epoch { epoch: written } => epoch = epoch.max(*written),
                Record::Decided { id, participants } => {
                    let missing = participants.iter().copied().collect();
                    let state = State::Committed { missing };
                    transactions.insert(id.position, Transaction { participants: participants.clone(), state });
                }
                Record::Ended { id } => drop(transactions.remove(&id.position)),
                _ => {}
            }
        }
        let mut timers = Timers::default();
        for position in transactions.keys() {
            timers.set(TransactionId { coordinator: me, position: *position }, Duration::ZERO, settings.resend_first);
        }
        let next = Position { epoch: epoch + 1, number: 0 };
        let mut outputs = Outputs::default();
        outputs.push(Output::Write { record: Record::Epoch { epoch: next.epoch }, sync: true });
        CoordinatorMachine { me, settings, next, transactions, deadlines: BTreeMap::new(), timers, outputs }
    }

    /// Asks all `participants` to commit `payload`; [`Output::Decided`] reports the end.
    ///
    /// # Errors
    /// The reason, if it cannot begin; no participant is asked then.
    pub fn begin(
        &mut self,
        now: Duration,
        participants: impl IntoIterator<Item = NodeId>,
        payload: Arc<[u8]>,
    ) -> Result<TransactionId, Refusal> {
        let all: BTreeSet<_> = participants.into_iter().collect();
        if all.is_empty() || all.contains(&self.me) {
            return Err(Refusal::Participants);
        }
        if payload.len() > self.settings.payload_len_max {
            return Err(Refusal::Long { len: payload.len(), len_max: self.settings.payload_len_max });
        }
        // Participants remember all transactions from the oldest to the newest, not only the open
        // ones.
        let oldest = self.oldest();
        let span = if oldest.epoch == self.next.epoch { self.next.number - oldest.number } else { self.next.number };
        let max = self.settings.transactions_max;
        if self.transactions.len() >= max || span >= max as u64 {
            return Err(Refusal::Full { len: self.transactions.len(), oldest: self.waits_for() });
        }
        let id = TransactionId { coordinator: self.me, position: self.next };
        self.next.number += 1;
        let participants: Arc<[_]> = all.iter().copied().collect();
        let state = State::Voting { missing: all, payload };
        self.transactions.insert(id.position, Transaction { participants, state });
        self.deadlines.insert(id.position, now.saturating_add(self.settings.vote_timeout));
        self.timers.set(
            id,
            now.saturating_add(self.settings.resend_first),
            self.settings.resend_first.saturating_mul(2),
        );
        self.resend(id);
        Ok(id)
    }

    /// Removes a permanently lost node. A process with its log must never start again.
    pub fn forget_node(&mut self, node: NodeId) {
        let open: Vec<_> = self.transactions.keys().copied().collect();
        for position in open {
            let id = TransactionId { coordinator: self.me, position };
            let Some(transaction) = self.transactions.get_mut(&position) else { continue };
            let takes_part = transaction.participants.contains(&node);
            match &mut transaction.state {
                State::Voting { .. } if takes_part => self.abort(id, format!("{node} is gone").into()),
                State::Voting { .. } => {}
                State::Deciding { missing } => drop(missing.remove(&node)),
                State::Committed { .. } => self.done(id, node),
            }
        }
    }

    /// The nodes that the oldest open transaction waits for.
    pub fn waits_for(&self) -> Vec<NodeId> {
        match self.transactions.values().next().map(|transaction| &transaction.state) {
            Some(State::Voting { missing, .. } | State::Committed { missing }) => missing.iter().copied().collect(),
            _ => Vec::new(),
        }
    }

    /// The remembered state, without times.
    pub fn fingerprint(&self) -> String {
        format!("{:?}{:?}{:?}", self.next, self.transactions, self.outputs)
    }

    /// The number of open transactions.
    pub fn open_len(&self) -> usize {
        self.transactions.len()
    }

    fn oldest(&self) -> Position {
        self.transactions.keys().next().copied().unwrap_or(self.next)
    }

    fn vote(&mut self, id: TransactionId, from: NodeId, refusal: Option<Arc<str>>) {
        let Some(transaction) = self.transactions.get_mut(&id.position) else {
            return self.tell(from, id, Outcome::Aborted);
        };
        let participants = transaction.participants.clone();
        match &mut transaction.state {
            State::Voting { missing, .. } => match refusal {
                Some(refusal) if participants.contains(&from) => {
                    self.abort(id, format!("{from} refused: {refusal}").into());
                }
                Some(_) => {}
                None => {
                    missing.remove(&from);
                    if missing.is_empty() {
                        transaction.state = State::Deciding { missing: participants.iter().copied().collect() };
                        self.timers.clear(id);
                        self.deadlines.remove(&id.position);
                        self.outputs.push(Output::Write { record: Record::Decided { id, participants }, sync: true });
                    }
                }
            },
            State::Deciding { .. } => {}
            State::Committed { missing } => {
                if missing.contains(&from) {
                    self.tell(from, id, Outcome::Committed);
                }
            }
        }
    }

    fn done(&mut self, id: TransactionId, from: NodeId) {
        let Some(transaction) = self.transactions.get_mut(&id.position) else { return };
        let State::Committed { missing } = &mut transaction.state else { return };
        missing.remove(&from);
        self.forget_if_known(id);
    }

    /// Forgets a commit that all have acknowledged.
    fn forget_if_known(&mut self, id: TransactionId) {
        let state = self.transactions.get(&id.position).map(|transaction| &transaction.state);
        if matches!(state, Some(State::Committed { missing }) if missing.is_empty()) {
            self.timers.clear(id);
            self.transactions.remove(&id.position);
            self.outputs.push(Output::Write { record: Record::Ended { id }, sync: false });
        }
    }

    fn answer(&mut self, id: TransactionId, asker: NodeId) {
        match self.transactions.get(&id.position).map(|transaction| &transaction.state) {
            None => self.tell(asker, id, Outcome::Aborted),
            Some(State::Committed { .. }) => self.tell(asker, id, Outcome::Committed),
            // A participant that asks has voted, so it gets the decision soon.
            Some(State::Voting { .. } | State::Deciding { .. }) => {}
        }
    }

    fn abort(&mut self, id: TransactionId, refusal: Arc<str>) {
        let Some(transaction) = self.transactions.remove(&id.position) else { return };
        self.timers.clear(id);
        self.deadlines.remove(&id.position);
        for to in transaction.participants.iter() {
            self.tell(*to, id, Outcome::Aborted);
        }
        self.outputs.push(Output::Decided { id, refusal: Some(refusal) });
    }

    fn tell(&mut self, to: NodeId, id: TransactionId, outcome: Outcome) {
        let oldest = Some(self.oldest());
        self.outputs.send(self.me, to, Message::Decision { id, outcome, oldest });
    }

    /// Sends again to the missing participants.
    fn resend(&mut self, id: TransactionId) {
        let oldest = self.oldest();
        let Some(transaction) = self.transactions.get(&id.position) else { return };
        match &transaction.state {
            State::Voting { missing, payload } => {
                for to in missing {
                    let (participants, payload) = (transaction.participants.clone(), payload.clone());
                    self.outputs.send(self.me, *to, Message::Prepare { id, oldest, participants, payload });
                }
            }
            State::Committed { missing } => {
                for to in missing.clone() {
                    self.tell(to, id, Outcome::Committed);
                }
            }
            State::Deciding { .. } => {}
        }
    }
}

impl Machine for CoordinatorMachine {
    fn receive(&mut self, _now: Duration, packet: Packet) {
        if packet.message.id().coordinator != self.me {
            return;
        }
        match packet.message {
            Message::Vote { id, refusal } => self.vote(id, packet.from, refusal),
            Message::Done { id } => self.done(id, packet.from),
            Message::Ask { id } => self.answer(id, packet.from),
            Message::Prepare { .. } | Message::Decision { .. } => {}
        }
    }

    fn written(&mut self, now: Duration, record: &Record, outcome: Result<(), Arc<str>>) {
        let Record::Decided { id, .. } = record else { return };
        let Some(transaction) = self.transactions.get_mut(&id.position) else { return };
        let State::Deciding { missing } = &mut transaction.state else { return };
        match outcome {
            Ok(()) => {
                transaction.state = State::Committed { missing: std::mem::take(missing) };
                self.outputs.push(Output::Decided { id: *id, refusal: None });
                self.timers.set(
                    *id,
                    now.saturating_add(self.settings.resend_first),
                    self.settings.resend_first.saturating_mul(2),
                );
                self.resend(*id);
                self.forget_if_known(*id);
            }
            Err(refusal) => self.abort(*id, refusal),
        }
    }

    fn tick(&mut self, now: Duration) {
        let late: Vec<_> = self.deadlines.iter().filter(|(_, at)| **at <= now).map(|(position, _)| *position).collect();
        for position in late {
            let missing = match &self.transactions[&position].state {
                State::Voting { missing, .. } => missing.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", "),
                _ => String::new(),
            };
            let id = TransactionId { coordinator: self.me, position };
            self.abort(id, format!("no vote in time from {missing}").into());
        }
        for id in self.timers.fire(now, self.settings.resend_max) {
            self.resend(id);
        }
    }

    fn due(&self) -> Option<Duration> {
        self.deadlines.values().copied().chain(self.timers.due()).min()
    }

    fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop()
    }

    fn snapshot(&self) -> Vec<Record> {
        let decided = self.transactions.iter().filter_map(|(position, transaction)| match transaction.state {
            State::Committed { .. } => {
                let id = TransactionId { coordinator: self.me, position: *position };
                Some(Record::Decided { id, participants: transaction.participants.clone() })
            }
            _ => None,
        });
        [Record::Epoch { epoch: self.next.epoch }].into_iter().chain(decided).collect()
    }
}

/// Why a transaction cannot begin. No participant has been asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// There are no participants, or the coordinator is among them, which needs a participant with
    /// its own name and log.
    Participants,
    /// The message exceeds the limit of the settings.
    Long {
        /// Its length.
        len: usize,
        /// The limit.
        len_max: usize,
    },
    /// The limit of open transactions is reached, or the oldest has been open for too long.
    Full {
        /// The number of open ones.
        len: usize,
        /// The nodes that the oldest waits for.
        oldest: Vec<NodeId>,
    },
    /// The coordinator has stopped, because its log could not be written.
    Stopped(Arc<str>),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Participants => {
                f.write_str("a transaction needs at least one participant, and its coordinator cannot be one of them")
            }
            Refusal::Long { len, len_max } => write!(f, "the message has {len} bytes, and the limit is {len_max}"),
            Refusal::Full { len, oldest } => write!(
                f,
                "the limit of remembered transactions is reached, {len} of them are open; the oldest waits for {oldest:?}"
            ),
            Refusal::Stopped(why) => write!(f, "the coordinator has stopped: {why}"),
        }
    }
}

impl Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_forgotten_while_all_is_decided_is_not_waited_for() {
        let (me, stays, goes) = (NodeId(0), NodeId(1), NodeId(2));
        let mut machine = CoordinatorMachine::recover(me, Settings::default(), &[]);
        let now = Duration::ZERO;
        let id = machine.begin(now, [stays, goes], Arc::from(*b"both")).unwrap();
        for from in [stays, goes] {
            machine.receive(now, Packet { from, to: me, message: Message::Vote { id, refusal: None } });
        }
        // Both arrive with the same packets, before the decision is on disk.
        machine.forget_node(goes);
        let decided = Record::Decided { id, participants: Arc::from([stays, goes]) };
        machine.written(now, &decided, Ok(()));
        assert_eq!(machine.waits_for(), [stays]);
        machine.receive(now, Packet { from: stays, to: me, message: Message::Done { id } });
        assert_eq!(machine.open_len(), 0);
    }
}
