//! A request as programs see it, for any version of HTTP.

use http::{Method, Version};

/// One header field: its name as it was sent, and its value without white space around it.
pub type Field<'a> = httparse::Header<'a>;

/// A request's head, borrowed from the buffer that it arrived in.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: Method,
    /// The version that the client speaks.
    pub version: Version,
    /// The form of the target.
    pub form: Form,
    /// `http` or `https`, if the target was in absolute form, or the version of HTTP names it.
    pub scheme: Option<&'a str>,
    /// Host and port: from the target in absolute or authority form, otherwise from the field
    /// `Host`. Checked to be well-formed; `None` only if HTTP/1.0 omitted it.
    pub authority: Option<&'a str>,
    /// The path, which begins with a slash; `*` in asterisk form, empty in authority form.
    pub path: &'a str,
    /// The text after the first question mark of the target.
    pub query: Option<&'a str>,
    /// The header fields, in their order.
    pub fields: Fields<'a>,
}

impl Request<'_> {
    /// Whether the client accepts trailers: it speaks HTTP/1.1 and sends `TE: trailers` (RFC 9110,
    /// section 6.5.1).
    pub fn takes_trailers(&self) -> bool {
        let mut words = self.fields.all("te").flat_map(|value| value.split(|byte| *byte == b','));
        self.version == Version::HTTP_11 && words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    }
}

/// The form of a request's target (RFC 9112, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `/path?query`, what clients send to servers.
    Origin,
    /// `http://host/path`, what clients send to proxies.
    Absolute,
    /// `host:port`, for `CONNECT` alone.
    Authority,
    /// `*`, for `OPTIONS` alone.
    Asterisk,
}

/// Header fields in their order. A lookup goes through all of them: they are few, so a map is not
/// worth its cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fields<'a>(&'a [Field<'a>]);

impl<'a> Fields<'a> {
    /// Makes fields of a list.
    pub fn new(fields: &'a [Field<'a>]) -> Fields<'a> {
        Fields(fields)
    }

    /// The value of the first field of this name, in any case.
    pub fn first(&self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// The values of all fields of this name, in their order.
    pub fn all<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let fields = self.0;
        fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    }

    /// All fields, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a Field<'a>> + use<'a> {
        self.0.iter()
    }

    /// The number of fields.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Field, Fields};

    #[test]
    fn names_are_found_in_any_case() {
        let list = [("Host", "a"), ("accept", "x"), ("Accept", "y")]
            .map(|(name, value)| Field { name, value: value.as_bytes() });
        let fields = Fields::new(&list);
        assert_eq!(fields.first("host"), Some(&b"a"[..]));
        assert_eq!(fields.all("ACCEPT").collect::<Vec<_>>(), [b"x", b"y"]);
        assert_eq!(fields.first("range"), None);
        assert_eq!((fields.len(), fields.is_empty()), (3, false));
    }
}
