//! The bytes that an engine keeps for a key: a checksum, the version, the time of expiry, the value.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use dapple_sched::environment;

use crate::engine::TableId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) version: u64,
    /// Milliseconds since 1970, or `NEVER`.
    pub(crate) expires_ms: u64,
    pub(crate) value: Bytes,
}

pub(crate) const NEVER: u64 = u64::MAX;

/// The length of everything before the value.
const HEAD_LEN: usize = 20;

impl Record {
    pub(crate) fn encode(&self, table: TableId, key: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_LEN + self.value.len());
        bytes.extend([0; 4]);
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.expires_ms.to_le_bytes());
        bytes.extend_from_slice(&self.value);
        let sum = checksum(table, key, &bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None` if the checksum does not match the table, the key and the rest.
    pub(crate) fn decode(table: TableId, key: &[u8], bytes: Vec<u8>) -> Option<Record> {
        let (head, _) = bytes.split_first_chunk::<HEAD_LEN>()?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| head[at + index]));
        let sum = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let (version, expires_ms) = (number(4), number(12));
        if sum != checksum(table, key, &bytes[4..]) {
            return None;
        }
        Some(Record { version, expires_ms, value: Bytes::from(bytes).slice(HEAD_LEN..) })
    }

    pub(crate) fn is_live(&self, now_ms: u64) -> bool {
        self.expires_ms > now_ms
    }
}

/// The time of the system's clock, milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    ms_of(environment::system_now())
}

pub(crate) fn ms_of(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis().try_into().unwrap_or(NEVER))
}

fn checksum(table: TableId, key: &[u8], rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&table.0.to_le_bytes());
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    hasher.update(rest);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_with_any_bit_flipped_is_not_read() {
        let record = Record { version: 7, expires_ms: NEVER, value: Bytes::from_static(b"value") };
        let bytes = record.encode(TableId(3), b"key");
        assert_eq!(Record::decode(TableId(3), b"key", bytes.clone()), Some(record));
        assert_eq!(Record::decode(TableId(3), b"kex", bytes.clone()), None);
        assert_eq!(Record::decode(TableId(4), b"key", bytes.clone()), None);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::decode(TableId(3), b"key", flipped), None, "bit {bit}");
        }
        assert_eq!(Record::decode(TableId(3), b"key", bytes[..19].to_vec()), None);
    }
}
