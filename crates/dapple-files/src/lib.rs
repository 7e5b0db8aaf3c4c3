//! A file service: a tree of files with leases, over WebDAV.
//!
//! [`Tree`] is the core, without any protocol: the files below one directory, which no path leaves, with [leases](Leases) for clients that
//! keep copies. [`Files`] serves it over WebDAV (RFC 4918, classes 1, 2 and 3) as a tower service; [`Logins`] and [`Rules`] let clients in, and say what
//! they may do.
//!
//! ```no_run
//! use dapple::net::TcpListener;
//! use dapple_files::{Files, Logins, May, Rules, Tree, Users};
//!
//! # async fn serve() -> std::io::Result<()> {
//! let tree = Tree::open("/srv/files").await?;
//! let logins = Logins::new(Some("a long random token".to_owned()), Users::default());
//! let files = Files::new(tree, logins, Rules::all(May::Write));
//! dapple::serve(TcpListener::bind("127.0.0.1:8443")?, files).body_max_bytes(None).with_signals().await
//! # }
//! ```
//!
//! # Source
//!
//! The leases and the colors follow the encrypted file server of libasync-mp (thesis, section 5.2; USENIX, section 4.2).

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod attempts;
mod audit;
mod dav;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod journal;
mod lease;
mod lock;
mod login;
#[cfg(feature = "mount")]
mod mount;
mod mounts;
mod path;
mod ranges;
mod rights;
mod room;
mod service;
mod shares;
mod tree;
mod upload_body;
mod wire;

pub use self::audit::{Audited, Outcome};
pub use self::dav::ReplyBody;
pub use self::lease::{CLIENTS_MAX, Client, ClientId, LEASES_MAX, Lease, LeaseCounts, Leases, Recall};
pub use self::login::{LoginError, Logins, TOKEN_USER, Users, UsersError};
#[cfg(feature = "mount")]
pub use self::mount::{MountError, MountOptions, Mounted, mount};
pub use self::path::{DEPTH_MAX, NAME_LEN_MAX, PATH_LEN_MAX, PathError, RESERVED_PREFIX, TreePath};
pub use self::rights::{May, Rules, RulesError};
pub use self::service::{Files, FilesCounts};
pub use self::tree::{
    Access, AttributeChange, Attributes, Entry, FileTime, Kind, LEASE, NewTime, NodeId, Offers, Page, Space, Tree,
    Upload,
};
