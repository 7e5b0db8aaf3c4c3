//! The target of a request, and its host.

use http::{Method, Version};
use memchr::memchr;

use crate::refusal::Refusal;
use crate::request::Form;

/// The parts of a target.
pub(super) struct Target<'a> {
    pub(super) form: Form,
    pub(super) scheme: Option<&'a str>,
    pub(super) authority: Option<&'a str>,
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
}

/// Splits a target into its parts (RFC 9112, section 3.2).
pub(super) fn parse<'a>(method: &Method, target: &'a str) -> Result<Target<'a>, Refusal> {
    if !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(Refusal::Target);
    }
    if *method == Method::CONNECT {
        let port = check_authority(target)?.ok_or(Refusal::Target)?;
        if port.is_empty() || target.starts_with(':') {
            return Err(Refusal::Target);
        }
        let authority = Some(target);
        return Ok(Target { form: Form::Authority, scheme: None, authority, path: "", query: None });
    }
    if target.starts_with('/') {
        let (path, query) = split(target);
        return Ok(Target { form: Form::Origin, scheme: None, authority: None, path, query });
    }
    if target == "*" {
        return match *method == Method::OPTIONS {
            true => Ok(Target { form: Form::Asterisk, scheme: None, authority: None, path: "*", query: None }),
            false => Err(Refusal::Target),
        };
    }
    absolute(method, target)
}

fn absolute<'a>(method: &Method, target: &'a str) -> Result<Target<'a>, Refusal> {
    let (scheme, rest) = target.split_once("://").ok_or(Refusal::Target)?;
    let scheme = match scheme {
        _ if scheme.eq_ignore_ascii_case("http") => "http",
        _ if scheme.eq_ignore_ascii_case("https") => "https",
        _ => return Err(Refusal::Target),
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    check_authority(authority)?;
    if authority.is_empty() || authority.starts_with(':') {
        return Err(Refusal::Host);
    }
    let (path, query) = split(rest);
    let path = match path {
        // A proxy turns this into the asterisk form (RFC 9110, section 9.3.7).
        "" if *method == Method::OPTIONS && query.is_none() => "*",
        "" => "/",
        _ => path,
    };
    Ok(Target { form: Form::Absolute, scheme: Some(scheme), authority: Some(authority), path, query })
}

fn split(target: &str) -> (&str, Option<&str>) {
    match memchr(b'?', target.as_bytes()) {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    }
}

/// The host of a request: the target's, if it has one, otherwise that of the field (RFC 9112,
/// section 3.2.2).
pub(super) fn authority<'a>(
    target: &Target<'a>,
    host: Option<&'a [u8]>,
    version: Version,
) -> Result<Option<&'a str>, Refusal> {
    let Some(host) = host else {
        return match version {
            Version::HTTP_10 => Ok(target.authority),
            _ => Err(Refusal::HostMissing),
        };
    };
    let host = std::str::from_utf8(host).map_err(|_| Refusal::Host)?;
    check_authority(host)?;
    // An address needs a host (RFC 9110, section 4.2.1); the field may be empty if the target has
    // one or needs none.
    if target.form == Form::Origin && (host.is_empty() || host.starts_with(':')) {
        return Err(Refusal::Host);
    }
    Ok(target.authority.or(Some(host).filter(|host| !host.is_empty())))
}

/// Checks `host[:port]` without user information (RFC 3986, section 3.2), and returns the port.
fn check_authority(authority: &str) -> Result<Option<&str>, Refusal> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']').ok_or(Refusal::Host)?;
            address.parse::<std::net::Ipv6Addr>().map_err(|_| Refusal::Host)?;
            match rest.strip_prefix(':') {
                None if !rest.is_empty() => return Err(Refusal::Host),
                port => ("", port),
            }
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_port = |port: &str| port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    match is_name(host.as_bytes()) && port.is_none_or(|port| is_port(port) && is_below_2_16(port)) {
        true => Ok(port),
        false => Err(Refusal::Host),
    }
}

fn is_below_2_16(port: &str) -> bool {
    port.is_empty() || port.parse::<u16>().is_ok()
}

/// Whether this is a `reg-name`, which includes IPv4 addresses.
fn is_name(mut host: &[u8]) -> bool {
    loop {
        let plain = host.iter().take_while(|byte| IN_NAMES[usize::from(**byte)]).count();
        host = match &host[plain..] {
            [] => return true,
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => rest,
            _ => return false,
        }
    }
}

/// Whether a byte is allowed in a `reg-name` as it is: `unreserved` or `sub-delims` (RFC 3986, section 2).
const IN_NAMES: [bool; 256] = {
    let mut table = [false; 256];
    let (mut byte, marks) = (0, b"-._~!$&'()*+,;=");
    while byte < table.len() {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut mark = 0;
    while mark < marks.len() {
        table[marks[mark] as usize] = true;
        mark += 1;
    }
    table
};
