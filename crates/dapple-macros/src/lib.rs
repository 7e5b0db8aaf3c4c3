//! The attributes `#[dapple::main]` and `#[dapple::test]`.
//!
//! Use them through the crate `dapple`, which re-exports them; the code that they write names `::dapple`.
//!
//! Parsed by hand from the token stream: what is looked for is two words (`async fn`) and one block, and `syn` would
//! add more to the build of every program on Dapple than these two attributes are worth.

#![forbid(unsafe_code)]

use proc_macro::TokenStream;

mod expand;
mod options;

/// Runs an `async fn main` on a runtime that this attribute starts.
///
/// The body runs on the main thread; what it spawns runs on the workers. When it returns, the runtime stops at once:
/// await the `JoinHandle` of whatever must be finished first.
///
/// `workers = N` sets the number of workers; left out, it is what CPU affinity and the cgroup's quota allow. `tokio` gives the runtime
/// a tokio runtime of its own, so that libraries made for tokio run in its tasks, as `dapple::builder().tokio()` does; it needs the
/// feature `tokio-compat`.
///
/// ```ignore
/// #[dapple::main(workers = 2)]
/// async fn main() -> std::io::Result<()> {
///     dapple::spawn(async { println!("on a worker, in a color of its own") }).await.ok();
///     Ok(())
/// }
/// ```
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(options, item, expand::Kind::Main)
}

/// Runs an `async fn` as a test, on a runtime of its own whose clock stands still, so that no test sleeps.
///
/// The clock jumps to the next deadline when everything waits, and stands while anything runs, can run or is on its way: an
/// hour's sleep ends at once and at exactly its time, and no time limit passes because the machine is slow. It is read by
/// `dapple::time::Instant::now`; all of `dapple::time`, and the deadlines of `dapple::event`, go by it. What it waits for,
/// what it cannot see, and how to hold it by hand (`pause`, `advance`) is told in `dapple::time`.
///
/// ```ignore
/// use dapple::time::{Duration, Instant, sleep, timeout};
///
/// #[dapple::test]
/// async fn an_hour_is_a_long_time() {
///     let start = Instant::now();
///     sleep(Duration::from_secs(3600)).await;
///     assert_eq!(start.elapsed(), Duration::from_secs(3600)); // exactly, and at once
///     assert!(timeout(Duration::from_secs(5), std::future::pending::<()>()).await.is_err());
/// }
///
/// #[dapple::test(workers = 1, limit_s = 10)]
/// async fn may_fail() -> Result<(), Box<dyn std::error::Error>> {
///     assert_eq!("12".parse::<u32>()?, 12);
///     Ok(())
/// }
/// ```
///
/// # Options
///
/// | option | means | if not said |
/// |---|---|---|
/// | `workers = N` | how many workers the runtime has | 2, so that what must not depend on running alone is not tested on one only |
/// | `tokio` | tokio's context on all threads, as `dapple::builder().tokio()` gives it; needs the feature `tokio-compat` | no tokio runtime |
/// | `clock = "real"` | sleeps take their time | `"standing"`; with `tokio` `"real"`, as tokio's timers go by that |
/// | `limit_s = N` | seconds of *real* time after which the test fails, saying what it was doing | 60 |
///
/// `DAPPLE_TEST_LIMIT_S` in the environment goes before `limit_s`; 0 means no limit, for debuggers.
///
/// # What fails it
///
/// A panic in its body, one that reaches it from a task by a join or from a scope, a result that is an error, and the
/// limit. A panic of a task that nobody joins is reported and fails nothing. The body runs on a thread of its own that has
/// the test's name and is no worker; it need not be `Send`, but for what it hands to tasks.
///
/// A body that blocks instead of awaiting (`recv` of a standard channel, for example) counts as running: the clock stands, so
/// it must not wait for what is to happen at a later time.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(options, item, expand::Kind::Test)
}
