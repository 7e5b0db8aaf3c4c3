//! The shared facts about one table.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::engine::TableId;
use crate::error::Refusal;
use crate::lock::LockState;
use crate::partition::OWN;
use crate::{Durability, Kind, TableSummary};

/// One table; all handles to it share this, so that all of them know when it is destroyed.
pub(crate) struct TableInfo {
    pub(crate) id: TableId,
    pub(crate) name: String,
    pub(crate) kept: Kept,
    destroyed: AtomicBool,
    /// Of a lock: its waiters and its newest token.
    pub(crate) lock: LockState,
}

/// The line of a table in the catalog.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) id: u64,
    /// `Hash` and `Ordered` have the bytes 0 and 1, which older stores wrote for "is ordered".
    pub(crate) kind: Kind,
    pub(crate) durability: Durability,
    pub(crate) expiry: bool,
}

impl TableInfo {
    pub(crate) fn new(name: &str, kept: Kept) -> TableInfo {
        TableInfo {
            id: TableId(kept.id),
            name: name.to_owned(),
            kept,
            destroyed: AtomicBool::new(false),
            lock: LockState::default(),
        }
    }

    /// The table of the store's own data, for writes that are about no table.
    pub(crate) fn own() -> Arc<TableInfo> {
        static OWN_INFO: LazyLock<Arc<TableInfo>> = LazyLock::new(|| {
            let kept = Kept { id: OWN.0, kind: Kind::Hash, durability: Durability::Synced, expiry: false };
            Arc::new(TableInfo::new("the store's own", kept))
        });
        OWN_INFO.clone()
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if self.destroyed.load(SeqCst) { Err(Refusal::Destroyed(self.name.clone())) } else { Ok(()) }
    }

    pub(crate) fn summary(&self) -> TableSummary {
        let Kept { kind, durability, expiry, .. } = self.kept;
        TableSummary { name: self.name.clone(), kind, ordered: kind == Kind::Ordered, durability, expiry }
    }

    /// Called after the catalog has forgotten the table.
    pub(crate) fn destroy(&self) {
        self.destroyed.store(true, SeqCst);
    }
}
