//! The stages of this program apart from `sign`, which has options of its own.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use dapple::stage::remote::{Host, HostBuilder};
use dapple::stage::{BoxError, Stage};

/// The stages that need no options, by name.
pub(super) fn plain() -> HostBuilder {
    Host::builder()
        .register_fn("echo", |text: String| async move { Ok::<_, BoxError>(text) })
        .register_stages("spin", |_replica| spin())
}

/// Uses the CPU for this many microseconds, up to [`SPIN_MAX`], without awaiting: a service of any
/// desired cost. At most one call per worker runs at a time; calls that would wait too long are
/// refused.
fn spin() -> Stage<u64, u64, Infallible> {
    let width = dapple::Handle::current().workers();
    let stage = Stage::builder("spin").queue_len_max(SPIN_QUEUE_LEN_MAX).width(width).shed().color_each();
    stage.wrap_fn(|us: u64| async move {
        let begin = Instant::now();
        let end = begin + Duration::from_micros(us).min(SPIN_MAX);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        Ok::<u64, Infallible>(u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX))
    })
}

const SPIN_MAX: Duration = Duration::from_secs(1);

/// Further calls are refused at once.
const SPIN_QUEUE_LEN_MAX: usize = 64;
