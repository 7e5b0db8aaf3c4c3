//! A file service: a tree of files with leases.

#![forbid(unsafe_code)]

mod path;
mod tree;

pub use self::path::{DEPTH_MAX, NAME_LEN_MAX, PATH_LEN_MAX, PathError, RESERVED_PREFIX, TreePath};
pub use self::tree::{AttributeChange, Attributes, Entry, FileTime, Kind, NewTime, NodeId, Space};
