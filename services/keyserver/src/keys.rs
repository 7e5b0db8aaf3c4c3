//! OpenPGP keys: reading, checking, merging and describing them. Parsing and signatures are the library's.
//!
//! The server keeps what the owner of a key has signed, and nothing else. So no other person can add names, photos or
//! signatures to a key, or make it too large to be fetched.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};

use pgp::armor::{BlockType, Dearmor, DearmorOptions};
use pgp::composed::{ArmorOptions, Deserializable, SignedKeyDetails, SignedPublicKey, SignedPublicSubKey};
use pgp::packet::{
    Packet, PacketHeader, PacketParser, PubKeyInner, PublicKey, PublicSubkey, Signature, SignatureType,
    SignatureVersion, Subpacket, SubpacketData, UserId,
};
use pgp::ser::Serialize;
use pgp::types::{KeyDetails, KeyVersion, PublicParams, SignedUser, Tag};

/// The reason why a text is not taken as keys.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("this is no armored public key: send the output of `gpg --armor --export`; {0}")]
    Syntax(String),
    #[error("this is a secret key, which must stay with its owner; nothing was stored")]
    Secret,
    #[error("there are too many {what}: {max} are the most")]
    TooMany { what: &'static str, max: usize },
    #[error("the text holds no public key")]
    NoKey,
    #[error("key {0} is of a version other than 4 and 6")]
    Version(String),
    #[error("key {0} has no user ID that the key itself has signed with a supported algorithm")]
    NoUser(String),
    #[error("key {0} cannot be written as it was read")]
    Unstable(String),
    #[error("key {fingerprint} would have {len} bytes, and {LEN_MAX} are the most")]
    TooLong { fingerprint: String, len: usize },
}

/// A key with nothing in it that its owner has not signed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key(SignedPublicKey);

/// The facts about a key that an index lists.
#[derive(Debug, PartialEq)]
pub(crate) struct Facts {
    pub(crate) fingerprint: String,
    /// The algorithm's number in OpenPGP.
    pub(crate) algorithm: u8,
    /// The length of the key, in bits, where the algorithm leaves a choice.
    pub(crate) bits: Option<usize>,
    pub(crate) times: Times,
    pub(crate) users: Vec<(String, Times)>,
}

/// When something began and ends, in seconds since 1970, and whether its owner has revoked it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Times {
    pub(crate) created: u32,
    pub(crate) expires: Option<u32>,
    pub(crate) is_revoked: bool,
}

/// Reads armored keys and checks their signatures: some milliseconds of work, so not for a worker.
pub(crate) fn read(text: &str) -> Result<Vec<Key>, Unusable> {
    let syntax = |error: pgp::errors::Error| Unusable::Syntax(error.to_string());
    let mut armor = Dearmor::with_options(text.as_bytes(), DearmorOptions::new().set_limit(text.len()));
    armor.read_header().map_err(syntax)?;
    if matches!(armor.typ, Some(BlockType::PrivateKey)) {
        return Err(Unusable::Secret);
    }
    read_packets(BufReader::new(armor))
}

fn read_packets(input: impl BufRead) -> Result<Vec<Key>, Unusable> {
    // A packet that the library cannot read is left out. Whatever it belonged to fails the check of its signature.
    let parsed = PacketParser::new(input).take(PACKETS_MAX + 1);
    let packets: Vec<Packet> = parsed.filter_map(Result::ok).collect();
    if packets.iter().any(|packet| matches!(packet, Packet::SecretKey(_) | Packet::SecretSubkey(_))) {
        return Err(Unusable::Secret);
    }
    if packets.len() > PACKETS_MAX {
        return Err(Unusable::TooMany { what: "packets", max: PACKETS_MAX });
    }
    let keys = SignedPublicKey::from_packets(packets.into_iter().map(Ok).peekable());
    let keys = keys.take(KEYS_MAX + 1).collect::<Result<Vec<_>, _>>();
    let keys = keys.map_err(|error| Unusable::Syntax(error.to_string()))?;
    match keys.len() {
        0 => Err(Unusable::NoKey),
        len if len > KEYS_MAX => Err(Unusable::TooMany { what: "keys", max: KEYS_MAX }),
        _ => keys.into_iter().map(Key::checked).collect(),
    }
}

impl Key {
    /// The part of a key that its owner has signed, written anew: a packet may have many forms, of which some swallow the
    /// packets behind it.
    fn checked(key: SignedPublicKey) -> Result<Key, Unusable> {
        let fingerprint = format!("{:X}", key.primary_key.fingerprint());
        if !matches!(key.primary_key.version(), KeyVersion::V4 | KeyVersion::V6) {
            return Err(Unusable::Version(fingerprint));
        }
        let syntax = |error: pgp::errors::Error| Unusable::Syntax(error.to_string());
        let primary = inner(&key.primary_key).and_then(PublicKey::from_inner).map_err(syntax)?;
        let own = |signatures: Vec<Signature>, is_valid: &dyn Fn(&Signature) -> bool| -> Vec<Signature> {
            signatures.into_iter().filter_map(|found| own(&found, &primary)).filter(|found| is_valid(found)).collect()
        };
        let is_of_key = |found: &Signature| found.verify_key(&primary).is_ok();
        let mut details = SignedKeyDetails::new(
            own(key.details.revocation_signatures, &is_of_key),
            own(key.details.direct_signatures, &is_of_key),
            vec![],
            vec![],
        );
        for user in key.details.users {
            let bytes = user.id.id();
            let header = PacketHeader::new_fixed(Tag::UserId, bytes.len() as u32);
            let id = UserId::try_from_reader(header, bytes).map_err(syntax)?;
            let certifies = |found: &Signature| found.verify_certification(&primary, Tag::UserId, &id).is_ok();
            let signatures = own(user.signatures, &certifies);
            if bytes.len() <= USER_LEN_MAX && !signatures.is_empty() {
                details.users.push(SignedUser { id, signatures });
            }
        }
        if details.users.is_empty() {
            return Err(Unusable::NoUser(fingerprint));
        }
        let mut public_subkeys = Vec::new();
        for subkey in key.public_subkeys {
            let key = inner(&subkey.key).and_then(PublicSubkey::from_inner).map_err(syntax)?;
            let binds = |found: &Signature| {
                let alone = SignedPublicSubKey { key: key.clone(), signatures: vec![found.clone()] };
                alone.verify_bindings(&primary).is_ok()
            };
            let signatures = own(subkey.signatures, &binds);
            if !signatures.is_empty() {
                public_subkeys.push(SignedPublicSubKey { key, signatures });
            }
        }
        // Merged into one without anything, as a text may repeat its parts.
        let nothing = SignedKeyDetails::new(vec![], vec![], vec![], vec![]);
        let empty = SignedPublicKey::new(primary.clone(), nothing, vec![]);
        Key(empty).merged(Key(SignedPublicKey { primary_key: primary, details, public_subkeys }))
    }

    /// The key with all that another copy of it has, too.
    pub(crate) fn merged(mut self, other: Key) -> Result<Key, Unusable> {
        let (mine, more) = (&mut self.0, other.0);
        add_signatures(&mut mine.details.revocation_signatures, more.details.revocation_signatures);
        add_signatures(&mut mine.details.direct_signatures, more.details.direct_signatures);
        let users = &mut mine.details.users;
        for SignedUser { id, signatures } in more.details.users {
            let known = users.iter().position(|known| known.id.id() == id.id()).unwrap_or(users.len());
            if known == users.len() {
                users.push(SignedUser { id, signatures: Vec::new() });
            }
            add_signatures(&mut users[known].signatures, signatures);
        }
        let subkeys = &mut mine.public_subkeys;
        for SignedPublicSubKey { key, signatures } in more.public_subkeys {
            let is_same = |known: &SignedPublicSubKey| known.key.fingerprint() == key.fingerprint();
            let known = subkeys.iter().position(is_same).unwrap_or(subkeys.len());
            if known == subkeys.len() {
                subkeys.push(SignedPublicSubKey { key, signatures: Vec::new() });
            }
            add_signatures(&mut subkeys[known].signatures, signatures);
        }
        self.within_limits()
    }

    /// The key as it will be read from the store.
    fn within_limits(self) -> Result<Key, Unusable> {
        let bytes = self.bytes();
        if bytes.len() > LEN_MAX {
            return Err(Unusable::TooLong { fingerprint: self.fingerprint(), len: bytes.len() });
        }
        let read = Key::from_bytes(&bytes).ok().filter(|read| read.bytes() == bytes);
        read.ok_or_else(|| Unusable::Unstable(self.fingerprint()))
    }

    /// The key that [`bytes`](Self::bytes) wrote.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Key, pgp::errors::Error> {
        SignedPublicKey::from_bytes(bytes).map(Key)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.to_bytes().expect("a vector takes all bytes")
    }

    pub(crate) fn armored(&self) -> String {
        self.0.to_armored_string(ArmorOptions::default()).expect("armor is text")
    }

    pub(crate) fn fingerprint(&self) -> String {
        format!("{:X}", self.0.primary_key.fingerprint())
    }

    /// The terms by which the key is found: fingerprints and key IDs behind `0x`, and the words of its user IDs.
    pub(crate) fn terms(&self) -> BTreeSet<String> {
        let subkeys = self.0.public_subkeys.iter().flat_map(|subkey| ids_of(&subkey.key));
        let mut terms: BTreeSet<String> = ids_of(&self.0.primary_key).into_iter().chain(subkeys).collect();
        let users = self.0.details.users.iter().map(name_of);
        terms.extend(users.flat_map(|user| words(&user).collect::<Vec<_>>()).take(WORDS_MAX));
        terms
    }

    pub(crate) fn facts(&self) -> Facts {
        let key = &self.0.primary_key;
        let created = key.created_at().as_secs();
        let details = &self.0.details;
        let all = details.users.iter().flat_map(|user| &user.signatures).chain(&details.direct_signatures);
        let newest = all.filter(|found| is_positive(found)).max_by_key(|found| created_of(found));
        let lifetime = newest.and_then(Signature::key_expiration_time).filter(|time| time.as_secs() > 0);
        let expires = lifetime.map(|time| created.saturating_add(time.as_secs()));
        let is_revoked = !details.revocation_signatures.is_empty();
        Facts {
            fingerprint: self.fingerprint(),
            algorithm: u8::from(key.algorithm()),
            bits: match key.public_params() {
                // The modulus, without its length and the exponent.
                PublicParams::RSA(params) => Some((params.write_len() - 2 - 2 - 3) * 8),
                _ => None,
            },
            times: Times { created, expires, is_revoked },
            users: details.users.iter().map(|user| (name_of(user), times_of(user))).collect(),
        }
    }
}

/// The words of a text, in small letters; an address is a word, and its parts are, too.
pub(crate) fn words(text: &str) -> impl Iterator<Item = String> {
    let is_between = |letter: char| letter.is_whitespace() || "<>()\",;".contains(letter);
    let addresses = text.split(is_between).filter(|word| word.contains('@'));
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    addresses.chain(words).map(|word| word.to_lowercase().chars().take(WORD_LEN_MAX).collect())
}

/// The fingerprint, the key ID and its short form.
fn ids_of(key: &impl KeyDetails) -> [String; 3] {
    let id = key.legacy_key_id().to_string().to_uppercase();
    [format!("0x{:X}", key.fingerprint()), format!("0x{id}"), format!("0x{}", &id[id.len() - SHORT_ID_LEN..])]
}

fn name_of(user: &SignedUser) -> String {
    String::from_utf8_lossy(user.id.id()).into_owned()
}

fn times_of(user: &SignedUser) -> Times {
    let latest = |is_wanted: fn(&&Signature) -> bool| user.signatures.iter().filter(is_wanted).map(created_of).max();
    let certified = latest(|found| is_positive(found));
    let revoked = latest(|found| !is_positive(found));
    Times { created: certified.unwrap_or(0), expires: None, is_revoked: revoked.is_some() && revoked >= certified }
}

fn is_positive(signature: &Signature) -> bool {
    signature.typ() != Some(SignatureType::CertRevocation)
}

fn created_of(signature: &Signature) -> u32 {
    signature.created().map_or(0, |created| created.as_secs())
}

/// A key's fields, for a packet of its own.
fn inner(key: &impl KeyDetails) -> Result<PubKeyInner, pgp::errors::Error> {
    PubKeyInner::new(key.version(), key.algorithm(), key.created_at(), None, key.public_params().clone())
}

/// A signature, if it names the key as its maker. Any person can change the part that a signature does not cover, so that
/// is written anew.
fn own(signature: &Signature, key: &PublicKey) -> Option<Signature> {
    let names_it = signature.issuer_fingerprint().contains(&&key.fingerprint())
        || signature.issuer_key_id().contains(&&key.legacy_key_id());
    let mut config = signature.config().filter(|_| names_it)?.clone();
    let uncovered = &mut config.unhashed_subpackets;
    // A subkey for signatures proves so that it belongs to the key.
    uncovered.retain(|part| signature.key_flags().sign() && matches!(part.data, SubpacketData::EmbeddedSignature(_)));
    uncovered.truncate(1);
    match signature.version() {
        SignatureVersion::V4 => {
            uncovered.insert(0, Subpacket::regular(SubpacketData::IssuerKeyId(key.legacy_key_id())).ok()?)
        }
        SignatureVersion::V6 => {}
        _ => return None,
    }
    let own = Signature::from_config(config, signature.signed_hash_value()?, signature.signature()?.clone()).ok()?;
    (own.write_len() <= SIGNATURE_LEN_MAX).then_some(own)
}

/// Adds signatures that are not there yet. Of two copies it keeps the shorter one, as the other may have something
/// that the owner has not signed.
fn add_signatures(known: &mut Vec<Signature>, more: Vec<Signature>) {
    for signature in more {
        match known.iter_mut().find(|one| one.signature() == signature.signature()) {
            Some(one) if one.write_len() > signature.write_len() => *one = signature,
            Some(_) => {}
            None => known.push(signature),
        }
    }
}

const PACKETS_MAX: usize = 1000;
const KEYS_MAX: usize = 20;
/// The longest key, in bytes.
const LEN_MAX: usize = 256 << 10;
const SIGNATURE_LEN_MAX: usize = 4 << 10;
const SHORT_ID_LEN: usize = 8;
const USER_LEN_MAX: usize = 1000;
const WORD_LEN_MAX: usize = 64;
/// The words by which one key is found.
const WORDS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use pgp::packet::PacketTrait;
    use proptest::prelude::*;

    use super::*;

    /// A key with two user IDs and two subkeys, one of them for signatures, made by gpg 2.2.
    const ANN: &str = include_str!("../tests/ann.asc");

    fn ann() -> Key {
        read(ANN).unwrap().remove(0)
    }

    #[test]
    fn a_key_is_kept_as_gpg_wrote_it() {
        let key = ann();
        let facts = key.facts();
        let users: Vec<&str> = facts.users.iter().map(|(user, _)| user.as_str()).collect();
        assert_eq!(users, ["Ann <new@example.org>", "Ann <ann@example.org>"]);
        assert_eq!((facts.algorithm, facts.bits, facts.times.expires), (22, None, None));
        assert_eq!((key.0.public_subkeys.len(), key.fingerprint().len()), (2, 40));
        let terms = key.terms();
        for term in [format!("0x{}", key.fingerprint()), "ann@example.org".to_owned(), "example".to_owned()] {
            assert!(terms.contains(&term), "{term}: {terms:?}");
        }
        assert_eq!(terms.iter().filter(|term| term.starts_with("0x")).count(), 9);
        assert_eq!(Key::from_bytes(&key.bytes()).unwrap(), key);
        assert_eq!(read(&key.armored()).unwrap().remove(0), key);
        assert_eq!(key.clone().merged(key.clone()).unwrap(), key);
    }

    #[test]
    fn copies_of_signatures_with_other_unsigned_parts_add_nothing() {
        let key = ann();
        let mut copy = key.0.clone();
        let junk = SubpacketData::PolicyURI("http://127.0.0.1/".repeat(20));
        let issuer = SubpacketData::IssuerFingerprint(copy.primary_key.fingerprint());
        for user in &mut copy.details.users {
            let mut again = user.signatures[0].clone();
            for data in [&junk, &issuer, &issuer] {
                again.unhashed_subpacket_push(Subpacket::regular(data.clone()).unwrap()).unwrap();
            }
            user.signatures.insert(0, again);
        }
        let read = |key: &SignedPublicKey| read_packets(&key.to_bytes().unwrap()[..]).unwrap().remove(0);
        assert_eq!(read(&copy), key);
        assert_eq!(key.clone().merged(read(&copy)).unwrap(), key);
        // The copy may come first.
        copy.details.users.iter_mut().for_each(|user| user.signatures.truncate(1));
        assert_eq!(read(&copy), key);
    }

    #[test]
    fn packets_without_a_length_swallow_nothing() {
        let key = ann();
        let subkeys = key.0.public_subkeys.len();
        let mut bytes = key.bytes();
        let mut last = key.0.public_subkeys[subkeys - 1].signatures[0].to_bytes().unwrap();
        let at = bytes.len() - last.len();
        // The old form of header, in which a packet may go on to the end of the text.
        let header = 0x80 | 2 << 2 | 3;
        last.insert(0, header);
        bytes.truncate(bytes.len() - key.0.public_subkeys[subkeys - 1].signatures[0].write_len_with_header());
        assert!(bytes.len() < at);
        bytes.extend(&last);
        assert_eq!(read_packets(&bytes[..]).unwrap(), [key]);
    }

    #[test]
    fn a_key_stays_within_its_limit() {
        let mut key = ann();
        let copy = key.0.details.users[0].clone();
        key.0.details.users = vec![copy; LEN_MAX / 100];
        assert!(matches!(key.within_limits(), Err(Unusable::TooLong { .. })));
    }

    proptest! {
        // Each case checks eight signatures, which is slow without optimization.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn changed_bytes_add_nothing_and_end_no_server(at in 0..1000usize, byte: u8, cut in 0..1000usize) {
            let key = ann();
            let mut bytes = key.bytes();
            let len = bytes.len();
            bytes[at % len] = byte;
            bytes.drain(..cut.saturating_sub(900).min(len));
            for found in read_packets(&bytes[..]).unwrap_or_default() {
                prop_assert_eq!(key.clone().merged(found).unwrap(), key.clone());
            }
        }
    }
}
