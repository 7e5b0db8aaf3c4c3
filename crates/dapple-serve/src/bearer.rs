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

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::header::{AUTHORIZATION, HOST};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request};
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
    /// A server that other machines can reach has no token.
    #[error("{address} is no address of this machine alone: it needs a token, by --token-file FILE")]
    Missing {
        /// The address of the server.
        address: SocketAddr,
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

/// The rule about the clients of a service: those with its token, or, without one, those of this machine.
///
/// ```
/// use dapple_serve::bearer::{Guard, Token};
/// use http::Request;
///
/// let guard = Guard::new(Some(Token::new("0123456789abcdef")?), "0.0.0.0:80".parse()?)?;
/// assert!(!guard.admits(&Request::get("/").body(())?));
/// // A browser's login; the user is anybody. `Bearer 0123456789abcdef` is as good.
/// let login = Request::get("/").header("authorization", "Basic YW5uOjAxMjM0NTY3ODlhYmNkZWY=").body(())?;
/// assert!(guard.admits(&login));
/// assert!(Guard::new(None, "0.0.0.0:80".parse()?).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Reply to a request that is not admitted with `401` and `WWW-Authenticate: Basic realm="…"`, so that browsers ask for the
/// password.
#[derive(Clone, Debug)]
pub struct Guard(Option<Token>);

impl Guard {
    /// The rule for a server at this address.
    ///
    /// # Errors
    /// [`TokenError::Missing`]: other machines can reach the address, and there is no token.
    pub fn new(token: Option<Token>, address: SocketAddr) -> Result<Guard, TokenError> {
        match token.is_some() || address.ip().to_canonical().is_loopback() {
            true => Ok(Guard(token)),
            false => Err(TokenError::Missing { address }),
        }
    }

    /// Whether a request is admitted: it has the token as [`Token::admits`] wants it, or as the password of a login
    /// (`Basic`). Without a token, it has to name the server by an address or as `localhost`: a page of another site can
    /// make a browser send requests to this machine under a name of the site's own, and must not read the replies.
    #[must_use]
    pub fn admits<B>(&self, request: &Request<B>) -> bool {
        let headers = request.headers();
        let Some(token) = &self.0 else {
            let host = headers.get(HOST).and_then(|host| host.to_str().ok());
            let host = request.uri().authority().map(Authority::as_str).or(host);
            // A host has no user before it.
            let host = host.filter(|host| !host.contains('@')).and_then(|host| host.parse::<Authority>().ok());
            return host.is_some_and(|host| is_of_machine(host.host()));
        };
        token.admits(headers) || password(headers).is_some_and(|password| token.is(password.as_bytes()))
    }
}

fn is_of_machine(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

/// The password of a login.
fn password(headers: &HeaderMap) -> Option<String> {
    let (scheme, login) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let login = String::from_utf8(BASE64_STANDARD.decode(login.trim()).ok()?).ok()?;
    let (_, password) = login.split_once(':')?;
    scheme.eq_ignore_ascii_case("basic").then(|| password.to_owned())
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

    #[test]
    fn without_a_token_only_this_machine_is_a_host() {
        let address = |text: &str| text.parse().unwrap();
        assert!(Guard::new(None, address("[::ffff:10.0.0.1]:80")).is_err());
        let guard = Guard::new(None, address("[::1]:0")).unwrap();
        let admits = |host: &str| guard.admits(&Request::get("/").header(HOST, host).body(()).unwrap());
        for good in ["127.0.0.1:80", "localhost:80", "LOCALHOST", "[::1]:80", "[::1]", "192.168.0.7"] {
            assert!(admits(good), "{good}");
        }
        for odd in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:80",
            "",
            "a b",
            "evil.example@localhost:x",
        ] {
            assert!(!admits(odd), "{odd}");
        }
        // HTTP/2 has the name in the target, which goes before.
        let http2 = |target: &str| guard.admits(&Request::get(target).header(HOST, "localhost").body(()).unwrap());
        assert!(http2("http://127.0.0.1:80/") && !http2("http://evil.example/"));
        assert!(!guard.admits(&Request::get("/").body(()).unwrap()));
    }

    #[test]
    fn a_login_has_the_token_as_its_password() {
        let guard = Guard::new(Some(Token::new("0123456789abcdef").unwrap()), "10.0.0.1:80".parse().unwrap()).unwrap();
        let admits = |value: &str| guard.admits(&Request::get("/").header(AUTHORIZATION, value).body(()).unwrap());
        let login = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        assert!(
            admits("Bearer 0123456789abcdef")
                && admits(&login("ann:0123456789abcdef"))
                && admits(&login(":0123456789abcdef"))
        );
        for odd in
            [login("ann:0123456789abcdeX"), login("0123456789abcdef"), login("0123456789abcdef:"), "Basic ?".to_owned()]
        {
            assert!(!admits(&odd), "{odd}");
        }
    }
}
