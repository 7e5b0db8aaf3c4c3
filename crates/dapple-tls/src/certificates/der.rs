//! Reads the names, the owner and the expiry of a certificate. rustls checks the rest.
//!
//! It reads only as much DER as that needs (X.690; RFC 5280, 4.1), and skips unknown parts: a
//! certificate without names still serves clients that ask for no name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime};

/// The facts found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Host names, in lower case, and addresses as text.
    pub(super) names: Vec<String>,
    pub(super) expires: Option<SystemTime>,
}

/// Reads a certificate; `None` if it is invalid.
pub(super) fn facts(certificate: &[u8]) -> Option<Facts> {
    let (certificate, _) = expect(certificate, SEQUENCE)?;
    let (mut fields, _) = expect(certificate, SEQUENCE)?;
    if let Some((_version, rest)) = expect(fields, VERSION) {
        fields = rest;
    }
    // Serial number, signature algorithm, issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, fields) = expect(fields, tag)?;
    }
    let (validity, rest) = expect(fields, SEQUENCE)?;
    let (_not_before, not_after) = element(validity)?.1;
    let mut facts = Facts { names: Vec::new(), expires: time(not_after) };
    fields = rest;
    while let Some((tag, (contents, rest))) = element(fields) {
        if tag == EXTENSIONS {
            facts.names = names(contents).unwrap_or_default();
        }
        fields = rest;
    }
    Some(facts)
}

/// The name of a certificate's owner: its common name, or else the first host name or e-mail address among the alternative names. `None` with
/// several common names, of which one could be taken for the other.
pub(super) fn owner(certificate: &[u8]) -> Option<String> {
    let (certificate, _) = expect(certificate, SEQUENCE)?;
    let (mut fields, _) = expect(certificate, SEQUENCE)?;
    if let Some((_version, rest)) = expect(fields, VERSION) {
        fields = rest;
    }
    // Serial number, signature algorithm, issuer, validity.
    for tag in [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE] {
        (_, fields) = expect(fields, tag)?;
    }
    let (subject, rest) = expect(fields, SEQUENCE)?;
    match common_names(subject)?.as_slice() {
        [] => {}
        [name] => return name.clone(),
        _ => return None,
    }
    fields = rest;
    while let Some((tag, (contents, rest))) = element(fields) {
        if tag == EXTENSIONS {
            let of_owner = |(tag, name): (u8, &[u8])| match tag {
                DNS_NAME | E_MAIL => Some(std::str::from_utf8(name).ok()?.to_owned()),
                _ => None,
            };
            return alternatives(contents)?.into_iter().find_map(of_owner);
        }
        fields = rest;
    }
    None
}

/// The common names of a subject; an inner `None` is no text.
fn common_names(mut subject: &[u8]) -> Option<Vec<Option<String>>> {
    let mut names = Vec::new();
    while !subject.is_empty() {
        let (mut parts, rest) = expect(subject, SET)?;
        subject = rest;
        while !parts.is_empty() {
            let (part, rest) = expect(parts, SEQUENCE)?;
            parts = rest;
            let (id, value) = expect(part, OBJECT_ID)?;
            if id == COMMON_NAME {
                let (tag, (text, _)) = element(value)?;
                let is_text = matches!(tag, UTF8_STRING | PRINTABLE_STRING | IA5_STRING);
                names.push(std::str::from_utf8(text).ok().filter(|_| is_text).map(str::to_owned));
            }
        }
    }
    Some(names)
}

/// The names in the extension for alternative names.
fn names(extensions: &[u8]) -> Option<Vec<String>> {
    let of_host = |(tag, name): (u8, &[u8])| match tag {
        DNS_NAME => std::str::from_utf8(name).ok().map(str::to_ascii_lowercase),
        ADDRESS => address(name).map(|address| address.to_string()),
        _ => None,
    };
    Some(alternatives(extensions)?.into_iter().filter_map(of_host).collect())
}

/// The alternative names, each with its kind.
fn alternatives(extensions: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let (mut extensions, _) = expect(extensions, SEQUENCE)?;
    while let Some((extension, rest)) = expect(extensions, SEQUENCE) {
        extensions = rest;
        let Some((id, mut value)) = expect(extension, OBJECT_ID) else { continue };
        if id != ALTERNATIVE_NAMES {
            continue;
        }
        if let Some((_is_critical, rest)) = expect(value, BOOLEAN) {
            value = rest;
        }
        let (value, _) = expect(value, OCTETS)?;
        let (mut list, _) = expect(value, SEQUENCE)?;
        let mut names = Vec::new();
        while let Some((tag, (name, rest))) = element(list) {
            list = rest;
            names.push((tag, name));
        }
        return Some(names);
    }
    None
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(bytes).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|bytes| Ipv6Addr::from(bytes).into())
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time(bytes: &[u8]) -> Option<SystemTime> {
    let (tag, (text, _)) = element(bytes)?;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match (tag, text.len()) {
        (UTC_TIME, 12) => {
            let year: i64 = text[..2].parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &text[2..])
        }
        (GENERAL_TIME, 14) => (text[..4].parse().ok()?, &text[4..]),
        _ => return None,
    };
    let part = |index: usize| rest[2 * index..][..2].parse::<i64>().ok();
    let days = days_since_1970(year, part(0)?, part(1)?);
    let seconds = ((days * 24 + part(2)?) * 60 + part(3)?) * 60 + part(4)?;
    let since = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { SystemTime::UNIX_EPOCH.checked_sub(since) } else { SystemTime::UNIX_EPOCH.checked_add(since) }
}

/// In the Gregorian calendar; years begin in March here, so that the leap day is the last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

fn expect(bytes: &[u8], tag: u8) -> Option<Parts<'_>> {
    element(bytes).filter(|(found, _)| *found == tag).map(|(_, parts)| parts)
}

/// Contents of an element, and what follows it.
type Parts<'a> = (&'a [u8], &'a [u8]);

/// The tag of the first element, and its parts.
fn element(bytes: &[u8]) -> Option<(u8, Parts<'_>)> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (len, rest) = match usize::from(*first) {
        short @ 0..=0x7f => (short, rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), &rest[2..]),
        _ => return None,
    };
    (len <= rest.len()).then(|| (*tag, rest.split_at(len)))
}

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERAL_TIME: u8 = 0x18;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const E_MAIL: u8 = 0x81;
const DNS_NAME: u8 = 0x82;
const ADDRESS: u8 = 0x87;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// 2.5.29.17.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
/// 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;

    use super::{facts, owner, time};

    #[test]
    fn times_of_both_forms_are_read() {
        let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(time(b"\x17\x0d000229120000Z"), at(951_825_600));
        assert_eq!(time(b"\x18\x0f20380119031408Z"), at(2_147_483_648));
        assert_eq!(time(b"\x17\x0d700101000001Z"), at(1));
        assert_eq!(time(b"\x17\x0d7001010000x1Z"), None);
    }

    #[cfg(feature = "self-signed")]
    #[test]
    fn names_and_end_of_a_certificate_are_read() {
        let names = ["Example.com".to_owned(), "*.example.org".to_owned(), "127.0.0.1".to_owned()];
        let mut params = rcgen::CertificateParams::new(names).expect("names");
        params.not_after = rcgen::date_time_ymd(2051, 3, 4);
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let facts = facts(certificate.der()).expect("a certificate");
        assert_eq!(facts.names, ["example.com", "*.example.org", "127.0.0.1"]);
        assert_eq!(facts.expires, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(2_561_500_800)));
    }

    #[cfg(feature = "self-signed")]
    #[test]
    fn the_owner_is_the_common_name_or_the_first_name_of_a_person_or_host() {
        let owner_of = |common: &[&str], others: Vec<rcgen::SanType>| {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(rcgen::DnType::OrganizationName, "an organization");
            for name in common {
                params.distinguished_name.push(rcgen::DnType::CommonName, *name);
            }
            params.subject_alt_names = others;
            let key = rcgen::KeyPair::generate().expect("a key");
            owner(params.self_signed(&key).expect("a certificate").der())
        };
        let text = |name: &str| name.try_into().expect("a name");
        let others = || {
            let address = rcgen::SanType::IpAddress([127, 0, 0, 1].into());
            vec![address, rcgen::SanType::Rfc822Name(text("Ann@example.org")), rcgen::SanType::DnsName(text("host"))]
        };
        assert_eq!(owner_of(&["Änn"], others()).as_deref(), Some("Änn"));
        assert_eq!(owner_of(&[], others()).as_deref(), Some("Ann@example.org"));
        assert_eq!(owner_of(&[], vec![rcgen::SanType::DnsName(text("host"))]).as_deref(), Some("host"));
        assert_eq!(owner_of(&[], Vec::new()), None);
    }

    proptest! {
        #[test]
        fn anything_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            facts(&bytes);
            owner(&bytes);
            time(&bytes);
        }
    }
}
