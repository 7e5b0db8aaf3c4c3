//! The messages of client and servers: tasks of 150 bytes, which come back with one byte changed.

use anyhow::{Result, ensure};

/// Bytes of a task, and of its reply.
pub(super) const RECORD_LEN: usize = 150;

/// One task, or its reply.
pub(super) type Record = [u8; RECORD_LEN];

/// The slot, the number of its use, and the time of sending.
pub(super) struct Stamp {
    pub(super) slot: u32,
    pub(super) use_number: u32,
    pub(super) sent_ns: u64,
}

/// Marks a task, which is the server's work.
pub(super) fn mark(record: &mut [u8]) {
    record[MARK] = 1;
}

/// Writes a task.
pub(super) fn write(record: &mut [u8], stamp: &Stamp) {
    record[..4].copy_from_slice(&stamp.slot.to_le_bytes());
    record[4..8].copy_from_slice(&stamp.use_number.to_le_bytes());
    record[8..16].copy_from_slice(&stamp.sent_ns.to_le_bytes());
    record[MARK] = 0;
    record[MARK + 1..].fill(fill(stamp));
}

/// Reads a reply; an error if it is malformed or was changed on its way.
pub(super) fn read(record: &[u8]) -> Result<Stamp> {
    let word = |at: usize| u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
    let sent_ns = u64::from(word(8)) | u64::from(word(12)) << 32;
    let stamp = Stamp { slot: word(0), use_number: word(4), sent_ns };
    let filled = record[MARK + 1..].iter().all(|byte| *byte == fill(&stamp));
    ensure!(record[MARK] == 1 && filled, "a reply is not what was sent for slot {}", stamp.slot);
    Ok(stamp)
}

fn fill(stamp: &Stamp) -> u8 {
    (stamp.slot ^ stamp.use_number) as u8
}

/// The byte that a server changes.
const MARK: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_a_marked_task() {
        let mut record = [0; RECORD_LEN];
        write(&mut record, &Stamp { slot: 7, use_number: 3, sent_ns: 1 << 40 });
        assert!(read(&record).is_err(), "not marked");
        mark(&mut record);
        let stamp = read(&record).expect("it is a reply");
        assert_eq!((stamp.slot, stamp.use_number, stamp.sent_ns), (7, 3, 1 << 40));
        record[100] ^= 1;
        assert!(read(&record).is_err(), "changed");
    }
}
