//! A reader of the log of `dapple sign`, written from the documented format (docs/sign.md), not
//! from the code that writes it.

use anyhow::{Context, Result, ensure};
use md5::{Digest, Md5};
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

/// Counts the records of a log, and checks each: complete, in order, and with the right checksum.
/// An error if a byte is left over at the end and `ended_well` says that the server was not killed.
pub(super) fn count_records(path: &Path, ended_well: bool) -> Result<u64> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot read the log {}", path.display()))?;
    let len = file.metadata()?.len();
    ensure!(
        !ended_well || len.is_multiple_of(RECORD_LEN as u64),
        "the log {} has {len} bytes, which is no multiple of {RECORD_LEN}",
        path.display()
    );
    let mut file = BufReader::with_capacity(1 << 20, file);
    let mut record = [0; RECORD_LEN];
    let mut records = 0;
    loop {
        match file.read_exact(&mut record) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(records),
            Err(error) => return Err(error).with_context(|| format!("cannot read the log {}", path.display())),
        }
        records += 1;
        ensure!(is_record(&record, records), "record {records} of {} is not what it should be", path.display());
    }
}

/// Whether these bytes are the record of this number.
fn is_record(record: &[u8; RECORD_LEN], number: u64) -> bool {
    let (summed, sum) = record.split_at(SUMMED_LEN);
    summed.starts_with(MAGIC) && summed[8..16] == number.to_be_bytes() && Md5::digest(summed)[..] == *sum
}

/// The beginning of a record.
const MAGIC: &[u8; 8] = b"DSIGLOG1";

const RECORD_LEN: usize = 128;

/// The checksummed bytes of a record.
const SUMMED_LEN: usize = 112;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> Vec<u8> {
        let mut record = [&MAGIC[..], &number.to_be_bytes(), &[7; 96]].concat();
        let sum = Md5::digest(&record);
        record.extend_from_slice(&sum);
        record
    }

    fn count(bytes: &[u8], ended_well: bool) -> Result<u64, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        std::fs::write(&path, bytes).expect("it is written");
        count_records(&path, ended_well).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn records_are_counted() {
        assert_eq!(count(&[], true), Ok(0));
        assert_eq!(count(&[record(1), record(2), record(3)].concat(), true), Ok(3));
    }

    #[test]
    fn half_a_record_is_there_after_a_crash_only() {
        let bytes = [&record(1)[..], &record(2)[..60]].concat();
        assert_eq!(count(&bytes, false), Ok(1));
        assert!(count(&bytes, true).is_err_and(|error| error.contains("188 bytes")));
    }

    #[test]
    fn a_gap_a_repetition_and_a_changed_byte_are_seen() {
        let mut changed = record(2);
        changed[100] ^= 1;
        for second in [record(3), record(1), changed, vec![0; RECORD_LEN]] {
            let error = count(&[record(1), second].concat(), true);
            assert!(error.as_ref().is_err_and(|error| error.contains("record 2 of")), "{error:?}");
        }
        let missing = count_records(Path::new("/no/such/log"), true).map_err(|error| format!("{error:#}"));
        assert!(missing.is_err_and(|error| error.contains("cannot read the log /no/such/log")));
    }
}
