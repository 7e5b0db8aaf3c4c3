//! Keyed MD5 as in the thesis: the digest of a secret followed by the task (Gribble, Appendix A.1).
//!
//! It represents work that costs CPU time, and makes results comparable with the thesis. It is not
//! a signature that withstands an attacker.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use md5::{Digest as _, Md5};

use super::frame::Digest;

/// The secrets of both signatures. Clones share them.
#[derive(Clone)]
pub(super) struct Secrets {
    first: Arc<[u8]>,
    second: Arc<[u8]>,
}

impl Secrets {
    /// Reads the secrets from two files; if one is not given, uses the one published in the thesis.
    ///
    /// # Errors
    ///
    /// A file cannot be read, is empty, or is larger than any secret needs to be.
    pub(super) fn read(first: Option<&Path>, second: Option<&Path>) -> Result<Secrets, SecretError> {
        Ok(Secrets {
            first: first.map_or_else(|| Ok(PUBLISHED_FIRST.into()), read)?,
            second: second.map_or_else(|| Ok(PUBLISHED_SECOND.into()), read)?,
        })
    }

    /// The digest with the first secret.
    pub(super) fn first(&self, task: &[u8]) -> Digest {
        keyed(&self.first, task)
    }

    /// The digest with the second secret.
    pub(super) fn second(&self, task: &[u8]) -> Digest {
        keyed(&self.second, task)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

/// The reason why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot read the secret {0}: {1}")]
    Read(String, #[source] io::Error),
    #[error("the secret {0} is empty; write at least one byte into it, for example with `openssl rand -out {0} 16`")]
    Empty(String),
    #[error("the secret {0} is larger than {SECRET_LEN_MAX} bytes; is that the right file?")]
    TooLong(String),
}

/// Warns on stderr that anyone can sign, if a secret was not given.
pub(super) fn warn_of_published(first: Option<&Path>, second: Option<&Path>) {
    if first.is_none() || second.is_none() {
        eprintln!("dapple: using a secret published in the thesis, because none was given: for trials only");
    }
}

/// A checksum without a key.
pub(super) fn checksum(bytes: &[u8]) -> Digest {
    Md5::digest(bytes).into()
}

fn keyed(secret: &[u8], task: &[u8]) -> Digest {
    Md5::new_with_prefix(secret).chain_update(task).finalize().into()
}

fn read(path: &Path) -> Result<Arc<[u8]>, SecretError> {
    let name = path.display().to_string();
    let is_too_long = fs::metadata(path).is_ok_and(|metadata| metadata.len() > SECRET_LEN_MAX);
    if is_too_long {
        return Err(SecretError::TooLong(name));
    }
    match fs::read(path) {
        Ok(secret) if secret.is_empty() => Err(SecretError::Empty(name)),
        Ok(secret) => Ok(secret.into()),
        Err(error) => Err(SecretError::Read(name, error)),
    }
}

const SECRET_LEN_MAX: u64 = 4096;

/// `hashkey1` and `hashkey2` of `HashSigner.java`.
const PUBLISHED_FIRST: [u8; 12] = [0xac, 0xed, 0, 5, 115, 114, 0, 34, 115, 117, 110, 46];
const PUBLISHED_SECOND: [u8; 12] = [21, 106, 12, 77, 77, 35, 0xbf, 0xee, 32, 0x91, 2, 21];

#[cfg(test)]
mod tests {
    use super::{Secrets, checksum};

    #[test]
    fn a_digest_is_that_of_the_secret_and_the_task() {
        let secrets = Secrets { first: (*b"mess").into(), second: (*b"message ").into() };
        // RFC 1321, A.5.
        let expected = 0xf96b_697d_7cb7_938d_525a_2f31_aaf1_61d0_u128.to_be_bytes();
        assert_eq!(secrets.first(b"age digest"), expected);
        assert_eq!(secrets.second(b"digest"), expected);
        assert_eq!(checksum(b"message digest"), expected);
    }
}
