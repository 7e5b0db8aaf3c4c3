//! A client of etcd, by the JSON gateway (v3) that every etcd from 3.4 on has on its client port.

#![forbid(unsafe_code)]

mod answer;
mod auth;
mod builder;
mod call;
mod client;
mod error;
mod keys;
mod lease;
mod op;
mod txn;
mod watch;
mod wire;

pub use self::builder::EtcdBuilder;
pub use self::client::{Etcd, Guard, Guarded};
pub use self::error::{Error, Reason};
pub use self::keys::Keys;
pub use self::lease::{Lease, LeaseId};
pub use self::op::{Delete, Found, Get, Put, Record, Removed, Sort, Written};
pub use self::txn::{Compare, Number, Op, OpResult, Txn, TxnReply};
pub use self::watch::{Event, Watch, Watching};
