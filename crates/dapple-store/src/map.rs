//! The map from keys to partitions, and the layout in the catalog that defines it.

use serde::{Deserialize, Serialize};

use crate::Durability;
use crate::codec;
use crate::engine::{Engine, Failure, Partition, Place};
use crate::error::Refusal;
use crate::partition::PartitionHandle;
use crate::table_info::TableInfo;

/// Partitions by their durability.
pub(crate) type Groups<P> = Vec<(Durability, Vec<PartitionHandle<P>>)>;

/// The partitions of a store.
pub(crate) struct Map<P: Partition> {
    pub(crate) groups: Groups<P>,
    pub(crate) layout: Layout,
    /// Grows with each new map of an open store.
    pub(crate) epoch: u64,
}

/// The properties of a store, in its catalog. The partitions of each durability have the places from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) partitions: u32,
    pub(crate) first: u32,
    /// First index and number of the partitions of the map before, which are to be removed.
    pub(crate) stale: Option<(u32, u32)>,
}

/// Format 1.
#[derive(Serialize, Deserialize)]
struct Simple {
    format: u64,
    partitions: u32,
}

/// Format 2.
#[derive(Serialize, Deserialize)]
struct Moved {
    format: u64,
    partitions: u32,
    first: u32,
    stale: Option<(u32, u32)>,
}

const FORMAT: u64 = 2;
/// The format of a store into which a copy is not finished.
const UNFINISHED: u64 = 1 << 32;

impl<P: Partition> Map<P> {
    /// The partition of a key.
    pub(crate) fn of(&self, info: &TableInfo, key: &[u8]) -> &PartitionHandle<P> {
        let partitions = self.group(info.kept.durability);
        &partitions[place(info, key, partitions.len())]
    }

    pub(crate) fn group(&self, durability: Durability) -> &[PartitionHandle<P>] {
        let group = self.groups.iter().find(|(of, _)| *of == durability);
        group.map_or(&[], |(_, partitions)| partitions)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &PartitionHandle<P>> {
        self.groups.iter().flat_map(|(_, partitions)| partitions)
    }
}

/// The index of a key among this many partitions. A log, a lock or a counter is in one.
pub(crate) fn place(info: &TableInfo, key: &[u8], partitions: usize) -> usize {
    let hash = if info.kept.kind.is_table() { crc32fast::hash(key) } else { crc32fast::hash(&info.id.0.to_le_bytes()) };
    hash as usize % partitions
}

impl Layout {
    pub(crate) fn new(partitions: u32) -> Layout {
        Layout { partitions, first: 0, stale: None }
    }

    /// A number for each partition, which no partition of the map before has.
    pub(crate) fn index(&self, durability: u32, number: u32) -> u32 {
        // Stores of format 1 number theirs so, in commit records, too.
        if self.first == 0 {
            1 + durability * self.partitions + number
        } else {
            ((durability + 1) << 26) | (self.first + number)
        }
    }

    /// The places of the partitions with this durability.
    pub(crate) fn places_of(&self, durability: Durability) -> impl Iterator<Item = Place> + use<> {
        (self.first..self.first + self.partitions).map(move |index| Place::Partition { durability, index })
    }

    /// The places of all partitions.
    pub(crate) fn places<E: Engine>(&self) -> impl Iterator<Item = Place> + use<'_, E> {
        E::DURABILITIES.iter().flat_map(|&durability| self.places_of(durability))
    }

    /// The layout of the map before, if its partitions are to be removed.
    pub(crate) fn before(&self) -> Option<Layout> {
        self.stale.map(|(first, partitions)| Layout { partitions, first, stale: None })
    }

    pub(crate) fn encode(&self) -> Result<bytes::Bytes, Refusal> {
        let Layout { partitions, first, stale } = *self;
        // Older programs read what they can.
        if first == 0 && stale.is_none() {
            return codec::encode(&Simple { format: 1, partitions });
        }
        codec::encode(&Moved { format: FORMAT, partitions, first, stale })
    }

    /// The mark in a store with incomplete data.
    pub(crate) fn unfinished() -> Result<bytes::Bytes, Refusal> {
        codec::encode(&Simple { format: UNFINISHED, partitions: 0 })
    }

    pub(crate) fn decode<P: Partition>(catalog: &P, bytes: &[u8]) -> Result<Layout, Refusal> {
        if let Ok(Simple { format, partitions }) = codec::decode(bytes) {
            match format {
                1 => return Ok(Layout::new(partitions)),
                UNFINISHED => {
                    let detail = "a copy into this store was not finished: remove its directory, and copy again";
                    return Err(catalog.corrupt(detail).into());
                }
                _ => {}
            }
        }
        match codec::decode(bytes) {
            Ok(Moved { format: FORMAT, partitions, first, stale }) => Ok(Layout { partitions, first, stale }),
            _ => {
                // The format is the first number in all of them.
                let found = postcard::take_from_bytes::<u64>(bytes).map_or(0, |(found, _)| found);
                Err(Failure::Skew { file: catalog.name(), found, known: FORMAT }.into())
            }
        }
    }
}
