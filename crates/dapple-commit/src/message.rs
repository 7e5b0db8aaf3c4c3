//! The messages between nodes, and the names in them.

use std::fmt;
use std::sync::Arc;

use super::bytes::{Reader, Writer};

/// The name of a coordinator or participant. Each has its own, as long as its log lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// The position of a transaction in the order of its coordinator: first by the coordinator's start,
/// then by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Position {
    /// How many times the coordinator had started.
    pub epoch: u64,
    /// The number within the epoch, from 0.
    pub number: u64,
}

/// The name of one transaction. No coordinator gives the same name twice, even if it was killed in
/// between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TransactionId {
    /// The coordinator that decides.
    pub coordinator: NodeId,
    /// Its position in the coordinator's order.
    pub position: Position,
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.coordinator.0, self.position.epoch, self.position.number)
    }
}

/// The end of a transaction, the same at all participants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Outcome {
    /// All have it.
    Committed,
    /// None has it.
    Aborted,
}

/// One message of the protocol, with its sender and its recipient.
///
/// The receivers of [`Courier`](super::Courier) take packets. Packets may be lost, duplicated,
/// delayed and reordered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Packet {
    /// The sender.
    pub from: NodeId,
    /// The recipient.
    pub to: NodeId,
    /// The content.
    pub message: Message,
}

/// The content of a [`Packet`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Message {
    /// From the coordinator: can you promise to commit this?
    Prepare {
        /// The transaction.
        id: TransactionId,
        /// All transactions that the coordinator began before this one are settled, and need not be
        /// remembered.
        oldest: Position,
        /// All participants: ask them if the coordinator is lost.
        participants: Arc<[NodeId]>,
        /// The message to deliver.
        payload: Arc<[u8]>,
    },
    /// From a participant: the answer to `Prepare`. A yes is a promise that survives crashes.
    Vote {
        /// The transaction.
        id: TransactionId,
        /// The reason for a no; `None` for a yes.
        refusal: Option<Arc<str>>,
    },
    /// From any node that knows it: the end of the transaction.
    Decision {
        /// The transaction.
        id: TransactionId,
        /// The end.
        outcome: Outcome,
        /// From the coordinator: see `Prepare`.
        oldest: Option<Position>,
    },
    /// From a participant to the coordinator: it is committed here, and need not be sent again.
    Done {
        /// The transaction.
        id: TransactionId,
    },
    /// From a participant that voted yes and waits: how did it end?
    Ask {
        /// The transaction.
        id: TransactionId,
    },
}

impl Message {
    /// The transaction of the message.
    pub fn id(&self) -> TransactionId {
        match self {
            Message::Prepare { id, .. }
            | Message::Vote { id, .. }
            | Message::Decision { id, .. }
            | Message::Done { id }
            | Message::Ask { id } => *id,
        }
    }
}

impl Packet {
    /// A compact encoding, for pipes and files; [`from_bytes`](Packet::from_bytes) reads it.
    ///
    /// ```
    /// use dapple_commit::{Message, NodeId, Packet, Position, TransactionId};
    ///
    /// let id = TransactionId { coordinator: NodeId(1), position: Position { epoch: 1, number: 7 } };
    /// let packet = Packet { from: NodeId(2), to: NodeId(1), message: Message::Done { id } };
    /// assert_eq!(Packet::from_bytes(&packet.to_bytes()), Some(packet));
    /// assert_eq!(Packet::from_bytes(b"something else"), None);
    /// ```
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u64(self.from.0).u64(self.to.0);
        match &self.message {
            Message::Prepare { id, oldest, participants, payload } => {
                out.u8(0).id(*id).position(*oldest).nodes(participants).bytes(payload);
            }
            Message::Vote { id, refusal } => {
                out.u8(1).id(*id).u8(refusal.is_some().into()).bytes(refusal.as_deref().unwrap_or_default().as_bytes());
            }
            Message::Decision { id, outcome, oldest } => {
                out.u8(2).id(*id).u8((*outcome == Outcome::Committed).into()).u8(oldest.is_some().into());
                out.position(oldest.unwrap_or_default());
            }
            Message::Done { id } => {
                out.u8(3).id(*id);
            }
            Message::Ask { id } => {
                out.u8(4).id(*id);
            }
        }
        out.0
    }

    /// Reads the encoding of [`to_bytes`](Packet::to_bytes); `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Packet> {
        let mut from = Reader(bytes);
        let (sender, to) = (NodeId(from.u64()?), NodeId(from.u64()?));
        let message = match from.u8()? {
            0 => Message::Prepare {
                id: from.id()?,
                oldest: from.position()?,
                participants: from.nodes()?,
                payload: from.bytes()?.into(),
            },
            1 => {
                let (id, refused) = (from.id()?, from.flag()?);
                let text = std::str::from_utf8(from.bytes()?).ok()?;
                Message::Vote { id, refusal: refused.then(|| text.into()) }
            }
            2 => {
                let (id, committed, told) = (from.id()?, from.flag()?, from.flag()?);
                let oldest = from.position()?;
                let outcome = if committed { Outcome::Committed } else { Outcome::Aborted };
                Message::Decision { id, outcome, oldest: told.then_some(oldest) }
            }
            3 => Message::Done { id: from.id()? },
            4 => Message::Ask { id: from.id()? },
            _ => return None,
        };
        from.0.is_empty().then_some(Packet { from: sender, to, message })
    }
}
