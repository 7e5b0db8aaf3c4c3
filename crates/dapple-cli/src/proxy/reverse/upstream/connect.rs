//! Making connections.

use std::fs;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple::hyper_rt::{Executor, Timer};
use dapple::net::{Connector, TcpStream, resolve};
use dapple::time::{Instant, timeout_at};
use dapple::tls::rustls::pki_types::CertificateDer;
use dapple::tls::rustls::pki_types::pem::PemObject;
use dapple::tls::{Error, TlsConnector};
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use tracing::debug;

use super::pool::{STREAMS_MAX, Sender1, Sender2};
use super::{OpenPlace, Upstream};
use crate::proxy::reverse::failure::{Failure, with_causes};
use crate::proxy::reverse::target::{Scheme, Target};

/// What is spoken on a connection, and by what.
pub(super) enum Opened {
    Http1(Sender1),
    /// With how many requests at a time the upstream allows.
    Http2(Sender2, Arc<AtomicUsize>),
}

/// Encryption towards upstreams.
#[derive(Clone, Debug)]
pub(crate) struct Encryption {
    /// For HTTP/2 or HTTP/1.1, and for what is HTTP/1.1 only.
    any: TlsConnector,
    http1: TlsConnector,
}

impl Encryption {
    /// Trusts the certificates in this file, or those of Mozilla's authorities. Blocks.
    ///
    /// # Errors
    ///
    /// The file has no certificates, or cannot be read: why.
    pub(crate) fn new(authorities: Option<&Path>) -> Result<Encryption, String> {
        let connector = match authorities {
            None => TlsConnector::new().map_err(|error| error.to_string())?,
            Some(path) => {
                let text = fs::read(path).map_err(|error| error.to_string())?;
                let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
                let roots = roots.map_err(|error| error.to_string())?;
                if roots.is_empty() {
                    return Err("there is no certificate in it".to_owned());
                }
                TlsConnector::with_roots(roots).map_err(|error| error.to_string())?
            }
        };
        let http1 = connector.clone().alpn(["http/1.1"]);
        Ok(Encryption { any: connector.alpn(["h2", "http/1.1"]), http1 })
    }
}

/// Connects, within `limit`. The connection counts until it ends.
pub(super) async fn open(
    upstream: &Arc<Upstream>,
    place: OpenPlace,
    limit: Duration,
    only_http1: bool,
) -> Result<Opened, Failure> {
    let deadline = Instant::now() + limit;
    let target = &upstream.target;
    let ips = timeout_at(deadline, resolve(target.name())).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()));
    let ips = ips.map_err(|error| unresolved(&error))?;
    let connecting = async {
        let stream = reach(target, ips).await?;
        match target.scheme {
            Scheme::Http => http1(upstream, stream, place).await,
            Scheme::H2c => http2(upstream, stream, place).await,
            Scheme::Https => {
                let encryption = &upstream.common.encryption;
                let connector = if only_http1 { &encryption.http1 } else { &encryption.any };
                let stream = connector.connect(target.name(), stream, limit).await;
                let stream = stream.map_err(|error| unencrypted(&error))?;
                match stream.alpn() == Some(b"h2") {
                    true => http2(upstream, stream, place).await,
                    false => http1(upstream, stream, place).await,
                }
            }
        }
    };
    timeout_at(deadline, connecting).await.unwrap_or(Err(Failure::ConnectTimeout))
}

/// Races the addresses of a host.
async fn reach(target: &Target, ips: Vec<IpAddr>) -> Result<TcpStream, Failure> {
    let addrs: Vec<_> = ips.into_iter().map(|ip| SocketAddr::new(ip, target.port)).collect();
    Connector::new().connect(addrs).await.map_err(|error| Failure::Unreachable(error.to_string()))
}

/// Why there is no address.
fn unresolved(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::TimedOut => Failure::LookupTimeout,
        _ => Failure::Unknown(error.to_string()),
    }
}

/// Why there is no TLS.
fn unencrypted(error: &Error) -> Failure {
    use dapple::tls::rustls::Error::{InvalidCertificate, NoCertificatesPresented};
    match error {
        Error::Protocol(InvalidCertificate(_) | NoCertificatesPresented) | Error::Name(_) => {
            Failure::Certificate(error.to_string())
        }
        Error::TimedOut(_) => Failure::ConnectTimeout,
        _ => Failure::Tls(error.to_string()),
    }
}

async fn http1<S>(upstream: &Arc<Upstream>, stream: S, place: OpenPlace) -> Result<Opened, Failure>
where
    S: Read + Write + Send + Unpin + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_MAX).max_headers(FIELDS_MAX);
    let (sender, connection) = builder.handshake(stream).await.map_err(|error| Failure::Broken(with_causes(&error)))?;
    upstream.common.spawn(async move {
        let _place = place;
        if let Err(error) = connection.with_upgrades().await {
            debug!(%error, "a connection to an upstream ended");
        }
    });
    Ok(Opened::Http1(sender))
}

async fn http2<S>(upstream: &Arc<Upstream>, stream: S, place: OpenPlace) -> Result<Opened, Failure>
where
    S: Read + Write + Send + Unpin + 'static,
{
    let mut builder = http2::Builder::new(Executor::new());
    builder
        .timer(Timer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER_MAX)
        .max_header_list_size(HEAD_MAX as u32)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_MAX);
    let (sender, connection) = builder.handshake(stream).await.map_err(|error| Failure::Broken(with_causes(&error)))?;
    let streams_max = Arc::new(AtomicUsize::new(STREAMS_MAX));
    let said = streams_max.clone();
    upstream.common.spawn(async move {
        let _place = place;
        let mut connection = pin!(connection);
        let ended = poll_fn(|cx| {
            let ended = connection.as_mut().poll(cx);
            said.store(connection.as_ref().get_ref().current_max_send_streams(), Ordering::Relaxed);
            ended
        });
        if let Err(error) = ended.await {
            debug!(%error, "a connection of HTTP/2 to an upstream ended");
        }
    });
    Ok(Opened::Http2(sender, streams_max))
}

/// The largest head of a response.
const HEAD_MAX: usize = 64 * 1024;
const FIELDS_MAX: usize = 256;

/// What of a response may come before somebody takes it: of one, and of all on a connection.
const WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// What of a request's body waits in hyper's buffer to be sent.
const SEND_BUFFER_MAX: usize = 64 << 10;

/// While a request is in flight, a server that is gone without a word is noticed.
const PING_EVERY: Duration = Duration::from_secs(15);
const PONG_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::io;

    use super::{Failure, unresolved};

    #[test]
    fn a_name_server_that_is_late_is_no_name_that_is_not_there() {
        let failures = [io::ErrorKind::TimedOut, io::ErrorKind::NotFound].map(|kind| unresolved(&kind.into()));
        let said = failures.each_ref().map(|failure| {
            let reply = failure.reply(false);
            (reply.status.as_u16(), reply.headers["proxy-status"].to_str().unwrap().to_owned())
        });
        let expected = [(504, "dapple; error=dns_timeout"), (502, "dapple; error=dns_error")];
        assert_eq!(said, expected.map(|(status, text)| (status, text.to_owned())));
        assert_eq!(failures[0], Failure::LookupTimeout);
    }
}
