//! The attributes `#[dapple::main]` and `#[dapple::test]`.
//!
//! Use them through the crate `dapple`, which re-exports them; the generated code names `::dapple`.
//!
//! Parsed by hand from the token stream: the attributes need two words (`async fn`) and one block,
//! and `syn` would add more to the build of every program than these two are worth.

#![forbid(unsafe_code)]

use proc_macro::TokenStream;

mod expand;
mod options;

/// Runs an `async fn main` on a runtime that this attribute starts.
///
/// The body runs on the main thread; its spawned tasks run on the workers. When it returns, the
/// runtime stops at once: await the `JoinHandle` of each task that must finish first.
///
/// `workers = N` sets the number of workers. Default: the number that CPU affinity and the cgroup's
/// quota allow. `tokio` adds a tokio runtime, so that libraries made for tokio run in its tasks, as
/// `dapple::builder().tokio()` does; it needs the feature `tokio-compat`.
///
/// ```ignore
/// #[dapple::main(workers = 2)]
/// async fn main() -> std::io::Result<()> {
///     dapple::spawn(async { println!("on a worker, in its own color") }).await.ok();
///     Ok(())
/// }
/// ```
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(options, item, expand::Kind::Main)
}

/// Runs an `async fn` as a test, on a new runtime with a standing clock, so that no test sleeps.
///
/// The clock jumps to the next deadline when all work waits, and stands while any work runs, can
/// run or is about to: an hour's sleep ends at once and at exactly its time, and no time limit
/// passes because the machine is slow. `dapple::time::Instant::now` reads it; all of
/// `dapple::time`, and the deadlines of `dapple::event`, use it. `dapple::time` explains what it
/// waits for, what it cannot see, and how to control it by hand (`pause`, `advance`).
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
/// | option | meaning | default |
/// |---|---|---|
/// | `workers = N` | how many workers the runtime has | 2, so that concurrency is tested, too |
/// | `tokio` | tokio's context on all threads, as `dapple::builder().tokio()` gives it; needs the feature `tokio-compat` | no tokio runtime |
/// | `clock = "real"` | sleeps take real time | `"standing"`; with `tokio` `"real"`, because tokio's timers use the real clock |
/// | `limit_s = N` | seconds of *real* time after which the test fails and says what it was doing | 60 |
///
/// | `sim` | runs in the simulator, below; needs the feature `sim`, and goes with `seeds` only | the kernel |
/// | `seeds = N` | how many seeds, from 1 up | 100 |
///
/// `DAPPLE_TEST_LIMIT_S` in the environment overrides `limit_s`; 0 means no limit, for debuggers.
///
/// # What fails it
///
/// A panic in its body, or one that reaches it through a join or a scope, an error result, and the
/// limit. A panic of a task that is never joined is reported and does not fail the test. The body
/// runs on its own thread, which has the test's name and is not a worker; it need not be `Send`,
/// except for values that it gives to tasks.
///
/// # In the simulator
///
/// With `sim` the function is the program of one host of a simulation, once for each seed. Without `async` it takes the
/// simulation, and adds hosts and faults itself. A seed that fails is reported with the faults of its plan and the line
/// that runs it again; `dapple::sim::check` says which environment variables there are.
///
/// ```ignore
/// #[dapple::test(sim, seeds = 1000)]
/// fn an_answer_comes(sim: &mut Simulation) {
///     sim.host("server", serve);
///     sim.client("client", || async { assert_eq!(ask("server:80").await, "yes") });
///     sim.faults(&Faults::new(Duration::from_secs(1)).cut("server", "client"));
/// }
/// ```
///
/// # Blocking
///
/// A body that blocks instead of awaiting (`recv` of a standard channel, for example) counts as
/// running: the clock stands, so it must not wait for an event at a later time.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(options, item, expand::Kind::Test)
}
