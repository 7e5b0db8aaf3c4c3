//! The address of a server, and how to connect to it.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use dapple::net::TcpStream;
use dapple::tls::{TlsConnector, TlsStream};
use rustls::pki_types::CertificateDer;
use soak::{Trust, Wire};

/// See the [module](self).
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) port: u16,
    trusts: Option<Trusts>,
}

/// The trusted roots, for HTTP/1.1, for HTTP/2, and for tasks.
#[derive(Clone)]
struct Trusts {
    http1: Trust,
    http2: Trust,
    connector: TlsConnector,
}

impl Target {
    /// With a root, it speaks TLS.
    pub(crate) fn new(port: u16, root: Option<&CertificateDer<'static>>) -> Result<Target, String> {
        let trusts = |root: &CertificateDer<'static>| {
            let [http1, http2] = ["http/1.1", "h2"].map(|alpn| Trust::new(root.clone(), alpn));
            let connector = TlsConnector::with_roots([root.clone()]).map_err(|error| error.to_string())?.alpn(["h2"]);
            let trusted = |trust: Result<Trust, rustls::Error>| trust.map_err(|error| error.to_string());
            Ok::<_, String>(Trusts { http1: trusted(http1)?, http2: trusted(http2)?, connector })
        };
        Ok(Target { port, trusts: root.map(trusts).transpose()? })
    }

    /// A connection for HTTP/1.1.
    pub(crate) fn http1(&self) -> io::Result<Wire> {
        match &self.trusts {
            None => Wire::plain(self.port),
            Some(trusts) => Wire::tls(self.port, NAME, &trusts.http1),
        }
    }

    /// A connection that begins with HTTP/2.
    pub(crate) fn http2(&self) -> io::Result<Wire> {
        match &self.trusts {
            None => Wire::plain(self.port),
            Some(trusts) => Wire::tls(self.port, NAME, &trusts.http2),
        }
    }

    /// A connection before its handshake, if it has one.
    pub(crate) fn bare(&self) -> io::Result<(Wire, Option<&Trust>)> {
        Ok((Wire::plain(self.port)?, self.trusts.as_ref().map(|trusts| &trusts.http1)))
    }

    /// As [`http2`](Target::http2), for a task.
    pub(crate) async fn connect(&self) -> io::Result<Connected> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        match &self.trusts {
            None => Ok(Connected::Plain(stream)),
            Some(trusts) => {
                let stream = trusts.connector.connect(NAME, stream, HANDSHAKE_MAX).await;
                stream.map(|stream| Connected::Tls(Box::new(stream))).map_err(io::Error::other)
            }
        }
    }
}

/// A connection of a task.
pub(crate) enum Connected {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// The name of all servers.
pub(crate) const NAME: &str = "soak.example";

const HANDSHAKE_MAX: Duration = Duration::from_secs(40);
