//! Tables that outlive the process: typed, durable, split into partitions that are colors.
//!
//! The design, and the ways rejected, are in the crate's README.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod bounded;
mod bulk;
mod codec;
mod copy;
mod counter;
pub mod engine;
mod entries;
mod error;
mod lock;
mod log;
mod map;
mod options;
mod partition;
mod record;
mod repartition;
mod store;
mod table;
mod table_info;
mod transaction;
mod url;
mod watch;

pub use bounded::Bounded;
pub use codec::{decode_ordered_key, ordered_key};
pub use copy::Copied;
pub use counter::Counter;
#[cfg(feature = "etcd")]
pub use engine::Etcd;
#[cfg(feature = "fjall")]
pub use engine::Fjall;
pub use engine::{AnyEngine, Memory, Redb};
pub use error::{Error, OperationId, Outcome, Refusal};
pub use lock::{Lock, LockGuard, Token};
pub use log::{Log, LogIter, Tail};
pub use options::{Durability, Expect, Kind, Read, StoreOptions, TableOptions, Version, Versioned};
pub use repartition::Digest;
pub use store::{PartitionStats, Store, TableSummary};
pub use table::{Change, Entry, HotKey, Iter, OrderedTable, Table, Written};
pub use transaction::{Batch, BatchRead, Key, Transaction, Value};
pub use url::{StoreUrl, StoreUrlError};
pub use watch::{Changed, Cursor, StoreChanged, StoreWatch, Watch};
