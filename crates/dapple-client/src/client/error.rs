//! The error of a request.

use std::time::Duration;

use dapple_tower::with_causes;
use http::StatusCode;

use crate::ConnectError;

/// The reason why a request failed. Each message says what to look at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a URL of HTTP.
    #[error("{url:?} cannot be asked for: {why}")]
    Url {
        /// The text that was given.
        url: String,
        /// The fault.
        why: String,
    },
    /// There is no connection: the name was not found, the server refused, its certificate is not trusted …
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The configuration of TLS is not usable.
    #[cfg(feature = "tls")]
    #[error(transparent)]
    Tls(dapple_tls::Error),
    /// A time limit was reached.
    #[error("{phase} took longer than {} ms; {} sets the limit", limit.as_millis(), phase.option())]
    TimedOut {
        /// The phase that took too long.
        phase: Phase,
        /// The limit.
        limit: Duration,
    },
    /// The connection ended before the response was complete.
    #[error("the connection ended before the response was complete: {}", with_causes(.0))]
    Broken(#[source] hyper::Error),
    /// The response is not valid HTTP, or can be read in two ways.
    #[error("the server's response is malformed: {0}")]
    Malformed(String),
    /// The redirects do not end.
    #[error("more than {max} redirects, the last to {url}; `redirects_max` sets the limit")]
    TooManyRedirects {
        /// The limit.
        max: usize,
        /// Where the last one leads.
        url: String,
    },
    /// A redirect that is not followed.
    #[error("the redirect from {from} to {to:?} is not followed: {why}")]
    Redirect {
        /// The URL that answered with the redirect.
        from: String,
        /// Its `Location`.
        to: String,
        /// The reason.
        why: &'static str,
    },
    /// The body is longer than the program takes.
    #[error("the body is longer than {max} bytes; `body_bytes_max` sets the limit, and `chunk` has none")]
    BodyTooLarge {
        /// The limit.
        max: usize,
    },
    /// The body is not what `Content-Encoding` says.
    #[error("the body cannot be decompressed: it is not whole, or not {0}")]
    Decompress(&'static str),
    /// The body is no JSON, or not of this type.
    #[cfg(feature = "json")]
    #[error("the body is not the JSON that was expected: {0}")]
    Json(#[from] serde_json::Error),
    /// The body of the request failed.
    #[error("the body of the request failed: {}", with_causes(&**.0))]
    RequestBody(#[source] dapple_tower::BoxError),
    /// The server answered, with an error.
    #[error("{url} was answered with {status}")]
    Status {
        /// The status.
        status: StatusCode,
        /// The URL of the request.
        url: String,
    },
    /// The client does not do this.
    #[error("{0} is not done by this client")]
    Unsupported(&'static str),
}

/// A phase with a time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// The head of a response.
    Head,
    /// The next piece of a body.
    Read,
    /// The whole request.
    Whole,
}

impl Phase {
    fn option(self) -> &'static str {
        match self {
            Phase::Head => "`head_timeout`",
            Phase::Read => "`read_timeout`",
            Phase::Whole => "`timeout`",
        }
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Phase::Head => "the head of the response",
            Phase::Read => "the next piece of the body",
            Phase::Whole => "the request with its response",
        })
    }
}

impl Error {
    /// Sorts an error of hyper into those of this type.
    pub(super) fn of(error: hyper::Error) -> Error {
        if error.is_parse() {
            return Error::Malformed(with_causes(&error));
        }
        Error::Broken(error)
    }

    /// Whether a time limit was reached, that of connecting included.
    pub fn is_timeout(&self) -> bool {
        matches!(
            self,
            Error::TimedOut { .. }
                | Error::Connect(ConnectError::TimedOut { .. } | ConnectError::LookupTimedOut { .. })
        )
    }
}
