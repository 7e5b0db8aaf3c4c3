//! A limit on memory: the service refuses requests, except small calls of mounts and writes that they kept, before the kernel ends the process.

use std::sync::Arc;

use dapple::time::sleep;
use dapple_files::Files;
use dapple_serve::host::{MEMORY_LOOK_EVERY, MemoryLimit, MemoryState};
use tracing::{info, warn};

/// Measures memory once a second, as long as the service runs.
pub(super) async fn watch(memory: Arc<MemoryState>, limit: MemoryLimit, files: Files) {
    loop {
        if let Some(seen) = limit.look() {
            let percent = seen.percent();
            if let Some(is_short) = memory.saw(seen) {
                files.refuse_all(is_short);
                match is_short {
                    true => warn!(percent, "memory is short: requests are refused"),
                    false => info!(percent, "memory is no longer short"),
                }
            }
            if memory.is_tight() {
                // If the pool is full, the next second is early enough.
                let _ = dapple::blocking::spawn_blocking(dapple::process::give_back_memory).await;
            }
        }
        sleep(MEMORY_LOOK_EVERY).await;
    }
}
