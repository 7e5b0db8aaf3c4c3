//! The records of a log and their purpose.

use std::sync::Arc;

use super::bytes::{Reader, Writer};
use super::{NodeId, Position, TransactionId};

/// One record of a log.
///
/// | record | by | on disk before | effect of its loss in a crash |
/// |---|---|---|---|
/// | `Prepared` | participant | it votes yes | it never promised |
/// | `Committed` | participant | the resource commits | it asks again |
/// | `Aborted` | participant | the resource aborts, or another node learns that it never voted | it asks again, or had not answered |
/// | `Applied` | participant | (nothing waits) | the resource commits once more |
/// | `Floor` | participant | (in a compacted log) | |
/// | `Epoch` | coordinator | any transaction begins | |
/// | `Decided` | coordinator | any participant is told to commit | no participant was told: it is aborted |
/// | `Ended` | coordinator | (nothing waits) | participants are told once more |
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub enum Record {
    Prepared { id: TransactionId, participants: Arc<[NodeId]>, payload: Arc<[u8]> },
    Committed { id: TransactionId },
    Aborted { id: TransactionId },
    Applied { id: TransactionId },
    Floor { coordinator: NodeId, oldest: Position },
    Epoch { epoch: u64 },
    Decided { id: TransactionId, participants: Arc<[NodeId]> },
    Ended { id: TransactionId },
}

impl Record {
    /// Whether the log reserves room for it from the promise on, so that a full disk cannot prevent
    /// the end of a promised transaction.
    #[cfg(test)]
    pub(super) fn has_room_kept(&self) -> bool {
        matches!(
            self,
            Record::Committed { .. } | Record::Aborted { .. } | Record::Applied { .. } | Record::Ended { .. }
        )
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Record::Prepared { id, participants, payload } => out.u8(1).id(*id).nodes(participants).bytes(payload),
            Record::Committed { id } => out.u8(2).id(*id),
            Record::Aborted { id } => out.u8(3).id(*id),
            Record::Applied { id } => out.u8(4).id(*id),
            Record::Floor { coordinator, oldest } => out.u8(5).u64(coordinator.0).position(*oldest),
            Record::Epoch { epoch } => out.u8(6).u64(*epoch),
            Record::Decided { id, participants } => out.u8(7).id(*id).nodes(participants),
            Record::Ended { id } => out.u8(8).id(*id),
        };
        out.0
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Record> {
        let mut from = Reader(bytes);
        let record = match from.u8()? {
            1 => Record::Prepared { id: from.id()?, participants: from.nodes()?, payload: from.bytes()?.into() },
            2 => Record::Committed { id: from.id()? },
            3 => Record::Aborted { id: from.id()? },
            4 => Record::Applied { id: from.id()? },
            5 => Record::Floor { coordinator: NodeId(from.u64()?), oldest: from.position()? },
            6 => Record::Epoch { epoch: from.u64()? },
            7 => Record::Decided { id: from.id()?, participants: from.nodes()? },
            8 => Record::Ended { id: from.id()? },
            _ => return None,
        };
        from.0.is_empty().then_some(record)
    }
}
