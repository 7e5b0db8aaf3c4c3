//! The cryptography library, and the order of ciphers.

use std::sync::{Arc, OnceLock};

use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::server::ProducesTickets;

#[cfg(feature = "aws-lc-rs")]
use rustls::crypto::aws_lc_rs as library;
#[cfg(not(feature = "aws-lc-rs"))]
use rustls::crypto::ring as library;

/// The provider of the process. With AES in hardware AES-128-GCM comes first: it is safe enough and
/// the fastest. Without it the order is that of rustls.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    let make = || {
        let mut provider = library::default_provider();
        if has_aes() {
            // Stable: the order within a rank is unchanged.
            provider.cipher_suites.sort_by_key(|suite| rank(suite.suite()));
        }
        Arc::new(provider)
    };
    PROVIDER.get_or_init(make).clone()
}

/// Encrypts the tickets that clients keep to resume their sessions; its keys change every six
/// hours.
pub(crate) fn ticketer() -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    library::Ticketer::new()
}

/// Whether the processor has AES.
pub(crate) fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes") && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

fn rank(suite: CipherSuite) -> u8 {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => 0,
        CipherSuite::TLS13_AES_256_GCM_SHA384 | CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => 1,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => 2,
        _ => 3,
    }
}
