//! The properties that clients of WebDAV invent, kept in an extended attribute of the file: so they move and vanish with it.

use std::ffi::OsStr;
use std::io;

use dav_server::fs::DavProp;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::path::TreePath;
use crate::tree::{Needed, Tree};

/// A property, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Property {
    name: String,
    prefix: Option<String>,
    namespace: Option<String>,
    xml: Option<Vec<u8>>,
}

/// All properties of a file.
pub(super) async fn read(tree: &Tree, path: &TreePath) -> io::Result<Vec<DavProp>> {
    Ok(stored(tree, path).await?.into_iter().map(Property::into_dav).collect())
}

/// Sets (`true`) and removes (`false`) properties: all, or none after an error.
pub(super) async fn patch(
    tree: &Tree,
    needed: &Needed,
    path: &TreePath,
    patch: Vec<(bool, DavProp)>,
) -> io::Result<()> {
    // In one step, so that two clients' properties are both kept.
    let update = move |stored: Option<Vec<u8>>| {
        let mut properties = stored.map(|bytes| decode(&bytes)).unwrap_or_default();
        for (is_set, property) in &patch {
            properties.retain(|one| one.name != property.name || one.namespace != property.namespace);
            if *is_set {
                properties.push(Property::of(property));
            }
        }
        encode(&properties)
    };
    tree.update_extended(needed, path, OsStr::new(NAME), update).await
}

async fn stored(tree: &Tree, path: &TreePath) -> io::Result<Vec<Property>> {
    match tree.extended(path, OsStr::new(NAME)).await {
        Ok(Some(bytes)) => Ok(decode(&bytes)),
        Ok(None) => Ok(Vec::new()),
        // A file system without such attributes.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The properties in an attribute, which another program may have written: without XML that is so deep that dav-server's reader, which
/// recurses, would run out of stack.
fn decode(bytes: &[u8]) -> Vec<Property> {
    let mut found: Vec<Property> = postcard::from_bytes(bytes).unwrap_or_default();
    found.retain(|one| one.xml.as_deref().is_none_or(crate::service::is_simple));
    found
}

/// The attribute's value; `None` for no property.
fn encode(properties: &[Property]) -> io::Result<Option<Vec<u8>>> {
    if properties.is_empty() {
        return Ok(None);
    }
    let value = postcard::to_stdvec(properties).map_err(io::Error::other)?;
    if value.len() > LEN_MAX { Err(io::ErrorKind::StorageFull.into()) } else { Ok(Some(value)) }
}

impl Property {
    fn of(property: &DavProp) -> Property {
        let DavProp { name, prefix, namespace, xml } = property.clone();
        Property { name, prefix, namespace, xml }
    }

    fn into_dav(self) -> DavProp {
        DavProp { name: self.name, prefix: self.prefix, namespace: self.namespace, xml: self.xml }
    }
}

/// The attribute, which mounts neither see nor change.
pub(crate) const NAME: &str = "user.dapple.dav";

/// The most bytes of all properties of a file; many file systems take less.
const LEN_MAX: usize = 60_000;

#[cfg(test)]
mod tests {
    use super::{Property, decode};

    #[test]
    fn deep_xml_and_nonsense_are_no_properties() {
        let property = |levels: usize| {
            let xml = ["<a>".repeat(levels), "</a>".repeat(levels)].concat();
            Property { name: format!("p{levels}"), prefix: None, namespace: None, xml: Some(xml.into_bytes()) }
        };
        let all = [property(1), property(64), property(65), property(9_000)];
        let stored = postcard::to_stdvec(&all.to_vec()).expect("bytes");
        let names: Vec<String> = decode(&stored).into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["p1", "p64"]);
        assert!(decode(b"\xff\xff\xff\xff\xff").is_empty() && decode(&stored[..stored.len() / 2]).is_empty());
    }
}
