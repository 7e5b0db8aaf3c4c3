//! A server over TCP and UDP.

use std::io;
use std::sync::Arc;

use dapple::Colored;
use dapple::net::{TcpListener, TcpStream, UdpSocket};
use dapple::sync::{Semaphore, mpsc};
use dapple::time::{Duration, timeout};

use crate::duplicates::{Duplicates, Key, Seen};
use crate::message::{MARK, from_datagram};
use crate::service::Service;
use crate::{CALLS_MAX, MESSAGE_MAX, record};

impl Service {
    /// Serves the connections of a listener, each in its own task. The server stops reading a
    /// connection with [`CALLS_MAX`](crate::CALLS_MAX) calls that are unanswered or have unsent
    /// answers, until there is room.
    ///
    /// Dropping the future ends accepting; connections continue until they end. Cancel safe.
    ///
    /// # Errors
    ///
    /// Those of the listening socket.
    pub async fn serve_tcp(self: Arc<Self>, listener: TcpListener) -> io::Result<()> {
        loop {
            let (stream, _peer) = listener.accept().await?;
            let service = self.clone();
            // An error ends the connection, so that the client sees it.
            drop(dapple::spawn(async move { drop(service.connection(stream).await) }));
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream) -> io::Result<()> {
        let stream = Arc::new(stream);
        let (replies, to_send) = mpsc::channel::<Vec<u8>>(CALLS_MAX);
        let writer = dapple::spawn(write(stream.clone(), to_send));
        loop {
            // Reserve room for the reply first. The call carries it, and gives it back with the
            // reply.
            let Ok(room) = replies.clone().reserve_owned().await else { break };
            let Some(message) = timeout(IDLE_MAX, record::read(&stream)).await?? else { break };
            if !self.dispatch(&message, move |reply| drop(room.send(reply))) {
                break;
            }
        }
        // Earlier calls are still answered.
        drop(replies);
        writer.await.map_err(io::Error::other)?
    }

    /// Serves the datagrams of a socket. A repeated call gets its earlier reply, and does not run
    /// again. Calls beyond [`CALLS_MAX`](crate::CALLS_MAX) are dropped; their clients send them
    /// again.
    ///
    /// Dropping the future ends it; running calls are still answered. Cancel safe.
    ///
    /// # Errors
    ///
    /// Those of the socket.
    pub async fn serve_udp(self: Arc<Self>, socket: UdpSocket) -> io::Result<()> {
        let (socket, room) = (Arc::new(socket), Arc::new(Semaphore::new(CALLS_MAX)));
        let duplicates = Colored::new(Duplicates::default());
        let mut datagram = vec![0; MESSAGE_MAX];
        loop {
            let (len, client) = match socket.recv_from(&mut datagram).await {
                Ok(received) => received,
                // An earlier datagram could not be delivered.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
            let Ok(place) = room.clone().try_acquire_owned() else { continue };
            let message = from_datagram(&datagram[..len]);
            let key = Key { client, message: message.clone() };
            match duplicates.with(|duplicates| duplicates.look(&key)).await {
                Seen::Never => {}
                Seen::Running => continue,
                Seen::Answered(reply) => {
                    send(&socket, &reply, &key);
                    continue;
                }
            }
            let (answered, own, socket) = (duplicates.clone(), key.clone(), socket.clone());
            let is_call = self.dispatch(&message, move |reply| {
                send(&socket, &reply, &own);
                answered.post(|duplicates| duplicates.answer(own, reply));
                drop(place);
            });
            if !is_call {
                duplicates.with(|duplicates| duplicates.forget(&key)).await;
            }
        }
    }
}

/// A reply without room in the socket is lost like any datagram: the client asks again.
fn send(socket: &UdpSocket, reply: &[u8], key: &Key) {
    let _ = socket.try_send_to(&reply[MARK..], key.client);
}

async fn write(stream: Arc<TcpStream>, mut to_send: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    while let Some(reply) = to_send.recv().await {
        timeout(SEND_MAX, stream.write_all(&reply)).await??;
    }
    Ok(())
}

/// How long a client may be silent, or take for a message.
const IDLE_MAX: Duration = Duration::from_secs(300);
/// How long a client may take to read a reply.
const SEND_MAX: Duration = Duration::from_secs(30);
