//! A source of connections.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::chain::{Flow, Upstream, flow};
use super::codec::Chunks;
use super::device::{Acceptor, Device};
use super::handler::Handler;
use super::{Sink, Source};

/// Accepts connections: a source of [`Connection`]s.
///
/// ```
/// use dapple_flow::flow::{self, Any, Listener};
///
/// let runtime = dapple_io::runtime_builder().workers(2).build()?;
/// runtime.block_on(async {
///     let mut listener = Listener::<Any>::bind("tcp:127.0.0.1:0").await?;
///     let name = listener.local_name()?;
///     let echo = dapple_sched::spawn(async move {
///         let connection = listener.next().await.expect("the listener does not end")?;
///         // Echo all bytes.
///         connection.source.chain(connection.sink).await.expect("nothing panics");
///         std::io::Result::Ok(())
///     });
///     let connection = flow::connect::<Any>(&name).await?;
///     let (mut source, sink) = (connection.source, connection.sink);
///     sink.write("hello").await?;
///     sink.close().await?;
///     assert_eq!(source.next().await.expect("the bytes come back")?, "hello");
///     echo.await.expect("the task does not panic")
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Listener<D: Device> {
    acceptor: D::Acceptor,
    /// A connection that was accepted and not taken.
    ready: Option<Connection<D>>,
    has_ended: bool,
}

/// Both directions of a connection. Dropping or closing the sink ends one direction; dropping both
/// parts closes the connection.
#[non_exhaustive]
pub struct Connection<D: Device> {
    /// The bytes from the other side.
    pub source: Source<D, Chunks>,
    /// The bytes to the other side.
    pub sink: Sink<D, Chunks>,
    /// The name of the other side, for logs; empty if it has none.
    pub peer: String,
}

/// Connects to a name, in both directions.
///
/// ```no_run
/// use dapple_flow::flow::{Tcp, connect};
///
/// # async fn example() -> std::io::Result<()> {
/// let mut connection = connect::<Tcp>("example.com:80").await?;
/// connection.sink.write("GET / HTTP/1.0\r\n\r\n").await?;
/// while let Some(bytes) = connection.source.next().await {
///     println!("{} bytes", bytes?.len());
/// }
/// # Ok(())
/// # }
/// ```
///
/// Cancel safe: dropping it ends the attempt.
///
/// # Errors
///
/// `InvalidInput` for an invalid name, with an example; `Unsupported` for devices without
/// connections; errors of the device.
pub async fn connect<D: Device>(name: &str) -> io::Result<Connection<D>> {
    let (reader, writer) = D::connect(name).await?;
    Ok(Connection { source: Source::new(reader), sink: Sink::new(writer), peer: name.to_owned() })
}

impl<D: Device> Listener<D> {
    /// Listens at a name.
    ///
    /// # Cancel safety
    ///
    /// If dropped, it does not listen.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid name, with an example; `Unsupported` for devices without
    /// connections; errors of the device, such as `AddrInUse`.
    pub async fn bind(name: &str) -> io::Result<Self> {
        Ok(Listener { acceptor: D::listen(name).await?, ready: None, has_ended: false })
    }

    /// The name under which others reach it, with the port that the system chose.
    ///
    /// # Errors
    ///
    /// Errors of the system; none are known.
    pub fn local_name(&self) -> io::Result<String> {
        self.acceptor.local_name()
    }

    /// The next connection. `None` only after an error, which makes the listener useless; a
    /// shortage of descriptors is not such an error, see
    /// [`TcpListener::accept`](dapple_io::net::TcpListener::accept).
    ///
    /// Cancel safe: an accepted connection stays in the listener.
    ///
    /// # Errors
    ///
    /// Those of the listening device.
    pub async fn next(&mut self) -> Option<io::Result<Connection<D>>> {
        poll_fn(|cx| self.poll_connection(cx)).await
    }

    /// Sends the connections to a handler from now on: a queue, a callback, or your own. While it
    /// has no room, new ones wait in the kernel's backlog.
    ///
    /// # Cancel safety
    ///
    /// Dropping the flow ends it; [`Flow`] says what happens to its events.
    ///
    /// # Panics
    ///
    /// If no runtime is current.
    pub fn chain(self, to: impl Handler<Connection<D>>) -> Flow<Listener<D>> {
        flow(self, Some, to)
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Connection<D>>>> {
        self.poll_ready(cx).map(|ready| match ready {
            Ok(true) => self.ready.take().map(Ok),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        })
    }
}

impl<D: Device> Upstream for Listener<D> {
    type Event = Connection<D>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.ready.is_some() || self.has_ended {
            return Poll::Ready(Ok(self.ready.is_some()));
        }
        self.acceptor.poll_accept(cx).map(|accepted| match accepted {
            Ok((reader, writer, peer)) => {
                self.ready = Some(Connection { source: Source::new(reader), sink: Sink::new(writer), peer });
                Ok(true)
            }
            Err(error) => {
                self.has_ended = true;
                Err(error)
            }
        })
    }

    fn take(&mut self) -> Option<Connection<D>> {
        self.ready.take()
    }
}

impl<D: Device> Unpin for Listener<D> {}

/// The connections. Cancel safe.
impl<D: Device> futures_core::Stream for Listener<D> {
    type Item = io::Result<Connection<D>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_connection(cx)
    }
}

impl<D: Device> fmt::Debug for Listener<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("name", &self.local_name().unwrap_or_default()).finish()
    }
}

impl<D: Device> fmt::Debug for Connection<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("peer", &self.peer).finish()
    }
}
