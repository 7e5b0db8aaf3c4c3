//! The ways in which a request can fail.

use std::borrow::Cow;
use std::fmt;
use std::io;

/// The reason why a request got no right answer.
#[derive(Debug)]
pub(super) enum Problem {
    /// The connection was not made.
    Connect(io::Error),
    /// The handshake of TLS failed.
    Tls(io::Error),
    /// The connection broke.
    Broken(io::Error),
    /// The server ended the connection before the answer was complete.
    Ended,
    /// The answer took longer than the limit.
    TimedOut,
    /// Another status than 200.
    Status(u16),
    /// Another body than the requested file.
    WrongBody,
    /// The response cannot be parsed.
    Malformed(&'static str),
}

impl Problem {
    /// The name under which it is counted.
    pub(super) fn kind(&self) -> Cow<'static, str> {
        match self {
            Problem::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused => "refused".into(),
            Problem::Connect(error) if error.kind() == io::ErrorKind::TimedOut => "connect-timeout".into(),
            Problem::Connect(_) => "connect".into(),
            Problem::Tls(error) if error.kind() == io::ErrorKind::TimedOut => "tls-timeout".into(),
            Problem::Tls(_) => "tls".into(),
            Problem::Broken(error) if error.kind() == io::ErrorKind::ConnectionReset => "reset".into(),
            Problem::Broken(_) => "broken".into(),
            Problem::Ended => "ended-early".into(),
            Problem::TimedOut => "timeout".into(),
            Problem::Status(code) => format!("status-{code}").into(),
            Problem::WrongBody => "wrong-body".into(),
            Problem::Malformed(_) => "malformed".into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Connect(error) => write!(out, "cannot connect: {error}"),
            Problem::Tls(error) => write!(out, "no connection of TLS: {error}"),
            Problem::Broken(error) => write!(out, "the connection broke: {error}"),
            Problem::Ended => write!(out, "the server ended the connection before the answer was complete"),
            Problem::TimedOut => write!(out, "the answer took longer than --timeout-ms"),
            Problem::Status(code) => write!(out, "the answer has status {code}"),
            Problem::WrongBody => write!(out, "the body is not the file that was asked for"),
            Problem::Malformed(what) => write!(out, "{what}"),
        }
    }
}

#[cfg(test)]
impl PartialEq for Problem {
    fn eq(&self, other: &Problem) -> bool {
        self.kind() == other.kind()
    }
}
