//! The encoding of numbers and names, for the log and for packets. The input may be anything: no
//! length in it is trusted.

use std::sync::Arc;

use super::{NodeId, Position, TransactionId};

/// Appends to a buffer.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u8(&mut self, value: u8) -> &mut Writer {
        self.0.push(value);
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Writer {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn position(&mut self, position: Position) -> &mut Writer {
        self.u64(position.epoch).u64(position.number)
    }

    pub(super) fn id(&mut self, id: TransactionId) -> &mut Writer {
        self.u64(id.coordinator.0).position(id.position)
    }

    pub(super) fn nodes(&mut self, nodes: &[NodeId]) -> &mut Writer {
        self.u64(nodes.len() as u64);
        for node in nodes {
            self.u64(node.0);
        }
        self
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.u64(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }
}

/// Takes values from the front; `None` if the bytes are too few or invalid.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn u8(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    pub(super) fn position(&mut self) -> Option<Position> {
        Some(Position { epoch: self.u64()?, number: self.u64()? })
    }

    pub(super) fn id(&mut self) -> Option<TransactionId> {
        Some(TransactionId { coordinator: NodeId(self.u64()?), position: self.position()? })
    }

    pub(super) fn nodes(&mut self) -> Option<Arc<[NodeId]>> {
        let count = usize::try_from(self.u64()?).ok()?;
        if count > self.0.len() / 8 {
            return None;
        }
        (0..count).map(|_| self.u64().map(NodeId)).collect()
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u64()?).ok()?;
        let (first, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(first)
    }
}

/// CRC-32C, as used by iSCSI and ext4.
pub(super) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut crc = u32::MAX;
    for byte in parts.iter().copied().flatten() {
        crc = TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ (crc >> 8);
    }
    !crc
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_rfc_3720() {
        assert_eq!(crc32c(&[b"1234", b"56789"]), 0xe306_9283);
        assert_eq!(crc32c(&[&[0; 32]]), 0x8a91_36aa);
    }
}
