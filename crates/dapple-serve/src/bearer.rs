//! Bearer tokens (RFC 6750), for services behind [`serve`](crate::serve()).
//!
//! ```
//! use dapple_serve::bearer::Token;
//! use http::HeaderMap;
//!
//! let token = Token::new("0123456789abcdef")?;
//! let mut headers = HeaderMap::new();
//! assert!(!token.admits(&headers));
//! headers.insert("authorization", "Bearer 0123456789abcdef".parse()?);
//! assert!(token.admits(&headers));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Reply to a request that is not admitted with `401` and `WWW-Authenticate: Bearer`. A token is as secret as the connection
//! that it comes by: on other networks than a trusted one, serve over TLS.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use subtle::ConstantTimeEq;

/// A token that clients have to send in `Authorization: Bearer TOKEN`.
///
/// `Debug` does not show it.
#[derive(Clone)]
pub struct Token(String);

/// The reason why there is no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", file.display())]
    Read {
        /// The file of the token.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The token can be guessed, or cannot be sent.
    #[error("the token{} has less than {TOKEN_LEN_MIN} letters, or a space or a letter beyond ASCII", in_file(file.as_deref()))]
    Weak {
        /// The file of the token, if it is from one.
        file: Option<PathBuf>,
    },
}

impl Token {
    /// Takes a token of at least 16 visible letters of ASCII.
    ///
    /// # Errors
    /// [`TokenError::Weak`].
    pub fn new(token: &str) -> Result<Token, TokenError> {
        if token.len() < TOKEN_LEN_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Weak { file: None });
        }
        Ok(Token(token.to_owned()))
    }

    /// Reads a token from a file, without the space and the line end around it. The call blocks: make it when the program
    /// starts.
    ///
    /// # Errors
    /// As [`new`](Token::new); the file cannot be read.
    pub fn from_file(file: impl AsRef<Path>) -> Result<Token, TokenError> {
        let file = file.as_ref().to_owned();
        match fs::read_to_string(&file) {
            Ok(text) => Token::new(text.trim()).map_err(|_| TokenError::Weak { file: Some(file) }),
            Err(error) => Err(TokenError::Read { file, error }),
        }
    }

    /// Takes any text, for a token that is not this program's choice. An empty one admits no request.
    #[must_use]
    pub fn unchecked(token: &str) -> Token {
        Token(token.to_owned())
    }

    /// Whether a request with these headers has the token. The time that this takes says nothing about the token but its
    /// length.
    #[must_use]
    pub fn admits(&self, headers: &HeaderMap) -> bool {
        headers.get(AUTHORIZATION).is_some_and(|value| self.admits_field(value.as_bytes()))
    }

    /// Whether this value of `Authorization` has the token, as [`admits`](Token::admits).
    #[must_use]
    pub fn admits_field(&self, value: &[u8]) -> bool {
        let Some((scheme, given)) = value.split_at_checked("Bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Bearer ") && self.is(given)
    }

    /// Whether these bytes are the token, for one from elsewhere than a header: from a query, say. The time that this takes
    /// says nothing about the token but its length.
    #[must_use]
    pub fn is(&self, given: &[u8]) -> bool {
        !self.0.is_empty() && bool::from(given.ct_eq(self.0.as_bytes()))
    }

    /// The value of `Authorization` for a client that has this token; `None` if it cannot be one.
    #[must_use]
    pub fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

fn in_file(file: Option<&Path>) -> String {
    file.map_or(String::new(), |file| format!(" in {}", file.display()))
}

const TOKEN_LEN_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_of_this_scheme_is_admitted() {
        let token = Token::new("0123456789abcdef").unwrap();
        let admits = |value: &str| token.admits(&HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]));
        assert!(admits("Bearer 0123456789abcdef") && admits("bearer 0123456789abcdef"));
        for value in ["", "Bearer", "Bearer ", "0123456789abcdef", "Basic  0123456789abcdef", "Bearer 0123456789abcdeX"]
        {
            assert!(!admits(value), "{value}");
        }
        assert!(!admits("Bearer 0123456789abcde") && !admits("Bearer 0123456789abcdef0"));
        assert_eq!(token.header().unwrap(), "Bearer 0123456789abcdef");
        assert_eq!(Token::unchecked("\n").header(), None);
        assert!(token.is(b"0123456789abcdef") && !token.is(b"0123456789abcde") && !token.is(b""));
        assert_eq!(format!("{token:?}"), "Token(..)");
        let any = Token::unchecked("a secret");
        assert!(any.admits_field(b"bearer a secret") && any.is(b"a secret") && !any.is(b"a secre") && !any.is(b""));
        let empty = Token::unchecked("");
        assert!(!empty.is(b"") && !empty.admits_field(b"Bearer "));
    }

    #[test]
    fn weak_tokens_are_refused_by_the_name_of_their_file() {
        for weak in ["", "0123456789abcde", "0123456789 abcdef", "0123456789abcdefé"] {
            assert!(matches!(Token::new(weak), Err(TokenError::Weak { file: None })), "{weak}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let failure = |file: &Path| Token::from_file(file).unwrap_err().to_string();
        assert!(failure(&file).starts_with("cannot read "));
        fs::write(&file, "short\n").unwrap();
        assert!(failure(&file).contains("/token has less than 16 letters"));
        fs::write(&file, "0123456789abcdef\r\n").unwrap();
        assert_eq!(Token::from_file(&file).unwrap().0, "0123456789abcdef");
    }
}
