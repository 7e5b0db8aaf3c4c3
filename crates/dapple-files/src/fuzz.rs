//! Properties of what reads the bytes of clients, servers and administrators. Fuzz targets search for bytes that break them; a test replays their
//! corpus.

use std::path::Path;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::audit::Outcome;
use crate::dav::guard;
use crate::login::{Offered, Users, check_name};
use crate::path::TreePath;
use crate::rights::{May, Rules};
use crate::service::{XML_DEPTH_MAX, is_simple, path_of};
use crate::wire::{Answer, Call, decode, encode};

/// A property: panics if it does not hold.
type Property = fn(&[u8]);

/// All properties, by the name of their target.
pub const ALL: &[(&str, Property)] = &[
    ("mount_call", message::<Call>),
    ("mount_answer", message::<Answer>),
    ("file_rules", rules),
    ("file_users", users),
    ("file_login", login),
    ("dav_xml", xml),
    ("dav_fields", fields),
];

/// A message that is read is written again as one that means the same, and the data after it stay.
fn message<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Some((message, data)) = decode::<T>(Bytes::copy_from_slice(bytes)) else { return };
    assert!(bytes.ends_with(&data));
    let written = encode(&message, &data).expect("what was read can be written");
    let (again, data_again) = decode::<T>(written.clone()).expect("what was written can be read");
    assert_eq!(data_again, data);
    assert_eq!(encode(&again, &data_again).expect("it can be written"), written);
}

/// The right to all below a path is the least of the rights there, and with rules that are read-only no user may write.
fn rules(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(rules) = Rules::parse(text, Path::new("rules")) else { return };
    let read_only = rules.clone().read_only();
    let paths: Vec<TreePath> = rules.paths().take(16).cloned().chain([TreePath::root()]).collect();
    for user in ["ann", "", "token"] {
        for path in &paths {
            assert!(read_only.may(user, path) <= May::Read.min(rules.may(user, path)));
            for below in paths.iter().filter(|below| below.is_in(path)) {
                assert!(rules.may_all(user, path) <= rules.may(user, below));
            }
        }
    }
}

/// Each user of a file has a line, a good name, and a hash.
fn users(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(users) = Users::parse(text, Path::new("users")) else { return };
    assert!(users.len() <= text.lines().count());
    for (name, hash) in users.all() {
        assert!(check_name(name).is_ok() && text.contains(&format!("{name}:{hash}")));
    }
}

/// The login that a field offers counts for a name that a user can have, or for none.
fn login(bytes: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
    let Ok(value) = value.to_str() else { return };
    let offered = Offered::of(value);
    assert!(offered.counted_name().is_none_or(|name| check_name(&name).is_ok()));
    assert!(offered.secret().len() <= value.len());
}

/// XML that is let through is no deeper than the limit, so that the reader of dav-server, which recurses, ends. The audit finds an outcome in any
/// answer.
fn xml(bytes: &[u8]) {
    if !is_simple(bytes) {
        return;
    }
    if let Ok(element) = xmltree::Element::parse(bytes) {
        assert!(depth(&element) <= XML_DEPTH_MAX);
    }
    assert!(!matches!(Outcome::of_properties(bytes), Outcome::Left));
}

fn depth(element: &xmltree::Element) -> usize {
    1 + element.children.iter().filter_map(|child| child.as_element()).map(depth).max().unwrap_or(0)
}

/// The path and the `Destination` of a request name files below the tree, or none. The bytes are lines: a target, and fields.
fn fields(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let target = lines.next().and_then(|line| std::str::from_utf8(line).ok()).and_then(|text| text.parse::<Uri>().ok());
    let Some(target) = target else { return };
    let mut fields = HeaderMap::new();
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(&line[colon + 1..]));
        if let (Ok(name), Ok(value)) = (name, value) {
            fields.append(name, value);
        }
    }
    let found = [path_of(&target).ok(), guard::destination(&target, &fields).ok()];
    for path in found.into_iter().flatten() {
        assert!(path.is_in(&TreePath::root()));
        assert_eq!(TreePath::parse(path.as_bytes()).as_ref(), Ok(&path));
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn properties_hold_for_all_that_was_found() {
    replay::all(ALL);
}
