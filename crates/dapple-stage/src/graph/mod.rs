//! Which stages there are, and what flows from where to where.

use std::sync::{Arc, Weak};

use crate::stage::StageStats;
use crate::switch::{Mutex, lock};

/// Something in a graph: it has a name, numbers, and others that it sends to.
pub trait Node: Send + Sync {
    /// What it is called.
    fn name(&self) -> String;

    /// Its numbers; `None` for what has none, such as an operator without a queue.
    fn stats(&self) -> Option<StageStats>;

    /// Where it sends to, and how that is called.
    fn links(&self) -> Vec<(Arc<dyn Node>, &'static str)>;
}

/// What has a place in a graph.
pub trait Linked {
    /// Its node.
    fn node(&self) -> Arc<dyn Node>;
}

/// Where something sends to. It does not keep that alive.
#[derive(Default)]
pub(crate) struct Links(Mutex<Vec<(Weak<dyn Node>, &'static str)>>);

impl Links {
    /// Adds a link, once.
    pub(crate) fn add(&self, to: &Arc<dyn Node>, how: &'static str) {
        let mut links = lock(&self.0);
        links.retain(|(node, _)| node.strong_count() > 0);
        if !links.iter().any(|(node, known)| is_same(node, to) && *known == how) {
            links.push((Arc::downgrade(to), how));
        }
    }

    pub(crate) fn all(&self) -> Vec<(Arc<dyn Node>, &'static str)> {
        lock(&self.0).iter().filter_map(|(node, how)| Some((node.upgrade()?, *how))).collect()
    }
}

fn is_same(one: &Weak<dyn Node>, other: &Arc<dyn Node>) -> bool {
    std::ptr::addr_eq(one.as_ptr(), Arc::as_ptr(other))
}
