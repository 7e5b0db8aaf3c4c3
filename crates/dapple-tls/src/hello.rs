//! Classifies the first bytes of a client, before rustls sees them.

use rustls::CipherSuite;

/// The kind of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstBytes {
    /// It does not speak TLS.
    NotTls,
    /// A TLS hello, or the beginning of one.
    Hello {
        /// The client prefers ChaCha20, as clients without AES in hardware do.
        prefers_chacha: bool,
    },
}

/// Classifies the bytes so far, at least one. Too few bytes count as a hello without a preference:
/// rustls has the last word.
pub(crate) fn classify(bytes: &[u8]) -> FirstBytes {
    // Content type 22 is a handshake, and the major version has been 3 since SSL 3.
    if bytes.first() != Some(&22) || bytes.get(1).is_some_and(|version| *version != 3) {
        return FirstBytes::NotTls;
    }
    let prefers_chacha = first_suite(bytes).is_some_and(|suite| {
        matches!(
            suite,
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
                | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
                | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
        )
    });
    FirstBytes::Hello { prefers_chacha }
}

/// The first cipher suite that is not a placeholder (RFC 8446, 4.1.2; RFC 8701).
fn first_suite(bytes: &[u8]) -> Option<CipherSuite> {
    let hello = bytes.get(HEADERS..)?;
    let session_id_len = usize::from(*hello.first()?);
    let rest = hello.get(1 + session_id_len..)?;
    let len = usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?]));
    let suites = rest.get(2..2 + len)?;
    let is_grease = |suite: &u16| suite & 0x0f0f == 0x0a0a;
    let suites = suites.chunks_exact(2).map(|suite| u16::from_be_bytes([suite[0], suite[1]]));
    suites.into_iter().find(|suite| !is_grease(suite)).map(CipherSuite::from)
}

/// Headers of the record and of the message, version, random.
const HEADERS: usize = 5 + 4 + 2 + 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{FirstBytes, HEADERS, classify};

    fn hello(suites: &[u16]) -> Vec<u8> {
        let mut bytes = vec![0; HEADERS];
        bytes[..3].copy_from_slice(&[22, 3, 1]);
        bytes.extend([2, 9, 9]);
        bytes.extend(u16::try_from(suites.len() * 2).expect("few").to_be_bytes());
        bytes.extend(suites.iter().flat_map(|suite| suite.to_be_bytes()));
        bytes
    }

    #[test]
    fn http_is_not_tls() {
        assert_eq!(classify(b"G"), FirstBytes::NotTls);
        assert_eq!(classify(b"GET / HTTP/1.1\r\n"), FirstBytes::NotTls);
        assert_eq!(classify(&[22, 9]), FirstBytes::NotTls);
    }

    #[test]
    fn the_first_suite_that_is_not_grease_counts() {
        assert_eq!(classify(&hello(&[0x1303, 0x1301])), FirstBytes::Hello { prefers_chacha: true });
        assert_eq!(classify(&hello(&[0x3a3a, 0x1303, 0x1301])), FirstBytes::Hello { prefers_chacha: true });
        assert_eq!(classify(&hello(&[0x1302, 0x1303])), FirstBytes::Hello { prefers_chacha: false });
        assert_eq!(classify(&hello(&[])), FirstBytes::Hello { prefers_chacha: false });
        assert_eq!(classify(&[22]), FirstBytes::Hello { prefers_chacha: false });
    }

    proptest! {
        #[test]
        fn anything_can_be_judged(bytes in proptest::collection::vec(any::<u8>(), 1..200), is_hello in any::<bool>()) {
            let mut bytes = bytes;
            if is_hello {
                bytes[0] = 22;
                bytes.get_mut(1).into_iter().for_each(|version| *version = 3);
                prop_assert!(classify(&bytes) != FirstBytes::NotTls);
            } else {
                classify(&bytes);
            }
        }
    }
}
