//! A file service: a tree of files with leases.
//!
//! [`Tree`] is the core, without any protocol: the files below one directory, which no path leaves, with [leases](Leases) for clients that
//! keep copies.
//!
//! # Source
//!
//! The leases and the colors follow the encrypted file server of libasync-mp (thesis, section 5.2; USENIX, section 4.2).

#![forbid(unsafe_code)]

mod lease;
mod login;
mod path;
mod rights;
mod tree;

pub use self::lease::{CLIENTS_MAX, Client, ClientId, LEASES_MAX, Lease, LeaseCounts, Leases, Recall};
pub use self::login::{LoginError, Logins, TOKEN_USER, Users, UsersError};
pub use self::path::{DEPTH_MAX, NAME_LEN_MAX, PATH_LEN_MAX, PathError, RESERVED_PREFIX, TreePath};
pub use self::rights::{May, Rules, RulesError};
pub use self::tree::{
    Access, AttributeChange, Attributes, Entry, FileTime, Kind, LEASE, NewTime, NodeId, Space, Tree, Upload,
};
