//! A commit as transactions of etcd: which may not write a key twice, and have a limit.

use std::collections::{BTreeMap, BTreeSet};

use dapple_etcd::{Delete, Keys, Op, Put, Txn};
use serde::{Deserialize, Serialize};

use crate::engine::{Change, TableId};

/// The operations and bytes of one transaction: etcd takes 128 and 1.5 MiB by default.
const OPS_MAX: usize = 100;
const BYTES_MAX: usize = (1 << 20) + (64 << 10);

/// A commit with one write for each key: first some tables go, then the writes follow.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Writes {
    dropped: BTreeSet<u64>,
    /// `None` removes the key.
    keys: BTreeMap<(u64, Vec<u8>), Option<Vec<u8>>>,
}

impl Writes {
    pub(super) fn of(changes: &[Change]) -> Writes {
        let mut writes = Writes::default();
        for change in changes {
            match change {
                Change::Put(table, key, bytes) => {
                    writes.keys.insert((table.0, key.clone()), Some(bytes.clone()));
                }
                Change::Remove(table, key) => {
                    writes.keys.insert((table.0, key.clone()), None);
                }
                Change::DropTable(table) => {
                    writes.keys.retain(|(of, _), _| *of != table.0);
                    writes.dropped.insert(table.0);
                }
            }
        }
        writes
    }

    /// The transactions that apply it, in their order. All of them may be applied again from any one on.
    pub(super) fn txns(&self, data: &str) -> Vec<Txn> {
        let mut txns = vec![Open::default()];
        let last = |txns: &mut Vec<Open>, len: usize| {
            if txns.last().is_none_or(|open| open.ops.len() == OPS_MAX || open.bytes + len > BYTES_MAX) {
                txns.push(Open::default());
            }
        };
        for table in &self.dropped {
            last(&mut txns, 0);
            let keys = Keys::prefix(data_key(data, TableId(*table), b""));
            txns.last_mut().into_iter().for_each(|open| open.ops.push(Delete::new(keys.clone()).into()));
        }
        // etcd refuses a put into a range that the same transaction removes.
        if self.keys.keys().any(|(table, _)| self.dropped.contains(table)) {
            txns.push(Open::default());
        }
        for ((table, key), bytes) in &self.keys {
            let len = key.len() + bytes.as_ref().map_or(0, Vec::len);
            last(&mut txns, len);
            let key = data_key(data, TableId(*table), key);
            let op: Op = match bytes {
                Some(bytes) => Put::new(key, bytes.clone()).into(),
                None => Delete::new(Keys::one(key)).into(),
            };
            if let Some(open) = txns.last_mut() {
                open.ops.push(op);
                open.bytes += len;
            }
        }
        txns.into_iter().map(|open| open.ops.into_iter().fold(Txn::new(), Txn::then)).collect()
    }
}

#[derive(Default)]
struct Open {
    ops: Vec<Op>,
    bytes: usize,
}

/// The key of a record: the order of all of them is that of tables, then of keys.
pub(super) fn data_key(data: &str, table: TableId, key: &[u8]) -> Vec<u8> {
    [data.as_bytes(), &table.0.to_be_bytes(), key].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(table: u64, key: &str, len: usize) -> Change {
        Change::Put(TableId(table), key.into(), vec![7; len])
    }

    fn lens(changes: &[Change]) -> Vec<String> {
        let txns = Writes::of(changes).txns("d/");
        txns.iter().map(|txn| serde_json::to_string(txn).unwrap()).collect()
    }

    #[test]
    fn a_commit_within_the_limits_is_one_transaction() {
        let many: Vec<_> = (0..OPS_MAX).map(|n| put(1, &n.to_string(), 10)).collect();
        assert_eq!(lens(&many).len(), 1);
        assert_eq!(lens(&[put(1, "a", 1 << 20)]).len(), 1);
        assert_eq!(lens(&[]), ["{}"]);
    }

    #[test]
    fn a_larger_one_is_several() {
        let many: Vec<_> = (0..=OPS_MAX).map(|n| put(1, &n.to_string(), 10)).collect();
        assert_eq!(lens(&many).len(), 2);
        assert_eq!(lens(&[put(1, "a", 1 << 20), put(1, "b", 1 << 20)]).len(), 2);
    }

    #[test]
    fn each_key_is_written_once_and_after_the_drop_of_its_table() {
        let once = lens(&[put(1, "a", 1), Change::Remove(TableId(1), "a".into())]);
        assert!(once.len() == 1 && !once[0].contains("request_put") && once[0].contains("request_delete_range"));
        let [dropped, kept] = &lens(&[put(1, "a", 1), Change::DropTable(TableId(1)), put(1, "b", 1)])[..] else {
            panic!()
        };
        assert!(dropped.contains("range_end") && !dropped.contains("put"), "{dropped}");
        assert_eq!(kept.matches("request_put").count(), 1, "{kept}");
        assert_eq!(lens(&[Change::DropTable(TableId(2)), put(1, "b", 1)]).len(), 1);
    }
}
