//! The participant's part of the protocol, as a state machine.
//!
//! ```text
//!            Prepare          yes of the resource       on disk
//!   (none) ──────────► Checking ──────────► Promising ──────────► Prepared   votes yes, is in doubt
//!      │                  │ no                  │ not on disk       │     │
//!      │ Ask              ▼                     ▼                   │     │ Decision: abort
//!      └──────────────► Aborted ◄───────────────┴─────── Aborting ◄─┼─────┘
//!        says so only      ▲ votes no               on disk         │ Decision: commit
//!        when on disk      └── the resource gives up                ▼
//!                                        Committed ◄────────── Committing   on disk first, then the resource commits
//!                                        says Done              again and again until it has
//! ```
//!
//! A participant remembers `Committed` and `Aborted` transactions until the coordinator says that
//! no node can ask for them any more (`oldest`). Three cases depend on this. A late `Prepare` is
//! refused if another node has been told that this node never voted. A participant that asks after
//! the commit gets the answer. If a node asks for a settled and forgotten transaction, it can only
//! ask for an aborted one, because for a commit the coordinator had that node's `Done`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::machine::{Machine, Output, Outputs, Timers};
use super::record::Record;
use super::{Message, NodeId, Outcome, Packet, Position, Settings, TransactionId};

/// The message and its participants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Work {
    participants: Arc<[NodeId]>,
    payload: Arc<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// The resource is being asked. `doomed`: it was aborted meanwhile.
    Checking { work: Work, doomed: bool },
    /// The promise is being written. `doomed`: it was aborted meanwhile.
    Promising { work: Work, doomed: bool },
    /// Voted yes, in doubt.
    Prepared { work: Work },
    /// The transaction is committed: that is being written (then `logged`), and then the resource
    /// commits (`applying`).
    Committing { work: Work, logged: bool, applying: bool },
    /// The resource has committed it.
    Committed,
    /// It is aborted: that is being written.
    Aborting { work: Work },
    /// `durable`: a crash does not lose it. `askers` get the answer then.
    Aborted { durable: bool, askers: BTreeSet<NodeId> },
}

impl State {
    /// The outcome is known here, and no node waits to hear it.
    fn is_over(&self) -> bool {
        match self {
            State::Committed => true,
            State::Aborted { durable, askers } => *durable || askers.is_empty(),
            _ => false,
        }
    }
}

/// See the [module](self). Exported for simulations; [`Participant`](super::Participant) runs it.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct ParticipantMachine {
    me: NodeId,
    settings: Settings,
    floors: BTreeMap<NodeId, Position>,
    states: BTreeMap<TransactionId, State>,
    timers: Timers,
    outputs: Outputs,
    violations: u64,
}

impl ParticipantMachine {
    /// Starts from the log. Asks at once about transactions in doubt; applies those that are
    /// committed and perhaps not applied.
    pub fn recover(me: NodeId, settings: Settings, log: &[Record]) -> ParticipantMachine {
        let mut machine = ParticipantMachine {
            me,
            settings,
            floors: BTreeMap::new(),
            states: BTreeMap::new(),
            timers: Timers::default(),
            outputs: Outputs::default(),
            violations: 0,
        };
        log.iter().for_each(|record| machine.replay(record));
        let open: Vec<_> = machine.states.keys().copied().collect();
        for id in open {
            match &machine.states[&id] {
                State::Prepared { .. } => machine.timers.set(id, Duration::ZERO, machine.settings.resend_first),
                State::Committing { .. } => machine.apply(id),
                _ => {}
            }
        }
        machine
    }

    fn replay(&mut self, record: &Record) {
        match record {
            Record::Prepared { id, participants, payload } => {
                let work = Work { participants: participants.clone(), payload: payload.clone() };
                self.states.insert(*id, State::Prepared { work });
            }
            Record::Committed { id } => {
                let state = match self.states.remove(id) {
                    Some(State::Prepared { work }) => State::Committing { work, logged: true, applying: false },
                    // In a compacted log, applied transactions have no payload.
                    _ => State::Committed,
                };
                self.states.insert(*id, state);
            }
            Record::Applied { id } => drop(self.states.insert(*id, State::Committed)),
            Record::Aborted { id } => {
                self.states.insert(*id, State::Aborted { durable: true, askers: BTreeSet::new() });
            }
            Record::Floor { coordinator, oldest } => drop(self.floors.insert(*coordinator, *oldest)),
            Record::Epoch { .. } | Record::Decided { .. } | Record::Ended { .. } => {}
        }
    }

    /// The resource's answer: it can commit, or the reason why not.
    pub fn checked(&mut self, _now: Duration, id: TransactionId, answer: Result<(), Arc<str>>) {
        let Some(State::Checking { work, doomed }) = self.states.get(&id).cloned() else { return };
        match answer {
            Err(refusal) => self.refuse(id, refusal),
            Ok(()) if doomed => {
                self.outputs.push(Output::Undo { id, payload: work.payload });
                self.refuse(id, "it is aborted".into());
            }
            Ok(()) => {
                let (participants, payload) = (work.participants.clone(), work.payload.clone());
                self.outputs.push(Output::Write { record: Record::Prepared { id, participants, payload }, sync: true });
                self.states.insert(id, State::Promising { work, doomed: false });
            }
        }
    }

    /// The resource has committed, or must be called again.
    pub fn applied(&mut self, now: Duration, id: TransactionId, done: bool) {
        let Some(State::Committing { logged: true, applying, .. }) = self.states.get_mut(&id) else { return };
        if !done {
            *applying = false;
            self.timers.set(
                id,
                now.saturating_add(self.settings.resend_first),
                self.settings.resend_first.saturating_mul(2),
            );
            return;
        }
        self.timers.clear(id);
        self.states.insert(id, State::Committed);
        self.outputs.push(Output::Write { record: Record::Applied { id }, sync: false });
        self.outputs.send(self.me, id.coordinator, Message::Done { id });
        self.forget_settled(id.coordinator);
    }

    /// Promised and undecided transactions, with their messages.
    pub fn in_doubt(&self) -> impl Iterator<Item = (TransactionId, &Arc<[u8]>)> {
        self.states.iter().filter_map(|(id, state)| match state {
            State::Prepared { work } => Some((*id, &work.payload)),
            _ => None,
        })
    }

    /// The number of messages that contradicted the state here: zero, unless a log was lost or a
    /// node's name was used twice.
    pub fn violations(&self) -> u64 {
        self.violations
    }

    /// The remembered state, without times.
    pub fn fingerprint(&self) -> String {
        format!("{:?}{:?}{:?}", self.floors, self.states, self.outputs)
    }

    /// Forgets a coordinator that will never send anything again. False if a transaction of it is
    /// open here, so the machine still needs its order.
    pub fn forget_coordinator(&mut self, coordinator: NodeId) -> bool {
        let mut of_it = self.states.iter().filter(|(id, _)| id.coordinator == coordinator);
        if !of_it.all(|(_, state)| state.is_over()) {
            return false;
        }
        self.states.retain(|id, _| id.coordinator != coordinator);
        self.floors.remove(&coordinator);
        true
    }

    fn prepare(&mut self, id: TransactionId, work: Work) {
        if self.is_settled(id) {
            return self.vote(id, Some("the transaction is already settled".into()));
        }
        match self.states.get(&id) {
            Some(State::Prepared { .. }) => self.vote(id, None),
            Some(State::Aborted { .. }) => self.vote(id, Some("it is aborted here".into())),
            Some(_) => {}
            None if !self.floors.contains_key(&id.coordinator) => {
                self.vote(id, Some("this participant remembers as many coordinators as it may".into()));
            }
            None if self.states.len() >= self.settings.transactions_max => {
                self.vote(id, Some("the limit of remembered transactions is reached".into()));
            }
            None if work.payload.len() > self.settings.payload_len_max => {
                self.vote(id, Some(format!("{} bytes exceed the limit", work.payload.len()).into()));
            }
            None => {
                self.outputs.push(Output::Check { id, payload: work.payload.clone() });
                self.states.insert(id, State::Checking { work, doomed: false });
            }
        }
    }

    fn decide(&mut self, id: TransactionId, outcome: Outcome) {
        let committed = outcome == Outcome::Committed;
        let settled = self.is_settled(id);
        match self.states.get_mut(&id) {
            Some(State::Prepared { work }) => {
                let work = work.clone();
                let (record, state) = if committed {
                    (Record::Committed { id }, State::Committing { work, logged: false, applying: false })
                } else {
                    (Record::Aborted { id }, State::Aborting { work })
                };
                self.timers.clear(id);
                self.outputs.push(Output::Write { record, sync: true });
                self.states.insert(id, state);
            }
            // No node can have committed a transaction that is not promised yet.
            Some(State::Checking { doomed, .. } | State::Promising { doomed, .. }) if !committed => *doomed = true,
            Some(State::Committed) if committed => self.outputs.send(self.me, id.coordinator, Message::Done { id }),
            Some(State::Committing { .. }) if committed => {}
            Some(State::Aborting { .. } | State::Aborted { .. }) if !committed => {}
            // A late answer to an earlier question: a node that had forgotten the transaction
            // guessed it, and it is of no use here any more.
            Some(State::Committing { .. } | State::Committed) => {}
            None if !committed => {}
            None if settled => self.outputs.send(self.me, id.coordinator, Message::Done { id }),
            _ => self.violations += 1,
        }
    }

    fn answer(&mut self, id: TransactionId, asker: NodeId) {
        let (settled, full) = (self.is_settled(id), self.states.len() >= self.settings.transactions_max);
        match self.states.get_mut(&id) {
            Some(State::Committing { logged: true, .. } | State::Committed) => self.tell(asker, id, Outcome::Committed),
            Some(State::Aborted { durable: true, .. }) => self.tell(asker, id, Outcome::Aborted),
            Some(State::Aborted { durable: false, askers }) => {
                // Sent only when the record is on disk: otherwise this node could vote yes after a
                // crash.
                let first = askers.is_empty();
                askers.insert(asker);
                if first {
                    self.outputs.push(Output::Write { record: Record::Aborted { id }, sync: true });
                }
            }
            Some(_) => {}
            None if settled => self.tell(asker, id, Outcome::Aborted),
            None if full => {}
            None => {
                self.states.insert(id, State::Aborted { durable: false, askers: BTreeSet::from([asker]) });
                self.outputs.push(Output::Write { record: Record::Aborted { id }, sync: true });
            }
        }
    }

    fn tell(&mut self, to: NodeId, id: TransactionId, outcome: Outcome) {
        self.outputs.send(self.me, to, Message::Decision { id, outcome, oldest: None });
    }

    fn vote(&mut self, id: TransactionId, refusal: Option<Arc<str>>) {
        self.outputs.send(self.me, id.coordinator, Message::Vote { id, refusal });
    }

    fn refuse(&mut self, id: TransactionId, refusal: Arc<str>) {
        self.states.insert(id, State::Aborted { durable: false, askers: BTreeSet::new() });
        self.vote(id, Some(refusal));
    }

    fn apply(&mut self, id: TransactionId) {
        if let Some(State::Committing { work, logged: true, applying }) = self.states.get_mut(&id) {
            *applying = true;
            self.outputs.push(Output::Apply { id, payload: work.payload.clone() });
        }
    }

    fn is_settled(&self, id: TransactionId) -> bool {
        self.floors.get(&id.coordinator).is_some_and(|oldest| id.position < *oldest)
    }

    /// Remembers that all transactions before `oldest` are settled. A new coordinator beyond the limit
    /// is not remembered.
    fn raise_floor(&mut self, coordinator: NodeId, oldest: Position) {
        if self.floors.len() >= self.settings.coordinators_max && !self.floors.contains_key(&coordinator) {
            return;
        }
        let floor = self.floors.entry(coordinator).or_default();
        if *floor < oldest {
            *floor = oldest;
            self.forget_settled(coordinator);
        }
    }

    fn forget_settled(&mut self, coordinator: NodeId) {
        let oldest = self.floors.get(&coordinator).copied().unwrap_or_default();
        let first = TransactionId { coordinator, position: Position::default() };
        let end = TransactionId { coordinator, position: oldest };
        let settled: Vec<_> =
            self.states.range(first..end).filter(|(_, state)| state.is_over()).map(|(id, _)| *id).collect();
        for id in settled {
            self.states.remove(&id);
        }
    }

    fn promised(&mut self, now: Duration, id: TransactionId, outcome: Result<(), Arc<str>>) {
        let Some(State::Promising { work, doomed }) = self.states.get(&id).cloned() else { return };
        match outcome {
            Ok(()) => {
                self.timers.set(id, now.saturating_add(self.settings.doubt_after), self.settings.resend_first);
                self.states.insert(id, State::Prepared { work });
                if doomed {
                    self.decide(id, Outcome::Aborted);
                } else {
                    self.vote(id, None);
                }
            }
            Err(refusal) => {
                self.outputs.push(Output::Undo { id, payload: work.payload });
                self.refuse(id, refusal);
            }
        }
    }

    fn commit_written(&mut self, now: Duration, id: TransactionId, done: bool) {
        let Some(State::Committing { work, logged, .. }) = self.states.get_mut(&id) else { return };
        if done {
            *logged = true;
            self.apply(id);
        } else {
            let work = work.clone();
            self.back_in_doubt(now, id, work);
        }
    }

    fn abort_written(&mut self, now: Duration, id: TransactionId, done: bool) {
        match self.states.get_mut(&id) {
            Some(State::Aborting { work }) => {
                let work = work.clone();
                if done {
                    self.outputs.push(Output::Undo { id, payload: work.payload });
                    self.states.insert(id, State::Aborted { durable: true, askers: BTreeSet::new() });
                    self.forget_settled(id.coordinator);
                } else {
                    self.back_in_doubt(now, id, work);
                }
            }
            Some(State::Aborted { durable, askers }) => {
                let askers = std::mem::take(askers);
                if done {
                    *durable = true;
                    askers.into_iter().for_each(|asker| self.tell(asker, id, Outcome::Aborted));
                    self.forget_settled(id.coordinator);
                }
            }
            _ => {}
        }
    }

    fn back_in_doubt(&mut self, now: Duration, id: TransactionId, work: Work) {
        self.timers.set(id, now.saturating_add(self.settings.resend_first), self.settings.resend_first);
        self.states.insert(id, State::Prepared { work });
    }
}

impl Machine for ParticipantMachine {
    fn receive(&mut self, _now: Duration, packet: Packet) {
        match packet.message {
            Message::Prepare { id, oldest, participants, payload } => {
                self.raise_floor(id.coordinator, oldest);
                self.prepare(id, Work { participants, payload });
            }
            Message::Decision { id, outcome, oldest } => {
                self.decide(id, outcome);
                if let Some(oldest) = oldest {
                    self.raise_floor(id.coordinator, oldest);
                }
            }
            Message::Ask { id } => self.answer(id, packet.from),
            Message::Vote { .. } | Message::Done { .. } => {}
        }
    }

    fn written(&mut self, now: Duration, record: &Record, outcome: Result<(), Arc<str>>) {
        match record {
            Record::Prepared { id, .. } => self.promised(now, *id, outcome),
            Record::Committed { id } => self.commit_written(now, *id, outcome.is_ok()),
            Record::Aborted { id } => self.abort_written(now, *id, outcome.is_ok()),
            _ => {}
        }
    }

    fn tick(&mut self, now: Duration) {
        for id in self.timers.fire(now, self.settings.resend_max) {
            match self.states.get(&id) {
                Some(State::Prepared { work }) => {
                    let others = work.participants.iter().copied().filter(|node| *node != self.me);
                    let asked: BTreeSet<_> = others.chain([id.coordinator]).collect();
                    for to in asked {
                        self.outputs.send(self.me, to, Message::Ask { id });
                    }
                }
                Some(State::Committing { logged: true, applying: false, .. }) => self.apply(id),
                _ => {}
            }
        }
    }

    fn due(&self) -> Option<Duration> {
        self.timers.due()
    }

    fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop()
    }

    fn snapshot(&self) -> Vec<Record> {
        let floors = self
            .floors
            .iter()
            .map(|(coordinator, oldest)| Record::Floor { coordinator: *coordinator, oldest: *oldest });
        let mut records: Vec<_> = floors.collect();
        for (&id, state) in &self.states {
            let prepared = |work: &Work| Record::Prepared {
                id,
                participants: work.participants.clone(),
                payload: work.payload.clone(),
            };
            match state {
                State::Checking { .. } | State::Promising { .. } | State::Aborted { durable: false, .. } => {}
                State::Prepared { work } | State::Committing { work, logged: false, .. } | State::Aborting { work } => {
                    records.push(prepared(work));
                }
                State::Committing { work, .. } => records.extend([prepared(work), Record::Committed { id }]),
                State::Committed => records.push(Record::Applied { id }),
                State::Aborted { durable: true, .. } => records.push(Record::Aborted { id }),
            }
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare(machine: &mut ParticipantMachine, coordinator: NodeId) -> TransactionId {
        let id = TransactionId { coordinator, position: Position { epoch: 1, number: 0 } };
        let (participants, payload) = (Arc::from([NodeId(1)]), Arc::from(*b"all"));
        let message = Message::Prepare { id, oldest: id.position, participants, payload };
        machine.receive(Duration::ZERO, Packet { from: coordinator, to: NodeId(1), message });
        id
    }

    /// The reason of the no that the machine votes next; `None` if it asks its resource first.
    fn refusal(machine: &mut ParticipantMachine) -> Option<Arc<str>> {
        match machine.next_output() {
            Some(Output::Send(Packet { message: Message::Vote { refusal, .. }, .. })) => refusal,
            Some(Output::Check { .. }) => None,
            other => panic!("neither a vote nor a question: {other:?}"),
        }
    }

    #[test]
    fn a_participant_remembers_a_limited_number_of_coordinators() {
        let settings = Settings { coordinators_max: 2, ..Settings::default() };
        let mut machine = ParticipantMachine::recover(NodeId(1), settings, &[]);
        let first = prepare(&mut machine, NodeId(10));
        assert_eq!(refusal(&mut machine), None);
        prepare(&mut machine, NodeId(11));
        assert_eq!(refusal(&mut machine), None);
        prepare(&mut machine, NodeId(12));
        assert!(refusal(&mut machine).unwrap().contains("coordinators"));

        assert!(!machine.forget_coordinator(NodeId(10)), "its transaction is open");
        machine.checked(Duration::ZERO, first, Err("no".into()));
        assert_eq!(refusal(&mut machine).as_deref(), Some("no"));
        assert!(machine.forget_coordinator(NodeId(10)));
        prepare(&mut machine, NodeId(12));
        assert_eq!(refusal(&mut machine), None, "there is room again");
    }
}
