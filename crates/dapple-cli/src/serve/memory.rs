//! Adapts to a limit on memory.
//!
//! | state | effect |
//! |---|---|
//! | roomy | the page cache grows back to its normal size, an eighth per second |
//! | tight | every second the page cache drops a quarter of its content |
//! | short | as tight, and new connections are refused |

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dapple::time::sleep;
use dapple_serve::host::{MEMORY_LOOK_EVERY, MemoryState, TIGHT_ENDS};
use tracing::{info, warn};

use super::pages::SHARDS;
use super::site::Site;
use crate::server::{Admission, MemoryLimit, MemoryUse};

/// The result of the last measurement. All zero without a limit.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    seen: MemoryState,
    /// The bytes that the page cache may hold now.
    cache_max: AtomicU64,
    /// How often the page cache had to shrink.
    shrinks: AtomicU64,
}

/// The same, for the status page.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct MemoryStatus {
    pub(crate) limit_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) page_cache_max_bytes: u64,
    pub(crate) page_cache_shrinks: u64,
    /// Whether new connections are refused.
    pub(crate) is_short: bool,
}

impl Memory {
    /// The result of the last measurement; `None` without a limit.
    pub(crate) fn status(&self) -> Option<MemoryStatus> {
        self.seen.seen().map(|seen| MemoryStatus {
            limit_bytes: seen.limit,
            used_bytes: seen.used,
            page_cache_max_bytes: self.cache_max.load(Ordering::Relaxed),
            page_cache_shrinks: self.shrinks.load(Ordering::Relaxed),
            is_short: self.seen.is_short(),
        })
    }
}

/// The size of the page cache in bytes; from the limit unless it is configured.
pub(crate) fn cache_bytes(asked_mb: Option<u64>, limit: Option<&MemoryLimit>) -> u64 {
    let quarter = limit.and_then(MemoryLimit::bytes).map_or(u64::MAX, |bytes| bytes / 4);
    asked_mb.map_or(CACHE_BYTES.min(quarter), |megabytes| megabytes << 20)
}

/// Measures memory once a second, as long as the server runs.
pub(crate) async fn watch(site: Arc<Site>, limit: MemoryLimit) {
    let full = site.cache_bytes;
    let mut cache_max = full;
    let memory = &site.memory;
    loop {
        if let Some(seen) = limit.look() {
            let changed = memory.seen.saw(seen);
            if memory.seen.is_tight() {
                cache_max = shrink(&site).await;
            } else if cache_max < full && seen.percent() < TIGHT_ENDS {
                cache_max = (cache_max + full / 8 + 1).min(full);
                for shard in &site.shards {
                    let bytes_max = cache_max / SHARDS as u64;
                    shard.with(move |shard| shard.set_bytes_max(bytes_max)).await;
                }
            }
            memory.cache_max.store(cache_max, Ordering::Relaxed);
            if let Some(is_short) = changed {
                tell(is_short, &site.admission, seen);
            }
        }
        sleep(MEMORY_LOOK_EVERY).await;
    }
}

/// Makes every shard drop a quarter of its content, and the allocator return that memory. Returns
/// the new size limit.
async fn shrink(site: &Site) -> u64 {
    let (mut cache_max, mut gone) = (0, 0);
    for shard in &site.shards {
        let (before, after) = shard
            .with(|shard| {
                let before = shard.bytes();
                shard.set_bytes_max(before / 4 * 3);
                (before, before / 4 * 3)
            })
            .await;
        cache_max += after;
        gone += before - after;
    }
    if gone > 0 {
        site.memory.shrinks.fetch_add(1, Ordering::Relaxed);
    }
    // Ended connections leave memory too. If the pool is full, the next second is early enough.
    let _ = dapple::blocking::spawn_blocking(dapple::process::give_back_memory).await;
    cache_max
}

/// Starts and stops refusing connections.
fn tell(is_short: bool, admission: &Admission, seen: MemoryUse) {
    admission.set_short_of_memory(is_short);
    let (used_mb, limit_mb) = (seen.used >> 20, seen.limit >> 20);
    if is_short {
        warn!(used_mb, limit_mb, "memory is short; new connections are refused until there is more");
    } else {
        warn!(used_mb, limit_mb, "there is enough memory again; new connections are accepted");
        info!(refused = admission.refused(crate::server::Refusal::Memory), "connections refused for lack of memory");
    }
}

/// The default size of the page cache.
const CACHE_BYTES: u64 = 128 << 20;

#[cfg(test)]
mod tests {
    use super::{CACHE_BYTES, cache_bytes};

    #[test]
    fn a_configured_size_is_used() {
        assert_eq!(cache_bytes(None, None), CACHE_BYTES);
        assert_eq!(cache_bytes(Some(7), None), 7 << 20);
    }
}
