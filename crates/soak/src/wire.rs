//! A blocking connection, plain or encrypted.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The certificates that a client trusts.
#[derive(Clone)]
pub struct Trust(Arc<ClientConfig>);

impl Trust {
    /// Trusts this certificate, and those that it signs. Clients offer `alpn`, and resume no
    /// session.
    ///
    /// # Errors
    ///
    /// It is not a certificate.
    pub fn new(root: CertificateDer<'static>, alpn: &str) -> Result<Trust, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(root)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Trust(Arc::new(config)))
    }

    /// The client side of a handshake with a server of this name.
    ///
    /// # Errors
    ///
    /// It is not a valid name.
    pub fn begin(&self, name: &'static str) -> io::Result<ClientConnection> {
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        ClientConnection::new(self.0.clone(), name).map_err(io::Error::other)
    }
}

/// A connection of a client.
pub enum Wire {
    /// Unencrypted.
    Plain(TcpStream),
    /// With TLS.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    /// Connects to this machine. A read or write without progress for 40 s returns an error.
    ///
    /// # Errors
    ///
    /// The connection fails.
    pub fn plain(port: u16) -> io::Result<Wire> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Wire::Plain(stream))
    }

    /// The same with TLS, after the handshake.
    ///
    /// # Errors
    ///
    /// The connection fails, or the server is not trusted.
    pub fn tls(port: u16, name: &'static str, trust: &Trust) -> io::Result<Wire> {
        let Wire::Plain(mut stream) = Wire::plain(port)? else { unreachable!("the connection is not encrypted") };
        let mut session = trust.begin(name)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(Wire::Tls(Box::new(StreamOwned::new(session, stream))))
    }

    /// The underlying connection.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Wire::Plain(stream) => stream,
            Wire::Tls(stream) => &stream.sock,
        }
    }

    /// Changes the keys of an encrypted connection, and asks the server to do so, too. Does nothing
    /// on a plain one.
    ///
    /// # Errors
    ///
    /// The connection has ended, or its version of TLS does not support this.
    pub fn change_keys(&mut self) -> io::Result<()> {
        let Wire::Tls(stream) = self else { return Ok(()) };
        stream.conn.refresh_traffic_keys().map_err(io::Error::other)?;
        stream.conn.write_tls(&mut stream.sock).map(|_| ())
    }
}

impl Read for Wire {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(stream) => stream.read(buf),
            Wire::Tls(stream) => stream.read(buf),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(stream) => stream.write(buf),
            Wire::Tls(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Wire::Plain(stream) => stream.flush(),
            Wire::Tls(stream) => stream.flush(),
        }
    }
}

/// A connection without progress for this long is stuck.
const PATIENCE: Duration = Duration::from_secs(40);
