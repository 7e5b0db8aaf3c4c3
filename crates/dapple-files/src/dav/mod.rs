//! The tree over WebDAV.
//!
//! The methods of WebDAV are dav-server's, on a file system and locks of this crate. `GET` and `HEAD` are this crate's own: with
//! preconditions, ranges and large reads.

mod files;
mod get;
pub(crate) mod guard;
mod locks;
mod node;
mod page;
mod part;
mod properties;
mod request;

pub(crate) use self::files::{Caller, DavTree};
pub use self::get::ReplyBody;
pub(crate) use self::get::get;
pub(crate) use self::locks::Locks;
pub(crate) use self::page::{SCRIPT, STYLE};
pub(crate) use self::properties::NAME as PROPERTIES;
pub(crate) use self::request::Asked;
