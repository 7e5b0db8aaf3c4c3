//! Logs in a partition: entries under their positions, and a head that says which positions exist.

use std::ops::Bound::{Included, Unbounded};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::batch::{Batch, Reply};
use crate::codec;
use crate::engine::{Failure, Partition, TableId};
use crate::error::Refusal;
use crate::record::{NEVER, Record};

/// The positions of a log: from `first`, below `next`. Its record has the empty key, which sorts
/// before all positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ends {
    pub(crate) first: u64,
    pub(crate) next: u64,
}

/// The most entries that one write removes.
const TRIM_MAX: u64 = 1024;

impl<P: Partition> Batch<'_, P> {
    /// Appends all values; the reply's number is the position of the first.
    pub(super) fn append(&mut self, table: TableId, values: &[Bytes]) -> Result<Reply, Refusal> {
        let mut ends = self.ends(table)?;
        let number = i64::try_from(ends.next).map_err(|_| Refusal::Overflow)?;
        for value in values {
            self.set(table, &position_key(ends.next), Some((value.clone(), NEVER)));
            ends.next += 1;
        }
        self.set_ends(table, ends)?;
        Ok(Reply { number, ..Reply::new(None, self.version()) })
    }

    /// Removes entries below `to`, as many as one write may; the reply's number is the first position that is left.
    pub(super) fn trim(&mut self, table: TableId, to: u64) -> Result<Reply, Refusal> {
        let mut ends = self.ends(table)?;
        let to = to.min(ends.next).min(ends.first.saturating_add(TRIM_MAX));
        while ends.first < to {
            self.set(table, &position_key(ends.first), None);
            ends.first += 1;
        }
        self.set_ends(table, ends)?;
        let number = i64::try_from(ends.first).map_err(|_| Refusal::Overflow)?;
        Ok(Reply { number, ..Reply::new(None, self.version()) })
    }

    fn ends(&mut self, table: TableId) -> Result<Ends, Refusal> {
        self.kept(table, &Bytes::new())?.map_or(Ok(Ends::default()), |record| codec::decode(&record.value))
    }

    fn set_ends(&mut self, table: TableId, ends: Ends) -> Result<(), Refusal> {
        self.set(table, &Bytes::new(), Some((codec::encode(&ends)?, NEVER)));
        self.mark_log(table);
        Ok(())
    }
}

/// Reads the positions of a log. Blocks.
pub(crate) fn ends<P: Partition>(engine: &P, table: TableId) -> Result<Ends, Failure> {
    let Some(record) = super::load(engine, table, b"")? else { return Ok(Ends::default()) };
    codec::decode(&record.value).map_err(|_| engine.corrupt("the head of a log cannot be read"))
}

/// The entries from `from` on, at most `limit`; `Err` holds the first position if that is greater. Blocks.
pub(crate) fn entries<P: Partition>(
    engine: &P,
    table: TableId,
    from: u64,
    limit: usize,
) -> Result<Result<Vec<Bytes>, u64>, Failure> {
    let key = position_key(from);
    let mut values = Vec::new();
    for (at, (key, bytes)) in (from..).zip(engine.scan(table, (Included(&key), Unbounded), limit)?) {
        if *key != *position_key(at) {
            // The log was trimmed beyond `from`.
            break;
        }
        let record = Record::decode(table, &key, bytes);
        values.push(record.ok_or_else(|| engine.corrupt("a record does not have its checksum"))?.value);
    }
    if values.is_empty() {
        let ends = ends(engine, table)?;
        if ends.first > from {
            return Ok(Err(ends.first));
        }
    }
    Ok(Ok(values))
}

fn position_key(position: u64) -> Bytes {
    Bytes::copy_from_slice(&position.to_be_bytes())
}
