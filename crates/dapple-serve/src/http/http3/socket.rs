//! The socket of an endpoint: several datagrams per system call, and the bits by which routers
//! report congestion.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dapple_io::net::UdpSocket;
use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};

/// An endpoint's UDP socket.
#[derive(Debug)]
pub(super) struct Socket {
    socket: UdpSocket,
    /// The kernel's features, and how to use them.
    state: UdpSocketState,
}

impl Socket {
    pub(super) fn new(socket: std::net::UdpSocket) -> io::Result<Socket> {
        let state = UdpSocketState::new((&socket).into())?;
        Ok(Socket { socket: UdpSocket::from_std(socket)?, state })
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Room { socket: self, waiting: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send_by(|socket| self.state.send((&socket).into(), transmit))
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_recv_by(cx, |socket| self.state.recv((&socket).into(), bufs, meta))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

/// A task that waits for room to send.
struct Room {
    socket: Arc<Socket>,
    waiting: Option<Waiting>,
}

type Waiting = Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>;

impl UdpPoller for Room {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Room { socket, waiting } = &mut *self;
        let future = waiting.get_or_insert_with(|| {
            let socket = socket.clone();
            Box::pin(async move { socket.socket.writable().await })
        });
        let result = ready!(future.as_mut().poll(cx));
        *waiting = None;
        Poll::Ready(result)
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("socket", &self.socket).finish_non_exhaustive()
    }
}
