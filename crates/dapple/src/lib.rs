//! Write a network service as if it ran on one core; let it use all of them.
//!
//! Every callback and every task has a **color**. What has the same color runs one at a time, in order; what has
//! different colors may run in parallel. State belongs to a color ([`Colored`]) and can be touched only while that is
//! held, so there is no lock to forget and no data race to chase.
//!
//! ```
//! use dapple::Colored;
//!
//! #[dapple::main]
//! async fn main() {
//!     let hits = Colored::new(0);
//!     // Ten tasks, each with a color of its own: they run in parallel.
//!     let tasks: Vec<_> = (0..10)
//!         .map(|_| {
//!             let hits = hits.clone();
//!             // The closure runs while the color of `hits` is held: one at a time.
//!             dapple::spawn(async move { hits.with(|hits| *hits += 1).await })
//!         })
//!         .collect();
//!     for task in tasks {
//!         task.await.expect("no task panics here");
//!     }
//!     assert_eq!(hits.with(|hits| *hits).await, 10);
//! }
//! ```
//!
//! # Where to find what
//!
//! | to | use |
//! |---|---|
//! | start a runtime | [`#[dapple::main]`](main), [`block_on`], or [`builder`] for every choice |
//! | run a task in parallel with all others | [`spawn`]: it gets a color of its own |
//! | run tasks one at a time | [`Color::spawn`] with one color; [`Color::DEFAULT`] for the papers' behavior |
//! | change several small things at once, or wait for a condition on them | [`stm`] |
//! | start tasks that must be over when a function returns, cancel, carry values along | [`mod@task`] |
//! | share state | [`Colored`]; what is not `Send`: [`state::Pinned`], [`Color::spawn_pinned`] |
//! | post a callback, wrap one for many calls | [`Color::post`], [`Color::wrap`] |
//! | run a program of callbacks that was written for one thread | [`Callback::here`] |
//! | hold several colors at once, or share one for reading | [`mod@color`] |
//! | wait for one another: locks, channels, slots | [`mod@sync`], which says when a color is the better tool |
//! | sockets, files, pipes, time, signals, child processes | [`net`], [`fs`], [`pipe`], [`time`], [`signal`], [`process`] |
//! | the same as callbacks | [`mod@event`] |
//! | sources, sinks and queues, alike for all devices, which a configuration may name | [`flow`] |
//! | call what blocks | [`blocking`] |
//! | wait for events in a way of one's own | [`mod@event_loop`] |
//! | encrypt a connection | `tls`, with the feature of that name |
//! | ask HTTP servers | `http::Client`, with the feature `http-client` |
//! | serve an axum `Router`, a tonic service, any tower service | `serve(listener, service).await`, with the feature of that name |
//! | bound queues, shed load, compose services | [`stage`] |
//! | test without waiting | [`#[dapple::test]`](test) |
//! | choose what runs next | [`policy`]: priorities, or a policy of your own |
//! | look at a running program | [`observe`], [`dump`] |
//!
//! Programmers who know tokio start best with [`coming_from_tokio`].//!
//! # Features
//!
//! No feature is on by default.
//!
//! | feature | what it adds |
//! |---|---|
//! | `serve` | `serve`: a server for tower services, axum and tonic among them |
//! | `tls` | TLS by rustls, on streams, servers and clients |
//! | `http-client` | an HTTP client, with `tls`; `http-decompression` and `http-json` add what its responses may be |
//! | `store` | tables that outlive the process, on redb; `store-fjall` adds an engine for tables that are mostly written |
//! | `remote` | [`stage`]s of other processes and machines over HTTP/2; `remote-tls` the same encrypted |
//! | `dns` | names looked up on Dapple's own sockets, with a cache (87 crates); without it the system's resolver looks them up, in the blocking pool |
//! | `hyper`, `tokio`, `futures-io` | the I/O traits of those crates on Dapple's streams; `tokio` brings in the traits, not the runtime |
//! | `tokio-compat` | a tokio runtime around Dapple's workers, or around one service, for libraries that need one |
//! | `hyper-util` | the connector of `http-client` as one for hyper-util's client |
//! | `full` | all of them but `hyper-util` and `tokio-compat`, which build parts of tokio's runtime, and `store-fjall`, which needs Rust 1.90 |

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

use std::future::Future;

#[doc(inline)]
pub use dapple_flow::{event_loop, flow};
#[cfg(feature = "dns")]
#[doc(inline)]
pub use dapple_io::hickory_rt;
#[cfg(feature = "hyper")]
#[doc(inline)]
pub use dapple_io::hyper_rt;
#[cfg(feature = "tokio-compat")]
#[doc(inline)]
pub use dapple_io::tokio_compat;
pub use dapple_io::{blocking, companion, dump, event, fs, net, pipe, process, signal, time};
pub use dapple_macros::{main, test};
#[doc(inline)]
pub use dapple_sched::{Callback, Color, Colored, Handle, JoinHandle, Runtime, spawn, yield_now};
#[doc(inline)]
pub use dapple_sync::{sync, task, task_local};

/// TLS on Dapple's streams, by rustls.
#[cfg(feature = "tls")]
#[doc(inline)]
pub use dapple_tls as tls;

/// HTTP clients: one with pool, redirects and limits, and a connector for hyper-util's and for tonic.
#[cfg(feature = "http-client")]
#[doc(inline)]
pub use dapple_client as http;

/// Any tower service over HTTP/1.1 and HTTP/2, with limits, time-outs and a staged end built in.
#[cfg(feature = "serve")]
#[doc(inline)]
pub use dapple_serve as serve;
#[cfg(feature = "serve")]
#[doc(inline)]
pub use dapple_serve::serve;

pub mod stage;

/// Software transactional memory: transactions over any number of variables, whose `retry` suspends the task.
#[doc(inline)]
pub use dapple_stm as stm;

/// Tables that outlive the process: typed, durable, split into partitions that are colors.
#[cfg(feature = "store")]
#[doc(inline)]
pub use dapple_store as store;

pub mod color;
pub mod coming_from_tokio;
pub mod observe;
pub mod policy;
pub mod prelude;
pub mod runtime;
pub mod state;
#[doc(hidden)]
pub mod testing;

// The short paths of what stands in the modules above.
#[doc(hidden)]
pub use self::{color::*, observe::*, policy::*, runtime::*, state::*};

/// A [`Builder`] for a runtime with the system's driver (epoll) already in it.
///
/// [`Runtime::builder`] is the bare one: it has no driver, so that nothing in [`net`] and [`time`] works on its
/// runtimes.
///
/// ```
/// let runtime = dapple::builder().workers(2).thread_name("web").build()?;
/// let answer = runtime.block_on(async { dapple::spawn(async { 6 * 7 }).await });
/// assert_eq!(answer.expect("the task does not panic"), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn builder() -> Builder {
    dapple_io::runtime_builder()
}

/// As [`builder`], with the limits of the driver and the kind of its clock set by the program.
///
/// ```
/// let mut config = dapple::Config::default();
/// config.blocking_threads_max = 8;
/// let runtime = dapple::builder_with(config).workers(1).build()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn builder_with(config: Config) -> Builder {
    dapple_io::runtime_builder_with(config)
}

/// Starts a runtime with the defaults, drives `future` on the calling thread, and stops the runtime when that is done.
///
/// The future runs on the calling thread, which is no worker; what it spawns runs on the workers. Whatever is still
/// running when it ends is dropped, so await what must be finished.
///
/// # Panics
///
/// When called on a worker, where waiting would stop others; `await` the future there. Also when the runtime cannot be
/// started, for which the system's limits on threads and open files are the usual reasons.
///
/// ```
/// use std::time::Duration;
///
/// dapple::block_on(async {
///     dapple::time::sleep(Duration::from_millis(1)).await;
/// });
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    run_main(None, None, future)
}

/// Drives `future` on the calling thread, which is no worker, beside a runtime that is there already.
///
/// This is how a plain thread of a program on Dapple awaits something; [`block_on`] would start one more runtime for it.
///
/// # Panics
///
/// When called on a worker, which must not wait (`await` the future there), or while the thread holds a color.
///
/// ```
/// #[dapple::main]
/// async fn main() {
///     let total = dapple::Colored::new(1);
///     let thread = std::thread::spawn({
///         let total = total.clone();
///         move || dapple::wait(total.with(|total| *total += 1))
///     });
///     thread.join().expect("the thread does not panic");
///     assert_eq!(total.with(|total| *total).await, 2);
/// }
/// ```
pub fn wait<F: Future>(future: F) -> F::Output {
    dapple_sched::block_on(future)
}

/// The function that `#[dapple::main]` calls.
#[doc(hidden)]
pub fn run_main<F: Future>(workers: Option<usize>, context: Option<testing::Context>, future: F) -> F::Output {
    let builder = match workers {
        Some(workers) => builder().workers(workers),
        None => builder(),
    };
    let builder = context.unwrap_or(|builder| builder)(builder);
    match builder.build() {
        Ok(runtime) => runtime.block_on(future),
        Err(error) => panic!("the Dapple runtime could not start: {error}"),
    }
}

// The programs of these pages are compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/first-hour.md")]
mod first_hour {}

#[cfg(all(doctest, feature = "serve", feature = "tokio-compat"))]
#[doc = include_str!("../../../docs/from-tokio.md")]
mod from_tokio_page {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/middleware.md")]
mod middleware_page {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/stm.md")]
mod stm_page {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/tasks.md")]
mod tasks {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/threads.md")]
mod threads {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/io.md")]
mod io_page {}

#[cfg(all(doctest, feature = "remote"))]
#[doc = include_str!("../../../docs/remote.md")]
mod remote_page {}
#[cfg(all(doctest, feature = "store"))]
#[doc = include_str!("../../../docs/store.md")]
mod store_page {}
#[cfg(all(doctest, feature = "serve"))]
#[doc = include_str!("../../../docs/serving.md")]
mod serving_page {}
#[cfg(all(doctest, feature = "serve"))]
#[doc = include_str!("../../../docs/observability.md")]
mod observability_page {}
#[cfg(doctest)]
#[doc = include_str!("../../../docs/stages.md")]
mod stages_page {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/overload.md")]
mod overload_page {}
