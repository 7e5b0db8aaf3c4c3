//! Transactions: conditions, and what follows from them, in one step.

use bytes::Bytes;
use serde::Serialize;

use crate::error::Error;
use crate::keys::Keys;
use crate::lease::LeaseId;
use crate::op::{Delete, Found, Get, Put, Removed, Written};
use crate::wire::{Base64, OpReply};

/// Conditions, the operations that run if all of them hold, and those that run otherwise. etcd takes 128 operations by default, and no two
/// writes of one key.
///
/// ```
/// use dapple_etcd::{Compare, Get, Put, Txn};
///
/// // Moves a mark forward, or returns where it is.
/// let txn = Txn::new()
///     .when(Compare::mod_revision("mark").equals(42))
///     .then(Put::new("mark", "43"))
///     .otherwise(Get::new("mark"));
/// # let _ = txn;
/// ```
#[derive(Clone, Debug, Default, Serialize)]
pub struct Txn {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    compare: Vec<Compare>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    success: Vec<Op>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failure: Vec<Op>,
}

/// One operation of a transaction.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub enum Op {
    /// A read.
    #[serde(rename = "request_range")]
    Get(Get),
    /// A write.
    #[serde(rename = "request_put")]
    Put(Put),
    /// A removal.
    #[serde(rename = "request_delete_range")]
    Delete(Delete),
}

impl From<Get> for Op {
    fn from(get: Get) -> Op {
        Op::Get(get)
    }
}

impl From<Put> for Op {
    fn from(put: Put) -> Op {
        Op::Put(put)
    }
}

impl From<Delete> for Op {
    fn from(delete: Delete) -> Op {
        Op::Delete(delete)
    }
}

impl Txn {
    /// Without conditions and operations.
    pub fn new() -> Txn {
        Txn::default()
    }

    /// One more condition.
    #[must_use]
    pub fn when(mut self, compare: Compare) -> Txn {
        self.compare.push(compare);
        self
    }

    /// One more operation for the case that all conditions hold.
    #[must_use]
    pub fn then(mut self, op: impl Into<Op>) -> Txn {
        self.success.push(op.into());
        self
    }

    /// One more operation for the other case.
    #[must_use]
    pub fn otherwise(mut self, op: impl Into<Op>) -> Txn {
        self.failure.push(op.into());
        self
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.success.iter().chain(&self.failure).all(|op| matches!(op, Op::Get(_)))
    }
}

/// A condition on one key, or on each key of a range. A key that does not exist has the numbers 0 and an empty value.
#[derive(Clone, Debug, Serialize)]
pub struct Compare {
    key: Base64,
    #[serde(skip_serializing_if = "Option::is_none")]
    range_end: Option<Base64>,
    target: &'static str,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    create_revision: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mod_revision: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Base64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<i64>,
}

/// A number of a key that is still to be compared.
#[derive(Clone, Debug)]
#[must_use = "it is no condition before it says what it is compared with"]
pub struct Number {
    keys: Keys,
    target: &'static str,
}

impl Compare {
    /// The number of changes since the key came into being; 0: it does not exist.
    pub fn version(keys: impl Into<Keys>) -> Number {
        Number { keys: keys.into(), target: "VERSION" }
    }

    /// The revision at which the key came into being; 0: it does not exist.
    pub fn create_revision(keys: impl Into<Keys>) -> Number {
        Number { keys: keys.into(), target: "CREATE" }
    }

    /// The revision of the last change; 0: the key does not exist.
    pub fn mod_revision(keys: impl Into<Keys>) -> Number {
        Number { keys: keys.into(), target: "MOD" }
    }

    /// The value is this one.
    pub fn value_equals(keys: impl Into<Keys>, value: impl Into<Bytes>) -> Compare {
        Compare { value: Some(Base64(value.into())), ..Compare::new(keys.into(), "VALUE", "EQUAL") }
    }

    /// The key hangs on this lease.
    pub fn lease_equals(keys: impl Into<Keys>, lease: LeaseId) -> Compare {
        Compare { lease: Some(lease.number()), ..Compare::new(keys.into(), "LEASE", "EQUAL") }
    }

    /// The key does not exist.
    pub fn absent(keys: impl Into<Keys>) -> Compare {
        Compare::version(keys).equals(0)
    }

    fn new(keys: Keys, target: &'static str, result: &'static str) -> Compare {
        let Keys { key, range_end } = keys;
        let (version, create_revision, mod_revision) = (None, None, None);
        Compare { key, range_end, target, result, version, create_revision, mod_revision, value: None, lease: None }
    }
}

impl Number {
    /// It is `number`.
    pub fn equals(self, number: i64) -> Compare {
        self.compare("EQUAL", number)
    }

    /// It is not `number`.
    pub fn differs_from(self, number: i64) -> Compare {
        self.compare("NOT_EQUAL", number)
    }

    /// It is above `number`.
    pub fn is_above(self, number: i64) -> Compare {
        self.compare("GREATER", number)
    }

    /// It is below `number`.
    pub fn is_below(self, number: i64) -> Compare {
        self.compare("LESS", number)
    }

    fn compare(self, result: &'static str, number: i64) -> Compare {
        let mut compare = Compare::new(self.keys, self.target, result);
        let field = match self.target {
            "VERSION" => &mut compare.version,
            "CREATE" => &mut compare.create_revision,
            _ => &mut compare.mod_revision,
        };
        *field = Some(number);
        compare
    }
}

/// The reply to a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxnReply {
    /// All conditions held.
    pub succeeded: bool,
    /// The revision of the store after the transaction: that of its writes, if it wrote.
    pub revision: i64,
    /// One for each operation that ran.
    pub replies: Vec<OpResult>,
}

/// The reply to one operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpResult {
    /// To a read.
    Found(Found),
    /// To a write.
    Written(Written),
    /// To a removal.
    Removed(Removed),
}

impl TryFrom<crate::wire::TxnReply> for TxnReply {
    type Error = Error;

    fn try_from(reply: crate::wire::TxnReply) -> Result<TxnReply, Error> {
        let revision = reply.header.revision;
        let replies = reply.responses.into_iter().map(|reply| OpResult::of(reply, revision));
        Ok(TxnReply { succeeded: reply.succeeded, revision, replies: replies.collect::<Result<_, _>>()? })
    }
}

impl OpResult {
    /// The parts of a transaction have no revision of their own on some versions; it is that of the whole.
    fn of(reply: OpReply, revision: i64) -> Result<OpResult, Error> {
        match reply {
            OpReply { response_range: Some(range), .. } => Ok(OpResult::Found(Found { revision, ..range.into() })),
            OpReply { response_put: Some(put), .. } => Ok(OpResult::Written(Written { revision, ..put.into() })),
            OpReply { response_delete_range: Some(delete), .. } => {
                Ok(OpResult::Removed(Removed { revision, ..delete.into() }))
            }
            _ => Err(Error::Unknown { message: "a part of the reply to a transaction is of no known kind".to_owned() }),
        }
    }

    /// The records of a read; none for another kind.
    pub fn into_found(self) -> Option<Found> {
        match self {
            OpResult::Found(found) => Some(found),
            OpResult::Written(_) | OpResult::Removed(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Compare, Txn};
    use crate::{Delete, Get, Keys, Put};

    #[test]
    fn a_transaction_is_written_as_the_gateway_wants_it() {
        let txn = Txn::new()
            .when(Compare::mod_revision("a").equals(5))
            .when(Compare::value_equals(Keys::prefix("b"), "c"))
            .then(Put::new("a", "b"))
            .otherwise(Get::new("a").limit(1))
            .otherwise(Delete::new("a"));
        assert_eq!(
            serde_json::to_string(&txn).unwrap(),
            r#"{"compare":[{"key":"YQ==","target":"MOD","result":"EQUAL","mod_revision":5},{"key":"Yg==","range_end":"Yw==","target":"VALUE","result":"EQUAL","value":"Yw=="}],"success":[{"request_put":{"key":"YQ==","value":"Yg=="}}],"failure":[{"request_range":{"key":"YQ==","limit":1}},{"request_delete_range":{"key":"YQ=="}}]}"#
        );
        assert!(!txn.is_read_only() && Txn::new().then(Get::new("a")).is_read_only());
    }
}
