//! What has to hold for any first bytes and certificates. A fuzz target looks for bytes for which it does not; those that it found worth keeping are
//! played again here.

#[allow(dead_code, unreachable_pub, reason = "of these files, their pure part is wanted")]
#[path = "../../src/certificates/der.rs"]
mod der;
#[allow(dead_code, unreachable_pub, reason = "of these files, their pure part is wanted")]
#[path = "../../src/hello.rs"]
mod hello;

use self::hello::FirstBytes;

/// A property: panics where it does not hold.
pub(crate) type Property = fn(&[u8]);

/// All properties, by the name of their target.
pub(crate) const ALL: &[(&str, Property)] = &[("hello", first_bytes), ("certificate", certificate)];

/// What does not begin like TLS is none; what was judged once is not judged otherwise when more comes, but for what is preferred.
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

/// Names are text of the certificate, in lower case; what follows the certificate changes nothing.
fn certificate(data: &[u8]) {
    let Some(facts) = der::facts(data) else { return };
    assert!(facts.names.iter().all(|name| *name == name.to_ascii_lowercase()));
    assert!(facts.names.iter().map(String::len).sum::<usize>() <= 40 * data.len());
    assert_eq!(der::facts(&[data, b"more"].concat()), Some(facts));
}

#[cfg(test)]
mod tests {
    #[test]
    fn properties_hold_for_all_that_was_found() {
        crate::replay::all(super::ALL);
    }
}
