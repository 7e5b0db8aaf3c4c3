//! The site's listening sockets, and their connections.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use dapple::net::{Peer, TcpStream};
use http::HeaderValue;

#[cfg(feature = "http3")]
use super::http3::{Binding, Http3};
use super::site::Site;
use super::{connection, redirect};
use crate::server::{Admission, AdmittedConnection, Ending, Gate, Host, Listening, Tls};

/// All listening sockets of a site.
pub(crate) struct Front {
    site: Arc<Site>,
    gate: Gate,
    addrs: Vec<SocketAddr>,
    /// The sockets that only redirect.
    redirects: Vec<SocketAddr>,
    /// The HTTP/3 endpoints.
    #[cfg(feature = "http3")]
    http3: Vec<Arc<Http3>>,
}

impl Front {
    pub(crate) fn new(site: Arc<Site>, is_short: bool) -> Front {
        let gate = Gate::new(site.admission.clone(), is_short);
        let (addrs, redirects) = Default::default();
        #[cfg(feature = "http3")]
        let http3 = Vec::new();
        Front {
            site,
            gate,
            addrs,
            redirects,
            #[cfg(feature = "http3")]
            http3,
        }
    }

    /// Also serves HTTP/3 on an address; returns the announcement for replies over TLS.
    ///
    /// # Errors
    ///
    /// The UDP port is taken, or the kernel refuses for another reason.
    #[cfg(feature = "http3")]
    pub(crate) fn open_http3(
        &mut self,
        addr: SocketAddr,
        tls: &Arc<Tls>,
        binding: Binding,
    ) -> io::Result<Option<HeaderValue>> {
        let http3 = Http3::open(addr, self.site.clone(), tls.clone(), binding)?;
        self.gate.add(http3.begin(self.gate.admission.clone(), self.gate.stage.clone(), binding));
        let alternative = http3.alternative();
        self.http3.push(http3);
        Ok(alternative)
    }

    /// Uses the current certificates for HTTP/3 too.
    ///
    /// # Errors
    ///
    /// QUIC cannot use them; the old ones stay in use.
    #[cfg(feature = "http3")]
    pub(crate) fn renew(&self) -> io::Result<()> {
        self.http3.iter().try_for_each(|http3| http3.renew())
    }

    /// Does nothing: this build has only TCP.
    #[cfg(not(feature = "http3"))]
    pub(crate) fn renew(&self) -> io::Result<()> {
        Ok(())
    }

    /// Starts to accept. Accepting runs on the default color.
    pub(crate) fn open(&mut self, listening: Listening, manner: Manner) -> io::Result<()> {
        match manner {
            Manner::Redirect(_) => self.redirects.extend(listening.addr()),
            _ => self.addrs.extend(listening.addr()),
        }
        self.gate.open(listening, Arc::new(ConnectionHandler { site: self.site.clone(), manner }))
    }

    /// The addresses on which it listens.
    pub(crate) fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// The addresses that only redirect.
    pub(crate) fn redirects(&self) -> &[SocketAddr] {
        &self.redirects
    }

    /// The gate that accepts.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Stops accepting. From now on every reply is the last on its connection; connections in
    /// constant use get such a reply before this returns.
    pub(crate) async fn finish(mut self, ending: Ending) -> Arc<Admission> {
        self.site.set_crowded(true);
        let begin = self.gate.close(ending).await;
        self.gate.last_replies(begin, || self.gate.admission.open()).await;
        self.gate.admission
    }
}

/// How one listening socket takes connections.
struct ConnectionHandler {
    site: Arc<Site>,
    manner: Manner,
}

/// The protocol of a listening socket.
#[derive(Clone)]
pub(crate) enum Manner {
    Plain,
    /// TLS; replies announce the alternative protocol.
    Tls(Arc<Tls>, Option<HeaderValue>),
    /// Plain HTTP, only to redirect to the TLS port.
    Redirect(u16),
}

impl Host for ConnectionHandler {
    type Connection = TcpStream;

    /// Every connection is a task with a color of its own; with `--serial`, one of the default color.
    fn serve(&self, stream: TcpStream, peer: Peer, place: AdmittedConnection) {
        // Those of TCP have one.
        let Some(client) = peer.addr() else { return place.finish() };
        let (site, open) = (self.site.clone(), self.site.counters.open_connection());
        let link = place.link().clone();
        match &self.manner {
            Manner::Plain => self.site.spawn(async move {
                let serving = pin!(connection::serve(stream, client, site, link, open));
                place.link().unless_cut(serving).await;
                place.finish();
            }),
            Manner::Tls(tls, alternative) => {
                let encryption = (tls.clone(), alternative.clone());
                self.site.spawn(async move {
                    let serving = pin!(connection::serve_tls(stream, client, site, link, encryption, open));
                    place.link().unless_cut(serving).await;
                    place.finish();
                });
            }
            Manner::Redirect(port) => {
                let port = *port;
                self.site.spawn(async move {
                    let serving = pin!(redirect::serve(stream, client, site, link, port, open));
                    place.link().unless_cut(serving).await;
                    place.finish();
                });
            }
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.site.spawn(task);
    }

    fn set_crowded(&self, is_crowded: bool) {
        self.site.set_crowded(is_crowded);
    }

    fn is_plain(&self) -> bool {
        !matches!(self.manner, Manner::Tls(..))
    }
}
