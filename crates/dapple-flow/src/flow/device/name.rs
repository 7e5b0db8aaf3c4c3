//! Names of devices in configurations.

use std::error::Error;
use std::fmt;
use std::io;
use std::str::FromStr;

/// The name of a device with its kind as a prefix, such as `tcp:127.0.0.1:80`. Parsing it when a
/// configuration is read finds mistakes before anything is opened.
///
/// ```
/// use dapple_flow::flow::Name;
///
/// let name: Name = "tcp:[::1]:8080".parse()?;
/// assert_eq!((name.kind(), name.rest()), ("tcp", "[::1]:8080"));
/// for mistake in ["", "127.0.0.1:80", "http:example.com", "tcp:example.com", "tcp:host:99999", "unix:", "file:"] {
///     let error = mistake.parse::<Name>().unwrap_err();
///     assert!(error.to_string().contains(mistake), "{error}");
/// }
/// # Ok::<(), dapple_flow::flow::BadName>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Name {
    kind: Kind,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Tcp,
    Unix,
    Pipe,
    File,
    Append,
}

/// A text that names no device; explains why, and gives an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadName(String);

impl Name {
    /// The prefix: `tcp`, `unix`, `pipe`, `file` or `append`.
    pub fn kind(&self) -> &str {
        self.kind.text()
    }

    /// The part after the colon.
    pub fn rest(&self) -> &str {
        &self.text[self.kind().len() + 1..]
    }

    pub(super) fn device(&self) -> Kind {
        self.kind
    }
}

impl Kind {
    fn text(self) -> &'static str {
        match self {
            Kind::Tcp => "tcp",
            Kind::Unix => "unix",
            Kind::Pipe => "pipe",
            Kind::File => "file",
            Kind::Append => "append",
        }
    }
}

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let bad = |why: &str| BadName(format!("`{text}` {why}"));
        let (kind, rest) = text.split_once(':').ok_or_else(|| bad(&format!("names no device: {EXAMPLES}")))?;
        let kinds = [Kind::Tcp, Kind::Unix, Kind::Pipe, Kind::File, Kind::Append];
        let Some(kind) = kinds.into_iter().find(|known| known.text() == kind) else {
            return Err(bad(&format!("begins with no kind of device: {EXAMPLES}")));
        };
        match kind {
            Kind::Tcp => drop(host_and_port(rest).map_err(|why| bad(&why))?),
            _ => check_path(rest).map_err(|why| bad(&why))?,
        }
        Ok(Name { kind, text: text.to_owned() })
    }
}

/// Splits `HOST:PORT`.
pub(super) fn host_and_port(text: &str) -> Result<(&str, u16), String> {
    const EXAMPLE: &str = "write HOST:PORT, such as 127.0.0.1:80, [::1]:80 or example.com:80";
    let (host, port) = text.rsplit_once(':').ok_or_else(|| format!("has no port: {EXAMPLE}"))?;
    let port = port.parse().map_err(|_| format!("has a port that is not a number from 0 to 65535: {EXAMPLE}"))?;
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || (host.contains(':') && !is_bracketed) || host.contains(char::is_whitespace) {
        return Err(format!("has no valid host: {EXAMPLE}"));
    }
    Ok((host, port))
}

pub(super) fn check_path(path: &str) -> Result<(), String> {
    match path {
        "" => Err("has no path after the colon".to_owned()),
        _ if path.contains('\0') => Err("has a path with a zero byte, which is not allowed".to_owned()),
        _ => Ok(()),
    }
}

/// An error about a name without its kind.
pub(super) fn bad(name: &str, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}` {why}"))
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Name").field(&self.text).finish()
    }
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for BadName {}

impl From<BadName> for io::Error {
    fn from(bad: BadName) -> Self {
        io::Error::new(io::ErrorKind::InvalidInput, bad)
    }
}

const EXAMPLES: &str = "write tcp:HOST:PORT, unix:PATH, pipe:PATH, file:PATH or append:PATH";
