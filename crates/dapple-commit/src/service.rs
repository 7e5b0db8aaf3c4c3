//! Coordinators and participants, as a program starts and uses them.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::future::{Future, Ready, ready};
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_sync::sync::oneshot;
use dapple_tower::{BoxError, Reason, Refused};
use tower_service::Service;

use super::coordinator::{CoordinatorMachine, Refusal};
use super::courier::{Courier, Outbox};
use super::log::{Log, Owner, Storage};
use super::machine::{Machine, Output, Settings};
use super::node::{Node, NotTaken, Role};
use super::participant::ParticipantMachine;
use super::record::Record;
use super::{NodeId, Packet, Resource, TransactionId};

/// Why a message was not delivered, or may not have been.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CommitError {
    /// No participant has it, and none ever will.
    Aborted {
        /// The transaction.
        id: TransactionId,
        /// The cause, with the node if it has one.
        reason: Arc<str>,
    },
    /// It was not begun.
    NotBegun(Refusal),
    /// It was not begun, because too much waits already.
    Refused(Refused),
    /// The coordinator has stopped. The participants will agree on the end, which is unknown here.
    Unknown(Arc<str>),
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommitError::Aborted { id, reason } => write!(f, "transaction {id} is aborted: {reason}"),
            CommitError::NotBegun(refusal) => write!(f, "the transaction was not begun: {refusal}"),
            CommitError::Refused(refused) => write!(f, "the transaction was not begun: {refused}"),
            CommitError::Unknown(why) => {
                write!(f, "the coordinator has stopped, and how the transaction ended is not known here: {why}")
            }
        }
    }
}

impl Error for CommitError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            CommitError::NotBegun(refusal) => Some(refusal),
            CommitError::Refused(refused) => Some(refused),
            CommitError::Aborted { .. } | CommitError::Unknown(_) => None,
        }
    }
}

impl From<Refusal> for CommitError {
    fn from(refusal: Refusal) -> CommitError {
        CommitError::NotBegun(refusal)
    }
}

impl From<Refused> for CommitError {
    fn from(refused: Refused) -> CommitError {
        CommitError::Refused(refused)
    }
}

/// Delivers messages to all or none: the coordinator of two-phase commit. A handle, cheap to clone.
/// Dropping the last one stops the node, as if its process had died, and waits for it.
///
/// The [crate](super) states the guarantees and has an example.
#[derive(Clone)]
pub struct Coordinator {
    me: NodeId,
    node: Arc<Node<Call>>,
    outbox: Arc<Outbox>,
}

enum Call {
    Begin { participants: Vec<NodeId>, payload: Arc<[u8]>, reply: oneshot::Sender<Result<TransactionId, CommitError>> },
    ForgetNode(NodeId),
    Unfinished(oneshot::Sender<(usize, Vec<NodeId>)>),
}

struct Coordinating {
    machine: CoordinatorMachine,
    replies: BTreeMap<TransactionId, oneshot::Sender<Result<TransactionId, CommitError>>>,
}

impl Role for Coordinating {
    type Machine = CoordinatorMachine;
    type Call = Call;

    fn machine(&mut self) -> &mut CoordinatorMachine {
        &mut self.machine
    }

    fn call(&mut self, now: Duration, call: Call) {
        match call {
            Call::Begin { participants, payload, reply } => match self.machine.begin(now, participants, payload) {
                Ok(id) => drop(self.replies.insert(id, reply)),
                Err(refusal) => drop(reply.send(Err(refusal.into()))),
            },
            Call::ForgetNode(node) => self.machine.forget_node(node),
            Call::Unfinished(reply) => drop(reply.send((self.machine.open_len(), self.machine.waits_for()))),
        }
    }

    fn act(&mut self, _now: Duration, output: Output) {
        let Output::Decided { id, refusal } = output else { unreachable!("coordinators have no resource") };
        if let Some(reply) = self.replies.remove(&id) {
            let _given_up = reply.send(match refusal {
                None => Ok(id),
                Some(reason) => Err(CommitError::Aborted { id, reason }),
            });
        }
    }

    fn fail(&mut self, error: &Arc<io::Error>) {
        for (_, reply) in std::mem::take(&mut self.replies) {
            let _given_up = reply.send(Err(CommitError::Unknown(error.to_string().into())));
        }
    }
}

impl Coordinator {
    /// Opens or creates the log at `path` and starts; sends the decisions of an earlier run again.
    ///
    /// Waits for the disk. Spawn the [`Courier`].
    ///
    /// # Errors
    /// If the log is in use, belongs to another node or is damaged, the disk is full, or no thread
    /// can be started.
    pub fn open(me: NodeId, path: impl AsRef<Path>, settings: Settings) -> io::Result<(Coordinator, Courier)> {
        let (log, records) = Log::open(path.as_ref(), Owner::Coordinator, me, &settings)?;
        Coordinator::start(me, settings, log, &records)
    }

    /// As [`open`](Coordinator::open), with a log that is not a file: for models.
    #[doc(hidden)]
    pub fn start(
        me: NodeId,
        settings: Settings,
        mut storage: impl Storage,
        records: &[Record],
    ) -> io::Result<(Coordinator, Courier)> {
        let mut machine = CoordinatorMachine::recover(me, settings, records);
        // The epoch is on disk before one of its numbers is used.
        while let Some(output) = machine.next_output() {
            let Output::Write { record, .. } = output else { unreachable!("nothing has begun") };
            storage.append(&record).map_err(super::log::WriteError::into_inner)?;
            storage.sync()?;
            machine.written(Duration::ZERO, &record, Ok(()));
        }
        let outbox = Arc::new(Outbox::default());
        let role = Coordinating { machine, replies: BTreeMap::new() };
        let node = Node::start(format!("commit-{}", me.0), role, storage, outbox.clone())?;
        Ok((Coordinator { me, node: Arc::new(node), outbox: outbox.clone() }, Courier::new(outbox)))
    }

    /// Its name.
    pub fn id(&self) -> NodeId {
        self.me
    }

    /// The service that takes its packets.
    pub fn inlet(&self) -> Inlet {
        Inlet::new(self.me, &self.node)
    }

    /// Sets the service that reaches a participant, replacing an earlier one.
    pub fn connect<S>(&self, node: NodeId, service: S)
    where
        S: Service<Packet> + Clone + Send + 'static,
        S::Future: Send,
    {
        self.outbox.connect(node, service);
    }

    /// Delivers `message` to all of `participants`, or to none of them.
    ///
    /// Resolves at the decision, when all promises are on disk; the participants may have the
    /// message a moment later. Cancel safe: a transaction goes on when the future is dropped, and
    /// its end is not reported.
    ///
    /// # Errors
    /// See [`CommitError`]: it distinguishes *no*, *not begun* and *unknown*.
    pub async fn commit(
        &self,
        participants: impl IntoIterator<Item = NodeId>,
        message: impl Into<Arc<[u8]>>,
    ) -> Result<TransactionId, CommitError> {
        let (reply, answer) = oneshot::channel();
        let call = Call::Begin { participants: participants.into_iter().collect(), payload: message.into(), reply };
        self.node.call(call).map_err(|error| match error {
            NotTaken::Full(len) => Refused::new(Reason::Full { len }, FULL_RETRY).into(),
            NotTaken::Failed(error) => CommitError::NotBegun(Refusal::Stopped(error.to_string().into())),
            NotTaken::Gone => unreachable!("this handle keeps it running"),
        })?;
        answer.await.unwrap_or_else(|_| Err(CommitError::Unknown("the coordinator was stopped".into())))
    }

    /// A service that delivers to these participants, all or none.
    pub fn to(&self, participants: impl IntoIterator<Item = NodeId>) -> AllOrNone {
        AllOrNone { coordinator: self.clone(), participants: participants.into_iter().collect() }
    }

    /// The number of transactions not settled with all participants, and the nodes that the oldest
    /// waits for.
    ///
    /// # Errors
    /// If the coordinator has stopped. Cancel safe.
    pub async fn unfinished(&self) -> io::Result<(usize, Vec<NodeId>)> {
        let (reply, answer) = oneshot::channel();
        let _failed = self.node.call(Call::Unfinished(reply));
        answer.await.map_err(|_| self.stopped())
    }

    /// Removes a permanently lost participant, and its promises. It must never start again with its
    /// old log: it could ask for transactions that all others have forgotten.
    pub fn forget_node(&self, node: NodeId) {
        let _failed = self.node.call(Call::ForgetNode(node));
        self.outbox.disconnect(node);
    }

    /// The error that stopped it, if one did: its log could not be written. No data is lost; open
    /// it again when the disk works.
    pub fn error(&self) -> Option<Arc<io::Error>> {
        self.node.error()
    }

    /// Packets that were not sent, because no node was connected or too many waited. The protocol
    /// sends them again.
    pub fn lost_packets(&self) -> u64 {
        self.outbox.lost()
    }

    fn stopped(&self) -> io::Error {
        let text =
            self.node.error().map_or_else(|| "the coordinator is too busy".to_owned(), |error| error.to_string());
        io::Error::other(format!("the coordinator does not answer: {text}"))
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator").field("id", &self.me).finish_non_exhaustive()
    }
}

/// Delivers its requests to all of some participants or to none: [`Coordinator::to`].
#[derive(Clone, Debug)]
pub struct AllOrNone {
    coordinator: Coordinator,
    participants: Arc<[NodeId]>,
}

impl<M: Into<Arc<[u8]>>> Service<M> for AllOrNone {
    type Response = TransactionId;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<TransactionId, BoxError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, message: M) -> Self::Future {
        let (coordinator, participants, message) =
            (self.coordinator.clone(), self.participants.clone(), message.into());
        Box::pin(async move { Ok(coordinator.commit(participants.iter().copied(), message).await?) })
    }
}

/// Takes part in two-phase commit with a [`Resource`]. A handle, cheap to clone; it is also the
/// [`Service`] that takes its packets.
#[derive(Clone)]
pub struct Participant {
    me: NodeId,
    node: Arc<Node<Question>>,
    outbox: Arc<Outbox>,
}

enum Question {
    InDoubt(oneshot::Sender<Vec<TransactionId>>),
    ForgetCoordinator(NodeId, oneshot::Sender<bool>),
}

struct Participating<R> {
    machine: ParticipantMachine,
    resource: R,
    violations: u64,
}

impl<R: Resource> Role for Participating<R> {
    type Machine = ParticipantMachine;
    type Call = Question;

    fn machine(&mut self) -> &mut ParticipantMachine {
        &mut self.machine
    }

    fn call(&mut self, _now: Duration, question: Question) {
        match question {
            Question::InDoubt(reply) => {
                let _given_up = reply.send(self.machine.in_doubt().map(|(id, _)| id).collect());
            }
            Question::ForgetCoordinator(node, reply) => {
                let _given_up = reply.send(self.machine.forget_coordinator(node));
            }
        }
    }

    fn act(&mut self, now: Duration, output: Output) {
        match output {
            Output::Check { id, payload } => {
                let answer = self.resource.prepare(id, &payload);
                self.machine.checked(now, id, answer.map_err(Into::into));
            }
            Output::Apply { id, payload } => {
                let result = self.resource.commit(id, &payload);
                if let Err(error) = &result {
                    tracing::error!(%id, error, "a decided transaction cannot be committed yet; the participant tries again");
                }
                self.machine.applied(now, id, result.is_ok());
            }
            Output::Undo { id, payload } => self.resource.abort(id, &payload),
            Output::Send(_) | Output::Write { .. } | Output::Decided { .. } => unreachable!("not for a resource"),
        }
        if self.machine.violations() > self.violations {
            self.violations = self.machine.violations();
            tracing::error!(
                "told to commit a transaction that was not promised: a log was lost, or two nodes have the same name"
            );
        }
    }

    fn fail(&mut self, _error: &Arc<io::Error>) {}
}

impl Participant {
    /// Opens or creates the log at `path` and starts: asks for the ends of transactions that an
    /// earlier run had promised, and commits again those that may be unfinished.
    ///
    /// Waits for the disk. Spawn the [`Courier`].
    ///
    /// # Errors
    /// If the log is in use, belongs to another node or is damaged, or no thread can be started.
    pub fn open(
        me: NodeId,
        path: impl AsRef<Path>,
        settings: Settings,
        resource: impl Resource,
    ) -> io::Result<(Participant, Courier)> {
        let (log, records) = Log::open(path.as_ref(), Owner::Participant, me, &settings)?;
        Participant::start(me, settings, log, &records, resource)
    }

    /// As [`open`](Participant::open), with a log that is not a file: for models.
    #[doc(hidden)]
    pub fn start(
        me: NodeId,
        settings: Settings,
        storage: impl Storage,
        records: &[Record],
        mut resource: impl Resource,
    ) -> io::Result<(Participant, Courier)> {
        let machine = ParticipantMachine::recover(me, settings, records);
        let in_doubt: Vec<_> = machine.in_doubt().map(|(id, payload)| (id, payload.clone())).collect();
        resource.recovered(&in_doubt);
        let outbox = Arc::new(Outbox::default());
        let role = Participating { machine, resource, violations: 0 };
        let node = Node::start(format!("commit-{}", me.0), role, storage, outbox.clone())?;
        Ok((Participant { me, node: Arc::new(node), outbox: outbox.clone() }, Courier::new(outbox)))
    }

    /// Its name.
    pub fn id(&self) -> NodeId {
        self.me
    }

    /// The service that takes its packets.
    pub fn inlet(&self) -> Inlet {
        Inlet::new(self.me, &self.node)
    }

    /// Sets the service that reaches the coordinator or another participant, replacing an earlier
    /// one.
    pub fn connect<S>(&self, node: NodeId, service: S)
    where
        S: Service<Packet> + Clone + Send + 'static,
        S::Future: Send,
    {
        self.outbox.connect(node, service);
    }

    /// The transactions that it has promised without knowing their end.
    ///
    /// # Errors
    /// If it has stopped. Cancel safe.
    pub async fn in_doubt(&self) -> io::Result<Vec<TransactionId>> {
        self.ask(Question::InDoubt).await
    }

    /// Forgets a permanently lost coordinator, so that another one can take its slot among
    /// [`Settings::coordinators_max`]. It must never start again with its old log.
    ///
    /// False if a transaction of it is still open here, and nothing is forgotten.
    ///
    /// # Errors
    /// The participant has stopped. Cancel safe: the request stays in effect.
    pub async fn forget_coordinator(&self, coordinator: NodeId) -> io::Result<bool> {
        let forgotten = self.ask(|reply| Question::ForgetCoordinator(coordinator, reply)).await?;
        if forgotten {
            self.outbox.disconnect(coordinator);
        }
        Ok(forgotten)
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> io::Result<T> {
        let (reply, answer) = oneshot::channel();
        let _failed = self.node.call(question(reply));
        answer.await.map_err(|_| io::Error::other("the participant has stopped, or is too busy to answer"))
    }

    /// The error that stopped it, if one did: its log could not be written, or its resource
    /// panicked. No data is lost; open it again when that is fixed.
    pub fn error(&self) -> Option<Arc<io::Error>> {
        self.node.error()
    }

    /// Packets that were not sent, because no node was connected or too many waited. The protocol
    /// sends them again.
    pub fn lost_packets(&self) -> u64 {
        self.outbox.lost()
    }
}

impl fmt::Debug for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Participant").field("id", &self.me).finish_non_exhaustive()
    }
}

/// The [`Service`] that takes packets for a node: give it to the other nodes, or to the receiver of
/// other processes' messages.
///
/// It does not keep the node running. A packet for another node is an error. If too many packets
/// wait, it refuses, and the protocol sends the packet again.
#[derive(Clone)]
pub struct Inlet {
    me: NodeId,
    push: Arc<dyn Fn(Packet) -> Result<(), NotTaken> + Send + Sync>,
}

impl Inlet {
    fn new<C: Send + 'static>(me: NodeId, node: &Arc<Node<C>>) -> Inlet {
        let node = Arc::downgrade(node);
        let push = move |packet| node.upgrade().ok_or(NotTaken::Gone)?.packet(packet);
        Inlet { me, push: Arc::new(push) }
    }

    fn take(&self, packet: Packet) -> Result<(), BoxError> {
        let me = self.me;
        if packet.to != me {
            let text = format!("a packet for {} came to {me}: connect each node to the inlet of that name", packet.to);
            return Err(text.into());
        }
        (self.push)(packet).map_err(|error| match error {
            NotTaken::Full(len) => Refused::new(Reason::Full { len }, FULL_RETRY).into(),
            NotTaken::Failed(error) => format!("{me} has stopped: {error}").into(),
            NotTaken::Gone => format!("{me} was stopped").into(),
        })
    }
}

impl Service<Packet> for Inlet {
    type Response = ();
    type Error = BoxError;
    type Future = Ready<Result<(), BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, packet: Packet) -> Self::Future {
        ready(self.take(packet))
    }
}

impl fmt::Debug for Inlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inlet").field("id", &self.me).finish_non_exhaustive()
    }
}

const FULL_RETRY: Duration = Duration::from_millis(100);
