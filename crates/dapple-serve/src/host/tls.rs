//! TLS on the listening sockets: certificates, and handshakes.

use std::fmt::Write as _;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
#[cfg(feature = "http3")]
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use crate::connections::farewell;
use dapple_io::net::TcpStream;
use dapple_io::time::sleep;
use dapple_sched::{Closed, Handle};
use dapple_sync::task::{First, race};
use dapple_tls::{self as tls, CertificateFiles, Certificates, TlsAcceptor, TlsStream};
use tracing::debug;

use super::stage::EndStage;
use crate::link::Link;

/// The source of certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// Files, which a reload reads again.
    Files(Vec<CertificateFiles>),
    /// Self-signed for these names, for trying things out.
    SelfSigned(Vec<String>),
}

/// The TLS side of a server.
pub struct Tls {
    acceptor: TlsAcceptor,
    source: CertificateSource,
    fingerprint: String,
    /// The certificates in use, for code that does not use the acceptor.
    #[cfg(feature = "http3")]
    certificates: Mutex<Certificates>,
}

impl Tls {
    /// Loads the certificates. Blocks.
    ///
    /// # Errors
    ///
    /// A file cannot be used; the message says which, and why.
    pub fn new(source: CertificateSource) -> Result<Arc<Tls>, tls::Error> {
        Tls::with_alpn(source, &["h2", "http/1.1"])
    }

    /// As [`new`](Self::new), for clients of another protocol than HTTP: `alpn` has the names that they may ask for.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_alpn(source: CertificateSource, alpn: &[&str]) -> Result<Arc<Tls>, tls::Error> {
        let certificates = match &source {
            CertificateSource::Files(files) => Certificates::load_blocking(files)?,
            CertificateSource::SelfSigned(names) => Certificates::self_signed(names.iter().map(String::as_str))?,
        };
        let fingerprint = fingerprint(certificates.first());
        let acceptor = TlsAcceptor::with_alpn(certificates.clone(), alpn.iter().copied())?;
        Ok(Arc::new(Tls {
            acceptor,
            source,
            fingerprint,
            #[cfg(feature = "http3")]
            certificates: Mutex::new(certificates),
        }))
    }

    /// The certificates in use.
    #[cfg(feature = "http3")]
    pub fn certificates(&self) -> Certificates {
        self.certificates.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The SHA-256 fingerprint of a self-signed certificate.
    pub fn self_signed_fingerprint(&self) -> Option<&str> {
        matches!(self.source, CertificateSource::SelfSigned(_)).then_some(&self.fingerprint)
    }

    /// Reads the files again, for new connections.
    ///
    /// # Errors
    ///
    /// As [`Tls::new`]; the old certificates stay in use.
    pub async fn reload(&self) -> Result<(), tls::CertificateError> {
        if let CertificateSource::Files(files) = &self.source {
            let certificates = Certificates::load(files.clone()).await?;
            #[cfg(feature = "http3")]
            self.certificates.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&certificates);
            self.acceptor.reload(certificates);
        }
        Ok(())
    }

    /// Makes an encrypted stream of a connection; `None` if the handshake failed, and the
    /// connection has ended.
    pub async fn accept(
        &self,
        stream: TcpStream,
        handle: Option<&Handle>,
        link: &Link,
    ) -> Option<TlsStream<TcpStream>> {
        let handshake = within(self.acceptor.accept_or_return(stream, HANDSHAKE_MAX), handle.map(Handle::closing));
        let First::Right(accepted) = race(link.unwanted(), handshake).await else { return None };
        match accepted? {
            Ok(stream) => Some(stream),
            Err((tls::Error::NotTls { first_bytes }, stream)) if is_http(&first_bytes) => {
                farewell(stream, PLAIN, u64::MAX).await;
                None
            }
            Err((error, _)) => {
                debug!(%error, "TLS handshake failed");
                None
            }
        }
    }
}

impl Tls {
    /// Makes an encrypted stream of a session's connection; `None` if the handshake failed. It gets less time once `stage`
    /// says that the server ends.
    pub async fn accept_session(&self, stream: TcpStream, stage: &EndStage) -> Option<TlsStream<TcpStream>> {
        let ending = async {
            stage.finishing().await;
            sleep(HANDSHAKE_CLOSING_MAX).await;
        };
        match race(self.acceptor.accept(stream, HANDSHAKE_MAX), ending).await {
            First::Left(Ok(stream)) => Some(stream),
            First::Left(Err(error)) => {
                debug!(%error, "TLS handshake failed");
                None
            }
            First::Right(()) => None,
        }
    }
}

/// Returns the result of a handshake, which gets less time when the server is closing.
pub async fn within<F: Future>(handshake: F, closing: Option<Closed>) -> Option<F::Output> {
    let mut handshake = pin!(handshake);
    let mut closed = pin!(async {
        match closing {
            Some(closing) => closing.await,
            None => pending().await,
        }
        sleep(HANDSHAKE_CLOSING_MAX).await;
    });
    let race = poll_fn(|cx| match handshake.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => closed.as_mut().poll(cx).map(|()| None),
    });
    race.await
}

/// Whether these bytes begin a plain HTTP request.
fn is_http(first_bytes: &[u8]) -> bool {
    let word = first_bytes.split(|byte| *byte == b' ').next().unwrap_or_default();
    (3..=7).contains(&word.len()) && word.len() < first_bytes.len() && word.iter().all(u8::is_ascii_uppercase)
}

/// SHA-256, formatted as other programs show it.
fn fingerprint(certificate: &[u8]) -> String {
    use dapple_tls::rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256 as SUITE;
    let mut text = String::new();
    if let Some(suite) = SUITE.tls13() {
        for byte in suite.common.hash_provider.hash(certificate).as_ref() {
            let colon = if text.is_empty() { "" } else { ":" };
            let _ = write!(text, "{colon}{byte:02X}");
        }
    }
    text
}

const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain; charset=utf-8\r\n\
    content-length: 69\r\n\r\nThis port speaks HTTPS. Write https:// instead of http://, please...\n";

/// How long a client may take for its handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// The same limit when the server is closing.
const HANDSHAKE_CLOSING_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::{PLAIN, fingerprint, is_http};

    #[test]
    fn plain_http_is_recognized() {
        for http in ["GET / HTTP/1.1", "PRI * HTTP/2.0", "OPTIONS * HTTP/1.1", "HEAD /"] {
            assert!(is_http(http.as_bytes()), "{http}");
        }
        for other in ["", "GET", "\u{16}\u{3}\u{1}", "ssh-2.0 x", "A / HTTP/1.1", " / "] {
            assert!(!is_http(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn the_reply_has_its_stated_length() {
        let text = std::str::from_utf8(PLAIN).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{}", body.len());
    }

    #[test]
    fn a_fingerprint_is_as_openssl_shows_it() {
        assert!(fingerprint(b"abc").starts_with("BA:78:16:BF:8F:01:CF:EA:"));
        assert_eq!(fingerprint(b"abc").len(), 95);
    }
}
