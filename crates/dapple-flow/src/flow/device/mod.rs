//! What is underneath a source or a sink.

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

/// A kind of device: the type parameter of sources, sinks and listeners, and the only place where one kind differs from another
/// (Gribble's device specific layer, section 5.1.2). [`Any`] takes the kind from the name, and so from a configuration.
///
/// | device | its names | source | sink | both at once | listener |
/// |---|---|---|---|---|---|
/// | [`Tcp`] | `HOST:PORT` | connects | connects | connects | binds |
/// | [`Unix`] | a path | connects | connects | connects | binds |
/// | [`Pipe`] | the path of a FIFO | opens | opens | - | - |
/// | [`Disk`] | the path of a file | reads from the start | makes or empties it | - | - |
/// | [`Append`] | the path of a file | - | writes at its end | - | - |
/// | [`Any`] | one of those with `tcp:`, `unix:`, `pipe:`, `file:` or `append:` in front | | | | |
///
/// A TCP stack of the program's own, say, is one more implementation; nothing that uses sources and sinks changes.
pub trait Device: Sized + Send + Sync + 'static {
    /// The reading side.
    type Reader: Reader;
    /// The writing side.
    type Writer: Writer;
    /// What accepts connections.
    type Acceptor: Acceptor<Reader = Self::Reader, Writer = Self::Writer>;

    /// Opens the reading side.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves nothing open.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a name that is none, `Unsupported` for devices that cannot be read, those of the kernel.
    fn open_reader(name: &str) -> impl Future<Output = io::Result<Self::Reader>> + Send {
        async move { Err(unsupported(name, "this device cannot be read")) }
    }

    /// Opens the writing side.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves nothing open.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a name that is none, `Unsupported` for devices that cannot be written, those of the kernel.
    fn open_writer(name: &str) -> impl Future<Output = io::Result<Self::Writer>> + Send {
        async move { Err(unsupported(name, "this device cannot be written")) }
    }

    /// Opens both sides of one connection.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves nothing open.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a name that is none, `Unsupported` for devices that have no connections, those of the kernel.
    fn connect(name: &str) -> impl Future<Output = io::Result<(Self::Reader, Self::Writer)>> + Send {
        async move { Err(unsupported(name, "this device has one direction: open a source or a sink of it")) }
    }

    /// Waits for connections at a name.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves nobody listening.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a name that is none, `Unsupported` for devices that have no connections, those of the kernel.
    fn listen(name: &str) -> impl Future<Output = io::Result<Self::Acceptor>> + Send {
        async move { Err(unsupported(name, "nobody can connect to this device: listen at tcp: or unix:")) }
    }
}

/// The reading side of a device.
pub trait Reader: Send + 'static {
    /// Bytes that have arrived, `len_max` at most, or none at the end. After `Pending` it is called again, perhaps with another
    /// `len_max`, or dropped.
    ///
    /// What was read while it said `Pending` stays here: nobody loses bytes by dropping a future.
    ///
    /// # Errors
    ///
    /// Those of the device, after which it is not called again.
    fn poll_read(&mut self, cx: &mut Context<'_>, len_max: usize) -> Poll<io::Result<Bytes>>;
}

/// The writing side of a device. Dropping it closes it.
pub trait Writer: Send + 'static {
    /// Writes the first part of the buffers, taken as one, and says how many bytes; they hold at least one. After `Pending` it is
    /// called again with the same bytes, or dropped.
    ///
    /// # Errors
    ///
    /// Those of the device, after which it is not called again.
    fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Waits until what was written is where it would survive a power failure, where the device has such a place.
    ///
    /// # Errors
    ///
    /// Those of the device.
    fn poll_sync(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }

    /// Says that nothing more will come.
    ///
    /// # Errors
    ///
    /// Those of the device.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }
}

/// What accepts connections.
pub trait Acceptor: Send + 'static {
    /// The reading side of a connection.
    type Reader: Reader;
    /// The writing side of a connection.
    type Writer: Writer;

    /// The next connection, and the name of the other side, which may be empty. A connection that was accepted while this said
    /// `Pending` stays here.
    ///
    /// # Errors
    ///
    /// Those of the listener itself, after which it is of no more use.
    #[expect(clippy::type_complexity, reason = "a connection, named where it is used")]
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Self::Reader, Self::Writer, String)>>;

    /// The name under which others reach it, with what the system chose (such as a port).
    ///
    /// # Errors
    ///
    /// Those of the system; none are known.
    fn local_name(&self) -> io::Result<String>;
}

fn unsupported(name: &str, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("`{name}`: {what}"))
}

/// The same error with the name in front, so that a log says which one.
fn named(name: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{name}`: {error}"))
}
