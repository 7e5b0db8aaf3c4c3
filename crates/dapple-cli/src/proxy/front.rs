//! The proxy's door: its listening sockets, and what happens to those who come in.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dapple::net::{TcpListener, TcpStream};
use dapple::time::sleep;
use dapple::{Color, JoinHandle};
use ipnet::IpNet;
use tracing::info;

use super::proxy::Proxy;
use super::rules;
use super::tally::Count;
use crate::http::{Client, Limits, http1};
use crate::server::{Accepting, Ending, Host, Listening, Place, Stage, accept};

/// All listening sockets of a proxy.
pub(crate) struct Front {
    proxy: Arc<Proxy>,
    door: Arc<Door>,
    stage: Arc<Stage>,
    /// The limit of connections is that of the descriptors.
    is_short: bool,
    tasks: Vec<JoinHandle<()>>,
}

impl Front {
    /// A door for clients of this machine and of these networks.
    pub(crate) fn new(proxy: Arc<Proxy>, clients: Vec<IpNet>, is_short: bool) -> Front {
        let limits = Arc::new(Limits { idle_timeout: IDLE_MAX, ..Limits::default() });
        let door = Arc::new(Door { proxy: proxy.clone(), clients, limits });
        Front { proxy, door, stage: Arc::default(), is_short, tasks: Vec::new() }
    }

    /// Begins to accept. Accepting runs on the default color.
    pub(crate) fn open(&mut self, listening: Listening) -> io::Result<()> {
        let accepting = Accepting {
            is_shared: listening.is_shared(),
            listener: TcpListener::from_std(listening.socket)?,
            host: self.door.clone(),
            admission: self.proxy.admission.clone(),
            stage: self.stage.clone(),
            is_short: self.is_short,
        };
        self.tasks.push(Color::DEFAULT.spawn(accept(accepting)));
        Ok(())
    }

    /// Accepts no more. From now on every reply is the last on its connection; those that are used all the time get one before
    /// this returns.
    pub(crate) async fn finish(self) {
        let begin = Instant::now();
        self.stage.begin(Ending::Stop);
        self.proxy.set_crowded(true);
        for task in self.tasks {
            // A panic has been reported already.
            let _ = task.await;
        }
        // Tunnels have no replies to wait for.
        let open = || self.proxy.admission.open().saturating_sub(self.proxy.tally.tunnels_open());
        while open() > 0 && begin.elapsed() < LAST_REPLIES {
            sleep(TICK).await;
        }
    }
}

/// What the listening sockets do with connections.
struct Door {
    proxy: Arc<Proxy>,
    clients: Vec<IpNet>,
    limits: Arc<Limits>,
}

impl Host for Door {
    /// Every connection is a task with a color of its own; with `--serial`, one of the default color.
    fn serve(&self, stream: TcpStream, addr: SocketAddr, place: Place) {
        let (proxy, limits) = (self.proxy.clone(), self.limits.clone());
        proxy.tally.one(Count::Accepted);
        self.spawn(async move {
            let client = Client { addr, is_secure: false, color: Color::current().id(), alternative: None };
            let handle = proxy.handle.clone();
            // HTTP/2 without TLS is not spoken here: such a connection just ends.
            drop(http1::serve(stream, proxy, client, limits, &handle).await);
            place.finish();
        });
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.proxy.upstream.spawn(task);
    }

    fn set_crowded(&self, is_crowded: bool) {
        self.proxy.set_crowded(is_crowded);
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn turns_away(&self, client: IpAddr) -> Option<&'static [u8]> {
        if rules::admits(&self.clients, client) {
            return None;
        }
        info!(%client, "a client that may not use this proxy was turned away");
        self.proxy.tally.one(Count::Strangers);
        Some(FORBIDDEN)
    }
}

const FORBIDDEN: &[u8] = b"HTTP/1.1 403 Forbidden\r\nconnection: close\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 73\r\n\r\n\
    This proxy is not for your address; `--allow-clients NETWORK` allows it.\n";

/// How long a connection may wait for its next request.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// How long connections may wait for their next request, to be told in its reply that it is the last.
const LAST_REPLIES: Duration = Duration::from_millis(500);

const TICK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::FORBIDDEN;

    #[test]
    fn the_refusal_is_as_long_as_it_says() {
        let text = std::str::from_utf8(FORBIDDEN).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
