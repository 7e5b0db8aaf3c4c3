//! Increments of reference counts, which must not wrap around to 0: safe code can forget handles
//! and wakers in a loop.
//!
//! As in `Arc`, the process ends once a count exceeds half of its range. The other half is for
//! threads that have incremented the count and have not checked it yet.

use crate::sync::atomic::{AtomicU32, Ordering, Ordering::*};

/// Adds a reference.
///
/// Relaxed, as in `Arc`: the caller has a reference, or otherwise keeps the last one.
#[inline]
pub(crate) fn add(count: &AtomicU32) {
    if count.fetch_add(1, Relaxed) > REFS_MAX {
        too_many();
    }
}

/// Adds a reference if the count is not 0, with `order` in both cases.
#[inline]
pub(crate) fn add_if_any(count: &AtomicU32, order: Ordering) -> bool {
    let mut refs = count.load(order);
    while refs > 0 {
        if refs > REFS_MAX {
            too_many();
        }
        match count.compare_exchange_weak(refs, refs + 1, order, order) {
            Ok(_) => return true,
            Err(now) => refs = now,
        }
    }
    false
}

#[cold]
fn too_many() -> ! {
    std::process::abort();
}

/// More references than this are a leak.
const REFS_MAX: u32 = u32::MAX / 2;

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::{Color, Runtime};

    /// Forgets one reference too many.
    fn overflow(what: &str) {
        let runtime = Runtime::builder().workers(1).build().unwrap();
        let _entered = runtime.enter();
        let color = Color::named(7);
        // SAFETY: a handle keeps its cell alive. Nothing is freed: forgotten handles leave such a
        // count behind.
        let count = unsafe { &color.cell().as_ref().refs };
        count.store(REFS_MAX + 1, Relaxed);
        match what {
            "handle" => std::mem::forget(color.clone()),
            "name" => std::mem::forget(Color::named(7)),
            other => unreachable!("{other}"),
        }
    }

    #[test]
    fn the_process_ends_before_a_count_comes_round() {
        if let Ok(what) = std::env::var(WHAT) {
            return overflow(&what);
        }
        for what in ["handle", "name"] {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "sync::refs::tests::the_process_ends_before_a_count_comes_round"]).env(WHAT, what);
            let ended = child.output().unwrap();
            assert_eq!(ended.status.signal(), Some(SIGABRT), "{what}: {ended:?}");
        }
    }

    #[test]
    fn a_count_of_0_stays() {
        let count = AtomicU32::new(0);
        assert!(!add_if_any(&count, Acquire));
        add(&count);
        assert!(add_if_any(&count, Acquire));
        assert_eq!(count.into_inner(), 2);
    }

    const WHAT: &str = "DAPPLE_TEST_REFS";
    const SIGABRT: i32 = 6;
}
