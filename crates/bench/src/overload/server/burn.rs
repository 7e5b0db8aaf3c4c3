//! Work that costs processor time and nothing else.

use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

/// Keeps the processor busy for this much time of this thread; waiting for the processor does not
/// count.
pub(super) fn burn(cost: Duration) {
    let begin = thread_cpu();
    let mut sum = 1_u64;
    while thread_cpu() - begin < cost {
        for _ in 0..2_000 {
            sum = sum.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        }
        sum = black_box(sum);
    }
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_much_is_burned() {
        let begin = thread_cpu();
        burn(Duration::from_millis(5));
        assert!(thread_cpu() - begin >= Duration::from_millis(5));
    }
}
