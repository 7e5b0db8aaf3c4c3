//! The TLS of the generator: 1.3 with AES-128-GCM and X25519, so that all servers do the same work,
//! and a full handshake for every connection. Certificates are not verified: a load goes to your
//! own server, and the check would use the processor that the server shares.

use anyhow::{Context, Result};
use dapple::tls::TlsConnector;
use dapple::tls::rustls::client::Resumption;
use dapple::tls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use dapple::tls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use dapple::tls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use dapple::tls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme, version};
use std::sync::Arc;

/// Makes encrypted connections.
pub(super) fn connector() -> Result<TlsConnector> {
    let provider = CryptoProvider {
        cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![aws_lc_rs::kx_group::X25519],
        ..aws_lc_rs::default_provider()
    };
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_protocol_versions(&[&version::TLS13]).context("there is no TLS 1.3")?;
    let anyone = Arc::new(Anyone { schemes });
    let mut config = builder.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(TlsConnector::from_config(config))
}

/// Accepts any server.
#[derive(Debug)]
struct Anyone {
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
