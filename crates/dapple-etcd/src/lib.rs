//! A client of etcd, by the JSON gateway (v3) that every etcd from 3.4 on has on its client port.
//!
//! | type | does |
//! |---|---|
//! | [`Etcd`] | reads, writes, removals, guarded writes, transactions |
//! | [`Lease`] | keys that go where their owner does not renew them |
//! | [`Watch`] | changes in their order, also over lost connections, without a gap |
//! | [`Held`] | a lock, with a fencing token |
//! | [`Error`] | the three cases: not applied, unknown, unavailable |
//!
//! Each call has a deadline. Within it, the client asks one member after the other:
//!
//! | call | after a lost reply |
//! |---|---|
//! | reads, [`put_guarded`](Etcd::put_guarded), [`txn_guarded`](Etcd::txn_guarded), leases, locks | sent again, as long as there is time |
//! | [`put`](Etcd::put), [`delete`](Etcd::delete), [`txn`](Etcd::txn) with writes | [`Error::Unknown`] |
//!
//! So a caller of reads and guarded writes does not notice that one of three members is down.
//!
//! # The limits of etcd
//!
//! etcd holds configuration and coordination, not bulk data. Every member holds everything, so more members make it safer and not larger, and
//! writes slower. The database has 2 GiB by default (`--quota-backend-bytes`), and should not exceed 8 GiB. A request has at most 1.5 MiB by
//! default (`--max-request-bytes`), value and keys together; in JSON a value takes a third more on its way. A transaction has 128 operations.
//! History stays until it is compacted, and compacted history is no longer there for watches and reads of the past.
//!
//! The gateway checks users by password. A certificate of the client proves the client to TLS, but does not name the user.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod answer;
mod auth;
mod builder;
mod call;
mod client;
mod error;
mod keys;
mod lease;
mod lock;
mod op;
mod txn;
mod url;
mod watch;
mod wire;

pub use self::builder::EtcdBuilder;
pub use self::client::{Etcd, Guard, Guarded};
pub use self::error::{Error, Reason};
pub use self::keys::Keys;
pub use self::lease::{Lease, LeaseId};
pub use self::lock::Held;
pub use self::op::{Delete, Found, Get, Put, Record, Removed, Sort, Written};
pub use self::txn::{Compare, Number, Op, OpResult, Txn, TxnReply};
pub use self::url::{EtcdUrl, EtcdUrlError};
pub use self::watch::{Event, Watch, Watching};
