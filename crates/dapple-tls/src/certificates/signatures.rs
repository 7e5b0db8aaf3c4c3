//! Signatures of a length that does not vary, for simulations.
//!
//! An ECDSA signature is two random numbers without their leading zeros, so its length varies by a few bytes. A simulated
//! network would cut other segments in each run of a seed. Keys and nonces stay random: only their lengths show on the network.

use std::sync::Arc;

use dapple_sched::environment;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::sign::{Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

/// A key with signatures of one length in a simulation. Outside of one it is the key itself, after a test of a thread-local word.
#[derive(Debug)]
pub(super) struct SteadyKey(pub(super) Arc<dyn SigningKey>);

#[derive(Debug)]
struct SteadySigner(Box<dyn Signer>);

impl SigningKey for SteadyKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let signer = self.0.choose_scheme(offered)?;
        Some(if environment::is_simulated() { Box::new(SteadySigner(signer)) } else { signer })
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        self.0.public_key()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

impl Signer for SteadySigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let sign = || self.0.sign(message);
        match self.0.scheme() {
            SignatureScheme::ECDSA_NISTP256_SHA256 => of_length(P256_LEN, sign),
            SignatureScheme::ECDSA_NISTP384_SHA384 => of_length(P384_LEN, sign),
            SignatureScheme::ECDSA_NISTP521_SHA512 => of_length(P521_LEN, sign),
            _ => sign(),
        }
    }

    fn scheme(&self) -> SignatureScheme {
        self.0.scheme()
    }
}

/// A key with P-256 signatures of one length for certificates, in a simulation or not: the setup of a simulation makes its
/// certificates outside of it.
#[cfg(feature = "self-signed")]
pub(super) struct SteadyPair<'a>(pub(super) &'a rcgen::KeyPair);

#[cfg(feature = "self-signed")]
impl rcgen::PublicKeyData for SteadyPair<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0.der_bytes()
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        self.0.algorithm()
    }
}

#[cfg(feature = "self-signed")]
impl rcgen::SigningKey for SteadyPair<'_> {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let sign = || rcgen::SigningKey::sign(self.0, message);
        if *self.0.algorithm() == rcgen::PKCS_ECDSA_P256_SHA256 { of_length(P256_LEN, sign) } else { sign() }
    }
}

/// Signs again until the signature is that long; about half of all are.
fn of_length<E>(len: usize, sign: impl Fn() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
    for _ in 1..TRIES_MAX {
        let signature = sign()?;
        if signature.len() == len {
            return Ok(signature);
        }
    }
    sign()
}

/// One of two numbers has its highest bit set, and a zero before it.
const P256_LEN: usize = 2 + (2 + 32) + (2 + 33);
const P384_LEN: usize = 2 + (2 + 48) + (2 + 49);
/// No number begins with a zero byte; the outer length takes two bytes.
const P521_LEN: usize = 3 + 2 * (2 + 66);
/// A library without random signatures would never get there.
const TRIES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::SystemTime;

    use dapple_sched::environment::Simulated;
    use rustls::pki_types::PrivateKeyDer;

    use super::super::Certificates;
    use super::*;

    #[test]
    fn signatures_of_a_simulation_have_one_length() {
        let kinds = [
            (&rcgen::PKCS_ECDSA_P256_SHA256, SignatureScheme::ECDSA_NISTP256_SHA256, P256_LEN),
            (&rcgen::PKCS_ECDSA_P384_SHA384, SignatureScheme::ECDSA_NISTP384_SHA384, P384_LEN),
            #[cfg(feature = "aws-lc-rs")]
            (&rcgen::PKCS_ECDSA_P521_SHA512, SignatureScheme::ECDSA_NISTP521_SHA512, P521_LEN),
            (&rcgen::PKCS_ED25519, SignatureScheme::ED25519, 64),
        ];
        for (kind, scheme, len) in kinds {
            let key = rcgen::KeyPair::generate_for(kind).unwrap();
            let chain = rcgen::CertificateParams::new(["a".to_owned()]).unwrap().self_signed(&key).unwrap();
            let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
            let certificates = Certificates::from_der(vec![chain.der().clone()], key).unwrap();
            let key = &certificates.entries[0].certified.key;
            let lengths: BTreeSet<usize> = Simulated::new(SystemTime::UNIX_EPOCH, 1).around(|| {
                let signer = key.choose_scheme(&[scheme]).unwrap();
                (0..32).map(|_| signer.sign(b"a message").unwrap().len()).collect()
            });
            assert_eq!(lengths, BTreeSet::from([len]), "{scheme:?}");
        }
    }

    #[test]
    fn self_signed_certificates_have_one_length() {
        let lengths = || -> BTreeSet<usize> {
            (0..64).map(|_| Certificates::self_signed(["server"]).unwrap().first().len()).collect()
        };
        let (outside, mut world) = (lengths(), Simulated::new(SystemTime::UNIX_EPOCH, 1));
        assert_eq!(outside.len(), 1, "{outside:?}");
        let inside = world.around(lengths);
        assert_eq!(inside.len(), 1, "{inside:?}");
    }

    #[test]
    fn keys_made_in_a_simulation_are_of_a_kind_with_constant_signatures() {
        let kind = || Certificates::self_signed(["server"]).unwrap().entries[0].certified.key.algorithm();
        assert_eq!(kind(), SignatureAlgorithm::ECDSA);
        assert_eq!(Simulated::new(SystemTime::UNIX_EPOCH, 1).around(kind), SignatureAlgorithm::ED25519);
    }
}
