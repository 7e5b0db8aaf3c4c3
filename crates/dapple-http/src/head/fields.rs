//! The fields that frame a message or concern the connection.

use http::Version;

use crate::refusal::Refusal;
use crate::request::Fields;

/// How the body of a request is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// This many bytes, at least one.
    Len(u64),
    /// In chunks; a [`ChunkDecoder`](crate::ChunkDecoder) decodes them.
    Chunked,
}

/// The fields that every recipient must understand.
pub(super) struct Known<'a> {
    pub(super) host: Option<&'a [u8]>,
    pub(super) framing: Framing,
    pub(super) keep_alive: bool,
    pub(super) expects_continue: bool,
}

/// Goes through the fields once.
pub(super) fn read(fields: Fields<'_>, version: Version) -> Result<Known<'_>, Refusal> {
    let mut host = None;
    let mut len = None;
    let mut coding = None;
    let (mut has_close, mut has_keep_alive, mut expects_continue) = (false, false, false);
    for field in fields.iter() {
        let value = field.value;
        // The length distinguishes most fields, which is cheaper than comparing five names.
        match field.name.len() {
            4 if field.name.eq_ignore_ascii_case("host") => {
                once(&mut host, value, Refusal::HostTwice)?;
            }
            6 if field.name.eq_ignore_ascii_case("expect") => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(Refusal::Expectation);
                }
                expects_continue = true;
            }
            10 if field.name.eq_ignore_ascii_case("connection") => {
                for option in list(value) {
                    has_close |= option.eq_ignore_ascii_case(b"close");
                    has_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if field.name.eq_ignore_ascii_case("content-length") => {
                once(&mut len, number(value)?, Refusal::LengthTwice)?;
            }
            17 if field.name.eq_ignore_ascii_case("transfer-encoding") => {
                once(&mut coding, value, Refusal::Coding)?;
            }
            _ => {}
        }
    }
    let framing = match (len, coding) {
        (Some(_), Some(_)) => return Err(Refusal::LengthAndCoding),
        (_, Some(_)) if version == Version::HTTP_10 => return Err(Refusal::CodingInHttp10),
        (None, Some(coding)) => check_coding(coding).map(|()| Framing::Chunked)?,
        (None | Some(0), None) => Framing::None,
        (Some(len), None) => Framing::Len(len),
    };
    // A client of 1.0 does not wait (RFC 9110, section 10.1.1); one without a body has nothing to
    // wait for.
    expects_continue &= version == Version::HTTP_11 && framing != Framing::None;
    let keep_alive = !has_close && (version == Version::HTTP_11 || has_keep_alive);
    Ok(Known { host, framing, keep_alive, expects_continue })
}

/// Stores a value that may occur once.
fn once<T>(place: &mut Option<T>, value: T, refusal: Refusal) -> Result<(), Refusal> {
    place.replace(value).map_or(Ok(()), |_| Err(refusal))
}

fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Only digits: no sign, no list, no space.
fn number(value: &[u8]) -> Result<u64, Refusal> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        let is_list = !value.is_empty() && value.iter().all(|byte| byte.is_ascii_digit() || b", ".contains(byte));
        return Err(if is_list && value.contains(&b',') { Refusal::LengthTwice } else { Refusal::Length });
    }
    value
        .iter()
        .try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        .ok_or(Refusal::BodyTooLong)
}

/// The only accepted coding is a single `chunked`.
fn check_coding(value: &[u8]) -> Result<(), Refusal> {
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    if is_chunked(value) {
        return Ok(());
    }
    // The end of the body is known only if `chunked` is last (RFC 9112, section 6.3).
    let ends_well = list(value).last().is_some_and(is_chunked);
    match ends_well && list(value).filter(|coding| is_chunked(coding)).count() == 1 && list(value).all(is_coding) {
        true => Err(Refusal::CodingUnknown),
        false => Err(Refusal::Coding),
    }
}

fn is_coding(coding: &[u8]) -> bool {
    let name = coding.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    !name.is_empty() && name.iter().all(|byte| super::parse::is_token(*byte))
}
