//! The tree of files below one directory, without any protocol.

mod attributes;
mod calls;

pub use self::attributes::{AttributeChange, Attributes, Entry, FileTime, Kind, NewTime, NodeId, Space};
