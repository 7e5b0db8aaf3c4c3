//! The I/O core of Dapple, which joins the scheduler to the kernel.
//!
//! Everything here comes in two styles that work together, as in the papers:
//!
//! - **callbacks**: [`event`] takes a [`Callback`](dapple_sched::Callback), which contains its
//!   color, and calls it when a descriptor is readable, a connection came, a deadline passed, a
//!   signal arrived or a child ended. The module that registers the callback need not know its
//!   color.
//! - **tasks**: [`net`], [`pipe`], [`time`], [`fs`], [`signal`], [`process`] and [`blocking`] are
//!   `async`, and wake the task in the task's own color.
//!
//! Below is the [`EpollDriver`]: an epoll instance, in which one worker at a time waits for all; a
//! timer wheel per worker; and an io_uring for files.
//!
//! Things that never happen here, each with tests:
//!
//! - a blocking call on a worker: files go through io_uring; the start of processes, files without
//!   io_uring, and names without the feature `dns` go to a bounded pool (C9);
//! - an event or timer that stays with a busy worker while another worker sleeps: any worker may
//!   serve any slot (C6);
//! - a call of an old callback for a descriptor number that the kernel has reused;
//! - a queue that grows because outsiders send: accepting and reading stop until earlier input has
//!   been handled.
//!
//! ```
//! use dapple_io::net::{TcpListener, TcpStream};
//!
//! let runtime = dapple_io::runtime_builder().workers(2).build()?;
//! runtime.block_on(async {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let addr = listener.local_addr()?;
//!     let server = dapple_sched::spawn(async move {
//!         let (stream, _peer) = listener.accept().await?;
//!         stream.write_all(b"hello").await
//!     });
//!     let stream = TcpStream::connect(addr).await?;
//!     let mut buf = [0; 5];
//!     stream.read_exact(&mut buf).await?;
//!     assert_eq!(&buf, b"hello");
//!     server.await.expect("the server task panicked")
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "Dapple runs on Linux only: it waits in epoll and io_uring, and has no driver for kqueue (macOS, FreeBSD) yet"
);

pub mod blocking;
pub mod companion;
mod descriptors;
mod driver;
pub mod dump;
pub mod environment;
pub mod event;
pub mod fs;
#[cfg(feature = "dns")]
pub mod hickory_rt;
#[cfg(feature = "hyper")]
pub mod hyper_rt;
mod lock;
#[cfg(dapple_loom)]
#[doc(hidden)]
pub mod model;
pub mod net;
mod oneshot;
pub mod pipe;
pub mod process;
mod send_queue;
pub mod signal;
mod stream;
mod sync;
pub mod time;
#[cfg(feature = "tokio-compat")]
pub mod tokio_compat;
mod traits;

pub use driver::{ClockDump, Config, EpollDriver};
pub use environment::runtime_builder_in;
pub use send_queue::{SendQueue, SendQueueFull};
pub use stream::{ByteStream, Connection};

/// A builder of runtimes that wait in epoll: [`dapple_sched::Runtime::builder`] with the
/// [`EpollDriver`].
///
/// ```
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(dapple_io::time::sleep(std::time::Duration::from_millis(1)));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn runtime_builder() -> dapple_sched::Builder {
    runtime_builder_with(Config::default())
}

/// Like [`runtime_builder`], with limits for the driver.
pub fn runtime_builder_with(config: Config) -> dapple_sched::Builder {
    dapple_sched::Runtime::builder().driver(move |workers| {
        dump::from_environment()?;
        let driver: std::sync::Arc<dyn dapple_sched::Driver> = EpollDriver::with_config(workers, config)?;
        Ok(driver)
    })
}
