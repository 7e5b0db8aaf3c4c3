//! The keys of a request.

use bytes::Bytes;

use crate::wire::Base64;

/// One key, or a range of keys in their order as bytes. Texts and bytes convert into one key.
///
/// ```
/// use dapple_etcd::Keys;
///
/// let one: Keys = "users/ann".into();
/// let users = Keys::prefix("users/");
/// assert!(users.contains(b"users/ann") && one.contains(b"users/ann"));
/// assert!(!users.contains(b"users0"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    pub(crate) key: Base64,
    pub(crate) range_end: Option<Base64>,
}

impl Keys {
    /// One key. etcd refuses an empty one.
    pub fn one(key: impl Into<Bytes>) -> Keys {
        Keys { key: Base64(key.into()), range_end: None }
    }

    /// All keys that begin so; with an empty prefix, all keys.
    pub fn prefix(prefix: impl Into<Bytes>) -> Keys {
        let prefix = prefix.into();
        let end = after_prefix(&prefix);
        if prefix.is_empty() { Keys::all() } else { Keys::new(prefix, end) }
    }

    /// The keys from `from` on, and before `to`.
    pub fn range(from: impl Into<Bytes>, to: impl Into<Bytes>) -> Keys {
        Keys::new(not_empty(from.into()), to.into())
    }

    /// This key, and all behind it.
    pub fn from(key: impl Into<Bytes>) -> Keys {
        Keys::new(not_empty(key.into()), NULL)
    }

    /// All keys.
    pub fn all() -> Keys {
        Keys::new(NULL, NULL)
    }

    /// Whether this key is one of them.
    pub fn contains(&self, key: &[u8]) -> bool {
        let from = &self.key.0;
        match &self.range_end {
            None => key == &from[..],
            Some(end) if end.0 == NULL => key >= &from[..],
            Some(end) => key >= &from[..] && key < &end.0[..],
        }
    }

    fn new(key: Bytes, end: Bytes) -> Keys {
        Keys { key: Base64(key), range_end: Some(Base64(end)) }
    }
}

/// etcd has no empty key; the first one possible is a zero byte.
fn not_empty(key: Bytes) -> Bytes {
    if key.is_empty() { NULL } else { key }
}

/// The first key after all with this prefix; `\0` if there is none.
fn after_prefix(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end.into();
        }
    }
    NULL
}

impl From<&str> for Keys {
    fn from(key: &str) -> Keys {
        Keys::one(Bytes::copy_from_slice(key.as_bytes()))
    }
}

impl From<String> for Keys {
    fn from(key: String) -> Keys {
        Keys::one(key)
    }
}

impl From<&[u8]> for Keys {
    fn from(key: &[u8]) -> Keys {
        Keys::one(Bytes::copy_from_slice(key))
    }
}

impl From<Vec<u8>> for Keys {
    fn from(key: Vec<u8>) -> Keys {
        Keys::one(key)
    }
}

impl From<Bytes> for Keys {
    fn from(key: Bytes) -> Keys {
        Keys::one(key)
    }
}

/// As a key: the first. As the end of a range: no end.
const NULL: Bytes = Bytes::from_static(b"\0");

#[cfg(test)]
mod tests {
    use super::Keys;

    #[test]
    fn a_prefix_ends_before_the_next_key_that_has_it_not() {
        for (prefix, inside, outside) in [
            (&b"a/"[..], &b"a/\xff\xff"[..], &b"a0"[..]),
            (b"a\xff", b"a\xff\xff", b"b"),
            (b"\xff", b"\xff\xff\xff", b"\xfe"),
            (b"a", b"a", b"A"),
        ] {
            let keys = Keys::prefix(prefix.to_vec());
            assert!(keys.contains(inside) && !keys.contains(outside), "{prefix:?}");
        }
        assert!(Keys::prefix("").contains(b"\0") && Keys::all().contains(b"\xff"));
        assert!(Keys::range("", "b").contains(b"a") && !Keys::range("a", "b").contains(b"b"));
        assert!(Keys::from("b").contains(b"c") && !Keys::from("b").contains(b"a"));
    }
}
