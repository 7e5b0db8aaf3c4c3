//! TLS 1.3 and 1.2 for Dapple's streams, by rustls.
//!
//! A [`TlsAcceptor`] makes a [`TlsStream`] of an incoming connection, a [`TlsConnector`] of an
//! outgoing one. A stream is read and written as a [`TcpStream`](dapple_io::net::TcpStream) is, and
//! with the features of this crate it implements the I/O traits of hyper, tokio and futures-io.
//!
//! # Colors
//!
//! The task that awaits a handshake or a record does its work, in its color. Spawn a task for each
//! connection and call [`TlsAcceptor::accept`] **in it**: then handshakes, some 200 microseconds of
//! CPU each, and encryption spread over all workers, while the accepting task only accepts.
//!
//! ```
//! # #[cfg(feature = "self-signed")] {
//! use std::time::Duration;
//! use dapple_io::net::{TcpListener, TcpStream};
//! use dapple_tls::{Certificates, TlsAcceptor, TlsConnector};
//!
//! let runtime = dapple_io::runtime_builder().workers(2).build()?;
//! runtime.block_on(async {
//!     let certificates = Certificates::self_signed(["localhost"])?;
//!     let connector = TlsConnector::with_roots([certificates.first().clone()])?;
//!     let acceptor = TlsAcceptor::new(certificates)?;
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let addr = listener.local_addr()?;
//!
//!     let server = dapple_sched::spawn(async move {
//!         let (stream, _peer) = listener.accept().await?;
//!         // The connection's task has its own color and does the work of the handshake.
//!         dapple_sched::spawn(async move {
//!             let stream = acceptor.accept(stream, Duration::from_secs(10)).await?;
//!             stream.write_all(b"hello").await?;
//!             stream.shutdown().await
//!         })
//!         .await
//!         .expect("the task does not panic")
//!     });
//!
//!     let stream = TcpStream::connect(addr).await?;
//!     let stream = connector.connect("localhost", stream, Duration::from_secs(10)).await?;
//!     let mut text = [0; 5];
//!     stream.read_exact(&mut text).await?;
//!     assert_eq!(&text, b"hello");
//!     assert_eq!(stream.read(&mut text).await?, 0);
//!     server.await.expect("the task does not panic")?;
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//!
//! The memory that a stranger can occupy: 64 KB of a hello, until the caller's limit for a
//! handshake. Then, for each connection, a buffer for received and unread data, and one for written
//! data that the kernel has not taken (64 and 128 KB). Both are released when a connection waits.
//! Clients keep resumable sessions as encrypted tickets; those of TLS 1.2 clients without tickets
//! are in a bounded cache. Early data is refused, because it can be replayed.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(not(any(feature = "aws-lc-rs", feature = "ring")))]
compile_error!("dapple-tls needs one of its features `aws-lc-rs` and `ring`");

mod acceptor;
mod buffers;
mod certificates;
mod connector;
mod error;
mod hello;
mod pin;
mod provider;
mod stream;
#[cfg(any(feature = "futures-io", feature = "hyper", feature = "tokio"))]
mod traits;

pub use acceptor::TlsAcceptor;
pub use certificates::{CertificateError, CertificateFiles, Certificates, ClientAuthorities, PeerCertificates};
pub use connector::TlsConnector;
pub use error::{Error, Result};
pub use pin::Pin;
pub use rustls;
pub use stream::TlsStream;
