//! Properties for any first bytes and certificates. A fuzz target searches for bytes that break
//! them; the tests replay its corpus.

#[allow(dead_code, unreachable_pub, reason = "only the pure part of these files is used")]
#[path = "../../src/certificates/der.rs"]
mod der;
#[allow(dead_code, unreachable_pub, reason = "only the pure part of these files is used")]
#[path = "../../src/hello.rs"]
mod hello;

use self::hello::FirstBytes;

/// A property: panics if it does not hold.
pub(crate) type Property = fn(&[u8]);

/// All properties, by the name of their target.
pub(crate) const ALL: &[(&str, Property)] = &[("hello", first_bytes), ("certificate", certificate)];

/// Bytes that do not begin like TLS are not TLS. A classification does not change with more bytes,
/// except for the preference.
fn first_bytes(data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let verdict = hello::classify(data);
    let is_tls = data[0] == 22 && data.get(1).is_none_or(|version| *version == 3);
    assert_eq!(verdict != FirstBytes::NotTls, is_tls);
    for len in 1..data.len() {
        match hello::classify(&data[..len]) {
            FirstBytes::NotTls => assert_eq!(verdict, FirstBytes::NotTls),
            FirstBytes::Hello { prefers_chacha: true } => {
                assert_eq!(verdict, FirstBytes::Hello { prefers_chacha: true });
            }
            FirstBytes::Hello { .. } => {}
        }
    }
}

/// Names are text of the certificate, in lower case; bytes after the certificate change nothing.
fn certificate(data: &[u8]) {
    let Some(facts) = der::facts(data) else { return };
    assert!(facts.names.iter().all(|name| *name == name.to_ascii_lowercase()));
    assert!(facts.names.iter().map(String::len).sum::<usize>() <= 40 * data.len());
    assert_eq!(der::facts(&[data, b"more"].concat()), Some(facts));
    let owner = der::owner(data);
    assert!(owner.as_ref().is_none_or(|owner| data.windows(owner.len()).any(|part| part == owner.as_bytes())));
    assert_eq!(der::owner(&[data, b"more"].concat()), owner);
}

#[cfg(test)]
mod tests {
    #[test]
    fn properties_hold_for_all_that_was_found() {
        crate::replay::all(super::ALL);
    }
}
