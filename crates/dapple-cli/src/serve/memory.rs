//! Adapts to a limit on memory.
//!
//! | state | begins | ends | effect |
//! |---|---|---|---|
//! | roomy | | | the page cache grows back to its normal size, an eighth per second |
//! | tight | above 85 % | below 75 % | every second the page cache drops a quarter of its content |
//! | short | above 95 % | below 90 % | as tight, and new connections are refused |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dapple::time::sleep;
use tracing::{info, warn};

use super::pages::SHARDS;
use super::site::Site;
use crate::server::{Admission, MemoryLimit, MemoryUse};

/// The result of the last measurement. All zero without a limit.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    used: AtomicU64,
    limit: AtomicU64,
    /// The bytes that the page cache may hold now.
    cache_max: AtomicU64,
    is_short: AtomicBool,
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
        let limit_bytes = self.limit.load(Ordering::Relaxed);
        (limit_bytes > 0).then(|| MemoryStatus {
            limit_bytes,
            used_bytes: self.used.load(Ordering::Relaxed),
            page_cache_max_bytes: self.cache_max.load(Ordering::Relaxed),
            page_cache_shrinks: self.shrinks.load(Ordering::Relaxed),
            is_short: self.is_short.load(Ordering::Relaxed),
        })
    }

    fn saw(&self, seen: MemoryUse, cache_max: u64) {
        self.used.store(seen.used, Ordering::Relaxed);
        self.limit.store(seen.limit, Ordering::Relaxed);
        self.cache_max.store(cache_max, Ordering::Relaxed);
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
    let mut is_tight = false;
    loop {
        if let Some(seen) = limit.look() {
            let percent = seen.percent();
            is_tight = percent > if is_tight { TIGHT_ENDS } else { TIGHT_BEGINS };
            if is_tight {
                cache_max = shrink(&site).await;
            } else if cache_max < full && percent < TIGHT_ENDS {
                cache_max = (cache_max + full / 8 + 1).min(full);
                for shard in &site.shards {
                    let bytes_max = cache_max / SHARDS as u64;
                    shard.with(move |shard| shard.set_bytes_max(bytes_max)).await;
                }
            }
            site.memory.saw(seen, cache_max);
            tell(&site.memory, &site.admission, seen);
        }
        sleep(LOOK_EVERY).await;
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
fn tell(memory: &Memory, admission: &Admission, seen: MemoryUse) {
    let was_short = memory.is_short.load(Ordering::Relaxed);
    let is_short = seen.percent() > if was_short { SHORT_ENDS } else { SHORT_BEGINS };
    if is_short == was_short {
        return;
    }
    memory.is_short.store(is_short, Ordering::Relaxed);
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

const TIGHT_BEGINS: f64 = 85.0;
const TIGHT_ENDS: f64 = 75.0;
const SHORT_BEGINS: f64 = 95.0;
const SHORT_ENDS: f64 = 90.0;

const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::{CACHE_BYTES, cache_bytes};

    #[test]
    fn a_configured_size_is_used() {
        assert_eq!(cache_bytes(None, None), CACHE_BYTES);
        assert_eq!(cache_bytes(Some(7), None), 7 << 20);
    }
}
