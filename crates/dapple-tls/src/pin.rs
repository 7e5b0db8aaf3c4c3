//! Servers that are known by their certificate itself.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use crate::provider::provider;

/// The certificate of one server, by its SHA-256: known before, or learned from the first handshake. Cheap to clone.
///
/// Names and dates of the certificate do not matter, and no authority is asked: a server without this very certificate is refused.
#[derive(Clone, Debug)]
pub struct Pin(Arc<Pinned>);

#[derive(Debug)]
struct Pinned {
    known: Mutex<Option<String>>,
    provider: Arc<CryptoProvider>,
}

impl Pin {
    /// Expects the certificate with this SHA-256, in 64 hexadecimal digits, with or without colons; `None` if the text has another form.
    pub fn of(fingerprint: &str) -> Option<Pin> {
        let digits: String = fingerprint.chars().filter(|c| *c != ':').map(|c| c.to_ascii_lowercase()).collect();
        let is_good = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_good.then(|| Pin::new(Some(digits)))
    }

    /// Takes the certificate of the first handshake, and expects it from then on.
    pub fn first_use() -> Pin {
        Pin::new(None)
    }

    /// The SHA-256 of the certificate, once it is known.
    pub fn fingerprint(&self) -> Option<String> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn new(known: Option<String>) -> Pin {
        Pin(Arc::new(Pinned { known: Mutex::new(known), provider: provider() }))
    }

    pub(crate) fn verifier(&self) -> Arc<dyn ServerCertVerifier> {
        self.0.clone()
    }
}

impl Pinned {
    fn sha256(&self, certificate: &CertificateDer<'_>) -> Option<String> {
        // A suite of TLS 1.3 that every provider has.
        let suites = self.provider.cipher_suites.iter().filter_map(rustls::SupportedCipherSuite::tls13);
        let suite =
            suites.into_iter().find(|suite| suite.common.suite == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256)?;
        let hash = suite.common.hash_provider.hash(certificate);
        let mut text = String::new();
        for byte in hash.as_ref() {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        Some(text)
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = self.sha256(end_entity).ok_or_else(|| Error::General("there is no SHA-256".to_owned()))?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get_or_insert_with(|| found.clone()) == &found {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
