//! The head of a request in HTTP/1.0 and 1.1: its end and its meaning.

mod fields;
mod parse;
mod scan;
mod target;
#[cfg(test)]
mod tests;

pub use self::fields::Framing;
pub(crate) use self::parse::is_token;
pub use self::parse::{Head, parse};
pub use self::scan::{Found, HeadScan};

/// The limits of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// The limit in bytes, from the request line to the empty line.
    pub len_max: usize,
    /// The limit of a target in bytes.
    pub target_len_max: usize,
    /// The limit of fields.
    pub fields_max: usize,
}

impl Default for HeadLimits {
    /// 16 KiB, a target of 8 KiB, 100 fields.
    fn default() -> HeadLimits {
        HeadLimits { len_max: 16 << 10, target_len_max: 8 << 10, fields_max: 100 }
    }
}
