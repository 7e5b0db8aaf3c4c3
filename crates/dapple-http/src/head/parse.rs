//! Parses the bytes of a head into a request.

use std::mem::MaybeUninit;

use http::{Method, Version};
use memchr::memchr;

use super::HeadLimits;
use super::fields::{self, Framing};
use super::target;
use crate::refusal::Refusal;
use crate::request::{Field, Fields, Request};

/// An accepted head.
#[derive(Clone, Debug)]
pub struct Head<'a> {
    /// The request.
    pub request: Request<'a>,
    /// How its body is framed.
    pub framing: Framing,
    /// Whether the client wants the connection to stay open after the reply.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
}

/// Parses a head found by a [`HeadScan`](super::HeadScan): from its request line to its empty line,
/// with nothing after it.
///
/// `storage` needs a place for each field. `httparse` does the work; this function makes the checks
/// that it leaves out.
///
/// # Errors
///
/// The head is refused: it is malformed, or another recipient could read a different request in it.
pub fn parse<'s, 'b: 's>(
    head: &'b [u8],
    storage: &'s mut [MaybeUninit<Field<'b>>],
    limits: &HeadLimits,
) -> Result<Head<'s>, Refusal> {
    let mut raw = httparse::Request::new(&mut []);
    let outcome = httparse::ParserConfig::default().parse_request_with_uninit_headers(&mut raw, head, storage);
    let (Ok(httparse::Status::Complete(len)), Some(method), Some(target), Some(minor)) =
        (outcome, raw.method, raw.path, raw.version)
    else {
        return Err(match outcome {
            Err(httparse::Error::TooManyHeaders) => Refusal::TooManyFields,
            _ => reason(head),
        });
    };
    if len != head.len() {
        return Err(reason(head));
    }
    if method.len() > METHOD_LEN_MAX {
        return Err(Refusal::MethodTooLong);
    }
    if target.len() > limits.target_len_max {
        return Err(Refusal::TargetTooLong);
    }
    let version = if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| Refusal::Method)?;
    let target = target::parse(&method, target)?;
    let fields = Fields::new(raw.headers);
    let known = fields::read(fields, version)?;
    let request = Request {
        method,
        version,
        form: target.form,
        scheme: target.scheme,
        authority: target::authority(&target, known.host, version)?,
        path: target.path,
        query: target.query,
        fields,
    };
    Ok(Head { request, framing: known.framing, keep_alive: known.keep_alive, expects_continue: known.expects_continue })
}

/// Why a head was not parsed; computed only in that case.
fn reason(head: &[u8]) -> Refusal {
    let mut lines = head.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    if let Err(refusal) = request_line(first) {
        return refusal;
    }
    for line in lines {
        let Some(line) = line.strip_suffix(b"\r") else {
            return Refusal::BareLineFeed;
        };
        if memchr(b'\r', line).is_some() {
            return Refusal::BareCarriageReturn;
        }
        if line.is_empty() {
            break;
        }
        let name = memchr(b':', line).map_or(line, |colon| &line[..colon]);
        if name.len() < line.len() && name.trim_ascii_end().len() < name.len() {
            return Refusal::SpaceBeforeColon;
        }
        if name.len() == line.len() || name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return Refusal::FieldName;
        }
    }
    Refusal::FieldValue
}

/// Why a request line, still with its CR, is invalid; `Ok` if it is valid.
fn request_line(line: &[u8]) -> Result<(), Refusal> {
    let line = line.strip_suffix(b"\r").ok_or(Refusal::BareLineFeed)?;
    if memchr(b'\r', line).is_some() {
        return Err(Refusal::BareCarriageReturn);
    }
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let method = method.unwrap_or_default();
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
        return Err(Refusal::Method);
    }
    let (Some(target), Some(version), None) = (target, version, words.next()) else {
        return Err(Refusal::RequestLine);
    };
    if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
        return Err(Refusal::Target);
    }
    match version {
        b"HTTP/1.0" | b"HTTP/1.1" => Ok(()),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
            Err(Refusal::Version)
        }
        _ => Err(Refusal::RequestLine),
    }
}

/// A byte of a token (RFC 9110, section 5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Longer than any registered method.
pub(super) const METHOD_LEN_MAX: usize = 32;
