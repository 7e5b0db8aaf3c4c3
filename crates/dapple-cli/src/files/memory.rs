//! A limit on memory: the service refuses requests, except the small calls of mounts, before the kernel ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dapple::time::sleep;
use dapple_files::Files;
use dapple_serve::host::{MemoryLimit, MemoryUse};
use tracing::{info, warn};

/// The result of the last measurement. All zero without a limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    used: AtomicU64,
    limit: AtomicU64,
    is_short: AtomicBool,
}

impl Memory {
    /// The bytes in use, and the limit; `None` without one.
    pub(super) fn seen(&self) -> Option<(u64, u64)> {
        let limit = self.0.limit.load(Ordering::Relaxed);
        (limit > 0).then(|| (self.0.used.load(Ordering::Relaxed), limit))
    }

    pub(super) fn is_short(&self) -> bool {
        self.0.is_short.load(Ordering::Relaxed)
    }

    fn saw(&self, seen: MemoryUse, files: &Files) {
        self.0.used.store(seen.used, Ordering::Relaxed);
        self.0.limit.store(seen.limit, Ordering::Relaxed);
        let percent = seen.percent();
        let is_short = percent > if self.is_short() { SHORT_ENDS } else { SHORT_BEGINS };
        if self.0.is_short.swap(is_short, Ordering::Relaxed) != is_short {
            files.refuse_all(is_short);
            match is_short {
                true => warn!(percent, "memory is short: requests are refused"),
                false => info!(percent, "memory is no longer short"),
            }
        }
    }
}

/// Measures memory once a second, as long as the service runs.
pub(super) async fn watch(memory: Memory, limit: MemoryLimit, files: Files) {
    loop {
        if let Some(seen) = limit.look() {
            memory.saw(seen, &files);
            if seen.percent() > TIGHT {
                // If the pool is full, the next second is early enough.
                let _ = dapple::blocking::spawn_blocking(dapple::process::give_back_memory).await;
            }
        }
        sleep(LOOK_EVERY).await;
    }
}

/// The part of the limit, in percent, above which the allocator gives memory back, and above which requests are refused until it is
/// below the last one.
const TIGHT: f64 = 85.0;
const SHORT_BEGINS: f64 = 95.0;
const SHORT_ENDS: f64 = 90.0;

const LOOK_EVERY: Duration = Duration::from_secs(1);
