//! The devices under sources and sinks.

mod any;
mod disk;
mod name;
mod pipe;
mod socket;
mod stream;

use std::future::Future;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use bytes::Bytes;

pub use any::{Any, AnyAcceptor, AnyReader, AnyWriter};
pub use disk::{Append, Disk, DiskReader, DiskWriter};
pub use name::{BadName, Name};
pub use pipe::{Pipe, pipe};
pub use socket::{SocketAcceptor, Tcp, Unix};
pub use stream::{Nothing, StreamReader, StreamWriter};

/// A kind of device: the type parameter of sources, sinks and listeners, and the only place where
/// kinds differ (Gribble's device-specific layer, section 5.1.2). [`Any`] takes the kind from the
/// name, and so from a configuration.
///
/// | device | its names | source | sink | both | listener |
/// |---|---|---|---|---|---|
/// | [`Tcp`] | `HOST:PORT` | connects | connects | connects | binds |
/// | [`Unix`] | a path | connects | connects | connects | binds |
/// | [`Pipe`] | the path of a FIFO | opens | opens | - | - |
/// | [`Disk`] | the path of a file | reads from the start | creates or truncates it | - | - |
/// | [`Append`] | the path of a file | - | writes at its end | - | - |
/// | [`Any`] | one of these with `tcp:`, `unix:`, `pipe:`, `file:` or `append:` in front | | | | |
///
/// A program's own TCP stack, for example, is one more implementation; code that uses sources and
/// sinks does not change.
pub trait Device: Sized + Send + Sync + 'static {
    /// The reading side.
    type Reader: Reader;
    /// The writing side.
    type Writer: Writer;
    /// The acceptor of connections.
    type Acceptor: Acceptor<Reader = Self::Reader, Writer = Self::Writer>;

    /// Opens the reading side.
    ///
    /// # Cancel safety
    ///
    /// If dropped, it leaves nothing open.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid name, `Unsupported` for devices that cannot be read, and the
    /// errors of the kernel.
    fn open_reader(name: &str) -> impl Future<Output = io::Result<Self::Reader>> + Send {
        async move { Err(unsupported(name, "this device cannot be read")) }
    }

    /// Opens the writing side.
    ///
    /// # Cancel safety
    ///
    /// If dropped, it leaves nothing open.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid name, `Unsupported` for devices that cannot be written, and
    /// the errors of the kernel.
    fn open_writer(name: &str) -> impl Future<Output = io::Result<Self::Writer>> + Send {
        async move { Err(unsupported(name, "this device cannot be written")) }
    }

    /// Opens both sides of one connection.
    ///
    /// # Cancel safety
    ///
    /// If dropped, it leaves nothing open.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid name, `Unsupported` for devices without connections, and the
    /// errors of the kernel.
    fn connect(name: &str) -> impl Future<Output = io::Result<(Self::Reader, Self::Writer)>> + Send {
        async move { Err(unsupported(name, "this device has one direction: open a source or a sink of it")) }
    }

    /// Waits for connections at a name.
    ///
    /// # Cancel safety
    ///
    /// If dropped, it does not listen.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid name, `Unsupported` for devices without connections, and the
    /// errors of the kernel.
    fn listen(name: &str) -> impl Future<Output = io::Result<Self::Acceptor>> + Send {
        async move { Err(unsupported(name, "this device has no connections: listen at tcp: or unix:")) }
    }
}

/// The reading side of a device.
pub trait Reader: Send + 'static {
    /// Bytes that have arrived, at most `len_max`, or none at the end. After `Pending` it is called
    /// again, perhaps with another `len_max`, or dropped.
    ///
    /// Bytes read before a `Pending` stay here: dropping a future loses none.
    ///
    /// # Errors
    ///
    /// Errors of the device, which is not called again afterwards.
    fn poll_read(&mut self, cx: &mut Context<'_>, len_max: usize) -> Poll<io::Result<Bytes>>;
}

/// The writing side of a device. Dropping it closes it.
pub trait Writer: Send + 'static {
    /// Writes the first part of the buffers, taken as one, and returns the number of bytes; they
    /// hold at least one. After `Pending` it is called again with the same bytes, or dropped.
    ///
    /// # Errors
    ///
    /// Errors of the device, which is not called again afterwards.
    fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Waits until all written data would survive a power failure, if the device has such storage.
    ///
    /// # Errors
    ///
    /// Those of the device.
    fn poll_sync(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }

    /// Ends the stream: nothing more will come.
    ///
    /// # Errors
    ///
    /// Those of the device.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }
}

/// Accepts connections.
pub trait Acceptor: Send + 'static {
    /// The reading side of a connection.
    type Reader: Reader;
    /// The writing side of a connection.
    type Writer: Writer;

    /// The next connection, and the name of the other side, which may be empty. A connection
    /// accepted before a `Pending` stays here.
    ///
    /// # Errors
    ///
    /// Those of the listener itself, which is useless afterwards.
    #[expect(clippy::type_complexity, reason = "a connection, named where it is used")]
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Self::Reader, Self::Writer, String)>>;

    /// The name under which others reach it, including the system's choices (such as a port).
    ///
    /// # Errors
    ///
    /// Errors of the system; none are known.
    fn local_name(&self) -> io::Result<String>;
}

fn unsupported(name: &str, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("`{name}`: {what}"))
}

/// The same error, prefixed with the name for the log.
fn named(name: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{name}`: {error}"))
}
