//! Write a network service as if it ran on one core; let it use all of them.
//!
//! Every callback and every task has a **color**. Work of one color runs one at a time, in order;
//! work of different colors may run in parallel. State belongs to a color ([`Colored`]) and can be
//! touched only while that is held, so there is no lock to forget and no data race to find.
//!
//! ```
//! use dapple::Colored;
//!
//! #[dapple::main]
//! async fn main() {
//!     let hits = Colored::new(0);
//!     // Ten tasks, each with its own color: they run in parallel.
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
//! | purpose | use |
//! |---|---|
//! | start a runtime | [`#[dapple::main]`](main), [`block_on`], or [`builder`] for every choice |
//! | run a task in parallel with all others | [`spawn`]: it gets its own color |
//! | run tasks one at a time | [`Color::spawn`] with one color; [`Color::DEFAULT`] for the papers' behavior |
//! | change several small things at once, or wait for a condition on them | [`stm`] |
//! | start tasks that must be over when a function returns, cancel, carry values along | [`mod@task`] |
//! | share state | [`Colored`]; for types that are not `Send`: [`state::Pinned`], [`Color::spawn_pinned`] |
//! | post a callback, wrap one for many calls | [`Color::post`], [`Color::wrap`] |
//! | run a program of callbacks that was written for one thread | [`Callback::here`] |
//! | hold several colors at once, or share one for reading | [`mod@color`] |
//! | wait for one another: locks, channels, slots | [`mod@sync`], which says when a color is better |
//! | sockets, files, pipes, time, signals, child processes | [`net`], [`fs`], [`pipe`], [`time`], [`signal`], [`process`] |
//! | the same as callbacks | [`mod@event`] |
//! | sources, sinks and queues for any device, which a configuration may name | [`flow`] |
//! | call blocking code | [`blocking`] |
//! | wait for events in your own way | [`mod@event_loop`] |
//! | have TCP of the program's own, in user space | `network`, with the feature of that name |
//! | encrypt a connection | `tls`, with the feature of that name |
//! | ask HTTP servers | `http::Client`, with the feature `http-client` |
//! | read, write and watch keys in etcd | `etcd::Etcd`, with the feature `etcd` |
//! | serve an axum `Router`, a tonic service, any tower service | `serve(listener, service).await`, with the feature of that name |
//! | bound queues, shed load, compose services | [`stage`] |
//! | test without waiting | [`#[dapple::test]`](test) |
//! | choose what runs next | [`policy`]: priorities, or a policy of your own |
//! | inspect a running program | [`observe`], [`dump`] |
//!
//! tokio users start best with [`coming_from_tokio`].
//!
//! # Features
//!
//! No feature is on by default.
//!
//! | feature | what it adds |
//! |---|---|
//! | `serve` | `serve`: a server for tower services, axum and tonic among them |
//! | `tls` | TLS by rustls, on streams, servers and clients |
//! | `http-client` | an HTTP client, with `tls`; `http-decompression` and `http-json` add formats of its responses |
//! | `etcd` | a client of etcd; with `tls` also of endpoints of `https` |
//! | `store` | tables that survive the process, on redb; `store-fjall` adds an engine for write-heavy tables |
//! | `network` | TCP and UDP in user space, on a TUN interface or in memory, by smoltcp; Rust 1.91 |
//! | `remote` | [`stage`]s of other processes and machines over HTTP/2; `remote-tls` the same encrypted |
//! | `dns` | names looked up on Dapple's own sockets, with a cache (87 crates); without it the system's resolver looks them up, in the blocking pool |
//! | `hyper`, `tokio`, `futures-io` | the I/O traits of those crates on Dapple's streams; `tokio` needs only the traits, not the runtime |
//! | `tokio-compat` | a tokio runtime around Dapple's workers, or around one service, for libraries that need one |
//! | `hyper-util` | the connector of `http-client` as one for hyper-util's client |
//! | `full` | all of them but `hyper-util` and `tokio-compat`, which build parts of tokio's runtime, and `network` and `store-fjall`, which need Rust 1.91 and 1.90 |

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

/// TLS on Dapple's streams, with rustls.
#[cfg(feature = "tls")]
#[doc(inline)]
pub use dapple_tls as tls;

/// HTTP clients: one with a pool, redirects and limits, and a connector for hyper-util's and
/// tonic's.
#[cfg(feature = "http-client")]
#[doc(inline)]
pub use dapple_client as http;

/// Which color holds the program back, and what more workers or a change would bring: a live page, recordings, predictions.
#[cfg(feature = "insight")]
#[doc(inline)]
pub use dapple_insight as insight;

/// Whole clusters of runtimes in one thread, under every fault, from one seed; [`test`](macro@test) has the option `sim`.
#[cfg(feature = "sim")]
#[doc(inline)]
pub use dapple_sim as sim;

/// TCP and UDP in user space: sockets of the program's own in place of the kernel's.
#[cfg(feature = "network")]
#[doc(inline)]
pub use dapple_net as network;

/// A client of etcd: fail-over, transactions, leases, watches without a gap, locks.
#[cfg(feature = "etcd")]
#[doc(inline)]
pub use dapple_etcd as etcd;

/// A server for any tower service over HTTP/1.1 and HTTP/2, with built-in limits, time-outs and
/// staged shutdown.
#[cfg(feature = "serve")]
#[doc(inline)]
pub use dapple_serve as serve;
#[cfg(feature = "serve")]
#[doc(inline)]
pub use dapple_serve::serve;

pub mod stage;

/// Software transactional memory: transactions over any number of variables, with a `retry` that
/// suspends the task.
#[doc(inline)]
pub use dapple_stm as stm;

/// Tables that survive the process: typed, durable, split into partitions that are colors.
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

// The short paths of names in the modules above.
#[doc(hidden)]
pub use self::{color::*, observe::*, policy::*, runtime::*, state::*};

/// A [`Builder`] for a runtime that includes the system's driver (epoll).
///
/// [`Runtime::builder`] has no driver, so that nothing in [`net`] and [`time`] works on its
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

/// Starts a runtime with the defaults, drives `future` on the calling thread, and then stops the
/// runtime.
///
/// The future runs on the calling thread, which is not a worker; its spawned tasks run on the
/// workers. Tasks that still run when it ends are dropped, so await those that must finish.
///
/// # Panics
///
/// When called on a worker, where waiting would block others; `await` the future there. Also when
/// the runtime cannot be started, usually because of the system's limits on threads and open files.
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

/// Drives `future` on the calling thread, which is not a worker, while a runtime runs elsewhere.
///
/// A plain thread of a program on Dapple awaits futures with it; [`block_on`] would start another
/// runtime.
///
/// # Panics
///
/// When called on a worker, which must not block (`await` the future there), or while the thread
/// holds a color.
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

// The documentation tests compile and run the programs of these pages.
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

#[cfg(all(doctest, feature = "network"))]
#[doc = include_str!("../../../docs/network.md")]
mod network_page {}
#[cfg(all(doctest, feature = "insight"))]
#[doc = include_str!("../../../docs/insight.md")]
mod insight_page {}
#[cfg(all(doctest, feature = "sim"))]
#[doc = include_str!("../../../docs/simulation.md")]
mod simulation_page {}
#[cfg(all(doctest, feature = "remote"))]
#[doc = include_str!("../../../docs/remote.md")]
mod remote_page {}
#[cfg(all(doctest, feature = "remote"))]
#[doc = include_str!("../../../docs/cluster.md")]
mod cluster_page {}
#[cfg(all(doctest, feature = "remote", feature = "serve", feature = "store"))]
#[doc = include_str!("../../../docs/services.md")]
mod services_page {}
#[cfg(all(doctest, feature = "store"))]
#[doc = include_str!("../../../docs/store.md")]
mod store_page {}
#[cfg(all(doctest, feature = "store"))]
#[doc = include_str!("../../../docs/engines.md")]
mod engines_page {}
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
